use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use globset::{GlobBuilder, GlobMatcher};
use ignore::{DirEntry, WalkBuilder, WalkState};
use terret_agent::ToolError;
use tokio_util::sync::CancellationToken;

use super::found::{Found, Place, Unread};
use crate::workspace::{Located, Workspace};

/// So many entries are visited in order first. Little is lost where they have to be visited again.
const IN_ORDER: usize = 500;

/// The walk stays in order where it looks as if so many entries would fill the answer.
const WORTHWHILE: usize = 8_000;

/// Visits what lies beneath a directory (or the one file) and isn't ignored, until enough is found; each thread has a
/// visitor of its own.
///
/// The first entries are visited in order: often they are all there are, or all that is shown. Otherwise everything is
/// visited, in several threads and in no order, but for what lies behind everything that is shown. Stops on a cancel.
pub(super) fn walk<V: FnMut(&DirEntry) + Send>(
    workspace: &Workspace,
    base: &Located,
    found: &Arc<Found>,
    cancel: &CancellationToken,
    mut visitor: impl FnMut() -> V,
) {
    let hidden: Vec<PathBuf> = workspace.hidden_beneath(&base.real).into_iter().map(Path::to_owned).collect();
    let is_hidden = |path: &Path| hidden.iter().any(|hidden| path.starts_with(hidden)) && workspace.is_hidden(path);
    let (so_far, secrets, places) = (Arc::clone(found), hidden.clone(), workspace.clone());
    let mut builder = WalkBuilder::new(&base.real);
    builder.hidden(false).require_git(false).follow_links(false).sort_by_file_name(Ord::cmp).filter_entry(
        move |entry| {
            let path = entry.path();
            let is_secret = || secrets.iter().any(|secret| path.starts_with(secret)) && !places.shows_beneath(path);
            entry.file_name() != ".git" && !is_secret() && !so_far.is_behind(path)
        },
    );
    let visit = |entry: Result<DirEntry, ignore::Error>, visit: &mut V| match entry {
        // More may be known by now than when it was put in line.
        Ok(entry) if found.is_behind(entry.path()) => WalkState::Skip,
        Ok(entry) => {
            if !is_hidden(entry.path()) {
                visit(&entry);
            }
            WalkState::Continue
        }
        Err(error) => {
            if let Some(path) = unreadable(&error) {
                found.add(path, Place::unread(Unread::NotPermitted));
            }
            WalkState::Continue
        }
    };

    let mut visitor_in_order = visitor();
    let mut in_order = builder.build();
    let mut visited = 0_usize;
    while visited < IN_ORDER || found.share() >= visited as f64 / WORTHWHILE as f64 {
        if cancel.is_cancelled() || found.is_enough() {
            return;
        }
        let Some(entry) = in_order.next() else { return };
        visit(entry, &mut visitor_in_order);
        visited += 1;
    }
    drop((in_order, visitor_in_order));
    found.take();
    builder.build_parallel().run(|| {
        let mut visitor = visitor();
        Box::new(move |entry| if cancel.is_cancelled() { WalkState::Quit } else { visit(entry, &mut visitor) })
    });
}

/// The directory that can't be read. One that has vanished meanwhile isn't there to be told.
fn unreadable(error: &ignore::Error) -> Option<&Path> {
    match error {
        ignore::Error::WithPath { path, err } => {
            let kind = err.io_error()?.kind();
            (!matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)).then_some(path)
        }
        ignore::Error::WithDepth { err, .. } => unreadable(err),
        _ => None,
    }
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
