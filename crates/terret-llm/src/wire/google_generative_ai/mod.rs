//! Google's Generative Language API, `models.streamGenerateContent`, in the shape that Vertex AI shares.
//!
//! Sources: the [API reference](https://ai.google.dev/api/generate-content), the guides to
//! [thought signatures](https://ai.google.dev/gemini-api/docs/thought-signatures),
//! [thinking](https://ai.google.dev/gemini-api/docs/thinking) and
//! [function calling](https://ai.google.dev/gemini-api/docs/function-calling), and recorded responses.
//!
//! What this wire does in its own way:
//! - It has no terminal event. A reply is complete when a finish reason was seen and the body ended after it.
//! - A part with a thought signature is a block of its own; the signature goes back on that very part. A picture that is
//!   signed or belongs to the thoughts is an opaque block, because an image block has no place for that.
//! - Most models name no tool-call ids. Those that the draft made up don't go out; calls and responses are paired by
//!   name and order then.
//! - Grounding, citations and retrieved URLs become the annotations of the last text block.

mod body;
mod chunk;
mod decode;
mod encode;
mod partial_args;
mod thinking;

use crate::model::ModelSpec;
use crate::request::{Options, Request};
use crate::wire::body::{BodyWriter, Head, MessageList};
use crate::wire::handoff::Group;
use crate::wire::{Decoder, EncodeError, Wire};

pub(crate) struct GoogleGenerativeAi;

impl BodyWriter for GoogleGenerativeAi {
    fn head(&self, model: &ModelSpec, request: &Request) -> Result<Head, EncodeError> {
        encode::head(model, request)
    }

    fn group(
        &self,
        model: &ModelSpec,
        _: &Options,
        group: &Group<'_>,
        list: &mut MessageList,
    ) -> Result<(), EncodeError> {
        encode::group(model, group, list)
    }
}

impl Wire for GoogleGenerativeAi {
    fn decoder(&self) -> Box<dyn Decoder> {
        Box::<decode::GoogleDecoder>::default()
    }
}
