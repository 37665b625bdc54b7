//! Anthropic's Messages API, which some other hosts speak, too.
//!
//! Facts are from "Messages", "Streaming Messages", "Prompt caching", "Thinking", "Effort" and "Structured outputs" in
//! the documentation at <https://platform.claude.com/docs>, from the pages on what is new in each model, and from
//! recorded answers.

mod decode;
mod encode;
mod reasoning;

use crate::model::ModelSpec;
use crate::request::{Options, Request};
use crate::wire::body::{BodyWriter, Head, MessageList};
use crate::wire::handoff::Group;
use crate::wire::{Decoder, EncodeError, Wire, WireFormat};

pub(crate) struct AnthropicMessages;

impl BodyWriter for AnthropicMessages {
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
        encode::group(model, options, group, list)
    }
}

impl Wire for AnthropicMessages {
    fn decoder(&self) -> Box<dyn Decoder> {
        Box::<decode::MessageDecoder>::default()
    }
}

fn unsupported(option: &'static str, hint: &'static str) -> EncodeError {
    EncodeError::Unsupported { wire: WireFormat::AnthropicMessages, option, hint: Some(hint) }
}
