//! What the model is told by the machine itself.

use std::collections::BTreeMap;

use terret_llm::Content;

use super::{RunState, StopCause, ToolFacts};
use crate::limit::shortened;
use crate::tool::ToolOutput;

pub(super) const CUT_OFF: &str = "Not executed: the reply was cut off at the output limit, so the arguments may be \
                                  incomplete. Make the call again with shorter arguments, or split the work into \
                                  several calls.";
pub(super) const PAUSED: &str =
    "Not executed: the provider paused the reply. Make the call again if it is still needed.";
pub(super) const REFUSED: &str = "Not executed: the reply ended in a refusal.";
pub(super) const NO_BUDGET: &str = "Not executed: the run's budget is used up.";
pub(super) const REPEATED: &str = "Not executed: exactly this call was made too many times in a row, and the run ends.";
pub(super) const BROKEN_OFF: &str = "The run was interrupted before the tool had finished. It changed nothing that a \
                                     repetition would harm: call it again if its result is still needed.";
pub(super) const OUTCOME_UNKNOWN: &str = "Outcome unknown: the tool was started and then interrupted. It may have done \
                                          all of its work, a part, or nothing. It was not started again. Check before \
                                          you repeat it.";

pub(super) fn stopped(cause: &StopCause) -> &'static str {
    match cause {
        StopCause::Cancelled(_) => "Not executed: the run was cancelled before the tool started.",
        StopCause::OutOfTime => "Not executed: the run's time was up before the tool started.",
        StopCause::Interrupted { .. } => "Not executed: the user interrupted before the tool started.",
    }
}

pub(super) fn denied(reason: &str) -> String {
    format!("The call was denied: {reason}")
}

pub(super) fn edited(arguments: &str) -> String {
    format!("[The user changed the arguments to: {arguments}]")
}

impl RunState {
    /// What the model brought about itself, with a warning when it goes round in circles.
    pub(super) fn warned(&self, mut output: ToolOutput) -> ToolOutput {
        if let Some(limit) = self.limits.repeats.filter(|limit| self.repeats() >= limit.warn.get()) {
            output.content.push(Content::text(repeated(self.repeats(), limit.end.get())));
        }
        output
    }
}

fn repeated(times: u32, end: u32) -> String {
    format!(
        "[You have made exactly this call {times} times in a row. Do something else, or say what keeps you; at {end} \
         times the run ends.]"
    )
}

pub(super) fn unknown_tool(name: &str, tools: &BTreeMap<String, ToolFacts>) -> String {
    let known: Vec<&str> = tools.keys().map(String::as_str).collect();
    let name = shortened(name, 100);
    match known.is_empty() {
        true => format!("There is no tool {name:?}, and this run has no tools."),
        false => format!("There is no tool {name:?}. The tools are: {}.", known.join(", ")),
    }
}

pub(super) fn summary(summary: &str) -> String {
    format!("[What was said before this message is summarised here, because it had become too long.]\n\n{summary}")
}
