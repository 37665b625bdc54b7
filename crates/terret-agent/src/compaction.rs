//! Summaries of what has become too long.

use std::fmt::Write as _;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use terret_llm::{Block, Content, Message, Model, Options, Request, StopReason, Transcript, Usage, UserMessage};
use tokio_util::sync::CancellationToken;

use crate::limit::head_and_tail;
use crate::machine::{Failure, tokens};

/// Says in short what was said at length, so that a conversation can go on that doesn't fit the model any more.
///
/// What it returns takes the place of the messages in the transcript; those stay in the journal. A summary that is not
/// shorter fails the run. A failure of the kind [`Failure::Model`] is tried again like any model call.
pub trait Summarize: Send + Sync {
    /// The summary. A cancel fires `cancel` and then drops the future.
    fn summarize<'a>(
        &'a self,
        messages: &'a [Arc<Message>],
        model: &'a dyn Model,
        cancel: CancellationToken,
    ) -> BoxFuture<'a, Result<Summary, SummaryFailed>>;
}

/// What was said, in short.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// The text, for the model.
    pub text: String,
    /// What it used up.
    pub usage: Usage,
}

/// Why there is no summary.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{failure}")]
pub struct SummaryFailed {
    /// What went wrong.
    pub failure: Failure,
    /// What it used up all the same.
    pub usage: Usage,
}

/// The default: asks the run's own model, in one call whose input fits the model.
///
/// The messages are written out as text, without images and reasoning. Where they are too long for the model's window,
/// the middle of each long one is left out. An earlier summary is among the messages, so that the new one covers it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ModelSummary;

const SYSTEM: &str = "You write hand-over notes for a colleague who goes on with a conversation between a user and an \
                      assistant that has tools, and who will see your notes in place of the conversation. Write in the \
                      conversation's language. Keep every fact that the work still needs: what the user wants and has \
                      decided, in the user's words where they matter; what was done and with which result; files, \
                      commands, names, numbers and errors exactly; what is open, and what comes next. Leave out what is \
                      settled and no longer matters. Do not go on with the conversation and do not answer it.";

const ASK: &str = "Write the notes now. Nothing else.";

/// Tokens of a window that isn't known.
const USUAL_WINDOW: u64 = 32_000;

impl Summarize for ModelSummary {
    fn summarize<'a>(
        &'a self,
        messages: &'a [Arc<Message>],
        model: &'a dyn Model,
        cancel: CancellationToken,
    ) -> BoxFuture<'a, Result<Summary, SummaryFailed>> {
        Box::pin(async move {
            let window = model.spec().context_window.map_or(USUAL_WINDOW, u64::from);
            let text = written_out(messages, window / 2);
            let prompt = UserMessage::text(format!("<conversation>\n{text}</conversation>\n\n{ASK}"), 0);
            let mut options = Options::default();
            options.max_output_tokens = u32::try_from(window / 4).ok().map(|most| match model.spec().max_output {
                Some(max) => most.min(max),
                None => most.min(8_192),
            });
            let messages = Transcript::from_iter([Message::from(prompt)]);
            let request = Request { system: Some(SYSTEM.into()), messages, tools: Arc::from([]), options };
            match model.stream(request, cancel).finish().await {
                Err(failed) => {
                    Err(SummaryFailed { failure: Failure::Model(failed.error), usage: failed.partial.usage })
                }
                Ok(reply) => {
                    let reply = reply.into_message();
                    match reply.stop_reason {
                        StopReason::Stop => Ok(Summary { text: reply.text(), usage: reply.usage }),
                        reason => {
                            let why = match reason {
                                StopReason::Length => "the summary was cut off at the output limit".to_owned(),
                                reason => format!("the model stopped because of {reason:?}"),
                            };
                            Err(SummaryFailed { failure: Failure::Compaction(why), usage: reply.usage })
                        }
                    }
                }
            }
        })
    }
}

/// The messages as text of about this many tokens at most.
fn written_out(messages: &[Arc<Message>], limit: u64) -> String {
    let all = messages.iter().map(|message| tokens(message)).sum::<u64>().max(1);
    // Each message may take its share of the limit, and a short one always all that it needs.
    let share = |message: &Message| {
        let share = tokens(message).saturating_mul(limit) / all;
        if all <= limit { usize::MAX } else { usize::try_from(share * 4).unwrap_or(usize::MAX).max(200) }
    };
    let mut text = String::new();
    for message in messages {
        let (who, said) = match &**message {
            Message::User(message) => ("user", contents(&message.content)),
            Message::ToolResult(result) => ("tool result", contents(&result.content)),
            Message::Assistant(reply) => ("assistant", blocks(&reply.content)),
        };
        let said = if said.len() > share(message) { head_and_tail(&said, share(message)) } else { said };
        // Writing to a string doesn't fail.
        let _ = writeln!(text, "[{who}]\n{said}\n");
    }
    // Many short messages are long together.
    let most = usize::try_from(limit.saturating_mul(4)).unwrap_or(usize::MAX);
    if text.len() > most { head_and_tail(&text, most) } else { text }
}

fn contents(content: &[Content]) -> String {
    let text = |content: &Content| content.as_text().map_or_else(|| "(an image)".to_owned(), str::to_owned);
    content.iter().map(text).collect::<Vec<_>>().join("\n")
}

fn blocks(blocks: &[Block]) -> String {
    let text = |block: &Block| match block {
        Block::Text(text) => Some(text.text.clone()),
        Block::ToolCall(call) => Some(format!("(calls {} with {})", call.name, call.arguments.as_str())),
        Block::Image(_) => Some("(an image)".to_owned()),
        _ => None,
    };
    blocks.iter().filter_map(text).collect::<Vec<_>>().join("\n")
}
