//! Rules about calls: what may run, what a person is asked about, what is refused.
//!
//! - [`Rule`] is a tool and, if need be, a pattern: of a command, or of a path.
//! - [`Rules`] say what is done about the calls that each of them matches. A denial wins over a question, and a question
//!   over a permission.
//! - [`RuleJudge`] goes by them, for a [`Gate`](terret_agent::Gate).
//!
//! A command line is judged as bash would read it ([`script`]), never as a string: a permission needs every command in it
//! to be permitted, and nothing in it that is known only when it runs. What only reads needs no permission ([`reading`]).
//!
//! Rules save questions and catch mistakes. They are no boundary: who can run `make` can run anything. The sandbox is one.

mod inner;
mod judge;
mod narrow;
mod reading;
mod rule;
mod script;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use judge::{Judgement, RuleJudge, Unmatched, Why};
pub use rule::{Rule, RuleError};

/// What is done about the calls that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// They run.
    Allow,
    /// A person is asked.
    Ask,
    /// They don't run, and the model is told why.
    Deny,
}

/// Rules, and what is done about the calls that each of them matches.
///
/// In JSON, they are lists of texts: `{"allow": ["bash(cargo test *)"], "ask": [], "deny": ["read(.env)"]}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Lists", into = "Lists")]
pub struct Rules(Vec<(Decision, Rule)>);

impl Rules {
    /// No rules.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a rule, unless it is there.
    pub fn add(&mut self, decision: Decision, rule: Rule) {
        let entry = (decision, rule);
        if !self.0.contains(&entry) {
            self.0.push(entry);
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps only what this says yes to.
    pub fn retain(&mut self, keep: impl FnMut(&(Decision, Rule)) -> bool) {
        self.0.retain(keep);
    }

    /// Takes a rule back, whatever it decides. False if it isn't there.
    pub fn remove(&mut self, rule: &Rule) -> bool {
        let before = self.0.len();
        self.0.retain(|(_, it)| it != rule);
        self.0.len() < before
    }

    /// All rules, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (Decision, &Rule)> {
        self.0.iter().map(|(decision, rule)| (*decision, rule))
    }

    fn of(&self, wanted: Decision) -> impl Iterator<Item = &Rule> {
        self.iter().filter(move |(decision, _)| *decision == wanted).map(|(_, rule)| rule)
    }
}

impl FromIterator<(Decision, Rule)> for Rules {
    fn from_iter<I: IntoIterator<Item = (Decision, Rule)>>(entries: I) -> Self {
        let mut rules = Self::new();
        entries.into_iter().for_each(|(decision, rule)| rules.add(decision, rule));
        rules
    }
}

/// Rules as they are written.
#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Lists {
    allow: Vec<Rule>,
    ask: Vec<Rule>,
    deny: Vec<Rule>,
}

impl From<Lists> for Rules {
    fn from(Lists { allow, ask, deny }: Lists) -> Self {
        let lists = [(Decision::Allow, allow), (Decision::Ask, ask), (Decision::Deny, deny)];
        lists.into_iter().flat_map(|(decision, rules)| rules.into_iter().map(move |rule| (decision, rule))).collect()
    }
}

impl From<Rules> for Lists {
    fn from(rules: Rules) -> Self {
        let list = |decision| rules.of(decision).cloned().collect();
        Self { allow: list(Decision::Allow), ask: list(Decision::Ask), deny: list(Decision::Deny) }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Decision::Allow => "allow",
            Decision::Ask => "ask",
            Decision::Deny => "deny",
        })
    }
}
