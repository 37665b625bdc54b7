use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::raw::on_one_line;
use super::{Arguments, RawJson};
use crate::wire::WireFormat;

/// One piece of an assistant message. The order of blocks is information.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "camelCase")]
#[non_exhaustive]
pub enum Block {
    /// Text for the reader.
    Text(Text),
    /// The model's reasoning.
    Thinking(Thinking),
    /// A picture.
    Image(Image),
    /// A request to run a tool.
    ToolCall(ToolCall),
    /// A vendor's block that has no type here.
    Opaque(Opaque),
}

impl Block {
    /// A text block.
    pub fn text(text: impl Into<String>) -> Self {
        Block::Text(Text::new(text))
    }

    /// The tool call, if this is one.
    pub fn as_tool_call(&self) -> Option<&ToolCall> {
        if let Block::ToolCall(call) = self { Some(call) } else { None }
    }

    /// The text, if this is a text block.
    pub fn as_text(&self) -> Option<&Text> {
        if let Block::Text(text) = self { Some(text) } else { None }
    }
}

/// One piece of a user message or of a tool result.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "camelCase")]
#[non_exhaustive]
pub enum Content {
    /// Text.
    Text(Text),
    /// A picture.
    Image(Image),
}

impl Content {
    /// A text block.
    pub fn text(text: impl Into<String>) -> Self {
        Content::Text(Text::new(text))
    }

    /// The text, if this is a text block.
    pub fn as_text(&self) -> Option<&str> {
        if let Content::Text(text) = self { Some(&text.text) } else { None }
    }
}

/// Text for the reader.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Text {
    /// The text.
    pub text: String,
    /// Opaque to us; goes back unchanged to the model that wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// Citations and the like, as the vendor wrote them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<RawJson>,
}

impl Text {
    /// Plain text.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

/// The model's reasoning.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Thinking {
    /// What is readable of it; may be empty.
    pub thinking: String,
    /// Opaque to us; goes back unchanged to the model that wrote it. The payload of redacted thinking stands here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// Whether the provider withheld the text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub redacted: bool,
}

/// A picture. Its data is shared between clones.
#[derive(Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// For example `image/png`.
    pub media_type: String,
    data: Arc<str>,
}

/// Image data that is not standard base64.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("image data is not base64: {0}")]
pub struct InvalidBase64(base64::DecodeError);

impl Image {
    /// Takes the bytes of an image file.
    pub fn new(media_type: impl Into<String>, bytes: &[u8]) -> Self {
        Self { media_type: media_type.into(), data: STANDARD.encode(bytes).into() }
    }

    /// Takes the bytes of an image file in standard base64, without a `data:` prefix.
    pub fn from_base64(media_type: impl Into<String>, data: impl Into<Arc<str>>) -> Result<Self, InvalidBase64> {
        let data = data.into();
        STANDARD.decode(data.as_bytes()).map_err(InvalidBase64)?;
        Ok(Self { media_type: media_type.into(), data })
    }

    /// The bytes of the image file in standard base64.
    pub fn base64(&self) -> &str {
        &self.data
    }

    /// The same, shared.
    pub(crate) fn data(&self) -> &Arc<str> {
        &self.data
    }
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Image({}, {} base64 characters)", self.media_type, self.data.len())
    }
}

/// A request to run a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// Unique and not empty within a conversation.
    pub id: String,
    /// The tool's name as the model wrote it; may be empty or unknown.
    pub name: String,
    /// The arguments as the model wrote them.
    pub arguments: Arguments,
    /// Opaque to us; goes back unchanged to the model that wrote it.
    pub signature: Option<String>,
}

impl ToolCall {
    /// A call without a signature.
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: impl AsRef<str>) -> Self {
        Self { id: id.into(), name: name.into(), arguments: Arguments::new(arguments), signature: None }
    }
}

/// `arguments` holds the model's text verbatim when that is JSON on a line of its own. Text that isn't JSON stands in
/// `argumentsText` instead. JSON with line breaks or surrounding white space stands in both: in `arguments` with
/// spaces for the line breaks, so that a record stays one line, and in `argumentsText` exactly.
impl Serialize for ToolCall {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.arguments.as_str();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &self.id)?;
        map.serialize_entry("name", &self.name)?;
        let mut exact = false;
        if self.arguments.is_json() {
            let line = on_one_line(text.trim());
            exact = line == text;
            if let Ok(raw) = serde_json::from_str::<&RawValue>(&line) {
                map.serialize_entry("arguments", raw)?;
            }
        }
        if !exact {
            map.serialize_entry("argumentsText", text)?;
        }
        if let Some(signature) = &self.signature {
            map.serialize_entry("signature", signature)?;
        }
        map.end()
    }
}

/// A vendor's block that has no type here (a server-side tool and its result, a compaction …). It goes back verbatim,
/// in its place, to the same wire only.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Opaque {
    /// The wire it came over.
    pub wire: WireFormat,
    /// The block as it stood on the wire.
    pub raw: RawJson,
}
