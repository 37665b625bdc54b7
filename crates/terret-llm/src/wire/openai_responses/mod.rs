//! OpenAI's Responses API, and the hosts that speak it.
//!
//! Protocol facts come from OpenAI's [API reference](https://platform.openai.com/docs/api-reference/responses)
//! and its guides on reasoning, function calling and streaming; what hosts do differently comes from recorded traffic.
//!
//! # Signatures
//!
//! Requests are stateless (`store: false`), so everything that the model needs of its own output goes back in full.
//! What has no place in a block rides in the block's signature:
//!
//! - A thinking block carries its whole reasoning item, as the JSON that stood on the wire (line breaks between tokens
//!   are spaces). OpenAI wants the item of `response.output_item.done` back, and hosts are known to verify all of it. An
//!   item in which there is nothing, neither text nor `encrypted_content`, leaves a block without a signature.
//! - A text block or a tool call carries an [`ItemSignature`] as compact JSON: `{"id":"msg_1","phase":"commentary"}`,
//!   `{"id":"fc_1"}`.

mod decode;
mod encode;
mod events;
mod item;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::model::ModelSpec;
use crate::request::{Options, Request};
use crate::wire::body::{BodyWriter, Head, MessageList};
use crate::wire::handoff::Group;
use crate::wire::{Decoder, EncodeError, Wire};

pub(crate) struct OpenaiResponses;

impl BodyWriter for OpenaiResponses {
    fn head(&self, model: &ModelSpec, request: &Request) -> Result<Head, EncodeError> {
        encode::head(model, request)
    }

    fn group(&self, _: &ModelSpec, _: &Options, group: &Group<'_>, list: &mut MessageList) -> Result<(), EncodeError> {
        encode::group(group, list)
    }
}

impl Wire for OpenaiResponses {
    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(decode::ResponsesDecoder::default())
    }
}

/// What a message or a call holds besides what its block holds.
#[derive(Debug, Default, Deserialize, Serialize)]
struct ItemSignature<'a> {
    /// The item's id (`msg_…`, `fc_…`, `ctc_…`).
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    id: Option<Cow<'a, str>>,
    /// Of a message: `commentary` or `final_answer`. Newer models answer worse without it.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    phase: Option<Cow<'a, str>>,
    /// Of a part of a message: it is a refusal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    refusal: bool,
    /// Of a call: the namespace of its tool.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    namespace: Option<Cow<'a, str>>,
    /// Of a call: the program of the model's that made it.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    caller: Option<&'a RawValue>,
    /// Of a call to a custom tool: its free-form input. The call's arguments hold it as a JSON string.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    input: Option<Cow<'a, str>>,
}
