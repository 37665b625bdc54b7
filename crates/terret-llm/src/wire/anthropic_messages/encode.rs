//! A request: the body of `POST /messages`.
//!
//! `messages` stands last, and what a message becomes depends on nothing after it (cache marks aside): the body up to
//! its last message is a prefix of the next one.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;

use super::reasoning::{Reasoning, Thinking};
use super::unsupported;
use crate::model::ModelSpec;
use crate::request::{CacheRetention, Options, Request, ToolChoice, ToolSpec};
use crate::transcript::{Block, Content, Image, Message, RawJson, Text, ToolCall, ToolResultMessage};
use crate::wire::EncodeError;
use crate::wire::body::{Head, MessageList};
use crate::wire::handoff::Group;

/// The output limit for a model of which none is known, in tokens: what every model has that can reason.
const MAX_TOKENS: u32 = 8192;

/// Where an option doesn't stand in a field of its own name:
/// - `cache_key` is the `user_id` of `metadata`, an opaque text by which gateways route; Anthropic itself finds a warm
///   cache without it.
/// - The name of `output_schema` goes nowhere; the schema does.
/// - `tool_choice` and `parallel_tool_calls` are left out where they would say nothing: without tools, and in the case of
///   the latter also where no tool may be called.
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
    if seed.is_some() {
        return Err(unsupported("seed", "leave it out"));
    }
    if stop.iter().any(|stop| stop.trim().is_empty()) {
        return Err(unsupported("stop", "a text at which to stop needs a visible character"));
    }
    let reasoning = Reasoning::new(&model.id, model.effort_to_send(*effort)?);
    reasoning.check(&request.options)?;
    let max_tokens = max_output_tokens.or(model.max_output).unwrap_or(MAX_TOKENS);
    let cache = CacheControl::of(model, *cache);
    let system = request.system.as_deref().filter(|system| !system.trim().is_empty());
    let effort = reasoning.effort();
    let body = Body {
        model: &model.id,
        max_tokens,
        stream: true,
        system: system.map(|text| [Part::Text { text, citations: None, cache_control: cache }]),
        tools: tools(&request.tools, cache),
        tool_choice: choice(&request.tools, tool_choice.as_ref(), *parallel_tool_calls)?,
        metadata: cache_key.as_deref().map(|user_id| Metadata { user_id }),
        thinking: reasoning.thinking(max_tokens)?,
        output_config: (effort.is_some() || output_schema.is_some()).then(|| OutputConfig {
            effort,
            format: output_schema.as_ref().map(|output| Format { kind: "json_schema", schema: &output.schema }),
        }),
        temperature: *temperature,
        top_p: *top_p,
        top_k: *top_k,
        stop_sequences: stop,
        messages: [],
    };
    let headers = vec![("anthropic-version", "2023-06-01".to_owned())];
    Head::new("/messages".into(), headers, &body)
}

/// A message is a turn, and so are all results of one reply, as the API demands. The API joins neighbours of one role.
pub(super) fn group(
    model: &ModelSpec,
    options: &Options,
    group: &Group<'_>,
    list: &mut MessageList,
) -> Result<(), EncodeError> {
    let mark = CacheControl::of(model, options.cache).filter(|_| group.is_last_of_user);
    let mut turns = [Turn::of(&group.message), Turn::of_results(&group.results)];
    for turn in turns.iter_mut().filter(|turn| !turn.content.is_empty()) {
        match turn.role {
            "user" => turn.mark(mark),
            _ if group.is_last && group.results.is_empty() => turn.trim_end(),
            _ => {}
        }
        list.push(turn.role, turn)?;
    }
    Ok(())
}

fn tools<'a>(tools: &'a [ToolSpec], cache: Option<CacheControl>) -> Vec<Tool<'a>> {
    let mut tools: Vec<Tool<'a>> = tools
        .iter()
        .map(|ToolSpec { name, description, parameters }| Tool {
            name,
            description,
            input_schema: parameters,
            cache_control: None,
        })
        .collect();
    if let Some(last) = tools.last_mut() {
        last.cache_control = cache;
    }
    tools
}

fn choice<'a>(
    tools: &[ToolSpec],
    choice: Option<&'a ToolChoice>,
    parallel: Option<bool>,
) -> Result<Option<Choice<'a>>, EncodeError> {
    if tools.is_empty() {
        return match choice {
            Some(ToolChoice::Required | ToolChoice::Tool(_)) => Err(unsupported("tool_choice", "there are no tools")),
            None | Some(ToolChoice::Auto | ToolChoice::None) => Ok(None),
        };
    }
    let disable_parallel_tool_use = parallel.map(|parallel| !parallel);
    Ok(match choice {
        None if disable_parallel_tool_use.is_none() => None,
        None | Some(ToolChoice::Auto) => Some(Choice::Auto { disable_parallel_tool_use }),
        Some(ToolChoice::Required) => Some(Choice::Any { disable_parallel_tool_use }),
        Some(ToolChoice::Tool(name)) => Some(Choice::Tool { name, disable_parallel_tool_use }),
        Some(ToolChoice::None) => Some(Choice::None),
    })
}

impl<'a> Turn<'a> {
    fn of(message: &'a Message) -> Self {
        match message {
            Message::User(user) => Self { role: "user", content: user.content.iter().map(Part::from).collect() },
            Message::Assistant(reply) => {
                let mut content: Vec<Part<'a>> = reply.content.iter().filter_map(Part::of_reply).collect();
                // A reply can't end with thinking.
                let end = content.iter().rposition(|part| !part.is_thinking()).map_or(0, |last| last + 1);
                content.truncate(end);
                Self { role: "assistant", content }
            }
            Message::ToolResult(_) => Self::of_results(&[]),
        }
    }

    fn of_results(results: &'a [Cow<'a, Message>]) -> Self {
        let (mut content, mut after) = (Vec::new(), Vec::new());
        for result in results {
            if let Message::ToolResult(result) = &**result {
                content.push(tool_result(result, &mut after));
            }
        }
        content.append(&mut after);
        Self { role: "user", content }
    }

    /// A reply that the model is to go on with can't end with white space.
    fn trim_end(&mut self) {
        if let Some(Part::Text { text, .. }) = self.content.last_mut() {
            *text = text.trim_end();
        }
    }

    /// Marks the last block.
    fn mark(&mut self, mark: Option<CacheControl>) {
        if let Some(
            Part::Text { cache_control, .. }
            | Part::Image { cache_control, .. }
            | Part::ToolResult { cache_control, .. },
        ) = self.content.last_mut()
        {
            *cache_control = mark;
        }
    }
}

/// The result as a block. An error can hold text only: its images go to `after`, behind all results.
fn tool_result<'a>(result: &'a ToolResultMessage, after: &mut Vec<Part<'a>>) -> Part<'a> {
    let ToolResultMessage { tool_call_id, content, is_error, .. } = result;
    let mut content: Vec<Part<'a>> = content.iter().map(Part::from).collect();
    if *is_error {
        let images = content.extract_if(.., |part| matches!(part, Part::Image { .. }));
        after.extend(images);
        if content.is_empty() {
            content.push(Part::Text { text: "(see the image)", citations: None, cache_control: None });
        }
    }
    Part::ToolResult { tool_use_id: tool_call_id, content, is_error: *is_error, cache_control: None }
}

impl<'a> Part<'a> {
    /// A block of a reply, or nothing if it can't go back.
    fn of_reply(block: &'a Block) -> Option<Self> {
        match block {
            Block::Text(Text { text, annotations, .. }) if !text.trim().is_empty() => {
                Some(Part::Text { text, citations: annotations.as_ref().and_then(citations), cache_control: None })
            }
            Block::Thinking(thinking) => {
                let signature = thinking.signature.as_deref().filter(|signature| !signature.is_empty())?;
                Some(match thinking.redacted {
                    true => Part::RedactedThinking { data: signature },
                    false => Part::Thinking { thinking: &thinking.thinking, signature },
                })
            }
            Block::ToolCall(ToolCall { id, name, arguments, signature }) => Some(Part::ToolUse {
                id,
                name,
                input: raw(arguments.as_str())?,
                caller: signature.as_deref().filter(|caller| caller.starts_with('{')).and_then(raw),
            }),
            Block::Opaque(opaque) => Some(Part::Opaque(&opaque.raw)),
            Block::Text(_) | Block::Image(_) => None,
        }
    }

    fn is_thinking(&self) -> bool {
        matches!(self, Part::Thinking { .. } | Part::RedactedThinking { .. })
    }
}

impl<'a> From<&'a Content> for Part<'a> {
    fn from(content: &'a Content) -> Self {
        match content {
            Content::Text(Text { text, .. }) => Part::Text { text, citations: None, cache_control: None },
            Content::Image(image) => Part::Image { source: Source::from(image), cache_control: None },
        }
    }
}

/// Citations as a request takes them: those into documents come with the file's id, but don't go back with it.
fn citations(annotations: &RawJson) -> Option<Cow<'_, RawValue>> {
    let json = annotations.as_str();
    if !json.contains("\"file_id\"") {
        return raw(json).map(Cow::Borrowed);
    }
    let mut citations: Vec<BTreeMap<&str, &RawValue>> = serde_json::from_str(json).ok()?;
    for citation in &mut citations {
        citation.remove("file_id");
    }
    serde_json::value::to_raw_value(&citations).ok().map(Cow::Owned)
}

fn raw(json: &str) -> Option<&RawValue> {
    serde_json::from_str(json).ok()
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u32,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<[Part<'a>; 1]>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Choice<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Metadata<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Thinking>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<u32>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    stop_sequences: &'a [String],
    messages: [(); 0],
}

/// Where the provider ends what it caches. It takes four marks; these are three: the last tool, the system prompt, and
/// the last block of the user's.
#[derive(Clone, Copy, Serialize)]
struct CacheControl {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<&'static str>,
}

impl CacheControl {
    fn of(model: &ModelSpec, retention: CacheRetention) -> Option<Self> {
        let ttl = match retention {
            _ if !model.compat.cache_marks => return None,
            CacheRetention::None => return None,
            CacheRetention::Short => None,
            CacheRetention::Long => Some("1h"),
        };
        Some(Self { kind: "ephemeral", ttl })
    }
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    input_schema: &'a RawJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Choice<'a> {
    Auto {
        #[serde(skip_serializing_if = "Option::is_none")]
        disable_parallel_tool_use: Option<bool>,
    },
    Any {
        #[serde(skip_serializing_if = "Option::is_none")]
        disable_parallel_tool_use: Option<bool>,
    },
    Tool {
        name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        disable_parallel_tool_use: Option<bool>,
    },
    None,
}

#[derive(Serialize)]
struct Metadata<'a> {
    user_id: &'a str,
}

#[derive(Serialize)]
struct OutputConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<Format<'a>>,
}

#[derive(Serialize)]
struct Format<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    schema: &'a RawJson,
}

#[derive(Serialize)]
struct Turn<'a> {
    role: &'static str,
    content: Vec<Part<'a>>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    Text {
        text: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        citations: Option<Cow<'a, RawValue>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    Image {
        source: Source<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    Thinking {
        thinking: &'a str,
        signature: &'a str,
    },
    RedactedThinking {
        data: &'a str,
    },
    ToolUse {
        id: &'a str,
        name: &'a str,
        input: &'a RawValue,
        #[serde(skip_serializing_if = "Option::is_none")]
        caller: Option<&'a RawValue>,
    },
    ToolResult {
        tool_use_id: &'a str,
        content: Vec<Part<'a>>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    #[serde(untagged)]
    Opaque(&'a RawJson),
}

#[derive(Serialize)]
struct Source<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    media_type: &'a str,
    data: &'a str,
}

impl<'a> From<&'a Image> for Source<'a> {
    fn from(image: &'a Image) -> Self {
        Self { kind: "base64", media_type: &image.media_type, data: image.base64() }
    }
}
