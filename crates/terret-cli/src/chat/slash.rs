//! What the commands do.

use std::io;

use super::commands::{COMMANDS, KEYS, Slash};
use super::look::{BAD, BOLD, DIM, columns, fit};
use super::status::{Status, count};
use super::talk::{Aside, Talk};
use super::wrap::Wrap;
use crate::exit::{Exit, Problem};
use crate::output::{self, line};
use crate::places;

impl Talk {
    /// `text` is what was typed, for another try.
    pub(super) async fn run_command(&mut self, command: Slash, text: &str) -> io::Result<()> {
        let waits = matches!(command, Slash::Compact | Slash::Clear | Slash::Continue)
            || matches!(&command, Slash::Model(name) if !name.is_empty());
        if waits && self.busy.is_some() {
            self.notice = Some("the model is at work: Esc interrupts it".into());
            self.editor.set(text);
            return Ok(());
        }
        match command {
            Slash::Help => self.help(),
            Slash::Model(name) if name.is_empty() => {
                let model = self.status.model().to_owned();
                self.tell(&format!("{model}; /model PROVIDER/MODEL asks another one"));
            }
            Slash::Model(name) => self.aside = Some(Aside::Model(name)),
            Slash::Compact => {
                let run = self.desk.session.compact();
                self.start(run);
            }
            Slash::Continue => {
                let run = self.desk.session.go_on();
                self.start(run);
            }
            Slash::Clear => self.aside = Some(Aside::Clear),
            Slash::Sessions => {
                let desk = &self.desk;
                let listed = self.screen.aside(|| desk.list_sessions())?;
                if let Err(problem) = listed {
                    self.complain(&problem.message);
                }
            }
            Slash::Cost => self.tell_cost(),
            Slash::Tools => self.tell_tools(),
            Slash::Permissions => self.tell_rules(),
            Slash::Rule(decision, rule) => self.give_rule(decision, &rule, text),
            Slash::Revoke(rule) => self.revoke_rule(&rule, text),
            Slash::Export(file) => self.export(&file)?,
            Slash::Quit => self.exit = Some(Exit::Completed),
            Slash::Unknown(what) => {
                self.notice = Some(line(&what));
                self.editor.set(text);
            }
        }
        Ok(())
    }

    pub(super) fn has_asked_model(&mut self, done: Result<(), Problem>) {
        match done {
            Ok(()) => {
                self.status.asks(self.desk.agent.model().spec());
                let model = self.status.model().to_owned();
                self.tell(&format!("{model} from now on"));
            }
            Err(problem) => self.complain(&problem.message),
        }
    }

    pub(super) fn has_begun_anew(&mut self, done: Result<(), Problem>) {
        match done {
            Ok(()) => {
                self.status = Status::new(self.desk.agent.model().spec(), self.desk.cost_so_far());
                self.tell("a new session");
            }
            Err(problem) => self.complain(&problem.message),
        }
    }

    pub(super) fn tell(&mut self, text: &str) {
        self.view.note(&mut self.screen, DIM, text);
    }

    pub(super) fn complain(&mut self, text: &str) {
        self.view.note(&mut self.screen, BAD, text);
    }

    fn help(&mut self) {
        self.tell("");
        self.list(&COMMANDS.map(|(name, what)| (name.to_owned(), what.to_owned())));
        self.screen.line("");
        self.list(&KEYS.map(|(name, what)| (name.to_owned(), what.to_owned())));
    }

    /// Names, and what they are; below each other where there is no room.
    pub(super) fn list(&mut self, entries: &[(String, String)]) {
        let width = self.screen.width();
        let widest = entries.iter().map(|(name, _)| columns(name)).max().unwrap_or(0).min(22);
        for (name, what) in entries {
            let bold = self.look.paint(BOLD, name);
            if width < 60 {
                self.screen.line(&bold);
                let mut wrap = Wrap::new(self.look, width);
                wrap.push_str("  ", DIM);
                wrap.hang("  ", DIM);
                wrap.push_str(what, DIM);
                wrap.end_line();
                wrap.take().iter().for_each(|row| self.screen.line(row));
            } else {
                let space = " ".repeat((widest + 2).saturating_sub(columns(name)));
                let what = fit(what, width.saturating_sub(widest.max(columns(name)) + 2)).into_owned();
                self.screen.line(&format!("{bold}{space}{}", self.look.paint(DIM, &what)));
            }
        }
    }

    fn tell_cost(&mut self) {
        let cost = self.status.cost();
        let known = self.desk.agent.model().spec().price.is_some();
        let cost = match cost.nanos() {
            0 if !known => "the price of this model isn't known".to_owned(),
            _ => cost.to_string(),
        };
        let usage = self.desk.usage();
        let tokens = usage.map(|usage| {
            let cached = usage.cache_read;
            let input = usage.input + usage.cache_read + usage.cache_write;
            format!(" · {} tokens in ({} from the cache), {} out", count(input), count(cached), count(usage.output))
        });
        self.tell(&format!("this session: {cost}{}", tokens.unwrap_or_default()));
    }

    fn tell_tools(&mut self) {
        let specs = self.desk.agent.tools().specs();
        let first = |text: &str| text.split_inclusive(". ").next().unwrap_or_default().trim_end().to_owned();
        let tools: Vec<_> = specs.iter().map(|spec| (line(&spec.name), line(&first(&spec.description)))).collect();
        self.tell("");
        self.list(&tools);
    }

    fn export(&mut self, file: &str) -> io::Result<()> {
        let file = places::typed(file);
        let desk = &self.desk;
        match self.screen.aside(|| desk.export(&file))? {
            Ok(()) => self.tell(&format!("written to {}", file.display())),
            Err(problem) => self.complain(&problem.message),
        }
        Ok(())
    }
}

/// What `terret sessions list` shows, of this folder.
pub(super) fn list(infos: &[terret::store::SessionInfo], folder: &str) -> io::Result<()> {
    let table = output::Table::of(infos).only(|info| info.setup.folder.as_deref() == Some(folder)).first(20);
    let mut out = anstream::stdout();
    table.write(&mut out, output::width())?;
    io::Write::write_all(&mut out, b"terret -r ID goes on with one\n")
}
