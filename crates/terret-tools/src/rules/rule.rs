use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use globset::{Glob, GlobMatcher};
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::script::{Command, Word};

/// A tool, and if need be a pattern of what it is called with.
///
/// ```text
/// bash                       every command
/// bash(git log)              exactly this command
/// bash(cargo test *)         this command with whatever else behind it, or nothing (also written cargo test:*)
/// bash(npm run lint-*)       within a word, * is any text
/// write(src/**)              what lies there, from the workspace's root (patterns are those of .gitignore)
/// read(.env)                 this name in any folder
/// edit(/etc/**)              an absolute path; ~/ is the home directory
/// *                          every tool
/// ```
///
/// Names of tools are written as the model writes them; upper case is taken, too. Patterns are for `bash` and for tools
/// with an argument `path`.
#[derive(Clone, Debug)]
pub struct Rule {
    text: String,
    /// Nothing stands for all of them.
    tool: Option<String>,
    pattern: Option<Pattern>,
    /// Where relative patterns are counted from; the workspace's root without it.
    from: Option<PathBuf>,
}

#[derive(Clone, Debug)]
enum Pattern {
    Command { words: Vec<GlobMatcher>, and_more: bool },
    Path(String),
}

/// Whether a rule is about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Match {
    No,
    /// That is known only when the call runs.
    Perhaps,
    Yes,
}

impl From<bool> for Match {
    fn from(matches: bool) -> Self {
        if matches { Self::Yes } else { Self::No }
    }
}

/// Why a text is no rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule:?} is no rule: {problem}; a rule is like bash(cargo test *), write(src/**) or read")]
pub struct RuleError {
    /// What was given.
    pub rule: String,
    /// What is wrong with it.
    pub problem: String,
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let wrong = |problem: String| RuleError { rule: text.to_owned(), problem };
        let text = text.trim();
        let (tool, pattern) = match text.split_once('(') {
            None => (text, None),
            Some((tool, rest)) => match rest.strip_suffix(')') {
                Some(pattern) => (tool.trim(), Some(pattern.trim())),
                None => return Err(wrong("the closing parenthesis is missing".into())),
            },
        };
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if tool != "*" && (tool.is_empty() || !tool.chars().all(legal)) {
            return Err(wrong(format!("{tool:?} is no name of a tool")));
        }
        let tool = (tool != "*").then(|| tool.to_ascii_lowercase());
        let pattern = match (tool.as_deref(), pattern) {
            (_, None) => None,
            (_, Some("")) => return Err(wrong("the pattern is empty".into())),
            (None, Some(_)) => return Err(wrong("a pattern needs a tool".into())),
            (Some("bash"), Some(pattern)) => {
                if pattern.contains(['\'', '"']) {
                    return Err(wrong("words are compared without their quotes, so there are none in a rule".into()));
                }
                if pattern.split_whitespace().any(|word| ["|", "|&", "||", "&&", ";", "&"].contains(&word)) {
                    return Err(wrong("a rule is about one command, and this is several".into()));
                }
                Some(command(pattern).map_err(|error| wrong(error.to_string()))?)
            }
            (Some(_), Some(pattern)) => {
                if pattern.starts_with(['!', '#']) {
                    return Err(wrong("a path that begins so is written with a backslash before it".into()));
                }
                matcher(pattern, Path::new("/"), false).map_err(|error| wrong(error.to_string()))?;
                Some(Pattern::Path(pattern.to_owned()))
            }
        };
        Ok(Self { text: text.to_owned(), tool, pattern, from: None })
    }
}

fn command(pattern: &str) -> Result<Pattern, globset::Error> {
    let (pattern, and_more) = match pattern.strip_suffix(":*") {
        Some(before) => (before, true),
        None => (pattern, false),
    };
    let mut words: Vec<&str> = pattern.split_whitespace().collect();
    let and_more = words.pop_if(|last| *last == "*").is_some() || and_more;
    let words = words.into_iter().map(|word| Ok(Glob::new(word)?.compile_matcher())).collect::<Result<_, _>>()?;
    Ok(Pattern::Command { words, and_more })
}

impl Rule {
    /// The same rule, with relative patterns of paths counted from this folder instead of the workspace's root.
    #[must_use]
    pub fn from_folder(self, folder: impl Into<PathBuf>) -> Self {
        Self { from: Some(folder.into()), ..self }
    }

    /// The tool that it is about; nothing for all of them.
    pub fn tool(&self) -> Option<&str> {
        self.tool.as_deref()
    }

    /// Whether it is about this tool, whatever it is called with.
    pub(super) fn is_about(&self, tool: &str) -> bool {
        self.tool.as_deref().is_none_or(|it| it.eq_ignore_ascii_case(tool))
    }

    /// Whether it is about every call of its tool.
    pub fn is_general(&self) -> bool {
        self.pattern.is_none()
    }

    /// Whether it matches a command, called by its bare name or, with `anywhere`, from any folder.
    pub(super) fn matches_command(&self, command: &Command, anywhere: bool) -> Match {
        let Some(Pattern::Command { words, and_more }) = &self.pattern else { return self.is_general().into() };
        let mut given = command.0.iter();
        for (place, wanted) in words.iter().enumerate() {
            let text = match given.next() {
                None => return Match::No,
                // It may be several words, or none.
                Some(Word::Unknown) => return Match::Perhaps,
                Some(Word::Pattern(_)) if place == 0 => return Match::Perhaps,
                Some(Word::Known(text) | Word::Pattern(text)) => text.as_str(),
            };
            let name = if place == 0 && anywhere { command.name() } else { None };
            if !wanted.is_match(text) && !name.is_some_and(|name| wanted.is_match(name)) {
                return Match::No;
            }
        }
        match given.as_slice() {
            [] => Match::Yes,
            _ if *and_more => Match::Yes,
            more if more.iter().all(|word| *word == Word::Unknown) => Match::Perhaps,
            _ => Match::No,
        }
    }

    /// Whether it matches a path, given as an absolute one. Relative patterns are from the root; a name alone is in any
    /// folder beneath it or, with `anywhere`, at all.
    pub(super) fn matches_path(&self, path: &Path, root: &Path, anywhere: bool) -> bool {
        let Some(Pattern::Path(pattern)) = &self.pattern else { return self.is_general() };
        let Ok(matcher) = matcher(pattern, self.from.as_deref().unwrap_or(root), anywhere) else { return false };
        path.starts_with(matcher.path()) && matcher.matched_path_or_any_parents(path, false).is_ignore()
    }
}

/// What matches the paths that a pattern is about.
fn matcher(pattern: &str, root: &Path, anywhere: bool) -> Result<Gitignore, ignore::Error> {
    let home = pattern.strip_prefix("~/").zip(std::env::home_dir());
    let is_name = !pattern.trim_end_matches('/').contains('/');
    let (root, line): (PathBuf, String) = match home {
        Some((rest, home)) => (home, format!("/{rest}")),
        None if pattern.starts_with('/') || (is_name && anywhere) => ("/".into(), pattern.to_owned()),
        None => {
            let (mut root, mut rest) = (root, pattern);
            while let Some(further) = rest.strip_prefix("../") {
                (root, rest) = (root.parent().unwrap_or(root), further);
            }
            let from_here = rest.strip_prefix('.').filter(|rest| rest.starts_with('/')).unwrap_or(rest);
            // What stands above isn't a name in any folder.
            let slash = if rest == pattern { "" } else { "/" };
            (root.into(), format!("{slash}{from_here}"))
        }
    };
    let mut builder = GitignoreBuilder::new(root);
    builder.add_line(None, &line)?;
    builder.build()
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        (&self.text, &self.from) == (&other.text, &other.from)
    }
}

impl Eq for Rule {}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::super::script::Script;
    use super::*;

    fn rule(text: &str) -> Rule {
        text.parse().unwrap()
    }

    #[test]
    fn a_command_is_matched_word_by_word() {
        let matches = |pattern: &str, text: &str| {
            let script = Script::read(text).unwrap();
            rule(&format!("bash({pattern})")).matches_command(&script.commands[0], false) == Match::Yes
        };
        assert!(matches("git log", "git log"));
        assert!(!matches("git log", "git log -p"));
        assert!(
            matches("git log *", "git log") && matches("git log *", "git log -p") && matches("git log:*", "git log -p")
        );
        assert!(!matches("git log *", "git logs") && !matches("git log:*", "git logs"));
        assert!(matches("git  log *", "git   'log'  \"-p\""));
        assert!(matches("npm run lint-*", "npm run lint-css") && !matches("npm run lint-*", "npm run test"));
        assert!(matches("*", "anything at all"));
        assert!(!matches("ls *", "/tmp/ls") && !matches("ls *", "./ls"));
        assert!(!matches("cargo test", "cargo $x"));
    }

    #[test]
    fn a_path_is_matched_as_gitignore_would() {
        let root = Path::new("/project");
        let matches =
            |pattern: &str, path: &str| rule(&format!("read({pattern})")).matches_path(Path::new(path), root, false);
        assert!(matches("src/**", "/project/src/a/b.rs") && !matches("src/**", "/project/lib/src/a.rs"));
        assert!(matches("./src", "/project/src/a.rs") && !matches("./src", "/project-evil/src/a.rs"));
        assert!(matches(".env", "/project/a/b/.env") && !matches(".env", "/project/a/x.env"));
        assert!(matches("*.pem", "/project/keys/a.pem"));
        assert!(matches("/etc/**", "/etc/passwd") && !matches("/etc/**", "/project/etc/passwd"));
        assert!(matches("secrets/", "/project/secrets/a/b"));
        let above = rule("write(src/**)").from_folder("/project");
        assert!(above.matches_path(Path::new("/project/src/a.rs"), Path::new("/project/part"), false));
        assert!(!above.matches_path(Path::new("/project/part/src/a.rs"), Path::new("/project/part"), false));
        assert!(matches("../lib/**", "/lib/a/b") && !matches("../lib/**", "/project/lib/a"));
        assert!(matches("../*.pem", "/a.pem") && !matches("../*.pem", "/project/a.pem"));
        assert!(!matches(".env", "/other/.env"));
        assert!(rule("read(.env)").matches_path(Path::new("/other/a/.env"), root, true));
    }

    #[test]
    fn what_is_no_rule_is_refused_with_a_reason() {
        for (text, problem) in [
            ("", "no name"),
            ("bash(", "closing"),
            ("bash(x", "closing"),
            ("bash()", "empty"),
            ("two words", "no name"),
            ("*(x)", "needs a tool"),
            ("bash(a[)", "unclosed"),
            ("bash(git commit -m 'x')", "quotes"),
            ("bash(curl * | sh)", "several"),
            ("read(!x)", "backslash"),
        ] {
            let error = text.parse::<Rule>().unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
        assert_eq!(rule("Bash(git status)").to_string(), "Bash(git status)");
        assert!(rule("Bash").is_about("bash") && rule("OrderTea").is_about("OrderTea"));
    }
}
