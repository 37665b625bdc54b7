//! The narrowest rules that permit a call.

use std::path::Path;

use serde_json::Value;

use super::judge::Subject;
use super::reading::only_reads;
use super::script::{Command, Word};
use super::{Decision, Rule, RuleJudge};

/// The longest command that gets a rule of its own, in bytes: nobody would look over a longer one.
const LONGEST: usize = 200;

impl RuleJudge {
    /// The narrowest rules that would let a call run without a question: one for each command that needs one, or one for
    /// the path, counted from a folder; where nothing narrower would do, one for the tool. None of them if no permission
    /// helps, because a rule forbids the call or asks about it.
    pub fn permissions_for(&self, tool: &str, arguments: &Value, folder: &Path) -> Vec<Rule> {
        let narrow = match self.subject(tool, arguments) {
            Subject::Script(Some(script)) if script.is_plain => {
                let needy = script.commands.iter().filter(|command| !only_reads(command));
                needy.map(of_command).collect::<Option<Vec<Rule>>>()
            }
            Subject::Paths([written, _]) => of_path(tool, &written, folder).map(|rule| vec![rule.from_folder(folder)]),
            Subject::Script(_) | Subject::Other => None,
        };
        let general = tool.parse().map(|rule| vec![rule]).ok();
        let suffices =
            |rules: &Vec<Rule>| self.with_permissions(rules).explain(tool, arguments).decision == Decision::Allow;
        let mut rules = [narrow, general].into_iter().flatten().find(suffices).unwrap_or_default();
        // What another rule permits already needs none.
        let mut at = 0;
        while at < rules.len() && rules.len() > 1 {
            let mut fewer = rules.clone();
            fewer.remove(at);
            if suffices(&fewer) { rules = fewer } else { at += 1 }
        }
        rules
    }

    /// A judge that goes by these permissions, too.
    pub fn with_permissions(&self, more: &[Rule]) -> Self {
        let mut rules = self.rules();
        more.iter().for_each(|rule| rules.add(Decision::Allow, rule.clone()));
        self.with(rules)
    }
}

fn of_command(command: &Command) -> Option<Rule> {
    let words: Option<Vec<String>> = command.0.iter().map(of_word).collect();
    let words = words?.join(" ");
    (words.len() <= LONGEST).then(|| format!("bash({words})").parse().ok())?
}

/// A pattern of nothing but this word, but that any character may stand where one is that no rule can have.
fn of_word(word: &Word) -> Option<String> {
    let (Word::Known(text) | Word::Pattern(text)) = word else { return None };
    let mut pattern = String::new();
    for c in text.chars() {
        match c {
            '*' | '?' | '[' | ']' | '{' | '}' | '\\' => pattern.extend(['\\', c]),
            // Rules are written without quotes and for one command.
            '\'' | '"' | '|' | '&' | ';' => pattern.push('?'),
            c if c.is_whitespace() => pattern.push('?'),
            c => pattern.push(c),
        }
    }
    (!pattern.is_empty()).then_some(pattern)
}

fn of_path(tool: &str, path: &Path, folder: &Path) -> Option<Rule> {
    let text = match path.strip_prefix(folder) {
        // Without this, it would be a name in any folder.
        Ok(inside) => format!("./{}", inside.to_str()?),
        Err(_) => path.to_str()?.to_owned(),
    };
    if text.contains(char::is_control) {
        return None;
    }
    let special = |c: char| matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '\\');
    let escaped: String = text.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect();
    format!("{tool}({escaped})").parse().ok()
}
