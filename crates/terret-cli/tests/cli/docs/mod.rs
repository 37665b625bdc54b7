//! What the documentation says is so: its commands run, its options exist, its links lead somewhere.

mod cargo;
mod page;
mod shell;

use std::collections::HashSet;

use page::Page;
use shell::Shell;

use crate::help;
use crate::terret::Terret;

#[test]
fn every_command_runs() {
    // Each page has a world of its own.
    let pages = Page::all();
    let results: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let pages: Vec<_> = pages.iter().map(|page| scope.spawn(|| run(page))).collect();
        pages.into_iter().flat_map(|page| page.join().unwrap()).collect()
    });
    let failed: Vec<&str> = results.iter().filter_map(|result| result.as_ref().err()).map(String::as_str).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    assert!(results.len() > 60, "only {} commands were found", results.len());
}

/// Runs the commands of a page in their order.
fn run(page: &Page) -> Vec<Result<(), String>> {
    let blocks = page.blocks().into_iter().filter(|block| matches!(&*block.language, "sh" | "console"));
    let blocks: Vec<_> = blocks.collect();
    if blocks.is_empty() {
        return Vec::new();
    }
    let shell = Shell::for_page(&page.name);
    let mut results = Vec::new();
    for block in blocks {
        let (exports, commands): (Vec<_>, Vec<_>) =
            block.commands().into_iter().partition(|command| command.text.starts_with("export "));
        let exports: String = exports.iter().map(|export| format!("{}\n", export.text)).collect();
        for command in commands {
            let ran = shell.run(&exports, &command);
            results.push(ran.map_err(|problem| format!("{}: {}\n{problem}", page.name, command.text)));
        }
    }
    results
}

/// Such as `terret sessions export ID -o FILE` in a sentence: up to `--help`, which ends the parse, everything must exist.
#[test]
fn every_command_line_in_a_sentence_parses() {
    let mut failed = Vec::new();
    for page in Page::all() {
        for span in page.spans().iter().filter(|span| span.starts_with("terret ")) {
            for line in alternatives(span) {
                let args = line.split_whitespace().skip(1).map(|word| word.trim_matches(['[', ']', '"']));
                let args = args.filter(|word| *word != "…").map(|word| match word {
                    "SHELL" => "bash",
                    "PROVIDER" => "openai",
                    _ => word,
                });
                let ran = Terret::new().args(args).args(["--help"]).run();
                if ran.code() != 0 {
                    failed.push(format!("{}: `{line}`\n{}", page.name, ran.stderr));
                }
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// `a b|c` is `a b` and `a c`.
fn alternatives(span: &str) -> Vec<String> {
    let Some(word) = span.split_whitespace().find(|word| word.contains('|')) else { return vec![span.to_owned()] };
    word.split('|').flat_map(|one| alternatives(&span.replacen(word, one, 1))).collect()
}

#[test]
fn every_option_in_a_sentence_exists() {
    let known = help::commands().iter().map(|command| help::help(command)).collect::<String>();
    let known: HashSet<&str> = known.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').collect();
    for page in Page::all() {
        // What begins with another word is about another program, such as `rg --sort path`.
        let ours = |span: &String| span.starts_with('-') || span.starts_with("terret") || span.starts_with("cargo");
        for span in page.spans().into_iter().filter(ours) {
            for word in span.split(|c: char| !c.is_ascii_alphanumeric() && c != '-') {
                let is_option = word.len() > 2 && word.starts_with("--");
                assert!(
                    !is_option || known.contains(word) || cargo::knows_option(&span),
                    "{}: `{span}`: there is no {word}",
                    page.name
                );
            }
        }
    }
}

/// The names of events and of kinds of errors are those of the schema, and no event is forgotten.
#[test]
fn the_page_about_events_knows_the_schema() {
    let pages = Page::all();
    let page = pages.iter().find(|page| page.name == "docs/events.md").unwrap();
    let schema = include_str!("../../../../../docs/events.schema.json");
    let spans: HashSet<String> = page.spans().into_iter().collect();
    let is_name = |span: &str| span.chars().all(|c| c.is_ascii_alphabetic() || c == '_') && span != "json";
    for name in spans.iter().filter(|span| is_name(span)) {
        assert!(schema.contains(&format!("\"{name}\"")) || name == "SIGKILL", "{name} is not in the schema");
    }
    let events: serde_json::Value = serde_json::from_str(schema).unwrap();
    for event in events["oneOf"].as_array().unwrap() {
        let name = event["$ref"].as_str().unwrap().rsplit('/').next().unwrap();
        assert!(spans.contains(name), "{name} is not on the page");
    }
}

#[test]
fn every_link_leads_somewhere() {
    let pages = Page::all();
    let mut broken = Vec::new();
    for page in &pages {
        for link in page.links() {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() { page.path.clone() } else { page.path.parent().unwrap().join(path) };
            let there = if anchor.is_empty() {
                target.exists()
            } else {
                Page::read(&target).is_some_and(|target| target.anchors().contains(anchor))
            };
            if !there {
                broken.push(format!("{}: {link}", page.name));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_configuration_is_accepted() {
    for page in Page::all() {
        for block in page.blocks() {
            let terret = match (&*page.name, &*block.language) {
                ("docs/configuration.md" | "docs/models.md", "toml") => Terret::new().config(&block.text),
                ("docs/catalog.md", "json") => Terret::new().home_file(".config/terret/models.json", &block.text),
                _ => continue,
            };
            terret.args(["models", "--all"]).run().exits(0).then().args(["config", "explain"]).run().exits(0);
        }
    }
}

/// What mdbook would say: chapters that nobody finds, and parts that aren't there.
#[test]
fn the_book_holds_every_page() {
    let pages = Page::all();
    let summary = pages.iter().find(|page| page.name == "docs/SUMMARY.md").unwrap();
    let chapters: HashSet<String> = summary.links().into_iter().map(|link| format!("docs/{link}")).collect();
    for page in pages.iter().filter(|page| page.name.starts_with("docs/") && page.name != summary.name) {
        assert!(chapters.contains(&page.name), "{} is not in docs/SUMMARY.md", page.name);
        for (path, part) in page.includes() {
            let included = std::fs::read_to_string(page.path.parent().unwrap().join(&path));
            let included = included.unwrap_or_else(|error| panic!("{}: {path}: {error}", page.name));
            let begins =
                |mark: &str| included.lines().filter(|line| *line == format!("<!-- {mark}: {part} -->")).count();
            assert!(part.is_empty() || (begins("ANCHOR"), begins("ANCHOR_END")) == (1, 1), "{path} has no part {part}");
        }
    }
}
