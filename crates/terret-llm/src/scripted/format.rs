use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::reply::{End, Expected, ScriptedReply};
use crate::error::{ErrorKind, ModelError};
use crate::lossy::Lossy;
use crate::transcript::{Block, StopReason, Usage};

/// Why a script can't be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// The file can't be read, or isn't UTF-8.
    #[error("can't read the script {}: {source}", script.display())]
    Unreadable {
        /// The file.
        script: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A line isn't a reply.
    #[error("{}, line {line}: {message}", script.display())]
    Line {
        /// The file, or `script`.
        script: PathBuf,
        /// The first line is 1.
        line: usize,
        /// What is wrong with it.
        message: String,
    },
}

pub(super) fn parse(text: &str, script: &Path) -> Result<Vec<ScriptedReply>, ScriptError> {
    let lines = text.strip_prefix('\u{FEFF}').unwrap_or(text).lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.trim().is_empty());
    let read = |(index, line)| {
        serde_json::from_str(line).map_err(|error| ScriptError::Line {
            script: script.to_owned(),
            line: index + 1,
            message: at_column(&error),
        })
    };
    lines.map(read).collect()
}

/// The error, with its place in the line only: the parser counts lines within the one that it was given.
fn at_column(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match message.strip_suffix(&place) {
        Some(message) => format!("{message} (column {})", error.column()),
        None => message,
    }
}

/// A line of a script as it is written.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "a JSON object of a reply's keys")]
pub(super) struct Line<'a> {
    content: Option<Vec<Block>>,
    #[serde(borrow)]
    text: Option<Lossy<'a>>,
    stop_reason: Option<StopReason>,
    usage: Option<Usage>,
    chunk: Option<usize>,
    delay_ms: Option<u64>,
    delta_delay_ms: Option<u64>,
    error: Option<LineError>,
    stall: Option<bool>,
    expect: Option<Expected>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "a JSON object of an error's keys")]
struct LineError {
    kind: ErrorKind,
    message: Option<String>,
    retry_after_ms: Option<u64>,
    status: Option<u16>,
    code: Option<String>,
}

impl TryFrom<Line<'_>> for ScriptedReply {
    type Error = &'static str;

    fn try_from(line: Line<'_>) -> Result<Self, Self::Error> {
        let content = match (line.content, line.text) {
            (Some(_), Some(_)) => return Err("a reply has either `content` or `text`"),
            (Some(content), None) => content,
            (None, Some(text)) => vec![Block::text(text.into_string())],
            (None, None) => Vec::new(),
        };
        let end = match (line.stop_reason, line.error, line.stall.unwrap_or(false)) {
            (_, Some(_), true) => return Err("a reply that stalls can't fail: leave out `error` or `stall`"),
            (Some(StopReason::Error | StopReason::Aborted), None, false) => {
                return Err("a reply that fails needs `error`, not this `stopReason`");
            }
            (_, Some(error), false) => End::Error(error.into()),
            (_, None, true) => End::Stall,
            (reason, None, false) => End::Stop(reason),
        };
        Ok(Self {
            content,
            usage: line.usage.unwrap_or_default(),
            chunk: line.chunk.unwrap_or(0),
            delay: Duration::from_millis(line.delay_ms.unwrap_or(0)),
            delta_delay: Duration::from_millis(line.delta_delay_ms.unwrap_or(0)),
            end,
            expect: line.expect.unwrap_or_default(),
        })
    }
}

impl From<LineError> for ModelError {
    fn from(error: LineError) -> Self {
        let mut model_error =
            ModelError::new(error.kind, error.message.unwrap_or_else(|| "the script says so".to_owned()));
        model_error.retry_after = error.retry_after_ms.map(Duration::from_millis);
        model_error.status = error.status;
        model_error.code = error.code;
        model_error
    }
}
