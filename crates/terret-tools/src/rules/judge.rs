use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value;
use terret_agent::machine::Verdict;
use terret_agent::{EffectClass, SharedTool};

use super::reading::only_reads;
use super::rule::Match;
use super::script::Script;
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

/// What is done about a call, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Judgement {
    /// What is done.
    pub decision: Decision,
    /// Why.
    pub why: Why,
}

/// Why something is done about a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// The rule that forbids it or asks about it, or those that permit it: several, for several commands.
    Rules(Vec<Rule>),
    /// A rule forbids something, and this may be that: what it runs is known only when it runs.
    Perhaps(Rule),
    /// It only reads.
    Reads,
    /// It is a command line that can't be read, and rules forbid some or ask about some.
    Unreadable,
    /// No rule is about it: [`Unmatched`] says what is done.
    Unmatched,
}

/// What a call is about.
pub(super) enum Subject {
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

    /// A judge of the same workspace that goes by other rules.
    pub fn with(&self, rules: Rules) -> Self {
        let Inner { root, reading, unmatched, .. } = &*self.0;
        let (root, reading, unmatched) = (root.clone(), reading.clone(), *unmatched);
        Self(Arc::new(Inner { root, reading, rules: RwLock::new(rules), unmatched }))
    }

    /// What is done about a call.
    pub fn judge(&self, tool: &str, arguments: &Value) -> Verdict {
        let Judgement { decision, why } = self.explain(tool, arguments);
        match (decision, why) {
            (Decision::Allow, _) => Verdict::Allow,
            (Decision::Ask, _) => Verdict::Ask { question: question(tool, arguments) },
            (Decision::Deny, Why::Rules(rules)) => {
                let rules: Vec<String> = rules.iter().map(Rule::to_string).collect();
                Verdict::Deny { reason: format!("a rule forbids it: {}", rules.join(", ")) }
            }
            (Decision::Deny, Why::Perhaps(rule)) => {
                let reason = "and what this runs is known only when it runs. Write it out, without variables";
                Verdict::Deny { reason: format!("a rule forbids {rule}, {reason}") }
            }
            (Decision::Deny, _) => {
                Verdict::Deny { reason: format!("{tool} may only look at things here (read-only), and this does more") }
            }
        }
    }

    /// What is done about a call, and why.
    pub fn explain(&self, tool: &str, arguments: &Value) -> Judgement {
        let subject = self.subject(tool, arguments);
        let rules = self.0.rules.read().unwrap_or_else(PoisonError::into_inner);
        let about = |decision| rules.of(decision).filter(|rule| rule.is_about(tool));
        let judged = |decision, why| Judgement { decision, why };
        let first = |decision, is_meant: fn(Match) -> bool| {
            about(decision).find(|rule| is_meant(self.touches(rule, &subject))).cloned()
        };
        if let Some(rule) = first(Decision::Deny, |it| it == Match::Yes) {
            return judged(Decision::Deny, Why::Rules(vec![rule]));
        }
        if let Some(rule) = first(Decision::Deny, |it| it == Match::Perhaps) {
            return judged(Decision::Deny, Why::Perhaps(rule));
        }
        if let Some(rule) = first(Decision::Ask, |it| it != Match::No) {
            return judged(Decision::Ask, Why::Rules(vec![rule]));
        }
        let restricted = about(Decision::Deny).chain(about(Decision::Ask)).any(|rule| !rule.is_general());
        if matches!(subject, Subject::Script(None)) && restricted {
            return judged(Decision::Ask, Why::Unreadable);
        }
        match self.permitting(tool, &subject, &about(Decision::Allow).collect::<Vec<_>>()) {
            Some(by) if by.is_empty() => judged(Decision::Allow, Why::Reads),
            Some(by) => judged(Decision::Allow, Why::Rules(by.into_iter().cloned().collect())),
            None => {
                let decision = match self.0.unmatched {
                    Unmatched::Allow => Decision::Allow,
                    Unmatched::Ask => Decision::Ask,
                    Unmatched::Deny => Decision::Deny,
                };
                judged(decision, Why::Unmatched)
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

    /// The rules by which everything in a call is permitted: none of them where it only reads.
    fn permitting<'r>(&self, tool: &str, subject: &Subject, allow: &[&'r Rule]) -> Option<Vec<&'r Rule>> {
        if self.0.reading.contains(tool) {
            return Some(Vec::new());
        }
        if let Some(rule) = allow.iter().find(|rule| rule.is_general()) {
            return Some(vec![rule]);
        }
        match subject {
            Subject::Script(None) | Subject::Other => None,
            Subject::Script(Some(script)) => {
                let mut by = Vec::new();
                for command in script.commands.iter().filter(|command| !only_reads(command)) {
                    let rule = allow.iter().find(|rule| rule.matches_command(command, false) == Match::Yes)?;
                    if !by.contains(rule) {
                        by.push(*rule);
                    }
                }
                script.is_plain.then_some(by)
            }
            Subject::Paths(paths) => {
                let matches = |rule: &&&Rule| paths.iter().all(|path| rule.matches_path(path, &self.0.root, false));
                allow.iter().find(matches).map(|rule| vec![*rule])
            }
        }
    }

    pub(super) fn subject(&self, tool: &str, arguments: &Value) -> Subject {
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
