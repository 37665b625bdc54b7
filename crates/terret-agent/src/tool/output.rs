use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use terret_llm::{Content, Image, RawJson};

/// What a tool returns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolOutput {
    /// What the model is shown.
    pub content: Vec<Content>,
    /// For people and UIs; the model never sees it.
    pub details: Option<RawJson>,
    /// Whether the model should read the content as a failure.
    pub is_error: bool,
}

impl ToolOutput {
    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![Content::text(text)], details: None, is_error: false }
    }

    /// A text that the model should read as a failure.
    pub fn error(text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(text) }
    }

    /// The same output followed by a picture: the bytes of an image file, and its media type, such as `image/png`.
    #[must_use]
    pub fn with_image(mut self, media_type: impl Into<String>, bytes: &[u8]) -> Self {
        self.content.push(Content::Image(Image::new(media_type, bytes)));
        self
    }

    /// The same output with details for people. A value that can't be written as JSON is left out.
    #[must_use]
    pub fn with_details(mut self, details: &impl Serialize) -> Self {
        self.details = RawJson::of(details).ok();
        self
    }
}

impl From<String> for ToolOutput {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

/// Such as the text of a [`Report`](crate::Report): what another agent has said.
impl From<Arc<str>> for ToolOutput {
    fn from(text: Arc<str>) -> Self {
        Self::text(&*text)
    }
}

impl From<&str> for ToolOutput {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

/// Why a tool could not do what it was asked. The model is shown the message, so it should say what to do next.
///
/// Like `anyhow::Error`, it is made from any error by `?`, and therefore is none itself.
pub struct ToolError(ToolOutput);

impl ToolError {
    /// A failure with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self(ToolOutput::error(message))
    }

    /// The same failure with details for people.
    #[must_use]
    pub fn with_details(self, details: &impl Serialize) -> Self {
        Self(self.0.with_details(details))
    }

    /// The output that the model is shown.
    pub fn into_output(self) -> ToolOutput {
        self.0
    }
}

impl<E: std::error::Error> From<E> for ToolError {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            // Some errors tell their causes themselves.
            if !message.ends_with(&cause_text) {
                message = format!("{message}: {cause_text}");
            }
            source = cause.source();
        }
        Self::new(message)
    }
}

impl fmt::Debug for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
