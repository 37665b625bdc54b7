//! stub

use crate::model::ModelSpec;
use crate::request::Request;
use crate::wire::{Decoder, EncodeError, Encoded, Wire};

pub(crate) struct OpenaiCompletions;

impl Wire for OpenaiCompletions {
    fn encode(&self, _model: &ModelSpec, _request: &Request) -> Result<Encoded, EncodeError> {
        Err(EncodeError::NoMessages)
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        unimplemented!()
    }
}
