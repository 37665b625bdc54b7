//! `terret wire decode` and `terret wire encode`: what a provider's bytes mean, and what a provider is sent.

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use terret::llm::wire::{ReplyReader, WireFormat, from_response};
use terret::llm::{Draft, Failed, Message, ModelRef, ModelSpec, Overrides, Request, StreamEvent, resolve};

use crate::exit::Exit;
use crate::output;

/// Look at what goes over the wire.
#[derive(Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Wire {
    /// Decode a recorded response body to the message (or the error) that it means, as JSON
    ///
    /// Exits with 0 for a message, with 1 for {"error":…,"partial":…}, and with 2 if the file can't be read.
    Decode(Decode),
    /// Encode a request to the exact body that a provider would be sent
    Encode(Encode),
}

const EXAMPLES: &str = "\
Examples:
  terret wire decode openai-completions body.txt
  terret wire decode openai-completions --status 529 error.json
  terret wire encode openai-responses --model openai/gpt-5 request.json";

#[derive(Args)]
pub(crate) struct Decode {
    /// anthropic-messages, openai-completions, openai-responses or google-generative-ai
    #[arg(value_parser = wire_format)]
    format: WireFormat,
    /// The recorded body; standard input without it
    file: Option<PathBuf>,
    /// Print the stream events as JSON Lines instead of the message
    #[arg(long)]
    events: bool,
    /// Feed so many bytes at a time
    #[arg(long, value_name = "N")]
    chunk: Option<std::num::NonZeroUsize>,
    /// The HTTP status of the response
    #[arg(long, value_name = "N", default_value_t = 200)]
    status: u16,
    /// Stamp the message with this model
    #[arg(long, value_name = "PROVIDER/ID", default_value = "unknown/unknown")]
    model: String,
}

#[derive(Args)]
pub(crate) struct Encode {
    /// anthropic-messages, openai-completions, openai-responses or google-generative-ai
    #[arg(value_parser = wire_format)]
    format: WireFormat,
    /// {"system"?, "messages": […], "tools"?: […], "options"?: {…}}; standard input without it
    file: Option<PathBuf>,
    /// The model to encode for
    #[arg(long, value_name = "PROVIDER/ID")]
    model: String,
}

pub(crate) fn wire_format(name: &str) -> Result<WireFormat, String> {
    let format = WireFormat::from(name);
    if format.wire().is_some() {
        return Ok(format);
    }
    Err("expected anthropic-messages, openai-completions, openai-responses or google-generative-ai".into())
}

pub(crate) fn run(command: Wire) -> ExitCode {
    let result = match command {
        Wire::Decode(decode) => run_decode(&decode),
        Wire::Encode(encode) => run_encode(&encode),
    };
    result.unwrap_or_else(|error| {
        output::complain(&format!("wire: {error}"));
        Exit::Usage.into()
    })
}

fn run_decode(args: &Decode) -> Result<ExitCode, String> {
    let body = read(args.file.as_ref())?;
    let spec = spec(&args.model, &args.format);
    let draft = Draft::new(&spec);
    let events = if args.status >= 400 {
        draft.fail(from_response(args.status, |_| None, &body))
    } else {
        decode(args, draft, &body)
    };
    let mut out = String::new();
    let mut code = ExitCode::FAILURE;
    for event in events {
        if matches!(event, StreamEvent::Done(_)) {
            code = ExitCode::SUCCESS;
        }
        if args.events {
            out += &format!("{}\n", to_json(&event)?);
            continue;
        }
        match event {
            // As a transcript holds it, with its role, so that it can go back into a request.
            StreamEvent::Done(reply) => out += &format!("{}\n", to_json(&Message::from(reply.into_message()))?),
            StreamEvent::Failed(Failed { error, partial }) => {
                out += &format!("{{\"error\":{},\"partial\":{}}}\n", to_json(&error)?, to_json(&partial)?);
            }
            _ => {}
        }
    }
    print(out)?;
    Ok(code)
}

fn decode(args: &Decode, draft: Draft, body: &[u8]) -> Vec<StreamEvent> {
    let Some(wire) = args.format.wire() else { return Vec::new() };
    let mut reader = ReplyReader::new(wire.decoder(), draft);
    let mut events = Vec::new();
    for piece in body.chunks(args.chunk.map_or(body.len().max(1), Into::into)) {
        reader.push(piece);
        events.extend(std::iter::from_fn(|| reader.next_event()));
    }
    reader.end();
    events.extend(std::iter::from_fn(|| reader.next_event()));
    events
}

fn run_encode(args: &Encode) -> Result<ExitCode, String> {
    let body = read(args.file.as_ref())?;
    let request: Request = serde_json::from_slice(&body).map_err(|error| format!("the request: {error}"))?;
    let wire = args.format.wire().ok_or("no such wire")?;
    let encoded = wire.encode(&spec(&args.model, &args.format), &request).map_err(|error| error.to_string())?;
    print(format!("{}\n", String::from_utf8_lossy(&encoded.body.to_bytes())))?;
    Ok(ExitCode::SUCCESS)
}

/// The model as a run would ask it, over this wire; with defaults, if its provider isn't known.
fn spec(model: &str, format: &WireFormat) -> ModelSpec {
    let overrides = Overrides { wire: Some(format.clone()), api_key: Some("none".into()), ..Overrides::default() };
    let known = model.parse::<ModelRef>().ok().and_then(|model| resolve(&model, &overrides, |_| None).ok());
    known.map(|known| known.spec).unwrap_or_else(|| {
        let (provider, id) = model.split_once('/').unwrap_or(("unknown", model));
        ModelSpec::new(provider, id, format.clone())
    })
}

fn read(file: Option<&PathBuf>) -> Result<Vec<u8>, String> {
    match file {
        Some(path) => std::fs::read(path).map_err(|error| format!("{}: {error}", path.display())),
        None => {
            let mut bytes = Vec::new();
            io::stdin().read_to_end(&mut bytes).map_err(|error| format!("standard input: {error}"))?;
            Ok(bytes)
        }
    }
}

fn to_json(value: &impl serde::Serialize) -> Result<String, String> {
    serde_json::to_string(value).map_err(|error| error.to_string())
}

/// Exactly, but for a terminal, which must not be steered by what a provider sent.
fn print(json: String) -> Result<(), String> {
    let mut out = io::stdout();
    let json = if out.is_terminal() { output::clean_json(json) } else { json };
    out.write_all(json.as_bytes()).map_err(|error| format!("standard output: {error}"))
}
