use std::io;

use grep_matcher::Matcher as _;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use terret_agent::{EffectClass, FnTool, ToolError, ToolOutput, tool};
use tokio_util::sync::CancellationToken;

use super::walk::{Glob, walk};
use crate::blocking;
use crate::listing::Listing;
use crate::workspace::{Access, Located, Workspace, open_file};

/// Matching lines.
const LIMIT: usize = 100;

/// How much of a line is shown, in characters.
const LINE: usize = 500;

/// The longest line that is searched, in bytes; a file with a longer one is left out.
const HEAP: usize = 64 * 1024 * 1024;

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
    let mut searcher = searcher(arguments.context.unwrap_or(0));
    let mut listing = Listing::new(arguments.limit.unwrap_or(LIMIT));
    let mut files = 0;
    let mut unsearched = Vec::new();
    let hidden = workspace.hidden_beneath(&base.real);
    for entry in walk(&base.real) {
        if listing.is_full() || cancel.is_cancelled() {
            break;
        }
        let path = entry.path();
        let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
        let is_hidden = hidden.iter().any(|hidden| path.starts_with(hidden));
        if !is_file || is_hidden || glob.as_ref().is_some_and(|glob| !glob.matches(&base.real, path)) {
            continue;
        }
        let located = Located { real: path.to_owned(), base: base.base.clone(), shown: workspace.shown(path) };
        // What vanished or may not be read is told below, and costs only itself.
        let before = listing.entries();
        let sink = Lines { matcher: &matcher, listing: &mut listing, cancel, shown: &located.shown };
        let searched = match open_file(&located) {
            Ok(file) => searcher.search_file(&matcher, &file, sink).is_ok(),
            Err(_) => false,
        };
        if !searched {
            unsearched.push(located.shown);
        }
        files += usize::from(listing.entries() > before);
    }
    if cancel.is_cancelled() {
        return Err(ToolError::new("Cancelled."));
    }
    let details = Details { matches: listing.entries(), files, complete: !listing.is_full() };
    let mut text = if details.matches == 0 {
        format!("No match for {:?} in {}. Ignored and binary files aren't searched.", arguments.pattern, base.shown)
    } else {
        listing.finish("matches", "Narrow the search with path or glob, or raise limit.")
    };
    if let Some(first) = unsearched.first() {
        let more = if unsearched.len() > 1 { format!(" and {} more", unsearched.len() - 1) } else { String::new() };
        text.push_str(&format!("\n[Not searched, because it can't be read: {first}{more}.]"));
    }
    Ok(ToolOutput::text(text).with_details(&details))
}

fn matcher(arguments: &Arguments) -> Result<RegexMatcher, ToolError> {
    let literal = arguments.literal.unwrap_or(false);
    RegexMatcherBuilder::new()
        .case_insensitive(arguments.ignore_case.unwrap_or(false))
        .fixed_strings(literal)
        .line_terminator(Some(b'\n'))
        .build(&arguments.pattern)
        .map_err(|error| {
            let advice = if literal {
                "The pattern is matched within one line, so it can't hold a line break."
            } else {
                "Set literal to search for the text as it stands."
            };
            ToolError::new(format!("The pattern can't be used: {error}. {advice}"))
        })
}

fn searcher(context: usize) -> Searcher {
    SearcherBuilder::new()
        .line_number(true)
        .before_context(context)
        .after_context(context)
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(HEAP))
        .build()
}

/// Takes the lines that the searcher finds in one file.
struct Lines<'a> {
    matcher: &'a RegexMatcher,
    listing: &'a mut Listing,
    cancel: &'a CancellationToken,
    shown: &'a str,
}

impl Sink for Lines<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, line: &SinkMatch<'_>) -> io::Result<bool> {
        let bytes = line.bytes();
        let at = self.matcher.find(bytes).ok().flatten().map_or(0, |found| found.start());
        let number = line.line_number().unwrap_or(0);
        Ok(self.listing.entry(&format!("{}:{number}: {}", self.shown, excerpt(bytes, at)))
            && !self.cancel.is_cancelled())
    }

    fn context(&mut self, _: &Searcher, line: &SinkContext<'_>) -> io::Result<bool> {
        let number = line.line_number().unwrap_or(0);
        Ok(self.listing.line(&format!("{}-{number}- {}", self.shown, excerpt(line.bytes(), 0))))
    }

    fn context_break(&mut self, _: &Searcher) -> io::Result<bool> {
        Ok(self.listing.line("--"))
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
