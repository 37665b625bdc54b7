//! What the wire tells, borrowed from its text. Strict where a fragment is read, lax everywhere else.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::lossy::{Fragment, Lossy};
use crate::transcript::replace_lone_surrogates;
use crate::wire::lax::if_it_fits;

/// An event of a stream. Which fields it has depends on its type.
#[derive(Deserialize)]
pub(super) struct Event<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<Lossy<'a>>,
    /// Which output item; llama.cpp leaves it out.
    pub(super) output_index: Option<u64>,
    /// Which part of a message's content or of a reasoning item's content.
    pub(super) content_index: Option<u64>,
    /// Which part of a reasoning item's summary.
    pub(super) summary_index: Option<u64>,
    /// The item's id; some hosts change it from event to event.
    #[serde(borrow)]
    pub(super) item_id: Option<Lossy<'a>>,
    #[serde(borrow)]
    pub(super) delta: Option<Fragment<'a>>,
    #[serde(borrow)]
    pub(super) text: Option<Lossy<'a>>,
    #[serde(borrow)]
    pub(super) refusal: Option<Lossy<'a>>,
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) input: Option<Lossy<'a>>,
    #[serde(borrow)]
    pub(super) item: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) part: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) response: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// A response object: in a stream's lifecycle events, or a plain body.
#[derive(Default, Deserialize)]
pub(super) struct Response<'a> {
    #[serde(borrow, default, deserialize_with = "if_it_fits")]
    pub(super) id: Option<Lossy<'a>>,
    #[serde(borrow, default, deserialize_with = "if_it_fits")]
    pub(super) status: Option<Lossy<'a>>,
    #[serde(borrow, default, deserialize_with = "if_it_fits")]
    pub(super) incomplete_details: Option<IncompleteDetails<'a>>,
    #[serde(borrow, default, deserialize_with = "if_it_fits")]
    pub(super) output: Option<Vec<&'a RawValue>>,
    #[serde(default, deserialize_with = "if_it_fits")]
    pub(super) usage: Option<Usage>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) detail: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct IncompleteDetails<'a> {
    #[serde(borrow, default, deserialize_with = "if_it_fits")]
    pub(super) reason: Option<Lossy<'a>>,
}

/// Token counts; `input_tokens` includes what a cache served or stored.
#[derive(Deserialize)]
pub(super) struct Usage {
    #[serde(default, deserialize_with = "if_it_fits")]
    pub(super) input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "if_it_fits")]
    pub(super) input_tokens_details: Option<InputDetails>,
    #[serde(default, deserialize_with = "if_it_fits")]
    pub(super) output_tokens: Option<u64>,
    #[serde(default, deserialize_with = "if_it_fits")]
    pub(super) output_tokens_details: Option<OutputDetails>,
}

#[derive(Deserialize)]
pub(super) struct InputDetails {
    #[serde(default, deserialize_with = "if_it_fits")]
    pub(super) cached_tokens: Option<u64>,
    #[serde(default, deserialize_with = "if_it_fits")]
    pub(super) cache_write_tokens: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct OutputDetails {
    #[serde(default, deserialize_with = "if_it_fits")]
    pub(super) reasoning_tokens: Option<u64>,
}

/// An output item of any type.
#[derive(Default, Deserialize)]
pub(super) struct OutputItem<'a> {
    #[serde(borrow, rename = "type", default, deserialize_with = "if_it_fits")]
    pub(super) kind: Option<Lossy<'a>>,
    #[serde(borrow, default, deserialize_with = "if_it_fits")]
    pub(super) id: Option<Lossy<'a>>,
    #[serde(borrow, default, deserialize_with = "if_it_fits")]
    pub(super) call_id: Option<Lossy<'a>>,
    #[serde(borrow, default, deserialize_with = "if_it_fits")]
    pub(super) name: Option<Lossy<'a>>,
    #[serde(borrow, default)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "if_it_fits")]
    pub(super) input: Option<Lossy<'a>>,
    #[serde(borrow, default, deserialize_with = "if_it_fits")]
    pub(super) namespace: Option<Lossy<'a>>,
    #[serde(borrow, default)]
    pub(super) caller: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "if_it_fits")]
    pub(super) phase: Option<Lossy<'a>>,
    #[serde(borrow, default, deserialize_with = "if_it_fits")]
    pub(super) status: Option<Lossy<'a>>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    summary: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "if_it_fits")]
    pub(super) encrypted_content: Option<Lossy<'a>>,
}

impl<'a> OutputItem<'a> {
    /// Reads an item; nothing if it isn't an object.
    pub(super) fn read(raw: &'a RawValue) -> Option<Self> {
        serde_json::from_str(raw.get()).ok()
    }

    /// Whether it has no id of any kind.
    pub(super) fn is_anonymous(&self) -> bool {
        text(&self.id).is_empty() && text(&self.call_id).is_empty()
    }

    pub(super) fn content(&self) -> Vec<ContentPart<'a>> {
        parts(self.content)
    }

    pub(super) fn summary(&self) -> Vec<ContentPart<'a>> {
        parts(self.summary)
    }
}

/// A part of a message's content, or of a reasoning item's summary or content.
#[derive(Default, Deserialize)]
pub(super) struct ContentPart<'a> {
    #[serde(borrow, rename = "type", default, deserialize_with = "if_it_fits")]
    pub(super) kind: Option<Lossy<'a>>,
    #[serde(borrow, default, deserialize_with = "if_it_fits")]
    pub(super) text: Option<Lossy<'a>>,
    #[serde(borrow, default, deserialize_with = "if_it_fits")]
    pub(super) refusal: Option<Lossy<'a>>,
    #[serde(borrow, default, deserialize_with = "if_it_fits")]
    pub(super) annotations: Option<Vec<&'a RawValue>>,
}

impl ContentPart<'_> {
    pub(super) fn text(&self) -> &str {
        text(&self.text)
    }
}

/// The parts of a list. One of a strange shape is an empty part: the others keep their index. A bare string is one part.
fn parts(raw: Option<&RawValue>) -> Vec<ContentPart<'_>> {
    let Some(raw) = raw else { return Vec::new() };
    match serde_json::from_str::<Vec<&RawValue>>(raw.get()) {
        Ok(list) => list.into_iter().map(|raw| serde_json::from_str(raw.get()).unwrap_or_default()).collect(),
        Err(_) => serde_json::from_str(raw.get())
            .map(|text| ContentPart { text, ..ContentPart::default() })
            .into_iter()
            .collect(),
    }
}

/// The text of a field; empty if the field is absent.
pub(super) fn text<'a>(field: &'a Option<Lossy<'_>>) -> &'a str {
    field.as_deref().unwrap_or_default()
}

/// Argument text: the promised string, or the JSON that a host sent in its place.
pub(super) fn arguments<'a>(raw: Option<&'a RawValue>) -> Cow<'a, str> {
    let Some(raw) = raw else { return Cow::Borrowed("") };
    match serde_json::from_str::<Lossy<'a>>(raw.get()) {
        Ok(text) => text.0,
        Err(_) => Cow::Borrowed(raw.get()),
    }
}

/// JSON as it stood on the wire, but on one line: raw line breaks stand only between tokens.
pub(super) fn verbatim(raw: &RawValue) -> Cow<'_, str> {
    let json = replace_lone_surrogates(raw.get());
    match json.contains(['\n', '\r']) {
        true => Cow::Owned(json.replace(['\n', '\r'], " ")),
        false => json,
    }
}
