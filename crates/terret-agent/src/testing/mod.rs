//! A kit for tests of your own agents. Needs the Cargo feature `testing`: one for dev-dependencies.
//!
//! - [`ByTurn`] is a scripted model that may be asked twice: it goes by the transcript.
//! - [`run`] runs a prompt on a paused clock, and returns everything that happened: a [`Recorded`].
//! - [`crash_everywhere`] runs it over and over, with a crash and a cancel at every step, and reports every call that
//!   ran twice although it must not, and every run that doesn't end.
//!
//! ```
//! use terret_agent::testing::{self, ByTurn, ScriptedReply};
//! use terret_agent::{Agent, EffectClass, tool};
//! use terret_llm::ToolCall;
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Pay {
//!     cents: u32,
//! }
//!
//! fn agent() -> Agent {
//!     let model = ByTurn::new([
//!         ScriptedReply::calls([ToolCall::new("1", "pay", r#"{"cents":500}"#)]),
//!         ScriptedReply::text("Paid."),
//!     ]);
//!     let pay = tool("pay", "Pays.", |pay: Pay, _| async move { Ok(format!("{} cents are paid", pay.cents)) });
//!     Agent::builder(model).tool(pay.effect(EffectClass::AtMostOnce)).build().unwrap()
//! }
//!
//! let ran = testing::run(&agent(), "Pay 5.");
//! ran.assert_called(&["pay"]);
//! assert_eq!(ran.assert_completed(), "Paid.");
//!
//! testing::crash_everywhere(agent, "Pay 5.").assert_sound();
//! ```

#![expect(clippy::panic, clippy::expect_used, reason = "these fail a test")]

mod by_turn;
mod crash;
mod recorded;
mod trial;

pub use by_turn::ByTurn;
pub use crash::{Crashes, Problem, Subject, crash_everywhere};
pub use recorded::Recorded;
pub use terret_llm::scripted::{Expected, ScriptError, ScriptedModel, ScriptedReply};

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::agent::Agent;
use crate::event::Event;
use crate::run::RunHandle;
use crate::session::UserPrompt;

/// Runs a prompt to its end on a paused clock: time passes only while everybody waits, and then at once.
///
/// A tool that waits for something outside the process (a command, a socket) finds that its time is up before it is: such
/// tools are tested with [`Recorded::of`] on a usual clock. Nobody answers questions; see [`run_with`].
///
/// # Panics
///
/// When the run doesn't end within 30 days of that clock.
#[track_caller]
pub fn run(agent: &Agent, prompt: impl Into<UserPrompt>) -> Recorded {
    run_with(agent, prompt, |_, _| {})
}

/// The same, with somebody who watches: who may steer, answer and cancel by the handle, at any event.
///
/// # Panics
///
/// When the run doesn't end within 30 days of the paused clock.
#[track_caller]
pub fn run_with(
    agent: &Agent,
    prompt: impl Into<UserPrompt>,
    watch: impl FnMut(&Event, &RunHandle) + Send,
) -> Recorded {
    let prompt = prompt.into();
    let recorded = on_a_thread(|| {
        let runtime = paused();
        let recorded = runtime.block_on(async { within_reason(Recorded::watched(agent.prompt(prompt), watch)).await });
        runtime.shutdown_background();
        recorded
    });
    recorded.unwrap_or_else(|| panic!("the run doesn't end"))
}

/// Nothing that ends takes longer.
const WITHIN_REASON: Duration = Duration::from_secs(30 * 86_400);

async fn within_reason<T>(run: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(WITHIN_REASON, run).await.ok()
}

fn paused() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime")
}

/// On a thread of its own, so that it can be called from a test that has a runtime.
fn on_a_thread<T: Send>(of: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| match scope.spawn(of).join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}
