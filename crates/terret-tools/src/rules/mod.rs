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
mod reading;
mod rule;
mod script;

use std::fmt;

pub use judge::{RuleJudge, Unmatched};
pub use rule::{Rule, RuleError};

/// What is done about the calls that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Decision {
    /// They run.
    Allow,
    /// A person is asked.
    Ask,
    /// They don't run, and the model is told why.
    Deny,
}

/// Rules, and what is done about the calls that each of them matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Decision::Allow => "allow",
            Decision::Ask => "ask",
            Decision::Deny => "deny",
        })
    }
}
