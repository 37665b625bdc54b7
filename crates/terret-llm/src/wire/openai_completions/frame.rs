//! What a host sends: one chunk of a stream, or a whole response, which differs from a chunk only in `message`.
//!
//! The names are those of [OpenAI's reference](https://platform.openai.com/docs/api-reference/chat-streaming), plus what
//! the hosts of this wire add to it. Only what is used is read.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{MapAccess, SeqAccess};
use serde_json::value::RawValue;

use super::lax::{Field, Lax, lax, lax_objects};
use crate::lossy::Lossy;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Frame<'a> {
    #[serde(borrow, deserialize_with = "lax")]
    pub(super) id: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "lax")]
    pub(super) object: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "lax")]
    pub(super) choices: Vec<Choice<'a>>,
    #[serde(deserialize_with = "lax")]
    pub(super) usage: Usage,
    #[serde(deserialize_with = "lax")]
    pub(super) x_groq: XGroq,
    /// The sources of the whole answer (Perplexity, xAI), in each chunk or in the last one.
    #[serde(borrow)]
    pub(super) citations: Option<&'a RawValue>,
    #[serde(deserialize_with = "lax")]
    pub(super) error: bool,
    /// MiniMax's status, of which 0 is success.
    #[serde(deserialize_with = "lax")]
    pub(super) base_resp: BaseResp,
}

/// Groq's own part: the usage also of a stream that was not asked for it, and why a stream was cut off.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct XGroq {
    #[serde(deserialize_with = "lax")]
    pub(super) usage: Usage,
    #[serde(deserialize_with = "lax")]
    pub(super) error: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice<'a> {
    #[serde(deserialize_with = "lax")]
    pub(super) index: Option<u64>,
    #[serde(borrow, deserialize_with = "lax")]
    pub(super) delta: Delta<'a>,
    /// A whole response's; some hosts send it in chunks, too.
    #[serde(borrow, deserialize_with = "lax")]
    pub(super) message: Delta<'a>,
    #[serde(borrow, deserialize_with = "lax")]
    pub(super) finish_reason: Option<Cow<'a, str>>,
    #[serde(deserialize_with = "lax")]
    pub(super) usage: Usage,
    #[serde(deserialize_with = "lax")]
    pub(super) error: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Delta<'a> {
    #[serde(borrow, deserialize_with = "lax")]
    pub(super) content: Content<'a>,
    #[serde(borrow, deserialize_with = "lax")]
    pub(super) refusal: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "lax")]
    pub(super) reasoning_content: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "lax")]
    pub(super) reasoning: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "lax")]
    pub(super) reasoning_text: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "lax")]
    pub(super) reasoning_details: Vec<Detail<'a>>,
    #[serde(borrow, deserialize_with = "lax")]
    pub(super) tool_calls: Vec<CallDelta<'a>>,
    /// The one call of the time before `tool_calls`.
    #[serde(borrow, deserialize_with = "lax")]
    pub(super) function_call: FunctionCall<'a>,
    #[serde(borrow, deserialize_with = "lax")]
    pub(super) annotations: Raw<'a>,
    /// Pictures that a model made (OpenRouter).
    #[serde(borrow, deserialize_with = "lax")]
    pub(super) images: Vec<Part<'a>>,
}

impl<'a> Delta<'a> {
    /// The reasoning as plain text. Hosts repeat it under several names for the sake of their clients.
    pub(super) fn reasoning(&self) -> Option<&str> {
        [&self.reasoning_content, &self.reasoning, &self.reasoning_text]
            .into_iter()
            .flatten()
            .map(|text| &**text)
            .find(|text| !text.is_empty())
    }

    pub(super) fn is_empty(&self) -> bool {
        let Delta { content, refusal, reasoning_details, tool_calls, function_call, annotations, images, .. } = self;
        content.is_empty()
            && refusal.as_deref().is_none_or(str::is_empty)
            && self.reasoning().is_none()
            && reasoning_details.is_empty()
            && tool_calls.is_empty()
            && function_call.0.function.is_empty()
            && annotations.0.is_empty()
            && images.is_empty()
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct CallDelta<'a> {
    #[serde(deserialize_with = "lax")]
    pub(super) index: Option<u64>,
    #[serde(borrow, deserialize_with = "lax")]
    pub(super) id: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "lax")]
    pub(super) function: Function<'a>,
    /// Google's place for thought signatures.
    #[serde(borrow, deserialize_with = "lax")]
    pub(super) extra_content: Raw<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Function<'a> {
    #[serde(borrow, deserialize_with = "lax")]
    pub(super) name: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "lax")]
    pub(super) arguments: Arguments<'a>,
}

impl Function<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.name.as_deref().is_none_or(str::is_empty) && self.arguments.0.is_empty()
    }
}

/// A call without an id or an index.
#[derive(Default)]
pub(super) struct FunctionCall<'a>(pub(super) CallDelta<'a>);

impl<'de> Lax<'de> for FunctionCall<'de> {
    fn object<A: MapAccess<'de>>(object: A) -> Result<Self, A::Error> {
        Function::object(object).map(|function| Self(CallDelta { function, ..CallDelta::default() }))
    }
}

/// Argument text. A host that sends the value instead of its text means the same.
#[derive(Default)]
pub(super) struct Arguments<'a>(pub(super) Cow<'a, str>);

impl<'de> Lax<'de> for Arguments<'de> {
    fn text(text: Cow<'de, str>) -> Self {
        Self(text)
    }

    fn list<A: SeqAccess<'de>>(list: A) -> Result<Self, A::Error> {
        Raw::list(list).map(|raw| Self(raw.0))
    }

    fn object<A: MapAccess<'de>>(object: A) -> Result<Self, A::Error> {
        Raw::object(object).map(|raw| Self(raw.0))
    }
}

/// A JSON list or object as text; empty for anything else.
#[derive(Default)]
pub(super) struct Raw<'a>(pub(super) Cow<'a, str>);

impl<'de> Lax<'de> for Raw<'de> {
    fn list<A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        let mut json = String::from("[");
        while let Some(element) = list.next_element::<&RawValue>()? {
            if json.len() > 1 {
                json.push(',');
            }
            json.push_str(element.get());
        }
        json.push(']');
        Ok(Self(json.into()))
    }

    fn object<A: MapAccess<'de>>(mut object: A) -> Result<Self, A::Error> {
        let mut json = String::from("{");
        while let Some((key, value)) = object.next_entry::<String, &RawValue>()? {
            if json.len() > 1 {
                json.push(',');
            }
            json.push_str(&serde_json::to_string(&key).unwrap_or_default());
            json.push(':');
            json.push_str(value.get());
        }
        json.push('}');
        Ok(Self(json.into()))
    }
}

/// Text, or a list of parts, of which each may be of any type.
pub(super) enum Content<'a> {
    Text(Cow<'a, str>),
    /// The JSON of each part.
    Parts(Vec<Cow<'a, str>>),
}

impl Content<'_> {
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Content::Text(text) => text.is_empty(),
            Content::Parts(parts) => parts.is_empty(),
        }
    }
}

impl Default for Content<'_> {
    fn default() -> Self {
        Content::Text(Cow::Borrowed(""))
    }
}

impl<'de> Lax<'de> for Content<'de> {
    fn text(text: Cow<'de, str>) -> Self {
        Content::Text(text)
    }

    fn number(number: serde_json::Number) -> Self {
        Content::Text(number.to_string().into())
    }

    fn list<A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        let mut parts = Vec::new();
        while let Some(part) = list.next_element::<&RawValue>()? {
            parts.push(Cow::Borrowed(part.get()));
        }
        Ok(Content::Parts(parts))
    }

    fn object<A: MapAccess<'de>>(object: A) -> Result<Self, A::Error> {
        Raw::object(object).map(|raw| Content::Parts(vec![raw.0]))
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Part<'a> {
    #[serde(rename = "type", borrow, deserialize_with = "lax")]
    pub(super) kind: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "lax")]
    pub(super) text: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "lax")]
    pub(super) refusal: Option<Cow<'a, str>>,
    /// Mistral's reasoning: text, or a list of text parts.
    #[serde(borrow, deserialize_with = "lax")]
    pub(super) thinking: Content<'a>,
    #[serde(borrow, deserialize_with = "lax")]
    pub(super) image_url: ImageUrl<'a>,
}

impl<'a> Part<'a> {
    pub(super) fn parse(json: &'a str) -> Self {
        serde_json::from_str(json).map(|Field(part)| part).unwrap_or_default()
    }
}

impl<'de> Lax<'de> for Part<'de> {
    fn text(text: Cow<'de, str>) -> Self {
        Self { kind: Some("text".into()), text: Some(text), ..Self::default() }
    }

    fn object<A: MapAccess<'de>>(object: A) -> Result<Self, A::Error> {
        Self::deserialize(serde::de::value::MapAccessDeserializer::new(object))
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ImageUrl<'a> {
    #[serde(borrow, deserialize_with = "lax")]
    pub(super) url: Option<Cow<'a, str>>,
}

/// An element of OpenRouter's `reasoning_details`: all its fields, since it goes back as it came.
#[derive(Default)]
pub(super) struct Detail<'a>(pub(super) Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Detail<'a> {
    /// What is to read in it.
    pub(super) fn text(&self) -> Option<Lossy<'a>> {
        let (_, json) = self.0.iter().find(|(key, _)| matches!(&**key, "text" | "summary"))?;
        serde_json::from_str(json.get()).ok().filter(|text: &Lossy<'_>| !text.is_empty())
    }
}

impl<'de> Lax<'de> for Detail<'de> {
    fn object<A: MapAccess<'de>>(mut object: A) -> Result<Self, A::Error> {
        let mut fields = Vec::with_capacity(8);
        while let Some((Field(key), value)) = object.next_entry::<Field<Option<Cow<'de, str>>>, &RawValue>()? {
            fields.push((key.unwrap_or_default(), value));
        }
        Ok(Self(fields))
    }
}

/// Token counts. Hosts disagree on where the cached ones stand.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Usage {
    #[serde(deserialize_with = "lax")]
    pub(super) prompt_tokens: Option<u64>,
    #[serde(deserialize_with = "lax")]
    pub(super) completion_tokens: Option<u64>,
    #[serde(deserialize_with = "lax")]
    pub(super) total_tokens: Option<u64>,
    #[serde(deserialize_with = "lax")]
    pub(super) prompt_tokens_details: TokenDetails,
    #[serde(deserialize_with = "lax")]
    pub(super) completion_tokens_details: TokenDetails,
    /// DeepSeek's.
    #[serde(deserialize_with = "lax")]
    pub(super) prompt_cache_hit_tokens: Option<u64>,
    /// Moonshot's.
    #[serde(deserialize_with = "lax")]
    pub(super) cached_tokens: Option<u64>,
    /// GitHub Copilot's.
    #[serde(deserialize_with = "lax")]
    pub(super) reasoning_tokens: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct TokenDetails {
    #[serde(deserialize_with = "lax")]
    pub(super) cached_tokens: Option<u64>,
    /// OpenRouter's.
    #[serde(deserialize_with = "lax")]
    pub(super) cache_write_tokens: Option<u64>,
    #[serde(deserialize_with = "lax")]
    pub(super) reasoning_tokens: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct BaseResp {
    #[serde(deserialize_with = "lax")]
    pub(super) status_code: bool,
}

lax_objects!(
    XGroq,
    Choice<'de>,
    Delta<'de>,
    CallDelta<'de>,
    Function<'de>,
    ImageUrl<'de>,
    Usage,
    TokenDetails,
    BaseResp
);
