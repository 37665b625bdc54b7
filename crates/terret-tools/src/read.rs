use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};

use memchr::memchr;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use terret_agent::{EffectClass, FnTool, ToolError, ToolOutput, tool};
use tokio_util::sync::CancellationToken;

use crate::blocking;
use crate::kind::Kind;
use crate::listing::MAX_BYTES;
use crate::workspace::{Access, Located, PathError, Workspace, open_file};

/// Lines of one answer.
const LINES: u64 = 2_000;

/// What is shown of a line that is longer than an answer may be, in bytes.
const BEGINNING: usize = 2_000;

/// A larger picture isn't shown, in bytes. Providers take some 5 MB of base64.
const IMAGE: u64 = 3_700_000;

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    path: String,
    /// First line, from 1
    #[schemars(range(min = 1))]
    offset: Option<u64>,
    /// Number of lines
    #[schemars(range(min = 1))]
    limit: Option<u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    path: String,
    first_line: u64,
    last_line: u64,
    complete: bool,
}

/// The tool that reads a text file, by whole lines from a given one on, or shows a picture.
pub fn read(workspace: &Workspace) -> FnTool {
    let workspace = workspace.clone();
    let description =
        "Reads a text file, at most 2000 lines or 50 KB at a time, or shows a PNG, JPEG, GIF or WebP image.";
    tool("read", description, move |arguments: Arguments, context| {
        let workspace = workspace.clone();
        blocking::or_cancelled(context.cancel, move |cancel| read_file(&workspace, &arguments, cancel))
    })
    .effect(EffectClass::ReadOnly)
}

fn read_file(
    workspace: &Workspace,
    arguments: &Arguments,
    cancel: &CancellationToken,
) -> Result<ToolOutput, ToolError> {
    let located = workspace.locate(&arguments.path, Access::Read)?;
    let file = match open_file(&located) {
        Err(PathError::NotFound { .. }) => return Err(workspace.not_found(&located).into()),
        file => file?,
    };
    let fail = |error: io::Error| PathError::from_io(&located.shown, error);
    let metadata = file.metadata().map_err(fail)?;
    let size = metadata.len();
    let mut reader = BufReader::with_capacity(64 * 1024, file);
    let kind = Kind::of(reader.fill_buf().map_err(fail)?);
    let answer = match kind {
        Kind::Empty => Ok(format!("{} is empty.", located.shown).into()),
        Kind::Image(media_type) => image(&located, reader, media_type),
        Kind::Binary(what) => Err(ToolError::new(format!(
            "{} is {what} ({size} bytes), not text, and was not read. Use bash with a fitting program (file, xxd, \
             strings, …) to look into it.",
            located.shown
        ))),
        Kind::Text { bom } => {
            reader.consume(bom);
            let first = arguments.offset.unwrap_or(1).max(1);
            let lines = arguments.limit.map_or(LINES, |limit| limit.clamp(1, LINES));
            skip(&mut reader, first, cancel, &located.shown)?;
            text(&located, first, Page::read(&mut reader, lines).map_err(fail)?)
        }
    }?;
    // Only now has a model seen anything of it.
    workspace.note_seen(&located, &metadata);
    Ok(answer)
}

fn image(located: &Located, reader: BufReader<File>, media_type: &str) -> Result<ToolOutput, ToolError> {
    let mut bytes = Vec::new();
    let read = reader.take(IMAGE + 1).read_to_end(&mut bytes);
    read.map_err(|error| PathError::from_io(&located.shown, error))?;
    if bytes.len() as u64 > IMAGE {
        return Err(ToolError::new(format!(
            "{} is an image above {IMAGE} bytes, too large to show. Make a smaller copy with bash, and read that.",
            located.shown
        )));
    }
    let caption = format!("{} ({media_type}, {} bytes)", located.shown, bytes.len());
    Ok(ToolOutput::text(caption).with_image(media_type, &bytes))
}

/// Passes over the lines before the one to start with.
fn skip(reader: &mut BufReader<File>, first: u64, cancel: &CancellationToken, shown: &str) -> Result<(), ToolError> {
    let mut passed = 0;
    let mut in_line = false;
    while passed + 1 < first {
        if cancel.is_cancelled() {
            return Err(ToolError::new("Cancelled."));
        }
        let buffer = reader.fill_buf().map_err(|error| PathError::from_io(shown, error))?;
        if buffer.is_empty() {
            break;
        }
        let used = match memchr(b'\n', buffer) {
            Some(end) => {
                passed += 1;
                in_line = false;
                end + 1
            }
            None => {
                in_line = true;
                buffer.len()
            }
        };
        reader.consume(used);
    }
    if reader.fill_buf().map_err(|error| PathError::from_io(shown, error))?.is_empty() {
        let lines = passed + u64::from(in_line);
        let message = format!("{shown} has {lines} lines, so there is no line {first}. Use an offset up to {lines}.");
        return Err(ToolError::new(message));
    }
    Ok(())
}

/// Lines that were read.
struct Page {
    bytes: Vec<u8>,
    lines: u64,
    more: bool,
    /// The first line alone is too long, and this is its beginning.
    too_long: bool,
}

impl Page {
    fn read(reader: &mut BufReader<File>, limit: u64) -> io::Result<Self> {
        let mut page = Page { bytes: Vec::new(), lines: 0, more: false, too_long: false };
        while page.lines < limit {
            let before = page.bytes.len();
            let room = (MAX_BYTES - before) as u64;
            reader.take(room + 1).read_until(b'\n', &mut page.bytes)?;
            if page.bytes.len() == before {
                return Ok(page);
            }
            if page.bytes.len() > MAX_BYTES {
                page.more = true;
                page.too_long = page.lines == 0;
                page.bytes.truncate(if page.too_long { BEGINNING } else { before });
                if page.too_long {
                    page.drop_part_of_character();
                }
                return Ok(page);
            }
            page.lines += 1;
        }
        page.more = !reader.fill_buf()?.is_empty();
        Ok(page)
    }

    /// A cut may have gone through a character.
    fn drop_part_of_character(&mut self) {
        if let Err(error) = std::str::from_utf8(&self.bytes)
            && error.error_len().is_none()
        {
            self.bytes.truncate(error.valid_up_to());
        }
    }
}

fn text(located: &Located, first: u64, page: Page) -> Result<ToolOutput, ToolError> {
    let last = first + page.lines.saturating_sub(1);
    let lossy = String::from_utf8_lossy(&page.bytes);
    let invalid = matches!(lossy, std::borrow::Cow::Owned(_)) && !page.too_long;
    let has_crlf = memchr::memmem::find(&page.bytes, b"\r\n").is_some();
    let mut text = lossy.replace('\0', "\u{fffd}");
    if has_crlf {
        text = text.replace("\r\n", "\n");
    }
    if text.ends_with('\n') {
        text.pop();
    }
    let mut notes = Vec::new();
    if page.too_long {
        let shown = page.bytes.len();
        notes.push(format!(
            "Line {first} is longer than {} KB; its first {shown} bytes are shown. For more use bash, as in: sed -n \
             {first}p FILE | cut -b {}-{}. The next line has offset={}.",
            MAX_BYTES / 1024,
            shown + 1,
            shown * 2,
            first + 1
        ));
    } else if page.more {
        notes.push(format!("Lines {first}-{last} are shown. Continue with offset={}.", last + 1));
    }
    if invalid {
        notes.push("Not all of it is UTF-8; bytes that aren't are shown as \u{fffd}.".to_owned());
    }
    if has_crlf {
        notes.push("Lines end in CRLF.".to_owned());
    }
    if !notes.is_empty() {
        text.push_str(&format!("\n\n[{}]", notes.join(" ")));
    }
    let details = Details { path: located.shown.clone(), first_line: first, last_line: last, complete: !page.more };
    Ok(ToolOutput::text(text).with_details(&details))
}
