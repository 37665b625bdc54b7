//! What begins with a slash.

use terret::tools::Decision;

/// A command, and what follows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Slash {
    Help,
    Model(String),
    Compact,
    Clear,
    Continue,
    Sessions,
    Cost,
    Tools,
    Permissions,
    /// What is decided from now on in this session about the calls that a rule is about.
    Rule(Decision, String),
    /// A rule, or its number in the list.
    Revoke(String),
    Export(String),
    Quit,
    /// None of them: what to say about it.
    Unknown(String),
}

/// Their names, with what they do.
pub(crate) const COMMANDS: [(&str, &str); 12] = [
    ("/help", "this list, and the keys"),
    ("/model [NAME]", "say which model is asked, or ask another one"),
    ("/compact", "summarise the older part of the conversation"),
    ("/clear", "begin a new session"),
    ("/continue", "let the model go on from what stands there"),
    ("/sessions", "list the sessions of this folder"),
    ("/cost", "say what the session has cost"),
    ("/tools", "list the tools"),
    ("/permissions", "list the rules about calls, with where each comes from"),
    ("/permissions revoke N", "take a rule back; also allow, ask or deny RULE"),
    ("/export FILE", "write the session as .html, .md or .jsonl"),
    ("/quit", "leave; the session is kept"),
];

pub(crate) const KEYS: [(&str, &str); 11] = [
    ("Enter", "say it; a model at work hears it before its next call"),
    ("Alt-Enter", "say it when the model is done; else a new line"),
    ("Ctrl-J, \\ Enter", "a new line"),
    ("Esc, Ctrl-C", "interrupt the model; what it has done stays"),
    ("Up, Down", "what was said before; Up takes a queued message back"),
    ("Ctrl-R", "find what was said before; again: what was said before that"),
    ("Tab, Ctrl-G", "complete a command or a path; type on in $EDITOR"),
    ("Ctrl-A E, Alt-B F", "to the begin, to the end, a word back and forth"),
    ("Ctrl-U K W Y", "delete to the begin, to the end, a word; put it back"),
    ("Ctrl-L, Ctrl-Z", "clear the screen; stop the program until fg"),
    ("Ctrl-D, Ctrl-C twice", "leave"),
];

impl Slash {
    /// The command, if a text is one. A path isn't, nor is `/skill:NAME`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let word = name.strip_prefix('/')?;
        if !word.chars().all(|c| c.is_ascii_alphabetic()) {
            return None;
        }
        let rest = rest.trim().to_owned();
        Some(match word {
            "help" | "" => Self::Help,
            "model" => Self::Model(rest),
            "compact" => Self::Compact,
            "clear" | "new" => Self::Clear,
            "continue" => Self::Continue,
            "sessions" => Self::Sessions,
            "cost" => Self::Cost,
            "tools" => Self::Tools,
            "permissions" => Self::permissions(&rest),
            "export" if rest.is_empty() => Self::Unknown("say which file, as in /export page.html".into()),
            "export" => Self::Export(rest),
            "quit" | "exit" => Self::Quit,
            word => Self::Unknown(match nearest(word) {
                Some(near) => format!("there is no /{word}; did you mean {near}?"),
                None => format!("there is no /{word}; /help lists what there is"),
            }),
        })
    }
}

impl Slash {
    fn permissions(rest: &str) -> Self {
        let (what, rule) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let rule = rule.trim().to_owned();
        match (what, rule.is_empty()) {
            ("", _) => Self::Permissions,
            ("revoke", false) => Self::Revoke(rule),
            ("allow", false) => Self::Rule(Decision::Allow, rule),
            ("ask", false) => Self::Rule(Decision::Ask, rule),
            ("deny", false) => Self::Rule(Decision::Deny, rule),
            _ => Self::Unknown("say which rule, as in /permissions revoke 1 or /permissions allow bash(make *)".into()),
        }
    }
}

/// What the begin of a command can only become.
pub(crate) fn completed(begin: &str) -> Option<String> {
    let mut fit = names().filter(|name| name.starts_with(begin));
    let only = fit.next()?;
    (begin.len() > 1 && fit.next().is_none()).then(|| format!("{only} "))
}

fn names() -> impl Iterator<Item = &'static str> {
    let mut names: Vec<&'static str> =
        COMMANDS.iter().map(|(name, _)| name.split(' ').next().unwrap_or(name)).collect();
    names.dedup();
    names.into_iter()
}

fn nearest(word: &str) -> Option<&'static str> {
    let distance = |name: &str| strsim::damerau_levenshtein(name.trim_start_matches('/'), word);
    let begins = |name: &str| name.trim_start_matches('/').starts_with(word);
    names().filter(|name| distance(name) <= 2 || begins(name)).min_by_key(|name| distance(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_a_word_behind_a_slash() {
        let unknown = |what: &str| Some(Slash::Unknown(what.into()));
        for (text, slash) in [
            ("/help", Some(Slash::Help)),
            ("/model openai/gpt-5:high", Some(Slash::Model("openai/gpt-5:high".into()))),
            ("/etc/hosts is what?", None),
            ("/skill:pdf read it", None),
            (" /help", None),
            ("what is /help", None),
            ("/hlep", unknown("there is no /hlep; did you mean /help?")),
            ("/permissions", Some(Slash::Permissions)),
            ("/permissions revoke bash(ls *)", Some(Slash::Revoke("bash(ls *)".into()))),
            ("/permissions deny  read", Some(Slash::Rule(Decision::Deny, "read".into()))),
            (
                "/permissions revoke",
                unknown("say which rule, as in /permissions revoke 1 or /permissions allow bash(make *)"),
            ),
            ("/sess", unknown("there is no /sess; did you mean /sessions?")),
            ("/unheard", unknown("there is no /unheard; /help lists what there is")),
        ] {
            assert_eq!(Slash::parse(text), slash, "{text}");
        }
        assert_eq!(completed("/ex").as_deref(), Some("/export "));
        assert_eq!(completed("/co"), None);
    }
}
