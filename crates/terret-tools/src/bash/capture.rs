use std::path::PathBuf;

use tokio::fs::File;
use tokio::io::AsyncWriteExt as _;

use crate::listing::MAX_BYTES;
use crate::plain::Plain;
use crate::workspace::{Outputs, printable};

/// The beginning that is shown of a long output: in bytes, and in lines.
const HEAD: (usize, usize) = (10 * 1024, 400);

/// The end that is shown of a long output. Most programs say last what matters.
const TAIL: (usize, usize) = (MAX_BYTES - HEAD.0, 2_000 - HEAD.1);

/// More than this of an output isn't kept on disk, in bytes.
const KEPT: u64 = 64 * 1024 * 1024;

/// How much of what is new is told at once while the command runs, in bytes.
const NEWS: usize = 4 * 1024;

/// Keeps the output of a command: its beginning and its end in memory, and all of a long one (up to [`KEPT`]) in a
/// file. The text is cleaned as it comes.
#[derive(Debug)]
pub(super) struct Capture {
    outputs: Outputs,
    plain: Plain,
    /// As the command wrote them, in bytes.
    received: u64,
    /// As text.
    length: u64,
    lines: u64,
    head: String,
    tail: String,
    file: Kept,
    news: String,
    /// Kept for its memory.
    text: String,
}

#[derive(Debug)]
enum Kept {
    NotNeeded,
    In { file: File, path: PathBuf, length: u64 },
    Failed(std::io::Error),
}

/// An output that has ended.
#[derive(Debug)]
pub(super) struct Captured {
    /// For the model.
    pub(super) text: String,
    /// As the command wrote them.
    pub(super) bytes: u64,
    /// The file that holds it all.
    pub(super) file: Option<String>,
}

impl Capture {
    pub(super) fn new(outputs: Outputs) -> Self {
        Self {
            outputs,
            plain: Plain::default(),
            received: 0,
            length: 0,
            lines: 0,
            head: String::new(),
            tail: String::new(),
            file: Kept::NotNeeded,
            news: String::new(),
            text: String::new(),
        }
    }

    /// Takes what the command wrote.
    pub(super) async fn push(&mut self, bytes: &[u8]) {
        self.received += bytes.len() as u64;
        let mut text = std::mem::take(&mut self.text);
        self.plain.push(bytes, &mut text);
        self.take(&text).await;
        text.clear();
        self.text = text;
    }

    /// What came since the last time; the end of it, if it is much.
    pub(super) fn take_news(&mut self) -> Option<String> {
        (!self.news.is_empty()).then(|| std::mem::take(&mut self.news))
    }

    pub(super) fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// Ends the output.
    pub(super) async fn finish(mut self) -> Captured {
        let mut text = String::new();
        std::mem::take(&mut self.plain).finish(&mut text);
        self.take(&text).await;
        if let Kept::In { file, .. } = &mut self.file
            && let Err(error) = file.flush().await
        {
            self.file = Kept::Failed(error);
        }
        let file = match &self.file {
            Kept::In { path, .. } => Some(printable(path.as_os_str())),
            Kept::NotNeeded | Kept::Failed(_) => None,
        };
        Captured { text: self.shown(), bytes: self.received, file }
    }

    async fn take(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.length += text.len() as u64;
        self.lines += memchr::memchr_iter(b'\n', text.as_bytes()).count() as u64;
        if self.is_long() {
            self.keep(text).await;
        }
        let room = HEAD.0.saturating_sub(self.head.len());
        let (head, tail) = split_at_most(text, if self.tail.is_empty() { room } else { 0 });
        self.head.push_str(head);
        push_end(&mut self.tail, tail, 2 * TAIL.0, TAIL.0);
        push_end(&mut self.news, text, NEWS, NEWS);
    }

    fn is_long(&self) -> bool {
        self.length > MAX_BYTES as u64 || self.lines > (HEAD.1 + TAIL.1) as u64
    }

    /// Appends to the file; the first time all that came before, which is still in memory then.
    async fn keep(&mut self, text: &str) {
        if matches!(self.file, Kept::NotNeeded) {
            self.file = match self.outputs.create("bash-") {
                Ok((file, path)) => Kept::In { file: File::from_std(file), path, length: 0 },
                Err(error) => Kept::Failed(error),
            };
            let before = [std::mem::take(&mut self.head), std::mem::take(&mut self.tail)];
            for text in &before {
                self.append(text).await;
            }
            [self.head, self.tail] = before;
        }
        self.append(text).await;
    }

    async fn append(&mut self, text: &str) {
        let Kept::In { file, length, .. } = &mut self.file else { return };
        let (text, _) = split_at_most(text, usize::try_from(KEPT - *length).unwrap_or(usize::MAX));
        *length += text.len() as u64;
        if let Err(error) = file.write_all(text.as_bytes()).await {
            self.file = Kept::Failed(error);
        }
    }

    fn shown(&self) -> String {
        if !self.is_long() {
            return format!("{}{}", self.head, self.tail);
        }
        let whole = format!("{}{}", self.head, self.tail);
        let is_whole = whole.len() as u64 == self.length;
        let head = first_lines(if is_whole { &whole } else { &self.head });
        let tail = last_lines(if is_whole { whole.get(head.len()..).unwrap_or_default() } else { &self.tail });
        let bytes = self.length.saturating_sub((head.len() + tail.len()) as u64);
        let shown_lines = (head.matches('\n').count() + tail.matches('\n').count()) as u64;
        let lines = self.lines.saturating_sub(shown_lines);
        let place = match &self.file {
            Kept::In { path, length, .. } if *length < self.length => {
                format!("the first {KEPT} bytes of the output are in {}", printable(path.as_os_str()))
            }
            Kept::In { path, .. } => format!("the whole output is in {}", printable(path.as_os_str())),
            Kept::Failed(error) => format!("they could not be kept: {error}"),
            Kept::NotNeeded => "they were not kept".to_owned(),
        };
        let newline = if head.ends_with('\n') { "" } else { "\n" };
        format!("{head}{newline}\n[{lines} lines, {bytes} bytes are left out here; {place}]\n\n{tail}")
    }
}

/// The beginning of a text, within the limits; whole lines where there are any.
fn first_lines(text: &str) -> &str {
    let (text, _) = split_at_most(text, HEAD.0);
    let end = memchr::memchr_iter(b'\n', text.as_bytes()).take(HEAD.1).last();
    end.and_then(|end| text.get(..=end)).unwrap_or(text)
}

/// The end of a text, within the limits; whole lines where there are any.
fn last_lines(text: &str) -> &str {
    let text = last_bytes(text, TAIL.0);
    let body = text.strip_suffix('\n').unwrap_or(text);
    // Behind the line feed before the first line; where all lines fit, behind the first, which is a part of a line.
    let mut feeds = memchr::memrchr_iter(b'\n', body.as_bytes()).take(TAIL.1);
    let feed = feeds.by_ref().last();
    feed.and_then(|feed| text.get(feed + 1..)).unwrap_or(text)
}

/// The text up to a number of bytes, less where that would cut a character; and the rest.
fn split_at_most(text: &str, bytes: usize) -> (&str, &str) {
    let end = (0..=bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.split_at_checked(end.unwrap_or(0)).unwrap_or((text, ""))
}

/// Appends to a text. Once that is longer than `limit`, keeps only about the last `kept` bytes of it.
fn push_end(text: &mut String, more: &str, limit: usize, kept: usize) {
    if more.len() > limit {
        text.clear();
        text.push_str(last_bytes(more, kept));
        return;
    }
    text.push_str(more);
    if text.len() > limit {
        text.drain(..text.len() - last_bytes(text, kept).len());
    }
}

/// The end of a text, of so many bytes at most; less where that would cut a character.
fn last_bytes(text: &str, bytes: usize) -> &str {
    let start = (text.len().saturating_sub(bytes)..=text.len()).find(|start| text.is_char_boundary(*start));
    start.and_then(|start| text.get(start..)).unwrap_or_default()
}
