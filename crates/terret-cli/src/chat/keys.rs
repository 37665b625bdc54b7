//! What the keys do.

use std::io;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use terret::agent::machine::Answer;

use super::calls;
use super::commands::{self, Slash};
use super::talk::{CHOICES, Mode, Talk};
use crate::exit::Exit;
use crate::permissions::Scope;

impl Talk {
    pub(super) async fn key(&mut self, key: KeyEvent) -> io::Result<()> {
        self.notice = None;
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let leaving = std::mem::take(&mut self.leaving);
        match key.code {
            KeyCode::Char('z') if control => return self.suspend(),
            KeyCode::Char('l') if control => return self.screen.clear(),
            KeyCode::Char('c') if control => self.break_off(leaving),
            KeyCode::Esc => self.escape(),
            _ if self.mode == Mode::Decide => self.decide(key.code),
            KeyCode::Char('d') if control && self.editor.is_empty() => self.exit = Some(Exit::Completed),
            KeyCode::Enter => self.enter(key.modifiers).await?,
            _ => self.edit(key),
        }
        Ok(())
    }

    pub(super) fn paste(&mut self, text: &str) {
        if self.mode != Mode::Decide {
            self.history.leave();
            self.editor.insert(text);
        }
    }

    /// A line of a terminal that knows no keys.
    pub(super) async fn line(&mut self, typed: &str) -> io::Result<()> {
        match self.mode {
            Mode::Decide => {
                self.decide(typed.trim().chars().next().map_or(KeyCode::Null, KeyCode::Char));
                match self.mode {
                    Mode::Decide => self.screen.line(CHOICES),
                    Mode::Edit => self.screen.line("the arguments, as JSON on one line:"),
                    Mode::Reason => self.screen.line("why not?"),
                    Mode::Permit(_) => self.ask_for_a_rule(),
                    Mode::Say => {}
                }
                Ok(())
            }
            Mode::Permit(_) if typed.trim() == "-" => {
                self.escape();
                self.screen.line(CHOICES);
                Ok(())
            }
            Mode::Permit(scope) => {
                if !typed.trim().is_empty() {
                    self.editor.set(typed);
                }
                self.permit(scope);
                if self.mode == Mode::Permit(scope) {
                    self.propose(scope);
                    self.ask_for_a_rule();
                }
                Ok(())
            }
            _ => {
                self.editor.set(typed);
                self.enter(KeyModifiers::NONE).await
            }
        }
    }

    /// Ctrl-C: what goes on ends, what is typed goes, and at last somebody leaves.
    fn break_off(&mut self, leaving: bool) {
        if self.busy.is_some() {
            self.interrupt();
        } else if !self.editor.is_empty() {
            let typed = self.editor.take();
            self.history.add(&typed);
        } else if leaving {
            self.exit = Some(Exit::Completed);
        } else {
            self.leaving = true;
            self.notice = Some("Ctrl-C again leaves".into());
        }
    }

    fn escape(&mut self) {
        match self.mode {
            Mode::Edit | Mode::Reason | Mode::Permit(_) => {
                self.mode = Mode::Decide;
                self.editor.take();
            }
            Mode::Say | Mode::Decide => self.interrupt(),
        }
    }

    fn decide(&mut self, key: KeyCode) {
        let KeyCode::Char(key) = key else { return };
        match key.to_ascii_lowercase() {
            'y' => self.answer(Answer::Approve),
            'a' => self.answer(Answer::ApproveForRun),
            's' => self.propose(Scope::Session),
            'p' => self.propose(Scope::Project),
            'n' => self.mode = Mode::Reason,
            'e' => {
                if let Some(question) = self.questions.front() {
                    self.editor.set(&calls::readable(&question.call));
                    self.mode = Mode::Edit;
                }
            }
            _ => {}
        }
    }

    fn answer(&mut self, answer: Answer) {
        let Some(question) = self.questions.front().cloned() else { return };
        self.editor.take();
        if let Some(busy) = &self.busy {
            busy.handle.answer(question.call.id.clone(), question.digest.clone(), answer);
        }
        self.answered(&question.call.id);
    }

    async fn enter(&mut self, modifiers: KeyModifiers) -> io::Result<()> {
        let later = modifiers.contains(KeyModifiers::ALT);
        match self.mode {
            Mode::Decide => {}
            Mode::Edit => {
                let arguments = self.editor.text().to_owned();
                match serde_json::from_str::<serde_json::Value>(&arguments) {
                    Ok(_) => self.answer(Answer::Edit(arguments)),
                    Err(error) => self.notice = Some(format!("that is no JSON: {error}")),
                }
            }
            Mode::Reason => {
                let reason = self.editor.take();
                let reason = if reason.trim().is_empty() { "The user said no.".into() } else { reason };
                self.answer(Answer::Deny { reason });
            }
            Mode::Permit(scope) => self.permit(scope),
            Mode::Say if modifiers.contains(KeyModifiers::SHIFT) || (later && self.busy.is_none()) => {
                self.editor.insert("\n");
            }
            Mode::Say if self.editor.text().ends_with('\\') => {
                self.editor.backspace();
                self.editor.insert("\n");
            }
            Mode::Say if self.editor.text().trim().is_empty() => drop(self.editor.take()),
            Mode::Say => {
                let text = self.editor.take();
                self.history.add(&text);
                match Slash::parse(text.trim_end()) {
                    Some(slash) => self.run_command(slash, &text).await?,
                    None => self.say(&text, later),
                }
            }
        }
        Ok(())
    }

    /// Says something: now, or to a run that goes on.
    fn say(&mut self, text: &str, later: bool) {
        let prompt = match self.desk.skills.expand(text.trim().to_owned()) {
            Ok(prompt) => prompt,
            Err(problem) => {
                self.notice = Some(problem.message);
                return self.editor.set(text);
            }
        };
        let heard = self.busy.as_ref().is_some_and(|busy| match later {
            true => busy.handle.follow_up(prompt.clone()),
            false => busy.handle.steer(prompt.clone()),
        });
        if !heard {
            // It waits for the end of a run that is just ending.
            let run = self.desk.session.prompt(prompt);
            self.start(run);
        }
    }

    fn edit(&mut self, key: KeyEvent) {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        match key.code {
            KeyCode::Up => return self.up(),
            KeyCode::Down => return self.down(),
            KeyCode::Left if control || alt => self.editor.word_left(),
            KeyCode::Right if control || alt => self.editor.word_right(),
            KeyCode::Left => self.editor.left(),
            KeyCode::Right => self.editor.right(),
            KeyCode::Home => self.editor.home(),
            KeyCode::End => self.editor.end(),
            KeyCode::Backspace if alt || control => self.editor.kill_word(),
            KeyCode::Backspace => self.editor.backspace(),
            KeyCode::Delete => self.editor.delete(),
            KeyCode::Tab => {
                if let Some(completed) = commands::completed(self.editor.text()) {
                    self.editor.set(&completed);
                }
            }
            KeyCode::Char(c) if control => match c {
                'a' => self.editor.home(),
                'e' => self.editor.end(),
                'b' => self.editor.left(),
                'f' => self.editor.right(),
                'p' => return self.up(),
                'n' => return self.down(),
                'd' => self.editor.delete(),
                'h' => self.editor.backspace(),
                'j' => self.editor.insert("\n"),
                'k' => self.editor.kill_to_end(),
                'u' => self.editor.kill_to_start(),
                'w' => self.editor.kill_word(),
                'y' => self.editor.yank(),
                _ => {}
            },
            KeyCode::Char(c) if alt => match c {
                'b' => self.editor.word_left(),
                'f' => self.editor.word_right(),
                'd' => self.editor.kill_word_after(),
                _ => {}
            },
            KeyCode::Char(c) => self.editor.insert(c.encode_utf8(&mut [0; 4])),
            _ => return,
        }
        self.history.leave();
    }

    fn up(&mut self) {
        if self.mode != Mode::Say {
            self.editor.up();
            return;
        }
        let last = self.waiting().last().map(|queued| queued.id);
        if let (true, Some(id), Some(busy)) = (self.editor.is_empty(), last, &self.busy) {
            busy.handle.withdraw(id);
        } else if !self.editor.up()
            && let Some(said) = self.history.earlier(self.editor.text())
        {
            self.editor.set(said);
        }
    }

    fn down(&mut self) {
        if !self.editor.down()
            && self.mode == Mode::Say
            && let Some(said) = self.history.later()
        {
            self.editor.set(&said);
        }
    }
}
