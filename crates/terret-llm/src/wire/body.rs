//! How wires write the bodies of requests.
//!
//! A body is a head and then the list of messages, as its last field. What is written of a message stays as it is when
//! others follow, so that a list can be kept and written on.

use bytes::Bytes;
use serde::Serialize;

use super::handoff::Group;
use super::{EncodeError, Encoded};
use crate::model::ModelSpec;
use crate::request::{Options, Request};
use crate::segments::{SegmentWriter, Segments};
use crate::transcript::Image;

/// How a wire writes a body: a head, and then the messages, group by group.
pub trait BodyWriter {
    /// All of a request but the messages. It may depend on whether there have been tool calls, on no more of them.
    fn head(&self, model: &ModelSpec, request: &Request) -> Result<Head, EncodeError>;

    /// Appends the messages of a group. Nothing but the list's last role may be needed of those before it, and nothing
    /// of those after it.
    fn group(
        &self,
        model: &ModelSpec,
        options: &Options,
        group: &Group<'_>,
        list: &mut MessageList,
    ) -> Result<(), EncodeError>;
}

/// A request without its messages.
#[derive(Clone, Debug)]
pub struct Head {
    path: String,
    headers: Vec<(&'static str, String)>,
    /// The body's beginning.
    body: Bytes,
}

impl Head {
    /// A head whose body is this, of which the last field is the list of messages. What stands in that list comes
    /// before all messages.
    pub(super) fn new(
        path: String,
        headers: Vec<(&'static str, String)>,
        body: &impl Serialize,
    ) -> Result<Self, EncodeError> {
        let mut body = serde_json::to_vec(body)?;
        debug_assert!(body.ends_with(b"]}"));
        body.truncate(body.len().saturating_sub("]}".len()));
        if !body.ends_with(b"[") {
            body.push(b',');
        }
        Ok(Self { path, headers, body: body.into() })
    }

    /// The request with these messages.
    pub(super) fn with(self, messages: MessageList) -> Encoded {
        Encoded { path: self.path, headers: self.headers, body: messages.behind(self.body) }
    }
}

/// The list of messages as far as it is written. A clone can be written on without changing this one.
///
/// Elements only ever follow those that are there: what a list begins with is what it goes on with.
#[derive(Clone, Debug, Default)]
pub struct MessageList {
    json: SegmentWriter,
    last_role: Option<&'static str>,
    /// What the last element still lacks.
    unclosed: &'static str,
}

impl MessageList {
    /// The role of the last element; none at the beginning.
    pub(crate) fn last_role(&self) -> Option<&'static str> {
        self.last_role
    }

    /// Appends an element. Its role is what the wire says of it in [`last_role`](Self::last_role).
    pub(crate) fn push(&mut self, role: &'static str, element: &impl Serialize) -> Result<(), EncodeError> {
        self.begin(role, "", "");
        self.write(element)
    }

    /// Appends an item to the last element, if that has this role and takes items; else to a new one, which `open`
    /// begins and `close` ends.
    pub(crate) fn push_item(
        &mut self,
        role: &'static str,
        (open, close): (&'static str, &'static str),
        item: &impl Serialize,
    ) -> Result<(), EncodeError> {
        if self.last_role == Some(role) && !self.unclosed.is_empty() {
            self.json.push_str(",");
        } else {
            self.begin(role, open, close);
        }
        self.write(item)
    }

    /// Tells of the images that the next elements may hold, so that their data is shared instead of copied.
    pub(super) fn expect<'a>(&mut self, images: impl Iterator<Item = &'a Image>) {
        self.json.expect(images);
    }

    /// Some elements are complete.
    pub(super) fn breathe(&mut self) {
        self.json.breathe();
    }

    /// How many bytes are in memory because of this list.
    pub(super) fn own_len(&self) -> usize {
        self.json.own_len()
    }

    /// The body that begins with this, and ends with the list.
    fn behind(mut self, head: Bytes) -> Segments {
        self.json.push_str(self.unclosed);
        self.json.push_str("]}");
        self.json.behind(head)
    }

    fn begin(&mut self, role: &'static str, open: &str, close: &'static str) {
        if self.last_role.is_some() {
            self.json.push_str(self.unclosed);
            self.json.push_str(",");
        }
        self.json.push_str(open);
        self.last_role = Some(role);
        self.unclosed = close;
    }

    fn write(&mut self, value: &impl Serialize) -> Result<(), EncodeError> {
        Ok(serde_json::to_writer(&mut self.json, value)?)
    }
}
