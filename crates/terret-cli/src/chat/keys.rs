//! What the keys do.

use std::io;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use terret::agent::machine::Answer;
use tokio::time::Instant;

use super::calls;
use super::commands::{self, Slash};
use super::paths;
use super::talk::{Aside, CHOICES, Mode, Talk};
use crate::exit::Exit;
use crate::permissions::Scope;

/// After which time keys are no longer those of a text that was being typed.
const PAUSE: Duration = Duration::from_millis(500);

/// How long a question must have been there before a key answers it: nobody has read it sooner.
const GLANCE: Duration = Duration::from_millis(300);

impl Talk {
    pub(super) async fn key(&mut self, key: KeyEvent) -> io::Result<()> {
        self.notice = None;
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let leaving = std::mem::take(&mut self.leaving);
        match key.code {
            KeyCode::Char('z') if control => return self.suspend(),
            KeyCode::Char('l') if control => return self.screen.clear(),
            _ if self.mode == Mode::Find => self.look_for(key),
            KeyCode::Char('c') if control => self.break_off(leaving),
            KeyCode::Esc => self.escape(),
            _ if self.mode == Mode::Decide && self.is_held(key.code) => self.put = Some(Instant::now()),
            _ if self.mode == Mode::Decide && self.is_typing() => self.go_on_typing(key),
            _ if self.mode == Mode::Decide && is_plain(key) => self.decide(key.code),
            _ if self.mode == Mode::Decide => {}
            KeyCode::Char('g') if control => self.aside = Some(Aside::Editor),
            KeyCode::Char('r') if control && self.mode == Mode::Say => {
                self.find = (self.editor.take(), 0);
                self.mode = Mode::Find;
            }
            KeyCode::Char('d') if control && self.editor.is_empty() => self.exit = Some(Exit::Completed),
            KeyCode::Enter => self.enter(key.modifiers).await?,
            _ => self.edit(key),
        }
        let types = match self.mode {
            Mode::Decide => self.typing.is_some_and(|last| last.elapsed() < PAUSE),
            Mode::Say | Mode::Find => !self.editor.is_empty(),
            Mode::Edit | Mode::Reason | Mode::Permit(_) => false,
        };
        self.typing = types.then(Instant::now);
        Ok(())
    }

    /// Whether somebody was typing when the question came, and hasn't stopped since: keys that are no answer.
    fn is_typing(&self) -> bool {
        self.typing.is_some_and(|last| last.elapsed() < PAUSE) || self.put.is_some_and(|put| put.elapsed() < GLANCE)
    }

    /// Whether a key that has answered a question is still held, or was pressed twice: it answers no other one.
    fn is_held(&self, key: KeyCode) -> bool {
        self.held == Some(key) && self.put.is_some_and(|put| put.elapsed() < GLANCE)
    }

    fn go_on_typing(&mut self, key: KeyEvent) {
        match key.code {
            KeyCode::Char(c) if is_plain(key) => self.stash.push(c),
            KeyCode::Backspace => drop(self.stash.pop()),
            _ => return,
        }
        self.typing = Some(Instant::now());
        self.notice = Some("what you type comes back after this question".into());
    }

    pub(super) fn paste(&mut self, text: &str) {
        if self.mode == Mode::Decide {
            return self.stash.push_str(text);
        }
        self.history.leave();
        self.editor.insert(text);
    }

    /// A line of a terminal that knows no keys.
    pub(super) async fn line(&mut self, typed: &str) -> io::Result<()> {
        match self.mode {
            Mode::Decide => {
                let mut typed = typed.trim().chars();
                // A longer line was meant to say something, before the question came.
                let answer = typed.next().filter(|_| typed.next().is_none());
                self.decide(answer.map_or(KeyCode::Null, KeyCode::Char));
                match self.mode {
                    Mode::Decide => self.screen.line(CHOICES),
                    Mode::Edit => self.screen.line("the arguments, as JSON on one line:"),
                    Mode::Reason => self.screen.line("why not?"),
                    Mode::Permit(_) => self.ask_for_a_rule(),
                    Mode::Say | Mode::Find => {}
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
            Mode::Say | Mode::Decide | Mode::Find => self.interrupt(),
        }
    }

    /// A key while something is looked for that was said before.
    fn look_for(&mut self, key: KeyEvent) {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('r') if control => {
                self.find.1 += 1;
                if self.found().is_none() {
                    self.find.1 -= 1;
                }
            }
            KeyCode::Char('c' | 'g') if control => self.stop_finding(),
            KeyCode::Esc => self.stop_finding(),
            KeyCode::Enter | KeyCode::Tab => {
                if let Some(found) = self.found().map(str::to_owned) {
                    self.find.0 = found;
                }
                self.stop_finding();
            }
            KeyCode::Up | KeyCode::Down => {}
            _ => {
                self.edit(key);
                self.find.1 = 0;
            }
        }
    }

    /// What was said that has in it what is typed.
    pub(super) fn found(&self) -> Option<&str> {
        self.history.find(self.editor.text(), self.find.1)
    }

    /// Goes on typing where it was left, or with what was found.
    pub(super) fn stop_finding(&mut self) {
        if self.mode == Mode::Find {
            self.mode = Mode::Say;
            let text = std::mem::take(&mut self.find.0);
            self.editor.set(&text);
        }
    }

    fn decide(&mut self, key: KeyCode) {
        self.held = Some(key);
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
            Mode::Decide | Mode::Find => {}
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
                } else if self.mode == Mode::Say {
                    self.complete_path();
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

    /// What stands before the cursor as a path, also one behind an at sign.
    fn complete_path(&mut self) {
        let word = self.editor.word();
        let (mark, begin) = word.strip_prefix('@').map_or(("", word), |begin| ("@", begin));
        if word.is_empty() {
            return;
        }
        let Some(completion) = paths::completed(&self.desk.task.folder, begin) else { return };
        self.editor.replace_word(&format!("{mark}{}", completion.path));
        if !completion.names.is_empty() {
            self.notice = Some(completion.names.join("  "));
        }
    }

    fn up(&mut self) {
        if self.mode != Mode::Say {
            self.editor.up();
            return;
        }
        let last = self.queue.last().map(|queued| queued.id);
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

/// Whether a key stands for its character: with Ctrl or Alt, it means something else.
fn is_plain(key: KeyEvent) -> bool {
    !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT)
}
