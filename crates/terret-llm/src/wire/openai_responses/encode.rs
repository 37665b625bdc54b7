//! Encoding: a request into the body of `POST /responses`.
//!
//! `input` stands last, and what becomes of a message depends on nothing that comes after it: the body up to its last
//! item is a prefix of the next request's.

use std::borrow::Cow;
use std::collections::HashSet;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use super::ItemSignature;
use super::events::text;
use crate::lossy::Lossy;
use crate::model::ModelSpec;
use crate::request::{CacheRetention, Effort, Options, Request, ToolChoice, ToolSpec};
use crate::transcript::{AssistantMessage, Block, Content, Image, Message, RawJson, Text, ToolCall};
use crate::wire::body::{Head, MessageList};
use crate::wire::handoff::Group;
use crate::wire::openai_schemas::{self as schemas, Parameters};
use crate::wire::{EncodeError, WireFormat};

pub(super) fn head(model: &ModelSpec, request: &Request) -> Result<Head, EncodeError> {
    let Options {
        max_output_tokens,
        temperature,
        top_p,
        top_k,
        stop,
        seed,
        tool_choice,
        parallel_tool_calls,
        effort,
        cache,
        cache_key,
        output_schema,
    } = &request.options;
    let unsupported = |option, hint| Err(EncodeError::Unsupported { wire: WireFormat::OpenaiResponses, option, hint });
    if !stop.is_empty() {
        return unsupported("stop", None);
    }
    if top_k.is_some() {
        return unsupported("top_k", Some("use top_p"));
    }
    if seed.is_some() {
        return unsupported("seed", None);
    }
    if request.tools.is_empty() && matches!(tool_choice, Some(ToolChoice::Required | ToolChoice::Tool(_))) {
        return unsupported("tool_choice", Some("the request lists no tools"));
    }
    let body = Body {
        model: &model.id,
        stream: true,
        store: false,
        include: if model.compat.encrypted_reasoning { &["reasoning.encrypted_content"] } else { &[] },
        instructions: request.system.as_deref().filter(|system| !system.is_empty()),
        tools: request.tools.iter().map(Tool::from).collect(),
        tool_choice: tool_choice.as_ref().map(ToolChoiceParam::from),
        parallel_tool_calls: *parallel_tool_calls,
        reasoning: model.effort_to_send(*effort)?.map(Reasoning::from),
        text: output_schema.as_ref().map(|schema| TextFormat {
            format: Format {
                kind: "json_schema",
                name: &schema.name,
                schema: &schema.schema,
                strict: schemas::is_strict(&schema.schema),
            },
        }),
        max_output_tokens: max_output_tokens.map(|limit| limit.max(LEAST_OUTPUT)),
        temperature: *temperature,
        top_p: *top_p,
        prompt_cache_key: cache_key.as_deref().map(|key| cut(key, LONGEST_KEY)),
        prompt_cache_retention: (*cache == CacheRetention::Long).then_some("24h"),
        input: [],
    };
    Head::new("/responses".into(), Vec::new(), &body)
}

/// A message is an item, or several.
pub(super) fn group(group: &Group<'_>, list: &mut MessageList) -> Result<(), EncodeError> {
    let mut input = Input::default();
    input.push(&group.message);
    group.results.iter().for_each(|result| input.push(result));
    input.items.iter().try_for_each(|item| list.push("", item))
}

/// OpenAI refuses a lower limit than this, in tokens.
const LEAST_OUTPUT: u32 = 16;

/// OpenAI refuses longer cache keys and item ids, in characters.
const LONGEST_KEY: usize = 64;

/// Fields that are the same for a whole conversation come first.
#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    store: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    include: &'a [&'a str],
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<ToolChoiceParam<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Reasoning>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<TextFormat<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_retention: Option<&'static str>,
    /// [`InputItem`]s.
    input: [(); 0],
}

#[derive(Serialize)]
struct Tool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'a str,
    description: &'a str,
    parameters: Parameters<'a>,
    /// Without it, OpenAI makes every schema strict and every parameter required.
    strict: bool,
}

impl<'a> From<&'a ToolSpec> for Tool<'a> {
    fn from(tool: &'a ToolSpec) -> Self {
        let ToolSpec { name, description, parameters } = tool;
        Self { kind: "function", name, description, parameters: Parameters(parameters), strict: false }
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum ToolChoiceParam<'a> {
    Mode(&'static str),
    Function {
        #[serde(rename = "type")]
        kind: &'static str,
        name: &'a str,
    },
}

impl<'a> From<&'a ToolChoice> for ToolChoiceParam<'a> {
    fn from(choice: &'a ToolChoice) -> Self {
        match choice {
            ToolChoice::Auto => ToolChoiceParam::Mode("auto"),
            ToolChoice::None => ToolChoiceParam::Mode("none"),
            ToolChoice::Required => ToolChoiceParam::Mode("required"),
            ToolChoice::Tool(name) => ToolChoiceParam::Function { kind: "function", name },
        }
    }
}

#[derive(Serialize)]
struct Reasoning {
    effort: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'static str>,
}

impl From<Effort> for Reasoning {
    fn from(effort: Effort) -> Self {
        match effort {
            Effort::Off => Reasoning { effort: "none", summary: None },
            _ => Reasoning { effort: effort.as_str(), summary: Some("auto") },
        }
    }
}

#[derive(Serialize)]
struct TextFormat<'a> {
    format: Format<'a>,
}

#[derive(Serialize)]
struct Format<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'a str,
    schema: &'a RawJson,
    strict: bool,
}

/// The items that messages become.
#[derive(Default)]
struct Input<'a> {
    items: Vec<InputItem<'a>>,
    /// The ids of calls to custom tools: their results have a type of their own.
    custom_calls: HashSet<&'a str>,
}

impl<'a> Input<'a> {
    fn push(&mut self, message: &'a Message) {
        match message {
            Message::User(user) => {
                let content = MessageContent::Parts(user.content.iter().map(Part::from).collect());
                self.items.push(InputItem::Message(MessageItem::new("user", content)));
            }
            Message::Assistant(reply) => self.push_reply(reply),
            Message::ToolResult(result) => {
                let call_id = &*result.tool_call_id;
                let custom = self.custom_calls.contains(call_id);
                let kind = if custom { "custom_tool_call_output" } else { "function_call_output" };
                self.items.push(InputItem::Output(ResultItem { kind, call_id, output: output(&result.content) }));
            }
        }
    }

    fn push_reply(&mut self, reply: &'a AssistantMessage) {
        // OpenAI refuses reasoning that isn't followed by what it led to: it waits for that, and goes with it.
        let mut reasoning = Vec::new();
        for block in &reply.content {
            let item = match block {
                Block::Thinking(thinking) => {
                    reasoning.extend(thinking.signature.as_deref().and_then(replayed));
                    continue;
                }
                Block::Text(text) if text.text.is_empty() => continue,
                Block::Text(text) => {
                    let signature = signature(text.signature.as_deref());
                    match (&signature.id, self.items.last_mut()) {
                        (Some(id), Some(InputItem::Message(message))) if message.id.as_ref() == Some(id) => {
                            message.content.push(Part::of(text, &signature));
                            continue;
                        }
                        _ => InputItem::Message(MessageItem::of(text, signature)),
                    }
                }
                Block::ToolCall(call) => {
                    let item = CallItem::of(call);
                    if item.input.is_some() {
                        self.custom_calls.insert(&call.id);
                    }
                    InputItem::Call(item)
                }
                Block::Opaque(opaque) => InputItem::Verbatim(opaque.raw.as_raw()),
                // The wire has no place for a picture in a reply; handoff leaves none.
                Block::Image(_) => continue,
            };
            self.items.append(&mut reasoning);
            self.items.push(item);
        }
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum InputItem<'a> {
    Message(MessageItem<'a>),
    Reasoning(ReasoningItem<'a>),
    Call(CallItem<'a>),
    Output(ResultItem<'a>),
    Verbatim(&'a RawValue),
}

#[derive(Serialize)]
struct MessageItem<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Cow<'a, str>>,
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<Cow<'a, str>>,
    content: MessageContent<'a>,
}

impl<'a> MessageItem<'a> {
    fn new(role: &'static str, content: MessageContent<'a>) -> Self {
        Self { kind: "message", id: None, role, status: None, phase: None, content }
    }

    /// A message with an id goes back as the output that it was. Without one, the wire takes a reply only as plain text.
    fn of(text: &'a Text, signature: ItemSignature<'a>) -> Self {
        let content = match &signature.id {
            Some(_) => MessageContent::Parts(vec![Part::of(text, &signature)]),
            None => MessageContent::Text(&text.text),
        };
        let status = signature.id.as_ref().map(|_| "completed");
        Self { id: signature.id, status, phase: signature.phase, ..Self::new("assistant", content) }
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum MessageContent<'a> {
    Text(&'a str),
    Parts(Vec<Part<'a>>),
}

impl<'a> MessageContent<'a> {
    fn push(&mut self, part: Part<'a>) {
        if let MessageContent::Parts(parts) = self {
            parts.push(part);
        }
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    InputText { text: &'a str },
    InputImage { detail: &'static str, image_url: DataUrl<'a> },
    OutputText { annotations: Vec<&'a RawValue>, text: &'a str },
    Refusal { refusal: &'a str },
}

impl<'a> Part<'a> {
    /// A part of a reply.
    fn of(Text { text, annotations, .. }: &'a Text, signature: &ItemSignature<'_>) -> Self {
        if signature.refusal {
            return Part::Refusal { refusal: text };
        }
        let annotations = annotations.as_ref().and_then(|raw| serde_json::from_str(raw.as_str()).ok());
        Part::OutputText { annotations: annotations.unwrap_or_default(), text }
    }
}

impl<'a> From<&'a Content> for Part<'a> {
    fn from(content: &'a Content) -> Self {
        match content {
            Content::Text(text) => Part::InputText { text: &text.text },
            Content::Image(image) => Part::InputImage { detail: "auto", image_url: DataUrl(image) },
        }
    }
}

struct DataUrl<'a>(&'a Image);

impl Serialize for DataUrl<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("data:{};base64,{}", self.0.media_type, self.0.base64()))
    }
}

/// A reasoning item under an id of ours: the wire wants one.
#[derive(Serialize)]
struct ReasoningItem<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    id: String,
    summary: Vec<&'a RawValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    content: Vec<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encrypted_content: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct CallItem<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Cow<'a, str>>,
    call_id: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<&'a RawValue>,
}

impl<'a> CallItem<'a> {
    fn of(call: &'a ToolCall) -> Self {
        let ItemSignature { id, namespace, caller, input, .. } = signature(call.signature.as_deref());
        let (kind, arguments) = match input {
            Some(_) => ("custom_tool_call", None),
            None => ("function_call", Some(call.arguments.as_str())),
        };
        Self { kind, id, call_id: &call.id, name: &call.name, arguments, input, namespace, caller }
    }
}

#[derive(Serialize)]
struct ResultItem<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    call_id: &'a str,
    output: Output<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Output<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Part<'a>>),
}

/// Plain text where possible, which every host takes; a list where there are images.
fn output(content: &[Content]) -> Output<'_> {
    match content {
        [Content::Text(text)] => Output::Text(Cow::Borrowed(&text.text)),
        _ => match content.iter().map(Content::as_text).collect::<Option<Vec<_>>>() {
            Some(texts) => Output::Text(Cow::Owned(texts.join("\n"))),
            None => Output::Parts(content.iter().map(Part::from).collect()),
        },
    }
}

/// The signature of a text or a call. An id that OpenAI would refuse (GitHub Copilot's are longer) doesn't go back.
fn signature(json: Option<&str>) -> ItemSignature<'_> {
    let signature: Option<ItemSignature<'_>> = json.and_then(|json| serde_json::from_str(json).ok());
    let mut signature = signature.unwrap_or_default();
    signature.id = signature.id.filter(|id| is_short(id));
    signature
}

/// The reasoning item that a signature holds, if it can go back: nothing is stored at the provider, so the item has to
/// hold the reasoning itself, encrypted or plain.
fn replayed(signature: &str) -> Option<InputItem<'_>> {
    #[derive(Deserialize)]
    struct Held<'a> {
        #[serde(borrow, rename = "type")]
        kind: Lossy<'a>,
        #[serde(borrow)]
        id: Option<Lossy<'a>>,
        #[serde(borrow)]
        summary: Option<Vec<&'a RawValue>>,
        #[serde(borrow)]
        content: Option<Vec<&'a RawValue>>,
        #[serde(borrow)]
        encrypted_content: Option<&'a RawValue>,
    }
    let held: Held<'_> = serde_json::from_str(signature).ok()?;
    let encrypted_content = held.encrypted_content.filter(|raw| raw.get() != r#""""#);
    let content = held.content.unwrap_or_default();
    if &*held.kind != "reasoning" || (encrypted_content.is_none() && content.is_empty()) {
        return None;
    }
    let id = text(&held.id);
    if is_short(id) {
        return serde_json::from_str(signature).ok().map(InputItem::Verbatim);
    }
    let id = id.chars().filter(char::is_ascii_alphanumeric).take(LONGEST_KEY - "rs_".len());
    Some(InputItem::Reasoning(ReasoningItem {
        kind: "reasoning",
        id: format!("rs_{}", id.collect::<String>()),
        summary: held.summary.unwrap_or_default(),
        content,
        encrypted_content,
    }))
}

fn is_short(id: &str) -> bool {
    id.chars().nth(LONGEST_KEY).is_none()
}

/// The first so many characters.
fn cut(text: &str, length: usize) -> &str {
    text.char_indices().nth(length).and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}
