use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value;
use terret_agent::machine::Verdict;
use terret_agent::{EffectClass, SharedTool};

use super::reading::only_reads;
use super::rule::Match;
use super::script::{Command, Script};
use super::{Decision, Rule, Rules};
use crate::workspace::Workspace;

/// What is done about a call that no rule is about, and that does more than read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unmatched {
    /// It runs: the sandbox holds it.
    #[default]
    Allow,
    /// A person is asked.
    Ask,
    /// It doesn't run.
    Deny,
}

/// What goes by [`Rules`]. Cheap to clone; all clones have the same rules, and a change holds for the next call.
///
/// A function that asks it is a [`Gate`](terret_agent::Gate):
///
/// ```
/// # use terret_agent::AgentBuilder;
/// # use terret_llm::ToolCall;
/// # use terret_tools::RuleJudge;
/// fn judged(agent: AgentBuilder, rules: RuleJudge) -> AgentBuilder {
///     agent.gate(move |call: &ToolCall, arguments: &serde_json::Value| rules.judge(&call.name, arguments))
/// }
/// ```
#[derive(Clone, Debug)]
pub struct RuleJudge(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    /// The tools that only read.
    reading: HashSet<String>,
    rules: RwLock<Rules>,
    unmatched: Unmatched,
}

/// What a call is about.
enum Subject {
    /// A command line; nothing if it can't be read.
    Script(Option<Script>),
    /// The path as it is written, and where it leads.
    Paths([PathBuf; 2]),
    Other,
}

impl RuleJudge {
    /// A gate for the tools of a workspace.
    pub fn new(workspace: &Workspace, tools: &[SharedTool], rules: Rules, unmatched: Unmatched) -> Self {
        let reading = tools.iter().filter(|tool| tool.effect() == EffectClass::ReadOnly);
        let reading = reading.map(|tool| tool.spec().name.clone()).collect();
        let root = workspace.root().to_owned();
        Self(Arc::new(Inner { root, reading, rules: RwLock::new(rules), unmatched }))
    }

    /// The rules as they are now.
    pub fn rules(&self) -> Rules {
        self.0.rules.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the rules.
    pub fn change(&self, change: impl FnOnce(&mut Rules)) {
        change(&mut self.0.rules.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// What is done about a call.
    pub fn judge(&self, tool: &str, arguments: &Value) -> Verdict {
        let subject = self.subject(tool, arguments);
        let rules = self.0.rules.read().unwrap_or_else(PoisonError::into_inner);
        let about = |decision| rules.of(decision).filter(|rule| rule.is_about(tool));
        if let Some(rule) = about(Decision::Deny).find(|rule| self.touches(rule, &subject) == Match::Yes) {
            return Verdict::Deny { reason: format!("a rule forbids it: {rule}") };
        }
        if let Some(rule) = about(Decision::Deny).find(|rule| self.touches(rule, &subject) == Match::Perhaps) {
            let reason = "and what this runs is known only when it runs. Write it out, without variables";
            return Verdict::Deny { reason: format!("a rule forbids {rule}, {reason}") };
        }
        let restricted = about(Decision::Deny).chain(about(Decision::Ask)).any(|rule| !rule.is_general());
        let unreadable = matches!(subject, Subject::Script(None));
        if about(Decision::Ask).any(|rule| self.touches(rule, &subject) != Match::No) || (unreadable && restricted) {
            return Verdict::Ask { question: question(tool, arguments) };
        }
        if self.is_permitted(tool, &subject, &about(Decision::Allow).collect::<Vec<_>>()) {
            return Verdict::Allow;
        }
        match self.0.unmatched {
            Unmatched::Allow => Verdict::Allow,
            Unmatched::Ask => Verdict::Ask { question: question(tool, arguments) },
            Unmatched::Deny => {
                Verdict::Deny { reason: format!("{tool} may only look at things here (read-only), and this does more") }
            }
        }
    }

    /// Whether a rule is about anything in a call: a denial or a question need no more.
    fn touches(&self, rule: &Rule, subject: &Subject) -> Match {
        if rule.is_general() {
            return Match::Yes;
        }
        match subject {
            Subject::Script(script) => {
                let commands = script.iter().flat_map(|script| &script.commands);
                commands.map(|command| rule.matches_command(command, true)).max().unwrap_or(Match::No)
            }
            Subject::Paths(paths) => paths.iter().any(|path| rule.matches_path(path, &self.0.root, true)).into(),
            Subject::Other => Match::No,
        }
    }

    /// Whether everything in a call is permitted, or only reads.
    fn is_permitted(&self, tool: &str, subject: &Subject, allow: &[&Rule]) -> bool {
        if self.0.reading.contains(tool) || allow.iter().any(|rule| rule.is_general()) {
            return true;
        }
        match subject {
            Subject::Script(None) | Subject::Other => false,
            Subject::Script(Some(script)) => {
                let permitted = |command: &Command| {
                    only_reads(command) || allow.iter().any(|rule| rule.matches_command(command, false) == Match::Yes)
                };
                script.is_plain && script.commands.iter().all(permitted)
            }
            Subject::Paths(paths) => {
                allow.iter().any(|rule| paths.iter().all(|path| rule.matches_path(path, &self.0.root, false)))
            }
        }
    }

    fn subject(&self, tool: &str, arguments: &Value) -> Subject {
        let text = |name: &str| arguments.get(name).and_then(Value::as_str);
        match (tool, text("command"), text("path")) {
            ("bash", command, _) => Subject::Script(command.and_then(Script::read)),
            (_, _, Some(path)) => {
                let written = lexical(&self.0.root.join(path));
                let leads = crate::workspace::leads(&written).unwrap_or_else(|| written.clone());
                Subject::Paths([written, leads])
            }
            _ => Subject::Other,
        }
    }
}

/// What a person is asked.
fn question(tool: &str, arguments: &Value) -> String {
    let text = |name: &str| arguments.get(name).and_then(Value::as_str);
    match (text("command"), text("path")) {
        (Some(command), _) => format!("Run this command?\n{command}"),
        (None, Some(path)) => format!("Let {tool} change {path}?"),
        (None, None) => format!("Let {tool} run?"),
    }
}

/// Without `.` and `..`, by the text alone.
fn lexical(path: &Path) -> PathBuf {
    use std::path::Component::*;
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            CurDir => {}
            ParentDir => _ = clean.pop(),
            part => clean.push(part),
        }
    }
    clean
}
