//! OpenAI's [Chat Completions](https://platform.openai.com/docs/api-reference/chat) and its many hosts.

mod calls;
mod decode;
mod details;
mod encode;
mod frame;
mod lax;
mod messages;
mod usage;

use crate::model::ModelSpec;
use crate::request::Request;
use crate::wire::{Decoder, EncodeError, Encoded, Wire};

pub(crate) struct OpenaiCompletions;

impl Wire for OpenaiCompletions {
    fn encode(&self, model: &ModelSpec, request: &Request) -> Result<Encoded, EncodeError> {
        encode::encode(model, request)
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(decode::CompletionsDecoder::default())
    }
}
