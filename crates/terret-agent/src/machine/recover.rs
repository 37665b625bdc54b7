use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use terret_llm::{ErrorKind, ModelError};

use super::state::Progress;
use super::{Failure, RunState, Spent, Stage};

/// What a run does about a failed model call. Nothing of the reply was executed, so that the call is safe to repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Recovery {
    /// The same call again, at this time in Unix milliseconds.
    Retry {
        /// When.
        at: i64,
    },
    /// The same call to the next model of the agent's list. The run stays with that model.
    FallBack,
    /// The transcript is summarised, and then the model is called again.
    Compact,
}

impl Progress {
    /// What to do about a failure, with this much spent; nothing if the run has to fail. `compactable` tells whether
    /// there is something to summarise.
    pub(super) fn recovery(
        &self,
        failure: &Failure,
        spent: &Spent,
        at: i64,
        compactable: impl FnOnce() -> bool,
    ) -> Option<Recovery> {
        let run = self.run.as_ref()?;
        let Failure::Model(error) = failure else { return None };
        if run.exceeded.is_some() || spent.exhausts(&run.limits).is_some() {
            return None;
        }
        if error.kind == ErrorKind::ContextOverflow {
            let can = run.stage == Stage::Calling && run.compaction.is_none() && run.limits.compaction.is_some();
            // The next one may have a larger window.
            return if can && compactable() { Some(Recovery::Compact) } else { run.fallback() };
        }
        let retry = run.retry_at(error, self.epoch.to_string(), at).map(|at| Recovery::Retry { at });
        retry.or(run.fallback().filter(|_| another_model_may_answer(error.kind)))
    }
}

impl RunState {
    /// The next model, if there is one.
    fn fallback(&self) -> Option<Recovery> {
        (self.model.saturating_add(1) < self.models).then_some(Recovery::FallBack)
    }

    fn retry_at(&self, error: &ModelError, epoch: String, at: i64) -> Option<i64> {
        let limits = &self.limits.retry;
        let tries = self.tries.saturating_add(error.tries.max(1));
        if tries >= limits.tries.get() || !error.is_retryable() {
            return None;
        }
        let asked = error.retry_after.map(|asked| u64::try_from(asked.as_millis()).unwrap_or(u64::MAX));
        let wait = match asked.filter(|asked| *asked > 0) {
            Some(asked) => (asked <= limits.max_wait).then_some(asked)?,
            None => {
                let doubled = limits.base.saturating_mul(2_u64.saturating_pow(tries - 1)).min(limits.max_backoff);
                let less = u128::from(doubled) * u128::from(self.spread(&epoch)) / 1_024;
                doubled.saturating_sub(u64::try_from(less).unwrap_or(u64::MAX))
            }
        };
        let then = at.saturating_add(i64::try_from(wait).unwrap_or(i64::MAX));
        self.deadline().is_none_or(|deadline| then < deadline).then_some(then)
    }

    /// A number below 256, different for every run and call.
    fn spread(&self, epoch: &str) -> u64 {
        let mut hash = Sha256::new();
        hash.update(&self.id.0);
        hash.update(epoch);
        hash.finalize().first().copied().unwrap_or(0).into()
    }
}

/// Whether a failure is the model's or its host's, and not the request's.
fn another_model_may_answer(kind: ErrorKind) -> bool {
    use ErrorKind::*;
    !matches!(kind, InvalidRequest | Refused | Aborted)
}
