//! Commands that only read, and run nothing else.
//!
//! What can run another program or write a file in some way that an option or a file can bring about is not here, even if
//! it hardly ever does: `git` runs what its configuration names, `awk` and `sed` have commands for it, `tar` and `xargs`
//! have options.

use super::script::{Command, Word};

/// Whatever their arguments.
const ALWAYS: &[&str] = &[
    "arch",
    "basename",
    "cat",
    "cksum",
    "cmp",
    "comm",
    "cut",
    "df",
    "diff",
    "dirname",
    "du",
    "echo",
    "egrep",
    "expr",
    "false",
    "fgrep",
    "grep",
    "head",
    "ls",
    "md5sum",
    "nl",
    "nproc",
    "od",
    "paste",
    "pwd",
    "readlink",
    "realpath",
    "rev",
    "seq",
    "sha1sum",
    "sha256sum",
    "sha512sum",
    "sleep",
    "stat",
    "tac",
    "tail",
    "tr",
    "true",
    "type",
    "uname",
    "wc",
    "which",
];

/// Parts of `find` that run something or write a file.
const FIND: &[&str] =
    &["-delete", "-exec", "-execdir", "-files0-from", "-fls", "-fprint", "-fprint0", "-fprintf", "-ok", "-okdir"];

/// Options of `sort` that don't name a file or a program.
const SORT: &[&str] = &["-b", "-f", "-h", "-hr", "-n", "-nr", "-r", "-rh", "-rn", "-u", "-V"];

/// Whether a command only reads.
pub(super) fn only_reads(command: &Command) -> bool {
    let Some((name, arguments)) = command.0.split_first() else { return false };
    // Called by its bare name: what lies in a folder can be anything.
    let Some(name) = name.known().filter(|name| !name.contains('/')) else { return false };
    if ALWAYS.contains(&name) {
        return true;
    }
    // A file name that a pattern finds may be an option.
    let Some(arguments) = arguments.iter().map(argument).collect::<Option<Vec<&str>>>() else { return false };
    let options = || arguments.iter().filter(|it| it.starts_with('-'));
    match name {
        "cd" => arguments.len() <= 1,
        "date" => arguments.iter().all(|it| it.starts_with('+') || *it == "-u"),
        // A name of a variable is computed: in `a[$(id)]` runs `id`.
        "[" | "test" => !arguments.iter().any(|it| ["-v", "-R"].contains(it)),
        "find" => !arguments.iter().any(|it| FIND.contains(it)),
        "printf" => arguments.first().is_some_and(|format| !format.starts_with('-') && !sets_a_variable(format)),
        "rg" => !options().any(|it| runs_with_ripgrep(it)),
        "sed" => matches!(arguments.as_slice(), ["-n", lines, ..] if prints_lines(lines)) && options().count() == 1,
        "sort" => options().all(|it| SORT.contains(it)),
        _ => false,
    }
}

fn argument(word: &Word) -> Option<&str> {
    match word {
        Word::Known(text) => Some(text),
        Word::Pattern(text) if !text.starts_with(['*', '?', '[', '-']) => Some(text),
        Word::Pattern(_) | Word::Unknown => None,
    }
}

/// `%n` of bash's `printf` gives a variable a value, and another `PATH` makes another program of `ls`.
fn sets_a_variable(format: &str) -> bool {
    let conversions = format.split('%').skip(1);
    let letter = |conversion: &str| {
        conversion.trim_start_matches(|c: char| !c.is_ascii_alphabetic() || "hjlLtzq".contains(c)).chars().next()
    };
    conversions.map(letter).any(|letter| letter == Some('n'))
}

/// `--pre` and its kin run programs, and `-z` runs the decompressors.
fn runs_with_ripgrep(option: &str) -> bool {
    match option.strip_prefix("--") {
        Some(long) => ["pre", "hostname-bin", "search-zip"].iter().any(|it| long.starts_with(it)),
        None => option.contains('z'),
    }
}

/// Whether a script for `sed` only prints lines, as in `10,20p`.
fn prints_lines(script: &str) -> bool {
    let Some(lines) = script.strip_suffix('p') else { return false };
    let is_line = |line: &str| line == "$" || (!line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit()));
    lines.split(',').count() <= 2 && lines.split(',').all(is_line)
}

#[cfg(test)]
mod tests {
    use super::super::script::Script;
    use super::*;

    fn reads(text: &str) -> bool {
        Script::read(text).is_some_and(|script| script.is_plain && script.commands.iter().all(only_reads))
    }

    #[test]
    fn what_looks_at_files_only_reads() {
        for text in [
            "ls -la src",
            "cat a b | head -5 | wc -l",
            "cd src && grep -rn 'fn main' .",
            "find . -name '*.rs' -type f",
            "rg -n --glob '*.rs' main",
            "sed -n 10,20p src/main.rs",
            "sort -u a",
            "date +%s",
            "ls 2>/dev/null || true",
            "head -3 *.rs",
            "sed -n '5,$p' x",
            "printf '%s: %5.2f\\n' name 1",
            "test -f x && ls",
            "time ls",
        ] {
            assert!(reads(text), "{text}");
        }
    }

    #[test]
    fn what_can_run_something_or_write_a_file_does_more_than_read() {
        for text in [
            "find . -exec rm {} +",
            "find . -delete",
            "find . -fprintf x y",
            "sed 1e x",
            "sed -i s/a/b/ x",
            "sed -n w x",
            "sed -n '1p;1e id' x",
            "sed -n -e 1p -f x",
            "awk 'BEGIN{system(\"id\")}'",
            "ls | xargs rm",
            "tar cf x --checkpoint-action=exec=id .",
            "sort -o x y",
            "sort --compress-program=id x",
            "env ls",
            "git status",
            "git -c core.fsmonitor=id status",
            "git diff",
            "rg --pre id x",
            "rg --pre=id x",
            "rg -z x",
            "rg -nz x",
            "./ls",
            "/tmp/ls",
            "bash -c ls",
            "python -c 1",
            "echo x > y",
            "date -s x",
            "uniq a b",
            "tree -o x",
            "less x",
            "ls; id; rm x",
            "cat x | sh",
            "sort *",
            "find *",
            "find . -d*",
            "rg --pr* x",
            "printf -v PATH .",
            "printf %n PATH",
            "printf '%s%-3ln' x PATH",
            "printf *",
            "test -v 'a[$(id)]'",
            "\\[ -v 'a[$(id)]' \\]",
            "\\time -ox ls",
            "time -o x ls",
            "$x",
            "lsof",
            "nice ls",
            "sudo ls",
            "export PATH=x",
        ] {
            assert!(!reads(text), "{text}");
        }
    }
}
