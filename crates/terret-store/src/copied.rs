//! What ends in a copy: runs and calls belong to the session that they are of, which may go on with them.

use std::sync::Arc;

use terret_agent::machine::{Outcome, Record, State};
use terret_llm::{Content, Message, ToolCall, ToolResultMessage};

/// A result for each call that has none. Its tool is not asked: what it did, or still does, is for the session that
/// called it.
pub(crate) fn close_open_calls(state: &State) -> Vec<Record> {
    let calls = state.batch().into_iter().flat_map(|batch| &batch.calls).filter(|call| !call.is_closed());
    calls.map(|it| Record::CallClosed { result: Arc::new(no_result(&it.call)) }).collect()
}

/// The end of a run that hasn't ended.
pub(crate) fn end_run(state: &State, reason: &str) -> Option<Record> {
    let outcome = Outcome::Cancelled { reason: reason.into(), still_running: Vec::new() };
    state.run().is_some().then_some(Record::RunEnded { outcome })
}

fn no_result(call: &ToolCall) -> Message {
    Message::ToolResult(ToolResultMessage {
        tool_call_id: call.id.clone(),
        tool_name: call.name.clone(),
        content: vec![Content::text("Outcome unknown: no result of this call was kept.")],
        details: None,
        is_error: true,
        timestamp: 0,
    })
}
