//! A preprocessor of mdbook. Its protocol is described in "Preprocessors" of mdbook's own book.
//!
//! Chapters link to files of the repository as readers of the repository need it. In the book, a link to a chapter leads to
//! the chapter, and one to any other file to the repository on the web.

use std::io::{self, Write as _};
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use pulldown_cmark::{Event, Options, Parser, Tag};
use serde_json::Value;

/// Where files are that the book doesn't hold.
const REPOSITORY: &str = "https://github.com/terret/terret/blob/main";

/// Where chapters are, from the root of the repository on.
const SOURCE: &str = "docs";

/// Files that are chapters of the book by what includes them.
const INCLUDED: [(&str, &str); 3] = [
    ("README.md", "docs/book/introduction.md"),
    ("ARCHITECTURE.md", "docs/book/map.md"),
    ("CHANGELOG.md", "docs/book/changelog.md"),
];

#[derive(clap::Parser)]
pub(crate) struct Args {
    /// What mdbook asks first
    supports: Option<String>,
    /// The renderer that it is asked about
    renderer: Option<String>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    if let Some(question) = &args.supports {
        return ExitCode::from(u8::from(question != "supports" || args.renderer.as_deref() != Some("html")));
    }
    match preprocess() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn preprocess() -> Result<(), Box<dyn std::error::Error>> {
    let (context, mut book): (Value, Value) = serde_json::from_reader(io::stdin())?;
    let root = PathBuf::from(context.get("root").and_then(Value::as_str).ok_or("mdbook names no root")?);
    let items = book.get_mut("items").and_then(Value::as_array_mut).ok_or("the book has no items")?;
    items.iter_mut().for_each(|item| in_item(item, &root));
    serde_json::to_writer(io::stdout(), &book)?;
    Ok(())
}

fn in_item(item: &mut Value, root: &Path) {
    let Some(chapter) = item.get_mut("Chapter") else { return };
    if let Some(path) = chapter.get("path").and_then(Value::as_str)
        && let Some(content) = chapter.get("content").and_then(Value::as_str)
    {
        let content = relinked(content, &Path::new(SOURCE).join(path), root);
        if let Some(place) = chapter.get_mut("content") {
            *place = content.into();
        }
    }
    let inner = chapter.get_mut("sub_items").and_then(Value::as_array_mut);
    inner.into_iter().flatten().for_each(|item| in_item(item, root));
}

/// The chapter with its links as the book needs them.
fn relinked(content: &str, chapter: &Path, root: &Path) -> String {
    let mut changed = content.to_owned();
    let links =
        Parser::new_ext(content, Options::ENABLE_TABLES).into_offset_iter().filter_map(|(event, range)| match event {
            Event::Start(Tag::Link { dest_url, .. }) => Some((dest_url.into_string(), range)),
            _ => None,
        });
    // From the end on, so that what is before stays where it is.
    let links: Vec<_> = links.collect();
    for (link, range) in links.into_iter().rev() {
        let target = in_book(&link, chapter, root);
        if let Some(target) = target
            && let Some(at) = content.get(range.clone()).and_then(|text| text.rfind(&format!("]({link}")))
        {
            let at = range.start + at + 2;
            changed.replace_range(at..at + link.len(), &target);
        }
    }
    changed
}

/// Where a link leads in the book, if it has to be another one.
fn in_book(link: &str, chapter: &Path, root: &Path) -> Option<String> {
    let (path, anchor) =
        link.split_once('#').map_or((link, String::new()), |(path, anchor)| (path, format!("#{anchor}")));
    if path.is_empty() || path.contains(':') {
        return None;
    }
    let folder = chapter.parent()?;
    // What is included counts its links from the root, where it lies.
    let file =
        [normal(&folder.join(path)), normal(Path::new(path))].into_iter().find(|file| root.join(file).exists())?;
    let file =
        INCLUDED.iter().find(|(whole, _)| file == Path::new(whole)).map_or(file.clone(), |(_, part)| part.into());
    let is_chapter = file.starts_with(SOURCE) && file.extension().is_some_and(|extension| extension == "md");
    if !is_chapter {
        return Some(format!("{REPOSITORY}/{}{anchor}", file.display()));
    }
    let up = "../".repeat(folder.components().count() - 1);
    let file = file.strip_prefix(SOURCE).ok()?;
    Some(format!("{up}{}{anchor}", file.display()))
}

/// Without `..`.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut normal, component| {
        match component {
            Component::ParentDir => drop(normal.pop()),
            other => normal.push(other),
        }
        normal
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_chapters_or_to_the_repository() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let sources = format!("[a]({REPOSITORY}/crates/terret-llm/src)");
        for (chapter, content, expected) in [
            ("docs/adding.md", "[a](../crates/terret-llm/src)", &*sources),
            ("docs/book/map.md", "[a](crates/terret-llm/src)", &sources),
            ("docs/book/map.md", "[a](docs/sandbox.md#git)", "[a](../sandbox.md#git)"),
            ("docs/adding.md", "[b](hosts.md) `[a](../README.md)`", "[b](hosts.md) `[a](../README.md)`"),
            ("docs/adding.md", "[a](../ARCHITECTURE.md), [b](#git)", "[a](book/map.md), [b](#git)"),
            ("docs/adding.md", "[a](https://agents.md)", "[a](https://agents.md)"),
        ] {
            assert_eq!(relinked(content, Path::new(chapter), &root), expected);
        }
    }
}
