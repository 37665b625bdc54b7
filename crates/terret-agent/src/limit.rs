//! The size limit of tool results.

use std::borrow::Cow;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::json;
use terret_llm::{Content, RawJson};

use crate::tool::ToolOutput;

/// Keeps results that are too long for the model, in a folder say.
pub trait Spill: Send + Sync {
    /// Keeps a text whole, and says where, for the model and for people: a path that a tool can read, say. The id is as the
    /// model wrote it, and no name for a file.
    fn keep<'a>(&'a self, call_id: &'a str, text: &'a str) -> BoxFuture<'a, std::io::Result<String>>;
}

/// How much of a result there may be, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Text for the model.
    pub(crate) text: usize,
    /// Pictures for the model, as they are encoded.
    pub(crate) images: usize,
    /// Details for people.
    pub(crate) details: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self { text: 256 * 1024, images: 16 * 1024 * 1024, details: 4 * 1024 * 1024 }
    }
}

/// Leaves out what is beyond the limits, and says so in its place: how much it was, and where it was kept.
///
/// The texts of a result are one where they are too long together: its middle is left out.
pub(crate) async fn limit(output: ToolOutput, room: Room, call_id: &str, spill: Option<&dyn Spill>) -> ToolOutput {
    let ToolOutput { mut content, mut details, is_error } = output;
    // A block takes room even if it is empty.
    let length: usize = content.iter().filter_map(Content::as_text).map(|text| text.len() + 1).sum();
    if length > room.text.saturating_add(1) {
        let texts: Vec<&str> = content.iter().filter_map(Content::as_text).collect();
        let whole = texts.join("\n");
        let kept = kept(spill, call_id, &whole).await;
        let mut shortened = Some(Content::text(head_and_tail(&whole, room.text) + &kept));
        // In the place of the first one.
        let place = |it: Content| if it.as_text().is_some() { shortened.take() } else { Some(it) };
        content = content.into_iter().filter_map(place).collect();
    }
    let mut left = room.images;
    for it in &mut content {
        let Content::Image(image) = it else { continue };
        match left.checked_sub(image.base64().len()) {
            Some(less) => left = less,
            None => {
                *it = Content::text(format!(
                    "[A picture ({}, {} bytes) is left out here: the pictures of a result may have {} bytes together]",
                    image.media_type,
                    image.base64().len(),
                    room.images
                ))
            }
        }
    }
    if let Some(text) = details.as_ref().map(RawJson::as_str).filter(|text| text.len() > room.details) {
        let kept = kept(spill, &format!("{call_id}-details"), text).await;
        details = RawJson::of(&json!({"leftOut": format!("{} bytes of details{kept}", text.len())})).ok();
    }
    ToolOutput { content, details, is_error }
}

/// Keeps a text whole, if somebody does, and says where.
async fn kept(spill: Option<&dyn Spill>, call_id: &str, text: &str) -> String {
    let Some(spill) = spill else { return String::new() };
    let kept = AssertUnwindSafe(async { spill.keep(call_id, text).await }).catch_unwind().await;
    match kept.unwrap_or_else(|_| Err(std::io::Error::other("who was to keep it panicked"))) {
        Ok(place) => format!("\n[All of it is in {place}]"),
        Err(error) => format!("\n[It could not be kept whole: {error}]"),
    }
}

/// The beginning of a text of more than so many characters, and how long it is.
pub(crate) fn shortened(text: &str, limit: usize) -> Cow<'_, str> {
    match text.char_indices().nth(limit) {
        None => text.into(),
        Some((end, _)) => format!("{}… ({} bytes in all)", text.get(..end).unwrap_or_default(), text.len()).into(),
    }
}

/// The beginning and the end of a text, of so many bytes together, and how much is left out between them.
pub(crate) fn head_and_tail(text: &str, room: usize) -> String {
    let head = text.floor_char_boundary(room / 2);
    let tail = text.ceil_char_boundary(text.len().saturating_sub(room / 2));
    let (start, end) = (text.get(..head).unwrap_or_default(), text.get(tail..).unwrap_or_default());
    let cut = text.len() - start.len() - end.len();
    format!("{start}\n[… {cut} of {} bytes left out here …]\n{end}", text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Shelf;

    impl Spill for Shelf {
        fn keep<'a>(&'a self, call_id: &'a str, text: &'a str) -> BoxFuture<'a, std::io::Result<String>> {
            let place = format!("shelf {} ({} bytes)", call_id, text.len());
            Box::pin(std::future::ready(if call_id == "full" {
                Err(std::io::ErrorKind::StorageFull.into())
            } else {
                Ok(place)
            }))
        }
    }

    async fn limited(text: &str, room: usize, id: &str, spill: Option<&dyn Spill>) -> String {
        let output = limit(ToolOutput::text(text), Room { text: room, ..Room::default() }, id, spill).await;
        output.content[0].as_text().unwrap().to_owned()
    }

    #[tokio::test]
    async fn the_middle_of_a_long_text_is_left_out_at_character_boundaries() {
        let expected = format!("{}\n[… 180 of 200 bytes left out here …]\n{}", "ä".repeat(5), "ä".repeat(5));
        assert_eq!(limited(&"ä".repeat(100), 21, "1", None).await, expected);
    }

    #[tokio::test]
    async fn a_text_within_the_limit_stays() {
        assert_eq!(limited("abc", 3, "1", Some(&Shelf)).await, "abc");
    }

    #[tokio::test]
    async fn it_is_said_where_the_whole_text_is_kept_or_why_not() {
        let long = "x".repeat(100);
        assert!(limited(&long, 10, "1", Some(&Shelf)).await.ends_with("[All of it is in shelf 1 (100 bytes)]"));
        assert!(limited(&long, 10, "full", Some(&Shelf)).await.contains("[It could not be kept whole: "));
    }
}
