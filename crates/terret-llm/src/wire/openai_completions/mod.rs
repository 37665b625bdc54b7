//! OpenAI's [Chat Completions](https://platform.openai.com/docs/api-reference/chat) and its many hosts.

mod calls;
mod decode;
mod details;
mod frame;
mod lax;
mod usage;

use crate::model::ModelSpec;
use crate::request::Request;
use crate::wire::{Decoder, EncodeError, Encoded, Wire};

pub(crate) struct OpenaiCompletions;

impl Wire for OpenaiCompletions {
    fn encode(&self, _model: &ModelSpec, _request: &Request) -> Result<Encoded, EncodeError> {
        Err(EncodeError::NoMessages)
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(decode::CompletionsDecoder::default())
    }
}
