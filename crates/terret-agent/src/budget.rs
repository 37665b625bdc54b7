use std::sync::{Arc, Mutex, PoisonError};

use terret_llm::Money;

use crate::machine::{Budget, Record, Spent};

/// A budget that several runs spend together: those of one task, of one user, of a parent and its children.
///
/// It is looked at before each model call. Calls that are in flight at the same time may each go beyond it, by at most
/// one call for each run. It is in memory: a program that is restarted begins with what it has noted of
/// [`spent`](Self::spent).
#[derive(Clone, Debug, Default)]
pub struct SharedBudget(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    limits: SharedLimits,
    spent: Mutex<Spent>,
}

/// What several runs may spend together. What is `None` isn't limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedLimits {
    /// Model calls.
    pub model_calls: Option<u32>,
    /// Tokens of all model calls.
    pub tokens: Option<u64>,
    /// Money.
    pub cost: Option<Money>,
}

impl SharedBudget {
    /// A budget of which nothing is spent.
    pub fn new(limits: SharedLimits) -> Self {
        Self(Arc::new(Inner { limits, spent: Mutex::default() }))
    }

    /// What all runs have spent of it.
    pub fn spent(&self) -> Spent {
        *self.0.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is used up.
    pub fn exhausted(&self) -> Option<Budget> {
        let (limits, spent) = (&self.0.limits, self.spent());
        let calls = limits.model_calls.is_some_and(|limit| spent.model_calls >= limit);
        let tokens = limits.tokens.is_some_and(|limit| spent.usage.total() >= limit);
        let cost = limits.cost.is_some_and(|limit| spent.cost >= limit);
        calls.then_some(Budget::ModelCalls).or(tokens.then_some(Budget::Tokens)).or(cost.then_some(Budget::Cost))
    }

    /// Takes in what a run has spent.
    pub(crate) fn note(&self, record: &Record) {
        let mut spent = self.0.spent.lock().unwrap_or_else(PoisonError::into_inner);
        spent.note(record);
    }
}
