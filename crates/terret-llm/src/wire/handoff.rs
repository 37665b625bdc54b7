//! Handoff: a transcript as the target model accepts it.

use std::borrow::Cow;

use crate::model::ModelSpec;
use crate::transcript::{Message, Transcript};

/// The transcript as `target` accepts it, run before every encode.
pub fn handoff<'a>(transcript: &'a Transcript, _target: &ModelSpec) -> Vec<Cow<'a, Message>> {
    transcript.iter().map(|message| Cow::Borrowed(&**message)).collect()
}
