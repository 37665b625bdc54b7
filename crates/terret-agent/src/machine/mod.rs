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
//! | in stage | input | the transition commits | then |
//! |---|---|---|---|
//! | ready | prompt | run started; message admitted | call the model |
//! | ready, calls of an earlier run open | prompt | run started; message queued; each open call settled | when all are closed: deliver, call the model |
//! | calling | replied, no tool calls | reply accepted | complete; or deliver a queued message and call again |
//! | calling | replied, no tool calls, reason `pause` | reply accepted | call again |
//! | calling | replied, tool calls | reply accepted, before any tool starts | gate each known call; close unknown ones |
//! | calling | replied, tool calls, reason `length` or `pause` | reply accepted; every call closed as not executed | call again |
//! | calling | replied, reason `refusal` | reply accepted; every call closed as not executed | fail |
//! | calling | replied, an empty or used call id, no content, `toolUse` without calls | attempt failed | fail |
//! | calling | failed | attempt failed | fail |
//! | acting | gate: allow | call allowed; opened when its turn comes | start the tool |
//! | acting | gate: deny, or arguments rejected | call closed with the reason | as after a tool |
//! | acting | gate: ask | call asked | wait for a person, if need be over restarts |
//! | acting | answered: approve, for the run, or with other arguments | call approved | validate the arguments, start the tool |
//! | acting | answered: deny | call closed with the reason | as after a tool |
//! | acting | tool finished, or discovered | call closed with its output | when all are closed: deliver steering, call again |
//! | acting, a call beyond the tool budget, or the same calls too often in a row | | budget exceeded; what waits is closed, what runs may finish | out of budget |
//! | any but ready | deadline | expired; calls that never started closed | stop everything; then out of budget |
//! | any but ready | steer, follow-up | queued | delivered at the next safe point, or handed back at the end |
//! | any but ready | cancel | cancelled; calls that never started closed | stop everything; then the outcome |
//! | calling | resume (after a crash) | resumed; model called anew | |
//! | acting | resume (after a crash) | resumed; at-most-once calls that were open are in doubt | discover those, start the others again |
//! | any | stale epoch, late result, input after the end | nothing | |
//!
//! A model call that would exceed a budget (calls, tokens, cost) is never announced: the run ends out of budget instead,
//! after the tools of the last permitted reply have run and their results stand in the transcript. An answer fits one call
//! and one digest of its arguments, and nothing else.

mod apply;
mod decide;
mod due;
mod effect;
mod input;
mod outcome;
mod record;
mod state;

pub use apply::apply;
pub use decide::decide;
pub use due::due;
pub use effect::Effect;
pub use input::{Answer, Input, Prompt, Verdict};
pub use outcome::{Budget, Failure, Outcome, Violation};
pub use record::{QueueKind, Record};
pub use state::{
    Batch, Call, CallStage, Epoch, Limits, LoopLimit, Queued, RunId, RunState, Spent, Stage, State, StopCause,
    ToolFacts,
};
