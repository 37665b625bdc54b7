use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};
use ignore::{DirEntry, WalkBuilder};
use terret_agent::ToolError;

/// Everything beneath a directory (or the one file) that isn't ignored, in a stable order. What can't be read is left
/// out.
pub(super) fn walk(base: &Path) -> impl Iterator<Item = DirEntry> {
    let mut builder = WalkBuilder::new(base);
    builder
        .hidden(false)
        .require_git(false)
        .follow_links(false)
        .sort_by_file_name(Ord::cmp)
        .filter_entry(|entry| entry.file_name() != ".git");
    builder.build().filter_map(Result::ok)
}

/// A glob that matches names, or paths beneath the searched directory if it holds a `/`.
pub(super) struct Glob {
    matcher: GlobMatcher,
    whole_path: bool,
}

impl Glob {
    pub(super) fn new(pattern: &str) -> Result<Self, ToolError> {
        let glob = GlobBuilder::new(pattern.strip_prefix("./").unwrap_or(pattern)).literal_separator(true).build();
        let glob = glob.map_err(|error| {
            ToolError::new(format!("{error}. Globs look like \"*.rs\", \"src/**/*.{{ts,tsx}}\" or \"test_[a-z]?.py\"."))
        })?;
        Ok(Self { matcher: glob.compile_matcher(), whole_path: pattern.contains('/') })
    }

    /// Whether something beneath `base` matches.
    pub(super) fn matches(&self, base: &Path, path: &Path) -> bool {
        let beneath = path.strip_prefix(base).unwrap_or(path);
        let name = path.file_name().map(Path::new);
        if self.whole_path {
            self.matcher.is_match(beneath)
        } else {
            name.is_some_and(|name| self.matcher.is_match(name))
        }
    }
}
