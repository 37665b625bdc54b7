//! Commands that stand in the arguments of others.

use super::script::{Command, Word};

impl Command {
    /// The command line that it runs from its arguments, as `bash -c` does, if it is known.
    pub(super) fn runs_text(&self) -> Option<Word> {
        let (_, arguments) = self.0.split_first()?;
        let name = self.name()?;
        match name {
            "eval" => Some(joined(arguments)),
            "watch" | "parallel" => Some(joined(&Wrapper::of(name)?.wrapped(arguments))),
            "trap" => arguments.iter().find(|word| !is_option(Some(word))).cloned(),
            "env" => {
                let split = |word: &Word| {
                    word.known().is_some_and(|it| it.starts_with("-S") || it.starts_with("--split-string"))
                };
                let at = arguments.iter().position(split)?;
                let here = arguments.get(at)?.known()?.trim_start_matches("--split-string").trim_start_matches("-S");
                let here = Word::Known(here.trim_start_matches('=').to_owned());
                Some(joined(&[&[here], arguments.get(at + 1..)?].concat()))
            }
            "bash" | "sh" | "dash" | "zsh" | "ksh" | "ash" | "su" | "runuser" | "script" | "flock" => {
                let is_command = |word: &Word| {
                    word.known().is_some_and(|it| {
                        it == "--command" || (it.starts_with('-') && !it.starts_with("--") && it.contains('c'))
                    })
                };
                let at = arguments.iter().position(is_command)?;
                let mut rest = arguments.get(at + 1..)?.iter();
                // More options may come first, of which `-o` has a value.
                let mut text = rest.next()?;
                while text.known().is_some_and(|it| it.starts_with(['-', '+'])) {
                    if text.known().is_some_and(|it| it.ends_with(['o', 'O'])) {
                        rest.next()?;
                    }
                    text = rest.next()?;
                }
                Some(text.clone())
            }
            _ => None,
        }
    }

    /// The command that it runs, where that stands in its arguments.
    pub(super) fn wraps(&self) -> Option<Command> {
        let (_, arguments) = self.0.split_first()?;
        let wrapped = Wrapper::of(self.name()?)?.wrapped(arguments);
        (!wrapped.is_empty()).then_some(Command(wrapped))
    }

    /// The commands that it runs for each file that it finds.
    pub(super) fn runs_on_what_it_finds(&self) -> Vec<Command> {
        let starts: &[&str] = match self.name() {
            Some("find") => &["-exec", "-execdir", "-ok", "-okdir"],
            Some("fd" | "fdfind") => &["-x", "-X", "--exec", "--exec-batch"],
            _ => return vec![],
        };
        let is = |word: &Word, any: &[&str]| word.known().is_some_and(|word| any.contains(&word));
        let runs = self.0.iter().enumerate().filter(|(_, word)| is(word, starts));
        let runs = runs.map(|(at, _)| self.0.iter().skip(at + 1).take_while(|word| !is(word, &[";", "+"])).cloned());
        runs.map(|words| Command(words.collect())).filter(|command| !command.0.is_empty()).collect()
    }

    /// Whether it is the `time` of the shell, or of the system without a file to write to.
    pub(super) fn only_measures(&self) -> bool {
        matches!(self.0.as_slice(), [Word::Known(name), rest @ ..]
            if name == "time" && (!is_option(rest.first()) || rest.first().and_then(Word::known) == Some("-p")))
    }
}

fn joined(words: &[Word]) -> Word {
    let words: Option<Vec<&str>> = words.iter().map(Word::known).collect();
    words.map_or(Word::Unknown, |words| Word::Known(words.join(" ")))
}

fn is_option(word: Option<&Word>) -> bool {
    word.and_then(Word::known).is_some_and(|word| word.starts_with('-'))
}

/// A command that runs what its arguments say, behind options of its own.
struct Wrapper {
    name: &'static str,
    /// The letters of its options that have a value, and the long names of those.
    short: &'static str,
    long: &'static str,
    /// How many arguments of its own stand before the command.
    own: usize,
}

impl Wrapper {
    #[rustfmt::skip]
    const ALL: &[Self] = &[
        Self::new("builtin", "", "", 0),
        Self::new("busybox", "", "", 0),
        Self::new("chroot", "", "", 1),
        Self::new("chrt", "", "", 1),
        Self::new("command", "", "", 0),
        Self::new("coproc", "", "", 0),
        Self::new("doas", "Cu", "", 0),
        Self::new("env", "uC", "unset chdir", 0),
        Self::new("exec", "a", "", 0),
        Self::new("fakeroot", "", "", 0),
        Self::new("flock", "wE", "timeout conflict-exit-code", 1),
        Self::new("ionice", "cn", "class classdata", 0),
        Self::new("nice", "n", "adjustment", 0),
        Self::new("nohup", "", "", 0),
        Self::new("parallel", "jnNSaIdLP", "jobs max-args arg-file sshlogin delimiter", 0),
        Self::new("runuser", "ugG", "user group supp-group", 0),
        Self::new("setpriv", "", "reuid regid ruid euid rgid egid groups inh-caps ambient-caps bounding-set pdeathsig", 0),
        Self::new("setsid", "", "", 0),
        Self::new("stdbuf", "ioe", "input output error", 0),
        Self::new("strace", "abeEIoOpPsSuUX", "", 0),
        Self::new("sudo", "CDghpRrTtUu", "close-from chdir group host prompt chroot role command-timeout type other-user user", 0),
        Self::new("taskset", "", "", 1),
        Self::new("time", "fo", "format output", 0),
        Self::new("timeout", "ks", "kill-after signal", 1),
        Self::new("toybox", "", "", 0),
        Self::new("unshare", "RwSG", "root wd setuid setgid", 0),
        Self::new("watch", "n", "interval", 0),
        Self::new("xargs", "adEILnPs", "arg-file delimiter max-args max-procs max-chars process-slot-var", 0),
    ];

    const fn new(name: &'static str, short: &'static str, long: &'static str, own: usize) -> Self {
        Self { name, short, long, own }
    }

    fn of(name: &str) -> Option<&'static Self> {
        Self::ALL.iter().find(|wrapper| wrapper.name == name)
    }

    /// What follows its own arguments.
    fn wrapped(&self, arguments: &[Word]) -> Vec<Word> {
        let mut rest = arguments.iter().peekable();
        let mut own = self.own;
        while let Some(word) = rest.peek() {
            let Some(text) = word.known() else { break };
            let value_follows = match (text.strip_prefix("--"), text.strip_prefix('-')) {
                (Some(long), _) => self.long.split(' ').any(|it| it == long),
                // The last letter of several; what follows an earlier one that has a value is that.
                (None, Some(short)) => short.find(|c| self.short.contains(c)).is_some_and(|at| at + 1 == short.len()),
                (None, None) if text.contains('=') && ["env", "sudo", "doas"].contains(&self.name) => false,
                (None, None) if own > 0 => {
                    own -= 1;
                    false
                }
                (None, None) => break,
            };
            rest.next();
            if value_follows {
                rest.next();
            }
        }
        rest.cloned().collect()
    }
}
