//! The numbers by which people call messages: from 1, in the order in which a model was told them. A summary that takes
//! the place of some takes no number away. A fork is made after so many of them.

use serde::{Deserialize, Serialize};
use terret_agent::machine::Record;

/// Takes records in, from the first one, and tells which messages have a place now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Numbering {
    /// How many messages there are, with the results that are still to come.
    messages: u64,
    /// The ids of what waits for its delivery, and the records that hold it.
    queue: Vec<(u64, u64)>,
    queued_so_far: u64,
    /// The calls of the last reply, whose results come in this order behind it.
    calls: Vec<String>,
}

/// A message that has its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbered {
    /// The number of the record that holds it.
    pub(crate) record: u64,
    pub(crate) message: u64,
}

impl Numbering {
    pub(crate) fn take(&mut self, seq: u64, record: &Record) -> Vec<Numbered> {
        match record {
            Record::RunStarted { prompt: Some(_), .. } | Record::Queued { .. } => {
                self.queue.push((self.queued_so_far, seq));
                self.queued_so_far += 1;
                Vec::new()
            }
            Record::Delivered { ids } => {
                let delivered = self.queue.extract_if(.., |(id, _)| ids.contains(id));
                let messages = self.messages + 1..;
                let numbered: Vec<_> =
                    delivered.zip(messages).map(|((_, record), message)| Numbered { record, message }).collect();
                self.messages += numbered.len() as u64;
                numbered
            }
            Record::Objected { .. } => {
                self.messages += 1;
                vec![Numbered { record: seq, message: self.messages }]
            }
            Record::Withdrawn { id } => {
                self.queue.retain(|(queued, _)| queued != id);
                Vec::new()
            }
            Record::ReplyAccepted { message, .. } => {
                self.messages += 1;
                let numbered = Numbered { record: seq, message: self.messages };
                self.calls = message.tool_calls().map(|call| call.id.clone()).collect();
                self.messages += self.calls.len() as u64;
                vec![numbered]
            }
            Record::CallClosed { result } => {
                let place = self.calls.iter().rev().zip(0..).find(|(id, _)| is_of(result, id));
                place.map(|(_, back)| Numbered { record: seq, message: self.messages - back }).into_iter().collect()
            }
            Record::RunEnded { .. } => {
                self.queue.clear();
                Vec::new()
            }
            _ => Vec::new(),
        }
    }
}

fn is_of(result: &terret_llm::Message, call: &str) -> bool {
    matches!(result, terret_llm::Message::ToolResult(result) if result.tool_call_id == call)
}
