//! What the API sends: a `GenerateContentResponse`, borrowed from its text.
//!
//! The names are those of [Google's reference](https://ai.google.dev/api/generate-content#generatecontentresponse). A value
//! of another shape than documented is as good as absent, and costs nothing but itself.

use serde::de::{MapAccess, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::decode::GoogleDecoder;
use super::partial_args::PartialArg;
use crate::draft::Draft;
use crate::error::{ErrorKind, ModelError};
use crate::lossy::{Fragment, Lossy};
use crate::transcript::Usage;
use crate::wire::lax::{Lax, lax};

/// A chunk of a stream, or a whole response. `P` is how its parts are read.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", bound = "P: Default + Deserialize<'de>")]
pub(super) struct Chunk<'a, P> {
    #[serde(borrow, default, deserialize_with = "lax")]
    pub(super) candidates: Vec<Option<Candidate<'a, P>>>,
    #[serde(borrow)]
    pub(super) prompt_feedback: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "lax")]
    pub(super) usage_metadata: Option<Counts>,
    #[serde(borrow)]
    pub(super) response_id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", bound = "P: Default + Deserialize<'de>")]
pub(super) struct Candidate<'a, P> {
    #[serde(default, deserialize_with = "lax")]
    pub(super) index: Option<u64>,
    #[serde(default, deserialize_with = "lax")]
    pub(super) content: Content<P>,
    #[serde(borrow)]
    pub(super) finish_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) finish_message: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) grounding_metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) url_context_metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) citation_metadata: Option<&'a RawValue>,
}

impl<'de: 'a, 'a, P: Default + Deserialize<'de>> Lax<'de> for Option<Candidate<'a, P>> {
    fn object<A: MapAccess<'de>>(object: A) -> Result<Self, A::Error> {
        Candidate::deserialize(MapAccessDeserializer::new(object)).map(Some)
    }
}

#[derive(Default, Deserialize)]
pub(super) struct Content<P> {
    #[serde(default)]
    pub(super) parts: P,
}

impl<'de, P: Default + Deserialize<'de>> Lax<'de> for Content<P> {
    fn object<A: MapAccess<'de>>(object: A) -> Result<Self, A::Error> {
        Content::deserialize(MapAccessDeserializer::new(object))
    }
}

/// The parts of a candidate.
pub(super) trait Parts {
    fn fold_into(&self, decoder: &mut GoogleDecoder, draft: &mut Draft);
}

/// Parts of which each is known to the last field: what nearly all chunks hold, read in one go. Others are an error.
#[derive(Default)]
pub(super) struct KnownParts<'a>(Vec<Part<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for KnownParts<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        lax(deserializer).map(Self)
    }
}

impl Parts for KnownParts<'_> {
    fn fold_into(&self, decoder: &mut GoogleDecoder, draft: &mut Draft) {
        for part in &self.0 {
            decoder.part(draft, part);
        }
    }
}

/// Parts of any kind: some go back as they came.
#[derive(Default, Deserialize)]
#[serde(transparent)]
pub(super) struct AnyParts<'a>(#[serde(borrow)] Option<&'a RawValue>);

impl Parts for AnyParts<'_> {
    fn fold_into(&self, decoder: &mut GoogleDecoder, draft: &mut Draft) {
        let Some(parts) = self.0 else { return };
        match serde_json::from_str::<Vec<&RawValue>>(parts.get()) {
            Ok(list) => list.into_iter().for_each(|part| decoder.any_part(draft, part)),
            // A lone one.
            Err(_) => decoder.any_part(draft, parts),
        }
    }
}

/// A part whose kind needs no more than these fields.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Part<'a> {
    #[serde(borrow)]
    pub(super) text: Option<Fragment<'a>>,
    pub(super) thought: Option<bool>,
    #[serde(borrow)]
    pub(super) thought_signature: Option<Lossy<'a>>,
    #[serde(borrow)]
    pub(super) function_call: Option<Box<FunctionCall<'a>>>,
}

impl<'de: 'a, 'a> Lax<'de> for Part<'a> {
    fn object<A: MapAccess<'de>>(object: A) -> Result<Self, A::Error> {
        Part::deserialize(MapAccessDeserializer::new(object))
    }
}

/// A part of any kind. What isn't read of it is kept with the whole.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AnyPart<'a> {
    #[serde(borrow)]
    pub(super) text: Option<Fragment<'a>>,
    pub(super) thought: Option<bool>,
    #[serde(borrow)]
    pub(super) thought_signature: Option<Lossy<'a>>,
    #[serde(borrow)]
    pub(super) function_call: Option<Box<FunctionCall<'a>>>,
    #[serde(borrow)]
    pub(super) inline_data: Option<Box<InlineData<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FunctionCall<'a> {
    #[serde(borrow)]
    pub(super) id: Option<Lossy<'a>>,
    #[serde(borrow)]
    pub(super) name: Option<Lossy<'a>>,
    #[serde(borrow)]
    pub(super) args: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) partial_args: Option<Vec<PartialArg<'a>>>,
    /// More of this call follows.
    pub(super) will_continue: Option<bool>,
}

impl FunctionCall<'_> {
    pub(super) fn is_unnamed(&self) -> bool {
        self.name.as_deref().unwrap_or_default().is_empty()
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct InlineData<'a> {
    #[serde(borrow)]
    pub(super) mime_type: Lossy<'a>,
    #[serde(borrow)]
    pub(super) data: Lossy<'a>,
}

impl InlineData<'_> {
    pub(super) fn is_image(&self) -> bool {
        self.mime_type.starts_with("image/")
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PromptFeedback<'a> {
    #[serde(borrow)]
    block_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    block_reason_message: Option<&'a RawValue>,
}

impl PromptFeedback<'_> {
    pub(super) fn refusal(&self) -> Option<ModelError> {
        let (reason, message) = (text(self.block_reason), text(self.block_reason_message));
        let colon = if message.is_empty() { "" } else { ": " };
        let message = format!("the prompt was blocked ({}){colon}{}", &*reason, &*message);
        (!reason.is_empty()).then(|| ModelError::new(ErrorKind::Refused, message).with_code(&*reason))
    }
}

/// `usageMetadata`. Each chunk counts anew; a count that it leaves out stays.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Counts {
    #[serde(default, deserialize_with = "lax")]
    prompt_token_count: Option<u64>,
    #[serde(default, deserialize_with = "lax")]
    cached_content_token_count: Option<u64>,
    /// What server-side tools added to the prompt.
    #[serde(default, deserialize_with = "lax")]
    tool_use_prompt_token_count: Option<u64>,
    #[serde(default, deserialize_with = "lax")]
    candidates_token_count: Option<u64>,
    /// Not part of the candidates' count.
    #[serde(default, deserialize_with = "lax")]
    thoughts_token_count: Option<u64>,
}

impl<'de> Lax<'de> for Option<Counts> {
    fn object<A: MapAccess<'de>>(object: A) -> Result<Self, A::Error> {
        Counts::deserialize(MapAccessDeserializer::new(object)).map(Some)
    }
}

impl Counts {
    pub(super) fn update(&mut self, new: &Counts) {
        self.prompt_token_count = new.prompt_token_count.or(self.prompt_token_count);
        self.cached_content_token_count = new.cached_content_token_count.or(self.cached_content_token_count);
        self.tool_use_prompt_token_count = new.tool_use_prompt_token_count.or(self.tool_use_prompt_token_count);
        self.candidates_token_count = new.candidates_token_count.or(self.candidates_token_count);
        self.thoughts_token_count = new.thoughts_token_count.or(self.thoughts_token_count);
    }

    pub(super) fn write(&self, usage: &mut Usage) {
        let prompt = self.prompt_token_count.unwrap_or(0);
        let prompt = prompt.saturating_add(self.tool_use_prompt_token_count.unwrap_or(0));
        let cached = self.cached_content_token_count.unwrap_or(0);
        usage.cache_read = if prompt > 0 { cached.min(prompt) } else { cached };
        usage.input = prompt.saturating_sub(cached);
        usage.reasoning = self.thoughts_token_count.unwrap_or(0);
        usage.output = self.candidates_token_count.unwrap_or(0).saturating_add(usage.reasoning);
    }
}

/// The text of a field; empty if it is absent or none.
pub(super) fn text<'a>(raw: Option<&'a RawValue>) -> Lossy<'a> {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}
