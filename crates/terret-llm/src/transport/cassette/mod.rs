//! Test your agent against a recording: what a provider answered once, answered again without a network.
//!
//! A [`Recorder`] stands between a model and another transport, and writes each exchange to a file, the cassette. A
//! [`Replayer`] answers from that file, and from nothing else. Record once with a key, commit the file, replay in tests:
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use terret_llm::transport::cassette::{Recorder, Replayer};
//! use terret_llm::transport::Transport;
//! use terret_llm::{HttpModel, HttpTransport, Overrides, resolve};
//!
//! # fn example() -> Result<HttpModel, Box<dyn std::error::Error>> {
//! let cassette = "tests/cassettes/greeting.jsonl";
//! let recording = std::env::var_os("RECORD").is_some();
//! let transport: Arc<dyn Transport> = match recording {
//!     true => Arc::new(Recorder::create(cassette, Arc::new(HttpTransport::new()))?),
//!     false => Arc::new(Replayer::open(cassette)?),
//! };
//! // A replay needs no key, but the resolver wants one.
//! let env = |name: &str| std::env::var(name).ok().or((!recording).then(|| "none".into()));
//! let resolved = resolve(&"anthropic/claude-sonnet-4-5".parse()?, &Overrides::default(), env)?;
//! let model = resolved.connect(transport);
//! # Ok(model)
//! # }
//! ```
//!
//! # Matching
//!
//! A request matches an exchange if method, path, query and body are the same, after redaction and whatever the order of
//! the keys in the body. The host and the headers don't count, so that a cassette also serves another address or key.
//! Each exchange answers once; equal requests are answered in the order of the file. A request that no exchange is left
//! for fails with [`TransportError::NotRecorded`](super::TransportError::NotRecorded), which shows the nearest recorded
//! request and how it differs. [`Replayer::remaining`] tells what a test didn't ask for.
//!
//! # The file
//!
//! JSON Lines, one exchange a line, written when the exchange is over:
//!
//! ```json
//! {"request":{"method":"POST","path":"/v1/messages","headers":{"x-api-key":"[redacted]"},"body":{"model":"m"}},
//!  "response":{"status":200,"headers":{"content-type":"text/event-stream"},"body":["data: 1\n\n","data: 2\n\n"]}}
//! ```
//!
//! (On one line, there.) `body` of a request is its JSON, or a string if it is none. `body` of a response lists the pieces
//! in which it came: a string each, or an object with `text` (or `base64`, if the piece isn't UTF-8) and `afterMs`, the
//! milliseconds since the piece before. `afterMs` of a response counts from the request to its headers. `failure` says
//! why there is no response, or no more of it: `{"kind":"connect","server":"…","reason":"…"}`, likewise `broken`;
//! `{"kind":"invalid","reason":"…"}`; and `{"kind":"hungUp"}`, if the reader was the one who went.
//!
//! # Redaction
//!
//! No key gets into the file; see [`Redaction`] for what is taken out, and for how to add to it.

mod exchange;
mod nearest;
mod record;
mod redaction;
mod replay;

use std::io;
use std::path::PathBuf;

pub use record::Recorder;
pub use redaction::Redaction;
pub use replay::Replayer;

/// Why a cassette can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CassetteError {
    /// The file can't be read.
    #[error("can't read the cassette {}: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file can't be written.
    #[error("can't write the cassette {}: {source}", .path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A line isn't an exchange.
    #[error("line {line} of the cassette {name} is no exchange: {reason}")]
    Malformed {
        /// The file, as it was named.
        name: String,
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
}
