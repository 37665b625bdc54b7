//! Where the commands of a page are run: a project, a home and a provider, all of them thrown away.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::Arc;

use serde_json::json;
use tempfile::TempDir;

use super::cargo;
use super::page::Command;
use crate::server::{Answer, Request, Server};
use crate::servers::chat_text;
use crate::terminal::Terminal;
use crate::terret::Terret;

/// Commands that talk with somebody at a terminal: what is waited for, and what is typed then.
const TYPED: [(&str, &[(&str, &str)]); 5] = [
    ("terret auth set openai", &[("key for openai", "sk-1\n")]),
    ("terret trust", &[("[y/N]", "y\n")]),
    ("terret", &[("/help", "\u{4}")]),
    ("terret -c", &[("/help", "\u{4}")]),
    ("terret -r", &[("Which one?", "1\n"), ("/help", "\u{4}")]),
];

/// What stands for something of the reader's own, and what it is here.
const STANDS_FOR: [(&str, &str); 1] = [("_API_KEY=…", "_API_KEY=sk-1")];

pub(super) struct Shell {
    world: Arc<TempDir>,
    provider: Server,
    path: String,
}

impl Shell {
    pub(super) fn for_page(page: &str) -> Self {
        let terret = Terret::new().file("README.md", "A project.\n").file("src/lib.rs", "pub fn one() -> i32 { 1 }\n");
        // Its own address is not the provider's, so that the list price doesn't hold.
        let price = json!({"models": {"anthropic/claude-sonnet-5-5": {"price": {"input": 3, "output": 15}}}});
        let terret = terret.home_file(".config/terret/models.json", price.to_string());
        let bin = terret.path("../bin");
        let (_, world) = terret.into_command();
        fs::create_dir(&bin).unwrap();
        symlink(env!("CARGO_BIN_EXE_terret"), bin.join("terret")).unwrap();
        // A password manager.
        fs::write(bin.join("pass"), "#!/bin/sh\necho sk-1\n").unwrap();
        fs::set_permissions(bin.join("pass"), fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let shell = Self { world, provider: Server::by(|request, _| answer(request)), path };
        let prepared = "git init -q . && git add . && git -c user.name=A -c user.email=a@example.com commit -qm A && \
            echo 'pub fn two() -> i32 { 2 }' >> src/lib.rs\n";
        shell.prepare(prepared);
        match page {
            "docs/configuration.md" => shell.prepare("mkdir .terret && echo 'max-turns = 3' > .terret/config.toml"),
            "docs/sessions.md" => shell.prepare(
                "terret --session-id 01a22e59-1 -p 'Hi!' && terret -r 01a22e59-1 'Again.' && terret -r 01a22e59-1 'And again.'",
            ),
            _ => {}
        }
        shell
    }

    fn prepare(&self, script: &str) {
        self.bash(script).run().exits(0);
    }

    fn bash(&self, script: &str) -> Terret {
        let bash = Terret::program("bash", self.world.clone()).args(["--norc", "-euo", "pipefail", "-c", script]);
        let bash = bash.env("PATH", &self.path);
        ["ANTHROPIC", "OPENAI"].iter().fold(bash, |bash, provider| {
            bash.env(&format!("{provider}_API_KEY"), "sk-1").env(&format!("{provider}_BASE_URL"), &self.provider.url)
        })
    }

    /// Runs a command of the page, and says what goes wrong.
    pub(super) fn run(&self, exports: &str, command: &Command) -> Result<(), String> {
        let mut text = command.text.clone();
        if let Some(args) = text.strip_prefix("cargo run -p terret-cli -- ") {
            text = format!("terret {args}");
        } else if let Some(checked) = cargo::check(&text) {
            return checked;
        }
        for (placeholder, value) in STANDS_FOR {
            text = text.replace(placeholder, value);
        }
        let text = text.replace("http://127.0.0.1:8080", &self.provider.url);
        let bare = text.split([';', '#']).next().unwrap_or_default().trim_end();
        if let Some((_, typed)) = TYPED.iter().find(|(command, _)| *command == bare) {
            let terminal = Terminal::open();
            let (mut bash, _world) = self.bash(&format!("{exports}{text}")).into_command();
            bash.stdin(terminal.stdio()).stdout(terminal.stdio()).stderr(terminal.stdio());
            let (status, shown) = terminal.converses(typed, bash);
            return if status.success() { Ok(()) } else { Err(shown) };
        }
        // A page shows what a terminal does.
        let together = if command.output.is_some() { "exec 2>&1\n" } else { "" };
        let ran = self.bash(&format!("{together}{exports}{text}")).run();
        let printed = format!("{}{}", ran.stdout, ran.stderr);
        match &command.output {
            // What is shown may be the output of a failure.
            Some(expected) if is_like(&printed, expected) => Ok(()),
            Some(expected) => Err(format!("printed:\n{printed}\nand not:\n{expected}")),
            None if ran.code() == 0 => Ok(()),
            None => Err(format!("exits with {}:\n{printed}", ran.code())),
        }
    }
}

/// Whether it is what the page shows, where `…` stands for any text.
fn is_like(printed: &str, expected: &str) -> bool {
    let Some((first, others)) = expected.trim_end().split_once('…') else { return printed == expected };
    let (between, last) = others.rsplit_once('…').unwrap_or(("", others));
    let inner = printed.trim_end().strip_prefix(first).and_then(|rest| rest.strip_suffix(last));
    let after = |rest: &str, piece: &str| rest.find(piece).map(|at| at + piece.len());
    inner.is_some_and(|inner| {
        let end = between.split('…').try_fold(0, |at, piece| Some(at + after(&inner[at..], piece)?));
        end.is_some()
    })
}

/// A provider that says the same to everybody.
fn answer(request: &Request) -> Answer {
    const TEXT: &str = "The build fails because of a missing file.";
    let path = request.head.split(' ').nth(1).unwrap_or_default();
    if path.ends_with("/messages") {
        let events = [
            json!({"type": "message_start", "message": {"id": "m1", "type": "message", "role": "assistant", "content": [],
                "model": "m", "usage": {"input_tokens": 10, "output_tokens": 1}}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": TEXT}}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}}),
            json!({"type": "message_stop"}),
        ];
        let body: String = events
            .iter()
            .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()))
            .collect();
        return Answer::events(body);
    }
    if path.ends_with("/chat/completions") {
        return chat_text(TEXT);
    }
    Answer::new("404 Not Found", "text/plain", "nothing here")
}
