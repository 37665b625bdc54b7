//! Conversations, requests and targets made from bytes, of few ids, names and models, so that they meet.

use arbitrary::{Result, Unstructured};
use terret_llm::wire::WireFormat;
use terret_llm::{
    AssistantMessage, Block, CacheRetention, CallIdRule, Compat, Content, Effort, Efforts, Image, Message, ModelSpec,
    Opaque, Options, OutputSchema, RawJson, Request, SchemaSupport, StopReason, Text, Thinking, ThinkingSwitch,
    ToolCall, ToolChoice, ToolResultMessage, ToolSpec, Transcript, Usage, UserMessage,
};

use crate::handoff::WIRES;

pub(crate) struct Case {
    pub(crate) request: Request,
    pub(crate) target: ModelSpec,
}

pub(crate) fn case(data: &[u8]) -> Result<Case> {
    let data = &mut Unstructured::new(data);
    let target = target(data)?;
    let system = data.arbitrary::<bool>()?.then(|| "Be brief.".into());
    let tools = (0..data.int_in_range(0..=2)?).map(|n| tool(data, n)).collect::<Result<Vec<_>>>()?.into();
    let options = options(data)?;
    let mut messages = Vec::new();
    while !data.is_empty() && messages.len() < 24 {
        messages.push(message(data)?);
    }
    Ok(Case { request: Request { system, messages: Transcript::from_iter(messages), tools, options }, target })
}

const WHO: [(&str, &str); 4] = [("one", "m"), ("one", "gemini-3-pro"), ("other", "m"), ("other", "gemini-2.5-pro")];

/// What stands in each signature of a model, and in nothing else.
pub(crate) fn secret(provider: &str, model: &str, wire: &WireFormat) -> String {
    format!("secret:{provider}:{model}:{wire};")
}

fn target(data: &mut Unstructured<'_>) -> Result<ModelSpec> {
    let (provider, id) = *data.choose(&WHO)?;
    let mut target = ModelSpec::new(provider, id, data.choose(&WIRES)?.clone());
    target.images = data.ratio(3, 4)?;
    target.max_output = data.arbitrary::<bool>()?.then_some(8192);
    if data.arbitrary()? {
        let all = [Effort::Off, Effort::Minimal, Effort::Low, Effort::Medium, Effort::High, Effort::XHigh, Effort::Max];
        let mask: u8 = data.arbitrary()?;
        target.efforts = Some(Efforts::from_iter((0..7).filter(|n| mask >> n & 1 == 1).map(|n| all[n])));
    }
    let compat = &mut target.compat;
    compat.call_id = *data.choose(&[CallIdRule::AtMost(64), CallIdRule::AtMost(40), CallIdRule::Exactly(9)])?;
    if data.arbitrary()? {
        let Compat { call_id, .. } = compat.clone();
        *compat = Compat::default();
        compat.call_id = call_id;
        compat.max_completion_tokens = data.arbitrary()?;
        compat.developer_role = data.arbitrary()?;
        compat.stream_usage = data.arbitrary()?;
        compat.prompt_cache_key = data.arbitrary()?;
        compat.prompt_cache_retention = data.arbitrary()?;
        compat.cache_control = data.arbitrary()?;
        compat.reasoning_effort = data.arbitrary()?;
        compat.thinking_switch = *data.choose(&[
            None,
            Some(ThinkingSwitch::Thinking),
            Some(ThinkingSwitch::EnableThinking),
            Some(ThinkingSwitch::ChatTemplate),
            Some(ThinkingSwitch::Reasoning),
        ])?;
        compat.reasoning_field = *data.choose(&[None, Some("reasoning_content"), Some("reasoning")])?;
        compat.reasoning_field_always = data.arbitrary()?;
        compat.null_content = data.arbitrary()?;
        compat.tool_result_name = data.arbitrary()?;
        compat.reply_after_tool_result = data.arbitrary()?;
        compat.tools_with_history = data.arbitrary()?;
        compat.top_k = data.arbitrary()?;
        compat.output_schema = *data.choose(&[SchemaSupport::None, SchemaSupport::Plain, SchemaSupport::Strict])?;
        compat.encrypted_reasoning = data.arbitrary()?;
        compat.cache_marks = data.arbitrary()?;
    }
    Ok(target)
}

fn tool(data: &mut Unstructured<'_>, n: usize) -> Result<ToolSpec> {
    let schemas = [
        r#"{"type":"object"}"#,
        r#"{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}"#,
        "{}",
        "true",
        "7",
    ];
    let parameters = RawJson::parse(data.choose(&schemas)?).map_err(|_| arbitrary::Error::IncorrectFormat)?;
    Ok(ToolSpec { name: format!("t{n}"), description: text(data)?, parameters })
}

fn options(data: &mut Unstructured<'_>) -> Result<Options> {
    let mut options = Options::default();
    if !data.ratio(1, 2)? {
        return Ok(options);
    }
    options.max_output_tokens = data.arbitrary()?;
    options.temperature = data.arbitrary()?;
    options.top_p = data.arbitrary()?;
    options.top_k = data.arbitrary()?;
    options.stop = (0..data.int_in_range(0..=2)?).map(|_| text(data)).collect::<Result<_>>()?;
    options.seed = data.arbitrary()?;
    options.tool_choice = match data.int_in_range(0..=5)? {
        0 => Some(ToolChoice::Auto),
        1 => Some(ToolChoice::None),
        2 => Some(ToolChoice::Required),
        3 => Some(ToolChoice::Tool("t0".into())),
        4 => Some(ToolChoice::Tool(text(data)?)),
        _ => None,
    };
    options.parallel_tool_calls = data.arbitrary()?;
    options.effort =
        *data.choose(&[None, Some(Effort::Off), Some(Effort::Minimal), Some(Effort::Medium), Some(Effort::Max)])?;
    options.cache = *data.choose(&[CacheRetention::None, CacheRetention::Short, CacheRetention::Long])?;
    options.cache_key = data.arbitrary::<bool>()?.then(|| text(data)).transpose()?;
    if data.ratio(1, 4)? {
        let ToolSpec { name, parameters, .. } = tool(data, 9)?;
        options.output_schema = Some(OutputSchema { name, schema: parameters });
    }
    Ok(options)
}

fn message(data: &mut Unstructured<'_>) -> Result<Message> {
    Ok(match data.int_in_range(0..=5)? {
        0 => UserMessage { content: content(data)?, timestamp: 0 }.into(),
        1..=3 => reply(data)?.into(),
        _ => ToolResultMessage {
            tool_call_id: id(data)?,
            tool_name: name(data)?,
            content: content(data)?,
            details: None,
            is_error: data.arbitrary()?,
            timestamp: 0,
        }
        .into(),
    })
}

fn reply(data: &mut Unstructured<'_>) -> Result<AssistantMessage> {
    use StopReason::*;
    let (provider, model) = *data.choose(&WHO)?;
    let wire = match data.int_in_range(0..=4)? {
        4 => WireFormat::from("elsewhere"),
        n => WIRES[n].clone(),
    };
    let secret = secret(provider, model, &wire);
    let content = (0..data.int_in_range(0..=4)?).map(|_| block(data, &wire, &secret)).collect::<Result<_>>()?;
    Ok(AssistantMessage {
        content,
        provider: provider.into(),
        model: model.into(),
        wire,
        stop_reason: *data.choose(&[Stop, ToolUse, ToolUse, Length, Pause, Refusal, Error, Aborted])?,
        raw_stop_reason: None,
        usage: Usage::default(),
        response_id: None,
        error: None,
        timestamp: 0,
    })
}

fn block(data: &mut Unstructured<'_>, wire: &WireFormat, secret: &str) -> Result<Block> {
    Ok(match data.int_in_range(0..=6)? {
        0 => {
            let annotations = match data.int_in_range(0..=3)? {
                0 => Some(RawJson::of(&[secret])),
                1 => Some(RawJson::parse(r#"{"a":1}"#)),
                _ => None,
            };
            let annotations = annotations.transpose().map_err(|_| arbitrary::Error::IncorrectFormat)?;
            Block::Text(Text { text: text(data)?, signature: signature(data, secret)?, annotations })
        }
        1 => Block::Thinking(Thinking {
            thinking: text(data)?,
            signature: signature(data, secret)?,
            redacted: data.arbitrary()?,
        }),
        2 => Block::Image(image(data)?),
        3 => {
            let raw = data.choose(&[
                r#"{"type":"x"}"#,
                "{}",
                // Cut off.
                r#""{\"type\":\"ser""#,
                // Calls that couldn't be read as such.
                r#"{"type":"tool_use","id":7}"#,
                r#"{"type":"function_call","call_id":"c1","call_id":"c1"}"#,
                r#"{"functionCall":{"name":"t0"}}"#,
            ])?;
            let raw = RawJson::parse(raw).map_err(|_| arbitrary::Error::IncorrectFormat)?;
            let wire = if data.ratio(1, 8)? { data.choose(&WIRES)?.clone() } else { wire.clone() };
            Block::Opaque(Opaque { wire, raw })
        }
        _ => {
            let arguments = match data.int_in_range(0..=9)? {
                0 => r#"{"a":1}"#.to_owned(),
                1 => r#" {"a" : "\ud83d", "b":[1.0e0]} "#.to_owned(),
                2 => r#"{"a":"#.to_owned(),
                3 => "[1]".to_owned(),
                4 => "{} {}".to_owned(),
                5 => format!("{{\"a\":{}{}}}", "[".repeat(130), "]".repeat(130)),
                6 | 7 => text(data)?,
                _ => "{}".to_owned(),
            };
            let call = ToolCall::new(id(data)?, name(data)?, arguments);
            Block::ToolCall(ToolCall { signature: signature(data, secret)?, ..call })
        }
    })
}

fn signature(data: &mut Unstructured<'_>, secret: &str) -> Result<Option<String>> {
    Ok(match data.int_in_range(0..=9)? {
        0 => Some(secret.to_owned()),
        1 => Some(format!(r#"{{"id":"{secret}"}}"#)),
        2 => Some(format!(r#"{{"type":"reasoning","id":"{secret}","summary":[],"encrypted_content":"x"}}"#)),
        3 => Some(format!(r#"{{"id":"c","input":"{secret}","caller":{{"type":"x"}}}}"#)),
        4 => Some(format!(r#"[{{"type":"reasoning.encrypted","data":"{secret}"}}]"#)),
        5 => Some(String::new()),
        6 => Some(format!("{{{secret}")),
        7 => Some(format!("{}{secret}", text(data)?)),
        _ => None,
    })
}

fn content(data: &mut Unstructured<'_>) -> Result<Vec<Content>> {
    let piece = |data: &mut Unstructured<'_>| {
        Ok(if data.ratio(1, 4)? { Content::Image(image(data)?) } else { Content::text(text(data)?) })
    };
    (0..data.int_in_range(0..=3)?).map(|_| piece(data)).collect()
}

fn image(data: &mut Unstructured<'_>) -> Result<Image> {
    Ok(Image::new(*data.choose(&["image/png", "", "text/\"\\\n"])?, data.choose(&[b"png".as_slice(), b""])?))
}

fn id(data: &mut Unstructured<'_>) -> Result<String> {
    let long = "a".repeat(64);
    Ok(match data.int_in_range(0..=9)? {
        0 => String::new(),
        1 => "a|b".into(),
        2 => "a_b".into(),
        3 => format!("{long}x"),
        4 => format!("{long}y"),
        5 => "terret_1".into(),
        6 => text(data)?,
        7 => "c2".into(),
        _ => "c1".into(),
    })
}

fn name(data: &mut Unstructured<'_>) -> Result<String> {
    Ok(match data.int_in_range(0..=4)? {
        0 => text(data)?,
        1 => "n".repeat(65),
        _ => "t0".into(),
    })
}

/// Any text without a secret in it.
fn text(data: &mut Unstructured<'_>) -> Result<String> {
    Ok(match data.int_in_range(0..=5)? {
        0 => String::new(),
        1 => " \n\t".into(),
        2 => data.arbitrary::<&str>()?.replace("secret:", ""),
        3 => "\u{0}\u{7f}\u{2028}".into(),
        _ => "hi".into(),
    })
}
