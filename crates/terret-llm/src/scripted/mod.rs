//! Scripted models: they reply what a script says, for tests of agents, for demonstrations and for benchmarks.
//!
//! A script is a JSON Lines file: one model reply a line, taken in order, one for each model call. Blank lines count
//! for nothing. `{"text":"Hello."}` is a whole reply; these are all keys, none of which is required:
//!
//! | key | value | default |
//! |---|---|---|
//! | `content` | blocks as in a transcript; a `toolCall` may have `argumentsText` (any text, also malformed) in place of `arguments` | `[]` |
//! | `text` | one text block, in place of `content` | |
//! | `stopReason` | why the model stopped, as in a transcript | `toolUse` if there are calls, else `stop` |
//! | `usage` | tokens, as in a transcript | none |
//! | `chunk` | characters per delta; 0 sends each block in one delta | 0 |
//! | `delayMs` | milliseconds before the reply starts | 0 |
//! | `deltaDelayMs` | milliseconds before each delta | 0 |
//! | `error` | `{"kind":"overloaded","message":"…","retryAfterMs":N,"status":N,"code":"…"}`, of which `kind` is required: the call fails with it, after the content if there is any | |
//! | `stall` | `true`: after the content nothing more comes, until the call is cancelled | `false` |
//! | `expect` | `{"lastRole":"toolResult","contains":"42"}`: the call fails at once if the request's last message has another role or its text doesn't contain this | |
//!
//! Ids of tool calls stay as the script has them, also empty or repeated ones, which the wires never let through: so
//! that it can be tested what an agent does with them; only those that the conversation had before the script began are
//! made new. A key that isn't in this table is an error. A script
//! that has no reply left, and an `expect` that isn't met, fail the call with [`ErrorKind::InvalidRequest`]; a script that
//! ends in an `error` goes on failing with that one. Opaque blocks belong to the model's wire, whichever they name.
//!
//! ```
//! use terret_llm::{Model as _, Request, ScriptedModel};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let model = ScriptedModel::parse(r#"{"text":"Hello."}"#)?;
//! let reply = model.stream(Request::default(), Default::default()).finish().await.unwrap();
//! assert_eq!(reply.message().text(), "Hello.");
//! # Ok::<_, terret_llm::scripted::ScriptError>(())
//! # }).unwrap();
//! ```

mod format;
mod reply;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_stream::stream;
use tokio_util::sync::CancellationToken;

pub use format::ScriptError;
pub use reply::{Expected, ScriptedReply};

use crate::draft::{Draft, Stop};
use crate::error::{ErrorKind, ModelError};
use crate::model::{Model, ModelSpec};
use crate::request::Request;
use crate::stream::{BlockKind, ReplyStream};
use crate::transcript::{Block, Message, RawJson, StopReason, Transcript};
use crate::wire::WireFormat;
use reply::End;

/// A model that replies what a script says. See the [module](self) for the format.
///
/// Clones share the script: each call, on whichever of them, takes the next reply, also when it is cancelled or dropped.
#[derive(Clone, Debug)]
pub struct ScriptedModel {
    spec: Arc<ModelSpec>,
    script: Arc<Script>,
}

#[derive(Debug)]
struct Script {
    replies: Vec<ScriptedReply>,
    requests: Mutex<Vec<Seen>>,
}

/// A request that was seen. The messages are apart, because a shared transcript is dear to append to.
#[derive(Debug)]
struct Seen {
    request: Request,
    messages: Vec<Arc<Message>>,
}

impl ScriptedModel {
    /// A model that gives these replies in order.
    pub fn new(replies: impl IntoIterator<Item = ScriptedReply>) -> Self {
        Self::named("script", replies.into_iter().collect())
    }

    /// Reads a script from text.
    pub fn parse(script: &str) -> Result<Self, ScriptError> {
        Ok(Self::new(format::parse(script, Path::new("script"))?))
    }

    /// Reads a script from a file. The file's name without its extension is the model's id.
    pub fn from_path(path: impl AsRef<Path>) -> Result<Self, ScriptError> {
        let path = path.as_ref();
        let script = std::fs::read_to_string(path)
            .map_err(|source| ScriptError::Unreadable { script: path.to_owned(), source })?;
        let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy();
        Ok(Self::named(&name, format::parse(&script, path)?))
    }

    /// The same script as another model: one with a price, a smaller context window …
    #[must_use]
    pub fn with_spec(mut self, spec: ModelSpec) -> Self {
        self.spec = Arc::new(spec);
        self
    }

    /// The requests of all calls so far, in order.
    pub fn requests(&self) -> Vec<Request> {
        let whole = |seen: &Seen| Request { messages: seen.messages.iter().cloned().collect(), ..seen.request.clone() };
        self.script.requests().iter().map(whole).collect()
    }

    fn named(name: &str, replies: Vec<ScriptedReply>) -> Self {
        Self {
            spec: Arc::new(ModelSpec::new("scripted", name, WireFormat::from("scripted"))),
            script: Arc::new(Script { replies, requests: Mutex::default() }),
        }
    }
}

impl Script {
    /// Records the request; the reply to it, if the script has one that accepts it.
    fn reply_to(&self, request: Request) -> Result<ScriptedReply, ModelError> {
        let earlier = request.messages.clone();
        let call = {
            let mut requests = self.requests();
            let messages = request.messages.to_vec();
            requests.push(Seen { request: Request { messages: Transcript::new(), ..request.clone() }, messages });
            requests.len()
        };
        let invalid = |message| ModelError::new(ErrorKind::InvalidRequest, message);
        let Some(reply) = self.replies.get(call - 1) else {
            // What has failed for good is called again by whoever doesn't give up.
            if let Some(ScriptedReply { end: End::Error(error), .. }) = self.replies.last() {
                return Err(error.clone());
            }
            let had = match self.replies.len() {
                1 => "1 reply".to_owned(),
                n => format!("{n} replies"),
            };
            return Err(invalid(format!("the script is exhausted: it had {had}, and this is model call {call}")));
        };
        reply.expect.check(request.messages.last().map(|message| &**message)).map_err(|difference| {
            invalid(format!("the request of model call {call} isn't what the script expects: {difference}"))
        })?;
        let mut reply = reply.clone();
        self.tell_apart(&mut reply, call - 1, &earlier);
        Ok(reply)
    }

    /// Gives calls new ids whose own were used before this script began: by the script of another process, in a session
    /// that goes on. What the script itself repeats stays.
    fn tell_apart(&self, reply: &mut ScriptedReply, replies_before: usize, earlier: &Transcript) {
        let calls = |reply: &ScriptedReply, id: &str| {
            reply.content.iter().filter_map(Block::as_tool_call).any(|call| call.id == id)
        };
        for block in &mut reply.content {
            let Block::ToolCall(call) = block else { continue };
            let own = self.replies.iter().take(replies_before).any(|reply| calls(reply, &call.id));
            if !own && earlier.has_call_id(&call.id) {
                let fresh = (2..).map(|n| format!("{}-{n}", call.id)).find(|id| !earlier.has_call_id(id));
                call.id = fresh.unwrap_or_default();
            }
        }
    }

    fn requests(&self) -> MutexGuard<'_, Vec<Seen>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Model for ScriptedModel {
    fn spec(&self) -> &Arc<ModelSpec> {
        &self.spec
    }

    fn stream(&self, request: Request, cancel: CancellationToken) -> ReplyStream {
        let mut draft = Draft::new(&self.spec);
        let reply = self.script.reply_to(request);
        ReplyStream::new(stream! {
            let end = 'reply: {
                let reply = match reply {
                    Ok(reply) => reply,
                    Err(error) => break 'reply Err(error),
                };
                if !wait(reply.delay, &cancel).await {
                    break 'reply Err(aborted());
                }
                for block in reply.content {
                    let Parts { kind, text, signature, annotations } = Parts::of(block);
                    let index = draft.open_verbatim(kind);
                    for delta in deltas(&text, reply.chunk) {
                        while let Some(event) = draft.next_event() {
                            yield event;
                        }
                        if !wait(reply.delta_delay, &cancel).await {
                            break 'reply Err(aborted());
                        }
                        draft.append(index, delta);
                    }
                    if let Some(signature) = signature {
                        draft.sign(index, &signature);
                    }
                    if let Some(annotations) = annotations {
                        draft.annotate(index, annotations);
                    }
                    draft.close(index);
                }
                while let Some(event) = draft.next_event() {
                    yield event;
                }
                match reply.end {
                    End::Stop(reason) => {
                        *draft.usage_mut() = reply.usage;
                        let default = if draft.has_tool_calls() { StopReason::ToolUse } else { StopReason::Stop };
                        Ok(Stop { reason: reason.unwrap_or(default), raw: None })
                    }
                    End::Error(error) => {
                        *draft.usage_mut() = reply.usage;
                        Err(error)
                    }
                    End::Stall => {
                        cancel.cancelled().await;
                        Err(aborted())
                    }
                }
            };
            let events = match end {
                Ok(stop) => draft.done(stop),
                Err(error) => draft.fail(error),
            };
            for event in events {
                yield event;
            }
        })
    }
}

/// A block, taken apart into what a draft is fed with.
struct Parts {
    kind: BlockKind,
    text: String,
    signature: Option<String>,
    annotations: Option<RawJson>,
}

impl Parts {
    fn of(block: Block) -> Self {
        let unsigned = |kind, text: &str| Self { kind, text: text.to_owned(), signature: None, annotations: None };
        match block {
            Block::Text(text) => Self {
                kind: BlockKind::Text,
                text: text.text,
                signature: text.signature,
                annotations: text.annotations,
            },
            Block::Thinking(thinking) => Self {
                kind: BlockKind::Thinking { redacted: thinking.redacted },
                text: thinking.thinking,
                signature: thinking.signature,
                annotations: None,
            },
            Block::ToolCall(call) => Self {
                kind: BlockKind::ToolCall { id: call.id, name: call.name },
                text: call.arguments.as_str().to_owned(),
                signature: call.signature,
                annotations: None,
            },
            Block::Image(image) => unsigned(BlockKind::Image { media_type: image.media_type.clone() }, image.base64()),
            Block::Opaque(opaque) => unsigned(BlockKind::Opaque, opaque.raw.as_str()),
        }
    }
}

/// The text in pieces of so many characters; in one piece for 0.
fn deltas(text: &str, characters: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = match characters {
            0 => rest.len(),
            n => rest.char_indices().nth(n).map_or(rest.len(), |(end, _)| end),
        };
        let (delta, after) = rest.split_at(end);
        rest = after;
        (!delta.is_empty()).then_some(delta)
    })
}

/// Waits. False, at once, when the call is cancelled.
async fn wait(delay: Duration, cancel: &CancellationToken) -> bool {
    if delay.is_zero() {
        return !cancel.is_cancelled();
    }
    cancel.run_until_cancelled(tokio::time::sleep(delay)).await.is_some()
}

fn aborted() -> ModelError {
    ModelError::new(ErrorKind::Aborted, "the call was cancelled")
}
