//! The run machine: pure, total, synchronous, serialisable. No clock, no randomness, no async, no I/O.
//!
//! ```text
//!             ┌────────────── decide ◄── Input (a prompt, a completion, a verdict, a cancel)
//!             ▼
//!   Record, Record, …  ── made durable by the driver ──► apply ──► State ──► due ──► Effect, Effect, …
//! ```
//!
//! - [`decide`] says what happens. It is total: an input that the state has no use for (a stale epoch, a late result,
//!   anything after the end) yields no record.
//! - [`apply`] is the only way state changes. State is the fold of records, so recovery is a law and not a feature: the
//!   records rebuild the state and its due effects.
//! - [`due`] says what must be in flight now. The driver starts what isn't yet.
//!
//! A model call that would exceed a budget (calls, tokens, cost) is never announced: the run ends out of budget instead,
//! after the tools of the last permitted reply have run and their results stand in the transcript. An answer fits one call
//! and one digest of its arguments, and nothing else.
//!
//! # The transition table
//!
#![doc = include_str!("table.md")]

mod apply;
mod batch;
mod context;
mod decide;
mod due;
mod effect;
mod input;
mod limits;
mod next;
mod outcome;
mod record;
mod recover;
mod state;
mod told;

pub use apply::apply;
pub use batch::{Batch, Call, CallStage, ToolFacts};
pub use decide::decide;
pub use due::due;
pub use effect::Effect;
pub use input::{Answer, Input, Prompt, Verdict};
pub use limits::{CompactionLimits, Limits, LoopLimit, RetryLimits, Spent};
pub use outcome::{Budget, Failure, Outcome, Violation};
pub use record::{QueueKind, Record};
pub use recover::Recovery;
pub use state::{Compaction, Epoch, Queued, RunId, RunState, Stage, State, StopCause, Task};

pub(crate) use context::tokens;
