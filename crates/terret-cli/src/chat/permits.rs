//! Rules about calls, given and taken back while talking.

use terret::agent::Question;
use terret::agent::machine::Answer;
use terret::llm::ToolCall;
use terret::tools::{Decision, Rule, RuleError, Rules, Why};

use super::Desk;
use super::look::DIM;
use super::talk::{Mode, Talk};
use crate::exit::Problem;
use crate::output::line;
use crate::permissions::{self, Given, Scope, Source, nearest};

impl Talk {
    /// Puts the narrowest rules that would let the call run into the editor.
    pub(super) fn propose(&mut self, scope: Scope) {
        let Some(question) = self.questions.front() else { return };
        let rules = self.desk.proposed(&question.call, scope);
        if rules.is_empty() {
            let why = self.desk.why_not(&question.call, &[]);
            return self.hint(&format!("{why}: y or a lets it run"));
        }
        let lines: Vec<String> = rules.iter().map(Rule::to_string).collect();
        let tool = line(&question.call.name);
        self.editor.set(&lines.join("\n"));
        self.mode = Mode::Permit(scope);
        if rules.iter().any(Rule::is_general) {
            self.hint(&format!("no narrower rule covers this call: this one lets every call of {tool} run"));
        }
    }

    /// Keeps the rules in the editor, a line each, if they let the call run. It runs, and so does what they cover, too.
    pub(super) fn permit(&mut self, scope: Scope) {
        let Some(question) = self.questions.front().cloned() else { return };
        let texts = self.editor.text().lines().filter(|text| !text.trim().is_empty());
        let rules = match texts.map(str::parse).collect::<Result<Vec<Rule>, RuleError>>() {
            Ok(rules) if rules.is_empty() => return self.hint("say which rule, as bash(cargo test *); Esc goes back"),
            Ok(rules) => rules,
            Err(error) => return self.hint(&error.to_string()),
        };
        let there: Vec<Rule> = rules.iter().map(|rule| self.desk.within(rule, scope)).collect();
        if !permissions::is_allowed(&self.desk.judge.with_permissions(&there), &question.call) {
            let why = self.desk.why_not(&question.call, &there);
            return self.hint(&why);
        }
        let add = |kept: &mut Rules| rules.iter().for_each(|rule| kept.add(Decision::Allow, rule.clone()));
        if let Err(problem) = self.desk.change_rules(scope, add) {
            // It says what to do, and is longer than a row.
            return self.complain(&problem.message);
        }
        self.editor.take();
        let rules: Vec<String> = rules.iter().map(|rule| line(&rule.to_string())).collect();
        let place = if scope == Scope::Session { "in this session" } else { "in this project" };
        self.tell(&format!("allowed {place}: {} (/permissions revoke takes it back)", rules.join(", ")));
        self.answer_what_is_allowed();
    }

    /// Where no keys are known, nothing takes what is proposed.
    pub(super) fn ask_for_a_rule(&mut self) {
        let rules = self.editor.text().lines().collect::<Vec<_>>().join(", ");
        self.screen.line(&format!("the rule; nothing takes {}, and - goes back", line(&rules)));
    }

    fn answer_what_is_allowed(&mut self) {
        let allowed = |question: &&Question| self.desk.is_allowed(&question.call);
        let allowed: Vec<Question> = self.questions.iter().filter(allowed).cloned().collect();
        // The one that is shown comes last, so that none of the others is shown in between.
        for question in allowed.into_iter().rev() {
            if let Some(busy) = &self.busy {
                busy.handle.answer(question.call.id.clone(), question.digest, Answer::Approve);
            }
            self.answered(&question.call.id);
        }
    }

    /// Lists the rules, with numbers to take them back by.
    pub(super) fn tell_rules(&mut self) {
        self.look_up_rules();
        let permissions = &self.desk.permissions;
        let mode = permissions.mode_name();
        let rules = permissions.all();
        self.tell(&match rules.is_empty() {
            true => format!("no rules; permission mode {mode}"),
            false => format!("permission mode {mode}; a denial wins over a question, and a question over a permission"),
        });
        for (number, given) in (1..).zip(&rules) {
            let Given { decision, rule, .. } = given;
            let idle = if self.desk.permissions.counts(given) { "" } else { ", not in this mode" };
            let from = line(&format!("{}{idle}", given.place()));
            let from = self.look.paint(DIM, &from);
            // The whole of it: what hides behind the margin would hold all the same.
            self.screen.line(&format!("{number:>3}  {decision:<5}  {}  {from}", line(&rule.to_string())));
        }
    }

    /// `text` is what was typed, for another try.
    pub(super) fn give_rule(&mut self, decision: Decision, rule: &str, text: &str) {
        let given = rule.parse::<Rule>().map_err(|error| Problem::usage(error.to_string()));
        let given = given.and_then(|rule| self.desk.change_rules(Scope::Session, |rules| rules.add(decision, rule)));
        match given {
            Ok(()) => self.tell(&format!("{decision} in this session: {}", line(rule))),
            Err(problem) => {
                self.hint(&problem.message);
                self.editor.set(text);
            }
        }
    }

    /// Takes a rule back: one of the list by its number, or all that are written so.
    pub(super) fn revoke_rule(&mut self, meant: &str, text: &str) {
        let all = self.desk.permissions.all();
        let by_number = meant.parse::<usize>().ok().map(|number| all.get(number.wrapping_sub(1)).cloned());
        let found: Vec<Given> = match by_number {
            Some(given) => given.into_iter().collect(),
            None => all.iter().filter(|given| given.rule.to_string() == meant).cloned().collect(),
        };
        if found.is_empty() {
            let near = nearest(meant, &all).map(|near| format!("; did you mean {near}?"));
            self.hint(&format!("there is no rule {meant}{}", near.unwrap_or("; /permissions lists them".into())));
            return self.editor.set(text);
        }
        for given in found {
            let rule = line(&given.rule.to_string());
            let scope = match &given.source {
                Source::Session => Scope::Session,
                Source::Project(_) => Scope::Project,
                Source::Flag | Source::Configured(_) => {
                    self.hint(&format!("{rule} holds as long as this runs: it comes from {}", given.from()));
                    continue;
                }
            };
            match self.desk.change_rules(scope, |rules| rules.retain(|it| *it != (given.decision, given.bare()))) {
                Ok(()) => self.tell(&format!("revoked: {} {rule} ({})", given.decision, given.scope())),
                Err(problem) => self.complain(&problem.message),
            }
        }
    }

    /// Takes in what another program has changed.
    pub(super) fn look_up_rules(&mut self) {
        if let Err(problem) = self.desk.look_up_rules() {
            self.complain(&problem.message);
        }
    }

    /// Says something until the next key.
    fn hint(&mut self, text: &str) {
        match self.look.moves {
            true => self.notice = Some(line(text)),
            false => self.screen.line(&line(text)),
        }
    }
}

impl Desk {
    /// Whether a call needs no question by the rules as they are now.
    pub(super) fn is_allowed(&self, call: &ToolCall) -> bool {
        permissions::is_allowed(&self.judge, call)
    }

    fn proposed(&self, call: &ToolCall, scope: Scope) -> Vec<Rule> {
        let folder = match scope {
            Scope::Session => &self.task.folder,
            Scope::Project => self.permissions.project.root(),
        };
        permissions::proposed(&self.judge, call, folder)
    }

    /// A rule as it holds in a scope.
    fn within(&self, rule: &Rule, scope: Scope) -> Rule {
        match scope {
            Scope::Session => rule.clone(),
            Scope::Project => rule.clone().from_folder(self.permissions.project.root()),
        }
    }

    /// Why a call would be asked about with these permissions, too.
    fn why_not(&self, call: &ToolCall, more: &[Rule]) -> String {
        let judgement = permissions::explain(&self.judge.with_permissions(more), call);
        match (judgement.decision, judgement.why) {
            (decision, Why::Rules(rules)) => {
                let named = rules.iter().map(|rule| match self.permissions.source_of(decision, rule) {
                    Some(given) => format!("{rule} ({})", given.from()),
                    None => rule.to_string(),
                });
                let does = if decision == Decision::Deny { "forbids it" } else { "asks about it" };
                format!("{} {does}, whatever is allowed", named.collect::<Vec<_>>().join(", "))
            }
            (_, Why::Perhaps(rule)) => {
                format!("{rule} forbids what it may be: what it runs is known only when it runs")
            }
            (_, Why::Unreadable) => "it can't be read, and rules are about some commands".into(),
            _ => "this doesn't cover the call, which would be asked about again".into(),
        }
    }

    /// Changes the rules of a scope, and keeps that. They hold at once.
    fn change_rules(&mut self, scope: Scope, change: impl FnOnce(&mut Rules)) -> Result<(), Problem> {
        match (scope, self.chosen.journal()) {
            (Scope::Project, _) => self.permissions.project.change(change)?,
            (Scope::Session, None) => change(&mut self.permissions.session),
            (Scope::Session, Some(journal)) => {
                let (rules, ()) = permissions::change_session(journal, self.session.id(), change)?;
                self.permissions.session = rules;
            }
        }
        self.apply_rules();
        Ok(())
    }

    fn look_up_rules(&mut self) -> Result<(), Problem> {
        self.permissions.project.refresh()?;
        let reader = self.chosen.journal().map(|journal| journal.reader(self.session.id()));
        if let Some(Ok(setup)) = reader.map(|reader| reader.and_then(|reader| reader.setup())) {
            self.permissions.session = permissions::read_session(&setup.rules)?;
        }
        self.apply_rules();
        Ok(())
    }

    /// Lets the calls be judged by the rules as they are now.
    pub(super) fn apply_rules(&self) {
        let rules = self.permissions.rules();
        self.judge.change(|it| *it = rules);
    }
}
