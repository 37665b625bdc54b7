//! One completion, with this crate alone: `cargo run -p terret-llm --example one_shot -- PROVIDER/MODEL "prompt"`.

#![allow(clippy::print_stdout, reason = "an example")]

use std::io::Write as _;

use terret_llm::{Message, Model as _, Request, StreamEvent, UserMessage, connect};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let model = args.next().ok_or("usage: one_shot PROVIDER/MODEL PROMPT")?;
    let prompt = args.next().unwrap_or_else(|| "Say hello in one sentence.".into());

    let model = connect(&model)?;
    let messages = [Message::from(UserMessage::text(prompt, 0))].into_iter().collect();
    let request = Request { system: Some("Answer briefly.".into()), messages, ..Request::default() };

    let mut reply = model.stream(request, Default::default());
    while let Some(event) = reply.next().await {
        match event {
            StreamEvent::BlockDelta { text, .. } => {
                print!("{text}");
                std::io::stdout().flush()?;
            }
            StreamEvent::Done(reply) => println!("\n{:?}", reply.message().usage),
            StreamEvent::Failed(failed) => return Err(failed.into()),
            _ => {}
        }
    }
    Ok(())
}
