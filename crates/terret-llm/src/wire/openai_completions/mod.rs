//! OpenAI's [Chat Completions](https://platform.openai.com/docs/api-reference/chat) and the many hosts that speak it.
//!
//! Reading is the same for all hosts: what one of them does no other contradicts. Writing differs from host to host, and
//! [`Compat`](crate::Compat) says how.
//!
//! What goes out says less than a transcript holds:
//! - Text before, between and after calls is one text.
//! - That a tool result is an error stands in its text or nowhere, and its images go in a user message of their own.
//! - Reasoning goes back as the `reasoning_details` that came with it, or in the field that the host names; else not at
//!   all.
//! - How long to cache, and the key to find the cache by, are hints. A host that doesn't know them isn't told.

mod calls;
mod decode;
mod details;
mod encode;
mod frame;
mod messages;
mod usage;

use crate::model::ModelSpec;
use crate::request::{Options, Request};
use crate::wire::body::{BodyWriter, Head, MessageList};
use crate::wire::handoff::Group;
use crate::wire::{Decoder, EncodeError, Wire};

pub(crate) struct OpenaiCompletions;

impl BodyWriter for OpenaiCompletions {
    fn head(&self, model: &ModelSpec, request: &Request) -> Result<Head, EncodeError> {
        encode::head(model, request)
    }

    fn group(
        &self,
        model: &ModelSpec,
        options: &Options,
        group: &Group<'_>,
        list: &mut MessageList,
    ) -> Result<(), EncodeError> {
        messages::group(&model.compat, options, group, list)
    }
}

impl Wire for OpenaiCompletions {
    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(decode::CompletionsDecoder::default())
    }
}
