//! Requests: `models.streamGenerateContent`.
//!
//! Options without an equivalent: `parallel_tool_calls: false`, `cache: long` and `cache_key` are refused (Gemini
//! caches prefixes by itself, and there is no way to influence it). `parallel_tool_calls: true` and the other cache
//! settings need nothing in the body, `tool_choice: auto` or `none` without tools says nothing, and the name of an
//! output schema has no place.

use std::borrow::Cow;

use super::body::{
    Args, Body, Content, FunctionCall, FunctionCallingConfig, FunctionResponse, GenerationConfig, InlineData, Part,
    Response, Tool, ToolConfig,
};
use super::thinking::Generation;
use crate::draft::is_fresh_call_id;
use crate::model::ModelSpec;
use crate::request::{CacheRetention, Effort, Options, Request, ToolChoice};
use crate::transcript::{AssistantMessage, Block, Content as Piece, Message, ToolResultMessage};
use crate::wire::body::{Head, MessageList};
use crate::wire::handoff::Group;
use crate::wire::{EncodeError, WireFormat};

/// The documented signature for a call that the model didn't make itself. Gemini 3 and later refuse a request in which
/// the first call of a reply has none.
const FOREIGN_SIGNATURE: &str = "skip_thought_signature_validator";

/// The response to a call whose result has no text.
const SEE_IMAGES: &str = "(see the attached images)";

pub(super) fn head(model: &ModelSpec, request: &Request) -> Result<Head, EncodeError> {
    let generation = Generation::of(&model.id);
    let system = request.system.as_deref().filter(|system| !system.trim().is_empty());
    let body = Body {
        system_instruction: system.map(|text| Content { role: None, parts: vec![Part::text(text)] }),
        tools: (!request.tools.is_empty()).then(|| [Tool { function_declarations: &request.tools }]),
        tool_config: tool_config(request)?,
        generation_config: generation_config(model, request, generation)?,
        contents: [],
    };
    let path = format!("/models/{}:streamGenerateContent?alt=sse", percent_encode(&model.id));
    Head::new(path, Vec::new(), &body)
}

/// The id as one segment of a path. Lists of models write it with the prefix `models/`.
fn percent_encode(id: &str) -> String {
    let mut segment = String::new();
    for byte in id.strip_prefix("models/").unwrap_or(id).bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => segment.push(byte.into()),
            _ => segment.push_str(&format!("%{byte:02X}")),
        }
    }
    segment
}

fn unsupported(option: &'static str, hint: &'static str) -> EncodeError {
    EncodeError::Unsupported { wire: WireFormat::GoogleGenerativeAi, option, hint: Some(hint) }
}

fn tool_config(request: &Request) -> Result<Option<ToolConfig<'_>>, EncodeError> {
    if request.options.parallel_tool_calls == Some(false) {
        return Err(unsupported("parallel_tool_calls", "Gemini may always call several tools at once"));
    }
    let (mode, name) = match &request.options.tool_choice {
        None => return Ok(None),
        Some(ToolChoice::Auto | ToolChoice::None) if request.tools.is_empty() => return Ok(None),
        Some(_) if request.tools.is_empty() => return Err(unsupported("tool_choice", "the request lists no tools")),
        Some(ToolChoice::Auto) => ("AUTO", None),
        Some(ToolChoice::None) => ("NONE", None),
        Some(ToolChoice::Required) => ("ANY", None),
        Some(ToolChoice::Tool(name)) => ("ANY", Some([name.as_str()])),
    };
    Ok(Some(ToolConfig { function_calling_config: FunctionCallingConfig { mode, allowed_function_names: name } }))
}

fn generation_config<'a>(
    model: &ModelSpec,
    request: &'a Request,
    generation: Generation,
) -> Result<Option<GenerationConfig<'a>>, EncodeError> {
    let Options { max_output_tokens, temperature, top_p, top_k, seed, effort, cache, .. } = request.options;
    let Options { stop, cache_key, output_schema, .. } = &request.options;
    if cache == CacheRetention::Long {
        return Err(unsupported("cache", "Gemini caches prompts by itself"));
    }
    if cache_key.is_some() {
        return Err(unsupported("cache_key", "Gemini caches prompts by itself"));
    }
    if output_schema.is_some() && !request.tools.is_empty() && !generation.is_3_or_later() {
        return Err(unsupported("output_schema", "before Gemini 3, a request with tools can't have one"));
    }
    let effort = model.effort_to_send(effort)?;
    let thinking_config = effort.and_then(|effort| generation.thinking(effort, model.efforts));
    if thinking_config.is_none() && effort.is_some_and(|effort| effort != Effort::Off) {
        return Err(unsupported("effort", "this model doesn't reason"));
    }
    let config = GenerationConfig {
        max_output_tokens,
        temperature,
        top_p,
        top_k,
        stop_sequences: stop,
        seed: seed.map(i32::try_from).transpose().map_err(|_| unsupported("seed", "it has to fit 32 bits"))?,
        response_mime_type: output_schema.as_ref().map(|_| "application/json"),
        response_json_schema: output_schema.as_ref().map(|output| &output.schema),
        thinking_config,
    };
    Ok((config != GenerationConfig::default()).then_some(config))
}

/// Messages are turns of `user` and `model`; neighbours of one role share a turn.
pub(super) fn group(model: &ModelSpec, group: &Group<'_>, list: &mut MessageList) -> Result<(), EncodeError> {
    let mut contents = Contents { list, generation: Generation::of(&model.id) };
    match &*group.message {
        Message::User(user) => user.content.iter().try_for_each(|piece| contents.push(USER, &Part::piece(piece))),
        Message::Assistant(reply) => {
            contents.reply(reply)?;
            contents.results(reply, &group.results)
        }
        Message::ToolResult(_) => Ok(()),
    }
}

const USER: &str = "user";
const MODEL: &str = "model";

struct Contents<'a> {
    list: &'a mut MessageList,
    generation: Generation,
}

impl Contents<'_> {
    fn push(&mut self, role: &'static str, part: &Part<'_>) -> Result<(), EncodeError> {
        let open = if role == USER { r#"{"role":"user","parts":["# } else { r#"{"role":"model","parts":["# };
        self.list.push_item(role, (open, "]}"), part)
    }

    fn reply(&mut self, reply: &AssistantMessage) -> Result<(), EncodeError> {
        let unsigned = reply.tool_calls().all(|call| call.signature.is_none());
        let mut stand_in = Some(FOREIGN_SIGNATURE).filter(|_| unsigned && self.generation.is_3_or_later());
        for block in &reply.content {
            let part = match block {
                Block::Text(text) => Part::Text {
                    text: (&text.text).into(),
                    thought: false,
                    thought_signature: text.signature.as_deref(),
                },
                Block::Thinking(thinking) => Part::Text {
                    text: (&thinking.thinking).into(),
                    thought: true,
                    thought_signature: thinking.signature.as_deref(),
                },
                Block::Image(image) => Part::Image { inline_data: InlineData::of(image) },
                Block::ToolCall(call) => Part::Call {
                    function_call: FunctionCall {
                        id: id_from_model(reply, &call.id),
                        name: &call.name,
                        args: Args(&call.arguments),
                    },
                    thought_signature: call.signature.as_deref().or(stand_in.take()),
                },
                Block::Opaque(opaque) => Part::Verbatim(&opaque.raw),
            };
            self.push(MODEL, &part)?;
        }
        Ok(())
    }

    fn results(&mut self, reply: &AssistantMessage, results: &[Cow<'_, Message>]) -> Result<(), EncodeError> {
        let mut beside = Vec::new();
        for result in results {
            let Message::ToolResult(result) = &**result else { continue };
            let mut parts: Vec<Part<'_>> = images(result).collect();
            let mut texts = result.content.iter().filter_map(Piece::as_text).peekable();
            let text = match texts.peek() {
                Some(_) => texts.collect::<Vec<_>>().join("\n"),
                None => SEE_IMAGES.to_owned(),
            };
            // Only Gemini 3 and later take images inside a response; for others they follow all responses.
            if !parts.is_empty() && !self.generation.is_3_or_later() {
                beside.push(Part::text(format!("Images in the result of {}:", result.tool_name)));
                beside.append(&mut parts);
            }
            let function_response = FunctionResponse {
                id: id_from_model(reply, &result.tool_call_id),
                name: &result.tool_name,
                response: if result.is_error { Response::Error(text) } else { Response::Output(text) },
                parts,
            };
            self.push(USER, &Part::Response { function_response })?;
        }
        beside.iter().try_for_each(|part| self.push(USER, part))
    }
}

/// The id of one of this reply's calls if the model gave it. Without one, the API pairs by name and order.
fn id_from_model<'a>(reply: &AssistantMessage, id: &'a str) -> Option<&'a str> {
    (reply.wire == WireFormat::GoogleGenerativeAi && !is_fresh_call_id(id)).then_some(id)
}

fn images(result: &ToolResultMessage) -> impl Iterator<Item = Part<'_>> {
    result.content.iter().filter(|piece| matches!(piece, Piece::Image(_))).map(Part::piece)
}
