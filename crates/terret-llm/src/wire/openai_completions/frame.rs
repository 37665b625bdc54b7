//! What a host sends: one chunk of a stream, or a whole response, which differs from a chunk only in `message`.
//!
//! The names are those of [OpenAI's reference](https://platform.openai.com/docs/api-reference/chat-streaming), plus what
//! the hosts of this wire add to it. Only what is used is read.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::MapAccess;
use serde_json::value::RawValue;

use crate::lossy::Fragment;
use crate::wire::lax::{Field, Lax, lax};

#[derive(Default, Deserialize)]
pub(super) struct Frame<'a> {
    #[serde(borrow, default, deserialize_with = "lax")]
    pub(super) id: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "lax")]
    pub(super) object: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "lax")]
    pub(super) choices: Vec<Choice<'a>>,
    #[serde(default, deserialize_with = "lax")]
    pub(super) usage: Option<Box<Usage>>,
    #[serde(default, deserialize_with = "lax")]
    pub(super) x_groq: Option<Box<XGroq>>,
    /// The sources of the whole answer (Perplexity, xAI), in each chunk or in the last one.
    #[serde(borrow)]
    pub(super) citations: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "lax")]
    pub(super) error: bool,
    /// MiniMax's status, of which 0 is success.
    #[serde(default, deserialize_with = "lax")]
    pub(super) base_resp: BaseResp,
}

/// Groq's own part: the usage also of a stream that was not asked for it, and why a stream was cut off.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct XGroq {
    #[serde(deserialize_with = "lax")]
    pub(super) usage: Option<Box<Usage>>,
    #[serde(deserialize_with = "lax")]
    pub(super) error: bool,
}

#[derive(Default, Deserialize)]
pub(super) struct Choice<'a> {
    #[serde(default, deserialize_with = "lax")]
    pub(super) index: Option<u64>,
    #[serde(borrow, default, deserialize_with = "lax")]
    pub(super) delta: Delta<'a>,
    /// A whole response's; some hosts send it in chunks, too.
    #[serde(borrow, default, deserialize_with = "lax")]
    pub(super) message: Option<Box<Delta<'a>>>,
    #[serde(borrow, default, deserialize_with = "lax")]
    pub(super) finish_reason: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "lax")]
    pub(super) usage: Option<Box<Usage>>,
    #[serde(default, deserialize_with = "lax")]
    pub(super) error: bool,
}

/// What the model said. Values that come in fragments are kept as JSON, and read by [`text`] and [`arguments`].
#[derive(Default, Deserialize)]
pub(super) struct Delta<'a> {
    /// Text, or a list of parts.
    #[serde(borrow)]
    pub(super) content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) refusal: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning_content: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning_text: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "lax")]
    pub(super) reasoning_details: Vec<Detail<'a>>,
    #[serde(borrow, default, deserialize_with = "lax")]
    pub(super) tool_calls: Vec<CallDelta<'a>>,
    /// The one call of the time before `tool_calls`.
    #[serde(borrow, default, deserialize_with = "lax")]
    pub(super) function_call: Option<Box<Function<'a>>>,
    #[serde(borrow)]
    pub(super) annotations: Option<&'a RawValue>,
    /// Pictures that a model made (OpenRouter).
    #[serde(borrow, default, deserialize_with = "lax")]
    pub(super) images: Vec<Part<'a>>,
}

impl<'a> Delta<'a> {
    /// The reasoning as plain text. Hosts repeat it under several names for the sake of their clients.
    pub(super) fn reasoning(&self) -> Option<Fragment<'a>> {
        let names = [self.reasoning_content, self.reasoning, self.reasoning_text];
        names.into_iter().map(text).find(|text| !text.is_empty())
    }

    /// The parts of the content, if it is a list of them.
    pub(super) fn parts(&self) -> Option<Vec<&'a RawValue>> {
        parts(self.content)
    }

    pub(super) fn is_empty(&self) -> bool {
        [self.content, self.refusal, self.reasoning_content, self.reasoning, self.reasoning_text, self.annotations]
            .into_iter()
            .flatten()
            .all(|json| matches!(json.get(), "\"\"" | "[]" | "{}"))
            && self.reasoning_details.is_empty()
            && self.tool_calls.is_empty()
            && self.function_call.as_ref().is_none_or(|function| function.is_empty())
            && self.images.is_empty()
    }
}

/// Text that comes in fragments; a number counts as its digits.
pub(super) fn text<'a>(json: Option<&'a RawValue>) -> Fragment<'a> {
    let json = json.map_or("", RawValue::get);
    match json.as_bytes().first() {
        Some(b'"') => match unescaped(json) {
            Some(text) => Fragment { text: text.into(), ..Fragment::default() },
            None => serde_json::from_str(json).unwrap_or_default(),
        },
        Some(b'0'..=b'9' | b'-') => Fragment { text: json.into(), ..Fragment::default() },
        _ => Fragment::default(),
    }
}

/// What stands in a JSON string that has no escapes.
fn unescaped(json: &str) -> Option<&str> {
    let text = json.strip_prefix('"')?.strip_suffix('"')?;
    memchr::memchr(b'\\', text.as_bytes()).is_none().then_some(text)
}

/// Argument text. A host that sends the value instead of its text means the same.
pub(super) fn arguments<'a>(json: Option<&'a RawValue>) -> Fragment<'a> {
    match json.map(RawValue::get) {
        Some(value) if value.starts_with(['{', '[']) => Fragment { text: value.into(), ..Fragment::default() },
        _ => text(json),
    }
}

/// The elements of a list of parts; a lone part counts as a list of one.
pub(super) fn parts(json: Option<&RawValue>) -> Option<Vec<&RawValue>> {
    let json = json?;
    match json.get().as_bytes().first() {
        Some(b'[') => serde_json::from_str(json.get()).ok(),
        Some(b'{') => Some(vec![json]),
        _ => None,
    }
}

#[derive(Default, Deserialize)]
pub(super) struct CallDelta<'a> {
    #[serde(default, deserialize_with = "lax")]
    pub(super) index: Option<u64>,
    #[serde(borrow, default, deserialize_with = "lax")]
    pub(super) id: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "lax")]
    pub(super) function: Function<'a>,
    /// Google's place for thought signatures.
    #[serde(borrow)]
    pub(super) extra_content: Option<&'a RawValue>,
}

#[derive(Clone, Default, Deserialize)]
pub(super) struct Function<'a> {
    #[serde(borrow, default, deserialize_with = "lax")]
    pub(super) name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
}

impl Function<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.name.as_deref().is_none_or(str::is_empty) && arguments(self.arguments).is_empty()
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Part<'a> {
    #[serde(rename = "type", borrow, deserialize_with = "lax")]
    pub(super) kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) text: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) refusal: Option<&'a RawValue>,
    /// Mistral's reasoning: text, or a list of text parts.
    #[serde(borrow)]
    pub(super) thinking: Option<&'a RawValue>,
    #[serde(borrow, deserialize_with = "lax")]
    pub(super) image_url: ImageUrl<'a>,
}

impl<'a> Part<'a> {
    /// Reads a part; a bare string is one of text.
    pub(super) fn parse(json: &'a RawValue) -> Self {
        match json.get().starts_with('"') {
            true => Self { text: Some(json), ..Self::default() },
            false => serde_json::from_str(json.get()).unwrap_or_default(),
        }
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
    pub(super) fn text(&self) -> Fragment<'a> {
        let texts = self.0.iter().filter(|(key, _)| matches!(&**key, "text" | "summary"));
        texts.map(|(_, json)| text(Some(json))).find(|text| !text.is_empty()).unwrap_or_default()
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

/// Implements [`Lax`] for structs that derive `Deserialize`: an object is read, another shape is the default.
macro_rules! lax_objects {
    ($($name:ty),*) => {$(
        impl<'de> Lax<'de> for $name {
            fn object<A: MapAccess<'de>>(object: A) -> Result<Self, A::Error> {
                Self::deserialize(serde::de::value::MapAccessDeserializer::new(object))
            }
        }
    )*};
}

lax_objects!(
    XGroq,
    Choice<'de>,
    Delta<'de>,
    CallDelta<'de>,
    Function<'de>,
    Part<'de>,
    ImageUrl<'de>,
    Usage,
    TokenDetails,
    BaseResp
);
