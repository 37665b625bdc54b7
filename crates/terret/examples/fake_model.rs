//! A model of your own, without network: anything that can fill a draft is one.

#![allow(clippy::print_stdout, reason = "an example")]

use std::sync::Arc;

use terret::llm::wire::WireFormat;
use terret::llm::{BlockKind, Draft, Model, ModelSpec, ReplyStream, Stop, StopReason};
use terret::prelude::*;

/// Repeats what the user said, in upper case.
struct Shout(Arc<ModelSpec>);

impl Model for Shout {
    fn spec(&self) -> &Arc<ModelSpec> {
        &self.0
    }

    fn stream(&self, request: Request, _cancel: tokio_util::sync::CancellationToken) -> ReplyStream {
        let said = match request.messages.last().map(|message| &**message) {
            Some(Message::User(user)) => user.content.iter().filter_map(Content::as_text).collect::<String>(),
            _ => String::new(),
        };
        let mut draft = Draft::new(&self.0);
        draft.block(BlockKind::Text, &said.to_uppercase());
        // The end of a complete reply; only this can make an agent act.
        let events = draft.done(Stop { reason: StopReason::Stop, raw: None });
        ReplyStream::new(futures_util::stream::iter(events))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let spec = ModelSpec::new("fake", "shout", WireFormat::from("fake"));
    let agent = Agent::builder(Shout(Arc::new(spec))).build()?;
    let report = agent.prompt("hello").report().await;
    println!("{}", report.text.unwrap_or_default());
    Ok(())
}
