//! The size limit of tool results.

use std::borrow::Cow;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use terret_llm::{Content, Text};

use crate::tool::ToolOutput;

/// Keeps results that are too long for the model, in a folder say.
pub trait Spill: Send + Sync {
    /// Keeps a text whole, and says where, for the model and for people: a path that a tool can read, say.
    fn keep<'a>(&'a self, call_id: &'a str, text: &'a str) -> BoxFuture<'a, std::io::Result<String>>;
}

/// Leaves out the middle of texts beyond `limit` bytes in all, and says so in its place: how much, and where it was kept.
pub(crate) async fn limit(
    mut output: ToolOutput,
    limit: usize,
    call_id: &str,
    spill: Option<&dyn Spill>,
) -> ToolOutput {
    let mut room = limit;
    for content in &mut output.content {
        let Content::Text(Text { text, .. }) = content else { continue };
        if text.len() <= room {
            room -= text.len();
            continue;
        }
        let kept = match spill {
            None => String::new(),
            Some(spill) => match kept(spill, call_id, text).await {
                Ok(place) => format!("\n[All of it is in {place}]"),
                Err(error) => format!("\n[It could not be kept whole: {error}]"),
            },
        };
        *text = head_and_tail(text, room) + &kept;
        room = 0;
    }
    output
}

async fn kept(spill: &dyn Spill, call_id: &str, text: &str) -> std::io::Result<String> {
    let kept = AssertUnwindSafe(async { spill.keep(call_id, text).await }).catch_unwind().await;
    kept.unwrap_or_else(|_| Err(std::io::Error::other("who was to keep it panicked")))
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
        let output = limit(ToolOutput::text(text), room, id, spill).await;
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
