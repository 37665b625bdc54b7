//! Anthropic's Messages API, which some other hosts speak, too.
//!
//! Facts are from "Messages", "Streaming Messages", "Prompt caching", "Thinking", "Effort" and "Structured outputs" in
//! the documentation at <https://platform.claude.com/docs>, from the pages on what is new in each model, and from
//! recorded answers.

mod decode;
mod encode;
mod reasoning;

use crate::model::ModelSpec;
use crate::request::Request;
use crate::wire::{Decoder, EncodeError, Encoded, Wire, WireFormat};

pub(crate) struct AnthropicMessages;

impl Wire for AnthropicMessages {
    fn encode(&self, model: &ModelSpec, request: &Request) -> Result<Encoded, EncodeError> {
        encode::encode(model, request)
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::<decode::MessageDecoder>::default()
    }
}

fn unsupported(option: &'static str, hint: &'static str) -> EncodeError {
    EncodeError::Unsupported { wire: WireFormat::AnthropicMessages, option, hint: Some(hint) }
}
