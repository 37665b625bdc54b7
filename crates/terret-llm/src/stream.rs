//! A reply as it streams: provisional events, and then exactly one end.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use serde::Serialize;

use crate::error::ModelError;
use crate::transcript::AssistantMessage;

/// What a model call yields: `Start`, then blocks, then exactly one of `Done` and `Failed`, which is the last item.
///
/// The content of the end's message equals the fold of the events before it, at every chunking of the bytes beneath.
/// Only annotations, and the signature of a block that was cut off, come with the end and not before. At the end, escapes
/// of lone surrogates in argument text are replaced, and an image whose data is no base64 becomes words that say so.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum StreamEvent {
    /// The provider began to answer.
    Start {
        /// The provider's id of the response, if it told one yet.
        #[serde(skip_serializing_if = "Option::is_none")]
        response_id: Option<String>,
    },
    /// A block began. Its index is its place in the message's content.
    BlockStart {
        /// Which block.
        index: usize,
        /// What kind it is.
        #[serde(flatten)]
        kind: BlockKind,
    },
    /// More of a block: text, thinking, argument text, base64 of an image, or the JSON of an opaque block.
    BlockDelta {
        /// Which block.
        index: usize,
        /// The fragment; never empty.
        text: String,
    },
    /// A block is complete.
    BlockEnd {
        /// Which block.
        index: usize,
        /// The block's signature, if it has one.
        #[serde(skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// The provider's own terminal arrived.
    Done(Reply),
    /// Everything else, an end of the stream without a terminal included.
    Failed(Failed),
}

/// The kind of a block that is streaming, and what is known of it from the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum BlockKind {
    /// Text for the reader.
    Text,
    /// Reasoning.
    Thinking {
        /// Whether the provider withholds the text.
        redacted: bool,
    },
    /// A tool call. It is a view: there is no way from here to a call that can be executed.
    ToolCall {
        /// The call's id.
        id: String,
        /// The tool's name.
        name: String,
    },
    /// A picture.
    Image {
        /// For example `image/png`.
        media_type: String,
    },
    /// A vendor's block.
    Opaque,
}

/// A complete reply: the provider's terminal arrived. Only from this does an agent run tools.
///
/// It can't be made from a message, read from disk or taken from a failed call; [`Draft::done`](crate::Draft::done) is
/// the only source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reply {
    // Boxed, so that an event is small: each of them is moved several times on its way to the reader.
    message: Box<AssistantMessage>,
}

impl Reply {
    pub(crate) fn new(message: AssistantMessage) -> Self {
        Self { message: Box::new(message) }
    }

    /// The message.
    pub fn message(&self) -> &AssistantMessage {
        &self.message
    }

    /// The message, for keeping.
    pub fn into_message(self) -> AssistantMessage {
        *self.message
    }
}

/// A failed model call.
#[derive(Clone, Debug, PartialEq, Serialize, thiserror::Error)]
#[error("{error}")]
pub struct Failed {
    /// Why.
    #[source]
    pub error: ModelError,
    /// What had arrived. Its calls can't be run: it is not a [`Reply`].
    pub partial: Box<AssistantMessage>,
}

/// The running model call. Dropping it ends the call.
pub struct ReplyStream {
    events: Pin<Box<dyn Stream<Item = StreamEvent> + Send>>,
}

impl ReplyStream {
    /// Wraps a stream that keeps the contract of [`StreamEvent`].
    pub fn new(events: impl Stream<Item = StreamEvent> + Send + 'static) -> Self {
        Self { events: Box::pin(events) }
    }

    /// The next event; `None` after the end. Cancel safe.
    pub async fn next(&mut self) -> Option<StreamEvent> {
        std::future::poll_fn(|cx| self.events.as_mut().poll_next(cx)).await
    }

    /// Reads to the end.
    pub async fn finish(mut self) -> Result<Reply, Failed> {
        loop {
            match self.next().await {
                Some(StreamEvent::Done(reply)) => return Ok(reply),
                Some(StreamEvent::Failed(failed)) => return Err(failed),
                Some(_) => {}
                // The contract rules this out; a stream of somebody else's that breaks it must not hang or panic.
                None => return Err(Failed::without_end()),
            }
        }
    }
}

impl Failed {
    /// For a stream that ended without an end.
    fn without_end() -> Self {
        use crate::draft::Draft;
        use crate::error::ErrorKind;
        use crate::model::ModelSpec;
        use crate::wire::WireFormat;
        let spec = ModelSpec::new("", "", WireFormat::default());
        Draft::new(&spec).into_failed(ModelError::new(ErrorKind::Truncated, "the reply stream ended without an end"))
    }
}

impl Stream for ReplyStream {
    type Item = StreamEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<StreamEvent>> {
        self.events.as_mut().poll_next(cx)
    }
}

impl fmt::Debug for ReplyStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReplyStream")
    }
}
