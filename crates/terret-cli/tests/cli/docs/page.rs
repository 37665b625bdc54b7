//! A page of the documentation, and what stands in it.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

pub(super) struct Page {
    /// Its path from the root of the repository on.
    pub(super) name: String,
    pub(super) path: PathBuf,
    text: String,
}

/// What is between two fences.
pub(super) struct Block {
    /// The first word behind the fence.
    pub(super) language: String,
    pub(super) text: String,
}

/// A command of a block, and what the page says that it prints.
pub(super) struct Command {
    pub(super) text: String,
    pub(super) output: Option<String>,
}

pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

impl Page {
    /// All pages for readers of the repository and of the book.
    pub(super) fn all() -> Vec<Self> {
        let mut pages: Vec<PathBuf> = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "fuzz/README.md"]
            .iter()
            .map(|name| root().join(name))
            .collect();
        let mut folders = vec![root().join("docs")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "md") {
                    pages.push(path);
                }
            }
        }
        pages.sort();
        pages.iter().map(|path| Self::read(path).unwrap()).collect()
    }

    pub(super) fn read(path: &Path) -> Option<Self> {
        let text = fs::read_to_string(path).ok()?;
        let name = path.strip_prefix(root()).unwrap_or(path).display().to_string();
        Some(Self { name, path: path.to_owned(), text })
    }

    fn events(&self) -> impl Iterator<Item = Event<'_>> {
        Parser::new_ext(&self.text, Options::ENABLE_TABLES)
    }

    pub(super) fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut inside = false;
        for event in self.events() {
            match event {
                Event::Start(Tag::CodeBlock(kind)) => {
                    let CodeBlockKind::Fenced(info) = kind else { continue };
                    let language = info.split([',', ' ']).next().unwrap_or_default().to_owned();
                    blocks.push(Block { language, text: String::new() });
                    inside = true;
                }
                Event::Text(text) if inside => blocks.last_mut().unwrap().text += &text,
                Event::End(TagEnd::CodeBlock) => inside = false,
                _ => {}
            }
        }
        blocks
    }

    /// Code in sentences and tables.
    pub(super) fn spans(&self) -> Vec<String> {
        let code = |event| if let Event::Code(code) = event { Some(code.into_string()) } else { None };
        self.events().filter_map(code).collect()
    }

    pub(super) fn links(&self) -> Vec<String> {
        let link = |event| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => Some(dest_url.into_string()),
            _ => None,
        };
        self.events().filter_map(link).collect()
    }

    /// What of other files it holds in the book: their paths, and which part of them, if it isn't all.
    pub(super) fn includes(&self) -> Vec<(String, String)> {
        let lines = self.text.lines().filter_map(|line| line.strip_prefix("{{#include ")?.strip_suffix("}}"));
        let parts = lines.map(|line| line.split_once(':').unwrap_or((line, "")));
        parts.map(|(path, part)| (path.to_owned(), part.to_owned())).collect()
    }

    /// The anchors of its headings, as GitHub and mdbook make them.
    pub(super) fn anchors(&self) -> HashSet<String> {
        let mut anchors = HashSet::new();
        let mut heading: Option<String> = None;
        for event in self.events() {
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::Text(text) | Event::Code(text) => heading.iter_mut().for_each(|heading| *heading += &text),
                Event::End(TagEnd::Heading(_)) => {
                    let heading = heading.take().unwrap().to_lowercase();
                    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
                    anchors.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
                }
                _ => {}
            }
        }
        anchors
    }
}

impl Block {
    /// Its commands: whole lines of an `sh` block, and in a `console` block what is behind `$ `, with its output.
    pub(super) fn commands(&self) -> Vec<Command> {
        let mut commands: Vec<Command> = Vec::new();
        let mut goes_on = false;
        for line in self.text.lines() {
            let typed = if self.language == "console" { line.strip_prefix("$ ") } else { Some(line) };
            match typed {
                _ if goes_on => commands.last_mut().unwrap().text += &format!("\n{line}"),
                Some(line) if line.trim().is_empty() || line.starts_with('#') => continue,
                Some(line) => commands
                    .push(Command { text: line.to_owned(), output: (self.language == "console").then(String::new) }),
                None => {
                    // A console block begins with a command.
                    *commands.last_mut().unwrap().output.as_mut().unwrap() += &format!("{line}\n");
                    continue;
                }
            }
            goes_on = line.ends_with('|') || line.ends_with('\\');
        }
        commands
    }
}
