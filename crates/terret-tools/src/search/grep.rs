use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use grep_matcher::{LineTerminator, Matcher as _};
use grep_regex::{ErrorKind, RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use terret_agent::{EffectClass, FnTool, ToolError, ToolOutput, tool};
use tokio_util::sync::CancellationToken;

use super::answer::Answer;
use super::found::{Found, Place, Unread};
use super::walk::{Glob, walk};
use crate::blocking;
use crate::workspace::{Access, Located, PathError, Workspace, open_file};

/// Matching lines.
const LIMIT: usize = 100;

/// How much of a line is shown, in characters.
const LINE: usize = 500;

/// The longest line that is searched, in bytes; behind a longer one, a file isn't searched. Each thread may hold one.
const HEAP: usize = 16 * 1024 * 1024;

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    /// Rust regular expression, matched line by line
    pattern: String,
    /// File or directory; default: the workspace root
    path: Option<String>,
    /// Only files such as "*.rs" or "src/**"
    glob: Option<String>,
    ignore_case: Option<bool>,
    /// Take the pattern literally
    literal: Option<bool>,
    /// Lines around each match
    #[schemars(range(max = 100))]
    context: Option<usize>,
    /// Default 100 matches
    #[schemars(range(min = 1))]
    limit: Option<usize>,
}

#[derive(Serialize)]
struct Details {
    matches: usize,
    files: usize,
    complete: bool,
}

/// The tool that searches the contents of files.
pub fn grep(workspace: &Workspace) -> FnTool {
    let workspace = workspace.clone();
    let description = "Searches file contents. Respects .gitignore, skips binary files. Answers path:line: text.";
    tool("grep", description, move |arguments: Arguments, context| {
        let workspace = workspace.clone();
        blocking::or_cancelled(context.cancel, move |cancel| search(&workspace, &arguments, cancel))
    })
    .effect(EffectClass::ReadOnly)
}

fn search(workspace: &Workspace, arguments: &Arguments, cancel: &CancellationToken) -> Result<ToolOutput, ToolError> {
    let matcher = matcher(arguments)?;
    let glob = arguments.glob.as_deref().map(Glob::new).transpose()?;
    let base = workspace.locate(arguments.path.as_deref().unwrap_or("."), Access::Read)?;
    if !base.real.exists() {
        return Err(workspace.not_found(&base).into());
    }
    if !base.real.is_dir() {
        // Says what a pipe or a device is, and of a file, whether it may be read.
        open_file(&base)?;
    }
    let found = Arc::new(Found::new(arguments.limit.unwrap_or(LIMIT)));
    walk(workspace, &base, &found, cancel, || {
        let mut search = InOneThread {
            workspace,
            base: &base.base,
            matcher: matcher.clone(),
            searcher: searcher(arguments.context.unwrap_or(0)),
            cancel,
            limit: found.limit(),
        };
        let (found, glob, root) = (&found, &glob, &base.real);
        move |entry| {
            let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
            if is_file && glob.as_ref().is_none_or(|glob| glob.matches(root, entry.path())) {
                search.file(entry.path(), found);
            }
        }
    });
    if cancel.is_cancelled() {
        return Err(ToolError::new("Cancelled."));
    }
    let nothing =
        format!("No match for {:?} in {}. Ignored and binary files aren't searched.", arguments.pattern, base.shown);
    let answer = Answer::new(&found, workspace);
    let details = Details { matches: answer.entries(), files: answer.files(), complete: answer.is_complete() };
    let advice = "Narrow the search with path or glob, or raise limit.";
    Ok(ToolOutput::text(answer.finish("matches", advice, &nothing)).with_details(&details))
}

/// What each thread has for itself.
struct InOneThread<'a> {
    workspace: &'a Workspace,
    base: &'a Path,
    matcher: RegexMatcher,
    searcher: Searcher,
    cancel: &'a CancellationToken,
    limit: usize,
}

impl InOneThread<'_> {
    fn file(&mut self, path: &Path, found: &Found) {
        let located = Located { real: path.to_owned(), base: self.base.to_owned(), shown: String::new() };
        let file = match open_file(&located) {
            Ok(file) => file,
            // What vanished, or became something else, isn't there to be told.
            Err(PathError::NotFound { .. } | PathError::NotDirectory { .. } | PathError::Special { .. }) => return,
            Err(_) => return found.add(path, Place::unread(Unread::NotPermitted)),
        };
        let mut lines = Lines {
            matcher: &self.matcher,
            limit: self.limit,
            path,
            workspace: self.workspace,
            shown: None,
            place: Place::default(),
        };
        let searched = self.searcher.search_reader(&self.matcher, Cancellable(&file, self.cancel), &mut lines);
        let Lines { mut place, .. } = lines;
        if let Err(error) = searched {
            // A buffer that may not grow any more is the searcher's only error that has no code of the system.
            let is_long = error.raw_os_error().is_none();
            place.unread = Some(if is_long { Unread::LineTooLong } else { Unread::NotPermitted });
        }
        if place.has_something() {
            found.add(path, place);
        }
    }
}

/// A file that ends early when nobody waits for it any more.
struct Cancellable<'a>(&'a File, &'a CancellationToken);

impl Read for Cancellable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.1.is_cancelled() { Ok(0) } else { self.0.read(buffer) }
    }
}

fn matcher(arguments: &Arguments) -> Result<RegexMatcher, ToolError> {
    let literal = arguments.literal.unwrap_or(false);
    RegexMatcherBuilder::new()
        .case_insensitive(arguments.ignore_case.unwrap_or(false))
        .fixed_strings(literal)
        // Anchors are for lines, so that files needn't be taken apart into lines first; they stand before CRLF, too.
        .multi_line(true)
        .crlf(true)
        .build(&arguments.pattern)
        .map_err(|error| match error.kind() {
            ErrorKind::NotAllowed(_) | ErrorKind::Banned(_) => ToolError::new(
                "The pattern is matched within one line, so it can't hold a line break. Search for one of the lines, with \
                 context.",
            ),
            _ => ToolError::new(format!(
                "The pattern can't be used: {}. Set literal to search for the text as it stands.",
                in_place(&arguments.pattern).unwrap_or_else(|| error.to_string())
            )),
        })
}

/// What is wrong with a pattern, and where in it: the matcher would show the place in one of its own making.
fn in_place(pattern: &str) -> Option<String> {
    let parsed = regex_syntax::ParserBuilder::new().utf8(false).build().parse(pattern);
    parsed.err().map(|error| error.to_string())
}

fn searcher(context: usize) -> Searcher {
    SearcherBuilder::new()
        .line_number(true)
        .line_terminator(LineTerminator::crlf())
        .before_context(context)
        .after_context(context)
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(HEAP))
        .build()
}

/// Takes the lines that the searcher finds in one file.
struct Lines<'a> {
    matcher: &'a RegexMatcher,
    limit: usize,
    workspace: &'a Workspace,
    path: &'a Path,
    /// The path as it is told, made for the first line.
    shown: Option<String>,
    place: Place,
}

impl Lines<'_> {
    fn push(&mut self, line: impl FnOnce(&str) -> String, counts: bool) -> bool {
        let shown = self.shown.get_or_insert_with(|| self.workspace.shown(self.path));
        self.place.push(line(shown), counts, self.limit)
    }
}

impl Sink for &mut Lines<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, line: &SinkMatch<'_>) -> io::Result<bool> {
        let (bytes, number) = (line.bytes(), line.line_number().unwrap_or(0));
        let at = self.matcher.find(bytes).ok().flatten().map_or(0, |found| found.start());
        Ok(self.push(|shown| format!("{shown}:{number}: {}", excerpt(bytes, at)), true))
    }

    fn context(&mut self, _: &Searcher, line: &SinkContext<'_>) -> io::Result<bool> {
        let number = line.line_number().unwrap_or(0);
        Ok(self.push(|shown| format!("{shown}-{number}- {}", excerpt(line.bytes(), 0)), false))
    }

    fn context_break(&mut self, _: &Searcher) -> io::Result<bool> {
        Ok(self.push(|_| "--".to_owned(), false))
    }
}

/// A line without its end; of a long one, the part around the byte `at`.
fn excerpt(line: &[u8], at: usize) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // Four bytes hold any character, so that much is enough to cut from, however long the line.
    let first = if at > LINE { at - LINE / 4 } else { 0 };
    let window = line.get(first..line.len().min(first + 4 * LINE)).unwrap_or_default();
    let text = String::from_utf8_lossy(window);
    let (shown, cut) = match text.char_indices().nth(LINE) {
        Some((end, _)) => (text.get(..end).unwrap_or_default(), true),
        None => (&*text, first + window.len() < line.len()),
    };
    let (before, after) = (if first > 0 { "…" } else { "" }, if cut { "… [line cut]" } else { "" });
    format!("{before}{shown}{after}")
}
