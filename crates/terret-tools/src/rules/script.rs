//! A command line as bash would read it.

use tree_sitter::{Node, ParseOptions, ParseState, Parser, Tree};

/// Longer ones are not read: nobody would look them over, either.
const LONGEST: usize = 64 * 1024;

/// Each is about a hundred of the parser's own. A line of 15,000 bytes that is nothing but short commands takes 240.
const MOST_STEPS: u32 = 500;

/// How deep commands in strings (`bash -c "…"`) are followed.
const DEEPEST: u32 = 3;

/// What stands in a command line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Script {
    /// Every command in it, also those inside of loops, functions, substitutions and strings.
    pub(super) commands: Vec<Command>,
    /// Whether it is nothing but these commands, joined by `&&`, `||`, `;`, `|` or line ends, with words that are known
    /// beforehand, and writes no file. Only then is it known what it does.
    pub(super) is_plain: bool,
}

/// A command: its name and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Command(pub(super) Vec<Word>);

/// A word of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// Just this.
    Known(String),
    /// A pattern that bash makes file names of, as it is written.
    Pattern(String),
    /// Something that is known only when it runs.
    Unknown,
}

impl Word {
    pub(super) fn known(&self) -> Option<&str> {
        if let Word::Known(text) = self { Some(text) } else { None }
    }
}

impl Script {
    /// Reads a command line; nothing if it is too long, or no shell would take it.
    pub(super) fn read(text: &str) -> Option<Self> {
        Self::read_within(text, DEEPEST)
    }

    fn read_within(text: &str, deeper: u32) -> Option<Self> {
        if text.len() > LONGEST {
            return None;
        }
        let mut parser = Parser::new();
        parser.set_language(&tree_sitter_bash::LANGUAGE.into()).ok()?;
        let tree = parse(&mut parser, text)?;
        let mut script = Self { commands: Vec::new(), is_plain: !tree.root_node().has_error() && is_ordinary(text) };
        // By hand, because a tree can be deep.
        let mut open = vec![tree.root_node()];
        while let Some(node) = open.pop() {
            script.is_plain &= is_plain(node, text);
            if node.kind() == "command" {
                script.add(Command::read(node, text), deeper);
            }
            let mut cursor = node.walk();
            let before = open.len();
            open.extend(node.children(&mut cursor));
            // In the order in which they stand.
            if let Some(children) = open.get_mut(before..) {
                children.reverse();
            }
        }
        Some(script)
    }

    /// Takes in a command, and those that it runs from its arguments.
    fn add(&mut self, command: Command, deeper: u32) {
        let mut command = command;
        let unknown = || Command(vec![Word::Unknown]);
        if let Some(text) = command.runs_text() {
            self.is_plain = false;
            let inner = text.known().zip(deeper.checked_sub(1));
            match inner.and_then(|(text, deeper)| Self::read_within(text, deeper)) {
                Some(inner) => self.commands.extend(inner.commands),
                None => self.commands.push(unknown()),
            }
        }
        for found in command.runs_on_what_it_finds() {
            self.is_plain = false;
            match deeper.checked_sub(1) {
                Some(deeper) => self.add(found, deeper),
                None => self.commands.push(unknown()),
            }
        }
        while let Some(wrapped) = command.wraps() {
            let wrapper = std::mem::replace(&mut command, wrapped);
            if !wrapper.only_measures() {
                self.is_plain = false;
                self.commands.push(wrapper);
            }
        }
        self.commands.push(command);
    }
}

/// Parses, unless that takes more steps than a line that somebody has written ever does.
fn parse(parser: &mut Parser, text: &str) -> Option<Tree> {
    let mut steps = 0;
    let mut is_too_much = |_: &ParseState| {
        steps += 1;
        steps > MOST_STEPS
    };
    let options = ParseOptions::new().progress_callback(&mut is_too_much);
    let bytes = text.as_bytes();
    parser.parse_with_options(&mut |at, _| bytes.get(at..).unwrap_or_default(), None, Some(options))
}

/// Text in which we and bash can't disagree about where words and lines end.
fn is_ordinary(text: &str) -> bool {
    let strange = |c: char| (c.is_control() && c != '\n' && c != '\t') || (c.is_whitespace() && !c.is_ascii());
    !text.chars().any(strange) && !text.contains("\\\n")
}

/// Whether a piece of the tree leaves nothing open. What is not named here does.
fn is_plain(node: Node<'_>, text: &str) -> bool {
    match node.kind() {
        "program"
        | "list"
        | "pipeline"
        | "command"
        | "command_name"
        | "subshell"
        | "compound_statement"
        | "negated_command"
        | "redirected_statement"
        | "concatenation"
        | "word"
        | "number"
        | "string"
        | "string_content"
        | "raw_string"
        | "file_descriptor" => true,
        "&&" | "||" | ";" | "|" | "|&" | "\n" | "(" | ")" | "{" | "}" | "!" | "\"" | ">" | ">>" | "&>" | ">&" => true,
        "file_redirect" => {
            let to = node.child_by_field_name("destination").and_then(|to| to.utf8_text(text.as_bytes()).ok());
            to.is_some_and(|to| to == "/dev/null" || (duplicates(node) && to.bytes().all(|byte| byte.is_ascii_digit())))
        }
        _ => false,
    }
}

/// Whether a redirection is to another descriptor, as in `2>&1`.
fn duplicates(redirect: Node<'_>) -> bool {
    let mut cursor = redirect.walk();
    redirect.children(&mut cursor).any(|child| child.kind() == ">&")
}

impl Command {
    fn read(node: Node<'_>, text: &str) -> Self {
        let mut cursor = node.walk();
        let words = node.named_children(&mut cursor).filter(|child| child.kind() != "variable_assignment");
        Self(words.map(|child| Word::read(child, text)).collect())
    }

    /// The name, without the folder that it is called from.
    pub(super) fn name(&self) -> Option<&str> {
        let name = self.0.first()?.known()?;
        name.rsplit('/').next()
    }
}

impl Word {
    fn read(node: Node<'_>, text: &str) -> Self {
        let mut known = String::new();
        let mut is_pattern = false;
        let mut open = vec![node];
        while let Some(node) = open.pop() {
            let source = node.utf8_text(text.as_bytes()).unwrap_or_default();
            match node.kind() {
                "command_name" | "concatenation" | "string" => {
                    let mut cursor = node.walk();
                    let mut children: Vec<_> = node.children(&mut cursor).collect();
                    children.reverse();
                    open.extend(children);
                }
                "\"" => {}
                "raw_string" => known.push_str(source.trim_matches('\'')),
                "string_content" => known.push_str(&without_escapes(source, |c| "\\\"$`".contains(c))),
                "word" | "number" => {
                    if source.contains('{') && (source.contains(',') || source.contains("..")) {
                        return Word::Unknown;
                    }
                    is_pattern |= has_pattern(source);
                    known.push_str(&without_escapes(source, |_| true));
                }
                _ => return Word::Unknown,
            }
        }
        let word = if node.kind() == "command_name" { node.child(0).unwrap_or(node) } else { node };
        if known.contains('{') && known.contains([',', '.']) && word.kind() == "concatenation" {
            return Word::Unknown;
        }
        if is_pattern { Word::Pattern(known) } else { Word::Known(known) }
    }
}

fn without_escapes(source: &str, escapes: impl Fn(char) -> bool) -> String {
    let mut text = String::new();
    let mut characters = source.chars().peekable();
    while let Some(c) = characters.next() {
        match characters.peek() {
            Some(next) if c == '\\' && escapes(*next) => {
                text.push(*next);
                characters.next();
            }
            _ => text.push(c),
        }
    }
    text
}

fn has_pattern(source: &str) -> bool {
    let mut escaped = false;
    source.chars().any(|c| {
        let is_pattern = !escaped && matches!(c, '*' | '?' | '[');
        escaped = c == '\\' && !escaped;
        is_pattern
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(text: &str) -> Vec<String> {
        let word = |word: &Word| match word {
            Word::Known(text) => text.clone(),
            Word::Pattern(text) => format!("<{text}>"),
            Word::Unknown => "?".to_owned(),
        };
        let script = Script::read(text).unwrap();
        script.commands.iter().map(|Command(words)| words.iter().map(word).collect::<Vec<_>>().join("|")).collect()
    }

    #[test]
    fn words_are_what_bash_makes_of_them() {
        let cases = [
            (r#"ls -l && echo "a b" | grep x; true"#, &["ls|-l", "echo|a b", "grep|x", "true"][..]),
            (r#"echo a\ b 'c'"d"e "x\"y" '$z'"#, &[r#"echo|a b|cde|x"y|$z"#]),
            ("echo *.rs ~ \\*", &["echo|<*.rs>|~|*"]),
            ("echo $x {a,b} $(id)", &["echo|?|?|?", "id"]),
            ("for f in *; do rm $f; done", &["rm|?"]),
            ("x() { id; }; x", &["id", "x"]),
            ("if a; then b; else c; fi", &["a", "b", "c"]),
            ("cat <(id) <<EOF\n$(ls)\nEOF", &["cat|?", "id", "ls"]),
            ("A=1 make -j4", &["make|-j4"]),
            (r#"bash -lc "rm -rf x""#, &["rm|-rf|x", "bash|-lc|rm -rf x"]),
            ("sudo -n timeout 5 rm x", &["sudo|-n|timeout|5|rm|x", "timeout|5|rm|x", "rm|x"]),
            ("find . | xargs -n1 rm", &["find|.", "xargs|-n1|rm", "rm"]),
            ("echo {} -I{} {x} {a,b} {1..3} a{b", &["echo|{}|-I{}|{x}|?|?|a{b"]),
        ];
        for (text, expected) in cases {
            assert_eq!(commands(text), expected, "{text}");
        }
    }

    #[test]
    fn plain_is_what_leaves_nothing_open() {
        let plain = [
            "ls",
            "ls -l | wc -l",
            "cd src && ls",
            "(ls; pwd)",
            "! ls",
            "ls >/dev/null 2>&1",
            "ls \\*",
            "echo 'a;b'",
            "ls\npwd",
            "time ls",
        ];
        let open = [
            "ls > x",
            "ls >> x",
            "echo $HOME",
            "echo $(id)",
            "echo `id`",
            "A=1 ls",
            "export A=1",
            "ls &",
            "cat < x",
            "for f in a; do ls; done",
            "x() { ls; }",
            "ls # x",
            "ls\r\nid",
            "ls\\\nid",
            "echo $'\\x41'",
            "[ -f x ]",
            "cat <<E\nx\nE",
            "bash -c ls",
            "eval ls",
            "env ls",
            "xargs ls",
            "ls \u{2028} id",
            "echo ${a}",
            "echo $((1))",
            "ls ;; id",
            "cat <(id)",
            "if ls; then id; fi",
            "ls (",
            "ls |",
            "ls >& x",
            "ls \u{0}",
        ];
        for text in plain {
            assert!(Script::read(text).unwrap().is_plain, "{text}");
        }
        for text in open {
            assert!(!Script::read(text).unwrap().is_plain, "{text}");
        }
    }

    /// The commands that bash runs, none of which is there.
    fn run_by_bash(text: &str) -> Option<Vec<Vec<String>>> {
        let folder = tempfile::tempdir().unwrap();
        let handle = "() { { printf '%s\\0' \"$@\"; printf '\\001\\0'; } >>\"$LOG\"; }";
        let log = folder.path().join(".log");
        let ran = std::process::Command::new("bash")
            .args(["-c", text])
            .current_dir(&folder)
            .env_clear()
            .env("PATH", "/nowhere")
            .env("LOG", &log)
            .env("BASH_FUNC_command_not_found_handle%%", handle)
            .stdin(std::process::Stdio::null())
            .output();
        ran.ok()?;
        let log = std::fs::read(log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log).into_owned();
        let commands = log.split_terminator("\u{1}\0");
        Some(commands.map(|words| words.split_terminator('\0').map(str::to_owned).collect()).collect())
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(300))]

        /// Bash itself is asked what a line means that is said to leave nothing open.
        #[test]
        fn bash_runs_the_commands_that_were_read_and_no_others(
            pieces in proptest::collection::vec(proptest::sample::select(&[
                "aa", "bb", " ", " ", " ", "'", "'x y'", "\"", "\"x y\"", "\\", "\\'", "\\\"", "\\ ", ";", "&&", "||", "|", "|&",
                "\n", "(", ")", "{ ", "; }", "!", "#", "*", "?", "[", "]", "=", ",", "{", "}", "$", "`", "&", "<", ">",
                ">/dev/null", "2>&1", "-x", "1", "~", "\t", "time ", "@(", "+(", "..", "/", "%", "^", "if ", "then ", "fi", "do ",
                "done", "[[ ", " ]]", "((", "))", "<<", "<<<", "function ", "aa()", "coproc ", "A=", "$'", "é", ":", "case ", "in ",
            ][..]), 1..9),
        ) {
            let text = pieces.concat();
            let Some(script) = Script::read(&text).filter(|script| script.is_plain) else { return Ok(()) };
            let Some(ran) = run_by_bash(&text) else { return Ok(()) };
            for words in ran {
                let is = |command: &Command| {
                    command.0.len() == words.len()
                        && command.0.iter().zip(&words).all(|(read, word)| match read {
                            // In an empty folder a pattern stays as it is written.
                            Word::Known(text) | Word::Pattern(text) => text == word,
                            Word::Unknown => false,
                        })
                };
                proptest::prop_assert!(script.commands.iter().any(is), "{text:?} ran {words:?}, and was read as {script:?}");
            }
        }
    }

    #[test]
    fn hostile_lines_are_read_in_no_time_or_not_at_all() {
        let hostile = [
            "(".repeat(60_000),
            "$(".repeat(30_000),
            "a;".repeat(30_000),
            "\"$(".repeat(20_000),
            "{ ".repeat(30_000),
            "a | ".repeat(15_000),
            "if a; then ".repeat(5_000),
            "<<E ".repeat(15_000),
            "bash -c 'bash -c \"bash -c x\"'".repeat(1_000),
            "x".repeat(LONGEST + 1),
        ];
        for text in hostile {
            let plain = Script::read(&text).is_some_and(|script| script.is_plain);
            assert!(!plain || text.starts_with("a;"), "{}", &text[..20]);
        }
    }
}
