//! Handoff: a transcript as the target model accepts it. One function for all wires, run before every encode.
//!
//! What it guarantees to an encoder:
//! - The first message is the user's. No user message and no tool result is empty, no text is blank (except a signed
//!   one, of the target's own), and every reply holds something besides thinking.
//! - Every tool call has exactly one result, and the results stand directly after the reply, in the order of its calls.
//! - Call ids are distinct and fit [`Compat::call_id`](crate::Compat); names are 1 to 64 of `A-Z a-z 0-9 _ -`;
//!   arguments are a JSON object.
//! - Thinking, signatures and annotations are the target's own; opaque blocks are of its provider and its wire.
//! - Images stand only where the target takes them.
//!
//! What a message becomes depends on nothing that stands after it, apart from the results of its own calls: a growing
//! conversation keeps its beginning, and the provider's prompt cache with it.

mod ids;
mod pairing;

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;

use self::pairing::{Call, pair};
use crate::lossy::Lossy;
use crate::model::ModelSpec;
use crate::transcript::{
    Arguments, AssistantMessage, Block, Content, Image, Message, Opaque, StopReason, Text, Thinking, ToolCall,
    ToolResultMessage, Transcript, UserMessage, replace_lone_surrogates,
};
use crate::wire::WireFormat;

/// The transcript as `target` accepts it.
///
/// - Replies of the same model (provider, id and wire) keep thinking and signatures byte for byte. Another model's
///   thinking, signatures and annotations are dropped.
/// - Opaque blocks go to the service that wrote them: to any model of the same provider over the same wire. One of a kind
///   that isn't opaque on its wire (a tool call of an odd shape) is dropped.
/// - Replies that failed or were cancelled are left out, and the results of their calls.
/// - A call without a result gets an error result, a result elsewhere moves to its call, of several results the first
///   counts, and a result without a call is dropped.
/// - Ids that the target may refuse, or that stand twice, are replaced; call and result agree. The model that wrote an
///   id gets it back as it was.
/// - Arguments that are no JSON object go as `{"malformed_arguments": "…"}`, with the text that the model wrote: every
///   wire wants an object, and the model can see its mistake. Escapes of lone surrogates become `\ufffd`.
/// - Blank texts are dropped; what would be empty without them says so in words.
///
/// Messages that need no change are borrowed.
pub fn handoff<'a>(transcript: &'a Transcript, target: &ModelSpec) -> Vec<Cow<'a, Message>> {
    let groups = Handoff::default().groups(transcript, target);
    groups.into_iter().flat_map(|group| std::iter::once(group.message).chain(group.results)).collect()
}

/// Messages that belong together: a user's, or a reply with the results of its calls.
#[derive(Debug)]
pub struct Group<'a> {
    /// The user's message or the reply.
    pub(crate) message: Cow<'a, Message>,
    /// One for each of the reply's calls, in their order.
    pub(crate) results: Vec<Cow<'a, Message>>,
    /// Whether something of the user's (a message, a result) stands in this group and in none after it.
    pub(crate) is_last_of_user: bool,
    /// Whether no group follows.
    pub(crate) is_last: bool,
    /// Which of the messages began it.
    from: usize,
    /// How many of the messages have to be known, so that nothing after them can change the group.
    settled: usize,
}

/// A handoff that goes on where it was left, so that a growing conversation is not gone through again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handoff {
    /// The ids of calls that have been given out.
    taken: HashSet<String>,
    has_begun: bool,
}

impl Handoff {
    /// The messages that follow those that are [`done`](Self::done), as `target` accepts them.
    pub(crate) fn groups<'a>(&self, messages: &'a [Arc<Message>], target: &ModelSpec) -> Vec<Group<'a>> {
        let mut calls = pair(messages, &self.taken, target).into_iter();
        let mut groups = Vec::new();
        for (from, message) in messages.iter().enumerate() {
            match &**message {
                Message::User(user) => groups.push(Group::of(
                    from,
                    match replaced(&user.content, EMPTY_MESSAGE, target) {
                        None => Cow::Borrowed(&**message),
                        Some(content) => Cow::Owned(UserMessage { content, timestamp: user.timestamp }.into()),
                    },
                )),
                Message::Assistant(reply) if is_replayed(reply) => {
                    let adapted = adapt_reply(message, reply, calls.as_slice(), target);
                    let calls = calls.by_ref().take(reply.tool_calls().count());
                    let Some(adapted) = adapted else { continue };
                    if groups.is_empty() && !self.has_begun {
                        groups.push(Group::of(from, Cow::Owned(UserMessage::text(MISSING_START, 0).into())));
                    }
                    let mut group = Group::of(from, adapted);
                    for call in calls {
                        group.settled = group.settled.max(call.settled);
                        group.results.push(result(call, reply.timestamp, target));
                    }
                    groups.push(group);
                }
                // Results have gone with their calls.
                Message::Assistant(_) | Message::ToolResult(_) => {}
            }
        }
        if let Some(last) = groups.last_mut() {
            last.is_last = true;
        }
        if let Some(last) = groups.iter_mut().rfind(|group| group.has_user_content()) {
            last.is_last_of_user = true;
        }
        groups
    }

    /// How many of the groups, and how many of the messages that they were made of, stay as they are whatever follows.
    /// The last one of the user's and what follows it is not among them.
    pub(crate) fn settled(groups: &[Group<'_>]) -> (usize, usize) {
        let (mut settled, mut known) = ((0, 0), 0);
        for (count, group) in groups.iter().enumerate() {
            if known <= group.from {
                settled = (count, group.from);
            }
            if group.is_last_of_user {
                break;
            }
            known = known.max(group.settled);
        }
        settled
    }

    /// This group won't be asked for again.
    pub(crate) fn done(&mut self, group: &Group<'_>) {
        self.has_begun = true;
        self.taken.extend(group.message.tool_calls().map(|call| call.id.clone()));
    }
}

impl<'a> Group<'a> {
    fn of(from: usize, message: Cow<'a, Message>) -> Self {
        Self { message, results: Vec::new(), is_last_of_user: false, is_last: false, from, settled: from + 1 }
    }

    fn has_user_content(&self) -> bool {
        matches!(*self.message, Message::User(_)) || !self.results.is_empty()
    }

    /// The images in it.
    pub(crate) fn images(&self) -> impl Iterator<Item = &Image> {
        std::iter::once(&self.message).chain(&self.results).flat_map(|message| {
            let (content, blocks): (&[Content], &[Block]) = match &**message {
                Message::User(user) => (&user.content, &[]),
                Message::Assistant(reply) => (&[], &reply.content),
                Message::ToolResult(result) => (&result.content, &[]),
            };
            let content =
                content.iter().filter_map(|it| if let Content::Image(image) = it { Some(image) } else { None });
            let blocks = blocks.iter().filter_map(|it| if let Block::Image(image) = it { Some(image) } else { None });
            content.chain(blocks)
        })
    }
}

const EMPTY_MESSAGE: &str = "(empty message)";
const EMPTY_RESULT: &str = "(no output)";
const MISSING_RESULT: &str = "No result was recorded for this call. It may or may not have run.";
const MISSING_START: &str = "(the beginning of this conversation is missing)";

/// What broke off is never shown to a model again.
fn is_replayed(reply: &AssistantMessage) -> bool {
    !matches!(reply.stop_reason, StopReason::Error | StopReason::Aborted)
}

/// Whether `target` wrote this reply.
fn is_own(reply: &AssistantMessage, target: &ModelSpec) -> bool {
    reply.model == target.id && reply.provider == target.provider && reply.wire == target.wire
}

/// The reply for `target`, or nothing if nothing of it is left. `calls` begins with the reply's calls.
fn adapt_reply<'a>(
    message: &'a Message,
    reply: &'a AssistantMessage,
    calls: &[Call<'a>],
    target: &ModelSpec,
) -> Option<Cow<'a, Message>> {
    let blocks = || {
        let mut calls = calls.iter();
        reply.content.iter().map(move |block| match block {
            Block::ToolCall(_) => calls.next().map(|call| adapt_call(block, call, reply, target)),
            _ => adapt_block(block, reply, target),
        })
    };
    blocks().flatten().find(|block| !matches!(**block, Block::Thinking(_)))?;
    if blocks().all(|block| matches!(block, Some(Cow::Borrowed(_)))) {
        return Some(Cow::Borrowed(message));
    }
    Some(Cow::Owned(Message::Assistant(AssistantMessage {
        content: blocks().flatten().map(Cow::into_owned).collect(),
        provider: reply.provider.clone(),
        model: reply.model.clone(),
        wire: reply.wire.clone(),
        stop_reason: reply.stop_reason,
        raw_stop_reason: reply.raw_stop_reason.clone(),
        usage: reply.usage,
        response_id: reply.response_id.clone(),
        error: None,
        timestamp: reply.timestamp,
    })))
}

fn adapt_block<'a>(block: &'a Block, reply: &AssistantMessage, target: &ModelSpec) -> Option<Cow<'a, Block>> {
    let own = is_own(reply, target);
    match block {
        Block::Text(Text { text, signature, annotations }) => match (own, signature, annotations) {
            (true, Some(signature), _) if !signature.is_empty() => Some(Cow::Borrowed(block)),
            _ if is_blank(text) => None,
            (true, ..) | (false, None, None) => Some(Cow::Borrowed(block)),
            (false, ..) => Some(Cow::Owned(Block::text(text))),
        },
        Block::Thinking(Thinking { thinking, signature, redacted }) => {
            let signed = signature.as_ref().is_some_and(|signature| !signature.is_empty());
            (own && (signed || !redacted && !is_blank(thinking))).then_some(Cow::Borrowed(block))
        }
        // Of the wires here, only Google's lets a model's turn hold an image.
        Block::Image(image) => Some(match target.wire {
            WireFormat::GoogleGenerativeAi | WireFormat::Other(_) if target.images => Cow::Borrowed(block),
            _ => Cow::Owned(Block::text(left_out(image))),
        }),
        Block::Opaque(opaque) => {
            let understood = opaque.wire == target.wire && reply.provider == target.provider;
            // One that was cut off is kept as a JSON string.
            let whole = opaque.raw.as_str().starts_with('{');
            (understood && whole && !is_unreadable(opaque)).then_some(Cow::Borrowed(block))
        }
        Block::ToolCall(_) => None,
    }
}

/// Whether an opaque block is of a kind that its wire has blocks of ours for. It wasn't read as one, so something is
/// wrong with it, and a call among these would stand without a result.
fn is_unreadable(Opaque { wire, raw }: &Opaque) -> bool {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Kind<'a> {
        #[serde(borrow, rename = "type")]
        name: Option<Lossy<'a>>,
        function_call: Option<IgnoredAny>,
        function_response: Option<IgnoredAny>,
    }
    let Ok(kind) = serde_json::from_str::<Kind<'_>>(raw.as_str()) else { return true };
    let own: &[&str] = match wire {
        WireFormat::AnthropicMessages => &["text", "thinking", "redacted_thinking", "tool_use", "tool_result"],
        WireFormat::OpenaiCompletions => &["text", "refusal", "tool_use", "tool_result"],
        WireFormat::OpenaiResponses => &[
            "message",
            "reasoning",
            "function_call",
            "function_call_output",
            "custom_tool_call",
            "custom_tool_call_output",
        ],
        WireFormat::GoogleGenerativeAi => return kind.function_call.is_some() || kind.function_response.is_some(),
        WireFormat::Other(_) => &[],
    };
    kind.name.is_some_and(|name| own.contains(&&*name))
}

fn adapt_call<'a>(block: &'a Block, call: &Call<'a>, reply: &AssistantMessage, target: &ModelSpec) -> Cow<'a, Block> {
    let ToolCall { id, name, arguments, signature } = call.asked;
    let own = is_own(reply, target);
    let replaced = adapt_arguments(arguments);
    if *id == call.id && *name == call.name && replaced.is_none() && (own || signature.is_none()) {
        return Cow::Borrowed(block);
    }
    Cow::Owned(Block::ToolCall(ToolCall {
        id: call.id.clone().into_owned(),
        name: call.name.clone().into_owned(),
        arguments: replaced.unwrap_or_else(|| arguments.clone()),
        signature: signature.clone().filter(|_| own),
    }))
}

/// What goes in place of arguments that a wire may refuse: lone surrogates, or no JSON object at all.
fn adapt_arguments(arguments: &Arguments) -> Option<Arguments> {
    let text = arguments.as_str();
    if !arguments.is_json() || !text.trim_start().starts_with('{') {
        return Some(Arguments::new(serde_json::json!({ "malformed_arguments": text }).to_string()));
    }
    match replace_lone_surrogates(text) {
        Cow::Borrowed(_) => None,
        Cow::Owned(text) => Some(Arguments::new(text)),
    }
}

/// The one result of a call that was asked for at this time.
fn result<'a>(call: Call<'a>, asked_at: i64, target: &ModelSpec) -> Cow<'a, Message> {
    let Some((message, result)) = call.result else {
        return Cow::Owned(Message::ToolResult(ToolResultMessage {
            tool_call_id: call.id.into_owned(),
            tool_name: call.name.into_owned(),
            content: vec![Content::text(MISSING_RESULT)],
            details: None,
            is_error: true,
            timestamp: asked_at,
        }));
    };
    let content = replaced(&result.content, EMPTY_RESULT, target);
    if content.is_none() && result.tool_call_id == call.id && result.tool_name == call.name {
        return Cow::Borrowed(message);
    }
    Cow::Owned(Message::ToolResult(ToolResultMessage {
        tool_call_id: call.id.into_owned(),
        tool_name: call.name.into_owned(),
        content: content.unwrap_or_else(|| result.content.clone()),
        details: None,
        is_error: result.is_error,
        timestamp: result.timestamp,
    }))
}

/// The content without blank texts and without images that the target doesn't take, and `empty` if nothing is left;
/// none if it is fine as it is.
fn replaced(content: &[Content], empty: &str, target: &ModelSpec) -> Option<Vec<Content>> {
    let fits = |content: &Content| match content {
        Content::Text(text) => !is_blank(&text.text),
        Content::Image(_) => target.images,
    };
    if !content.is_empty() && content.iter().all(fits) {
        return None;
    }
    let mut kept: Vec<Content> = content
        .iter()
        .filter_map(|content| match content {
            content if fits(content) => Some(content.clone()),
            Content::Image(image) => Some(Content::text(left_out(image))),
            Content::Text(_) => None,
        })
        .collect();
    if kept.is_empty() {
        kept.push(Content::text(empty));
    }
    Some(kept)
}

fn left_out(image: &Image) -> String {
    format!("[image left out: {}]", image.media_type)
}

/// Whether text has nothing to read in it; Anthropic refuses such text, and it tells no model anything.
fn is_blank(text: &str) -> bool {
    text.chars().all(|c| c.is_whitespace() || c.is_control())
}
