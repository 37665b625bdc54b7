//! A crash and a cancel at every step.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::recorded::Recorded;
use super::trial::{Blow, Start, Trial};
use super::{on_a_thread, paused, within_reason};
use crate::agent::Agent;
use crate::event::{Event, Question};
use crate::journal::{SessionId, fold};
use crate::machine::{Answer, CallStage, Outcome};
use crate::session::UserPrompt;
use crate::tool::EffectClass;

/// Runs a prompt over and over: undisturbed, with a crash at every step, and with a cancel at every step. After each,
/// the session is opened again and goes on.
///
/// A step is an append to the journal, before it is stored and after; the start of a tool; and each moment at which a
/// tool waits (the first 16 of a call). A crash drops everything where it stands, but for what the journal has. The clock is
/// paused, as it is for [`run`](super::run), and questions are answered with yes.
///
/// `make` makes the agent anew for each time, with everything that its tools change; the agent is kept over the crash,
/// like the world outside a process. Its model must give the same reply to the same transcript, as
/// [`ByTurn`](super::ByTurn) does: where it doesn't, a session that goes on fails early and proves less.
///
/// What is found:
/// - a call that was started twice although its tool is [`AtMostOnce`](EffectClass::AtMostOnce);
/// - a call of an [`Idempotent`](EffectClass::Idempotent) tool that returned something else when it was repeated;
/// - with [`Subject::observed`], a world that is different after a crash although only calls were cut off that may be
///   repeated;
/// - a run that doesn't end.
pub fn crash_everywhere<S: Into<Subject>>(
    mut make: impl FnMut() -> S + Send,
    prompt: impl Into<UserPrompt>,
) -> Crashes {
    let prompt = prompt.into();
    on_a_thread(move || {
        let undisturbed = attempt(&make().into(), &prompt, None);
        let mut crashes = Crashes { attempts: 1, completed: 0, problems: undisturbed.problems(None) };
        for step in 1..=undisturbed.steps {
            for blow in [Blow::Crash, Blow::Cancel] {
                let attempt = attempt(&make().into(), &prompt, Some((step, blow)));
                crashes.attempts += 1;
                crashes.completed += usize::from(attempt.outcome == Some(Outcome::Completed));
                crashes.problems.extend(attempt.problems(Some(&undisturbed)));
            }
        }
        crashes
    })
}

/// An agent, and what its tools do to the world.
pub struct Subject {
    agent: Agent,
    observe: Option<Box<dyn Fn() -> String>>,
}

impl Subject {
    /// An agent whose world can't be seen.
    pub fn new(agent: Agent) -> Self {
        Self { agent, observe: None }
    }

    /// What the tools have done to the world, as text: a balance, the rows of a table. Without what is different each
    /// time anyway, such as times and idempotency keys.
    #[must_use]
    pub fn observed(mut self, observe: impl Fn() -> String + 'static) -> Self {
        self.observe = Some(Box::new(observe));
        self
    }
}

impl From<Agent> for Subject {
    fn from(agent: Agent) -> Self {
        Self::new(agent)
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("agent", &self.agent).finish_non_exhaustive()
    }
}

/// What came of all attempts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Crashes {
    /// How often the prompt was run.
    pub attempts: usize,
    /// How many of the disturbed sessions have completed in the end.
    pub completed: usize,
    /// What was found.
    pub problems: Vec<Problem>,
}

impl Crashes {
    /// Nothing was found.
    ///
    /// # Panics
    ///
    /// With a list of what was.
    #[track_caller]
    pub fn assert_sound(&self) {
        let problems: Vec<String> = self.problems.iter().map(Problem::to_string).collect();
        assert!(problems.is_empty(), "{} of {} attempts:\n{}", problems.len(), self.attempts, problems.join("\n"));
    }
}

/// Something that must not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// What the session was disturbed by, and when; nothing if it wasn't.
    pub after: Option<String>,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.after {
            Some(after) => write!(f, "after {after}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

struct Attempt {
    steps: u64,
    struck: Option<String>,
    starts: Vec<Start>,
    /// Nothing, if the run didn't end.
    outcome: Option<Outcome>,
    /// The world at the end.
    observed: Option<String>,
    /// Whether all that was cut off may be repeated, so that the world has to be the same in the end.
    repeatable: bool,
}

fn attempt(subject: &Subject, prompt: &UserPrompt, strike: Option<(u64, Blow)>) -> Attempt {
    let trial = Trial::new(strike);
    let agent = trial.watching(&subject.agent);
    let id = SessionId::new();
    let mut outcome = live(&agent, &trial, &id, prompt);
    let state = fold(&trial.journal.records(&id));
    let in_doubt = state.batch().is_some_and(|batch| {
        let at_most_once =
            |call: &crate::machine::Call| call.tool.is_some_and(|it| it.effect == EffectClass::AtMostOnce);
        batch.calls.iter().any(|call| matches!(call.stage, CallStage::Open | CallStage::InDoubt) && at_most_once(call))
    });
    if trial.revive() {
        outcome = live(&agent, &trial, &id, prompt);
    }
    Attempt {
        steps: trial.steps(),
        struck: trial.struck(),
        starts: trial.starts(),
        outcome,
        observed: subject.observe.as_ref().map(|observe| observe()),
        repeatable: !in_doubt && matches!(strike, Some((_, Blow::Crash))),
    }
}

/// A life of the process, to the end of its run or to the crash.
fn live(agent: &Agent, trial: &Arc<Trial>, id: &SessionId, prompt: &UserPrompt) -> Option<Outcome> {
    let begun = !trial.journal.records(id).is_empty();
    let runtime = paused();
    let outcome = runtime.block_on(async {
        let run = async {
            let session = agent.open(trial.watched_journal(), id.clone()).await.ok()?;
            let run = if begun { session.go_on() } else { session.prompt(prompt.clone()) };
            trial.hold(run.handle());
            let recorded = Recorded::watched(run, |event, handle| {
                if let Event::Asked(Question { call, digest, .. }) = event {
                    handle.answer(&*call.id, &**digest, Answer::Approve);
                }
            });
            Some(within_reason(recorded).await?.outcome().clone())
        };
        tokio::select! {
            biased;
            () = trial.crashed() => None,
            outcome = run => outcome,
        }
    });
    runtime.shutdown_background();
    outcome
}

impl Attempt {
    fn problems(&self, undisturbed: Option<&Attempt>) -> Vec<Problem> {
        let mut found = Vec::new();
        if self.outcome.is_none() {
            found.push("the run doesn't end".to_owned());
        }
        let mut calls: BTreeMap<&str, Vec<&Start>> = BTreeMap::new();
        for start in &self.starts {
            calls.entry(&start.key).or_default().push(start);
        }
        for starts in calls.values() {
            found.extend(twice(starts));
        }
        if let Some(undisturbed) = undisturbed
            && self.repeatable
            && self.outcome == undisturbed.outcome
            && self.observed != undisturbed.observed
        {
            let (is, should) = (self.observed.as_deref(), undisturbed.observed.as_deref());
            found.push(format!(
                "the world is {:?}, and without it {:?}",
                is.unwrap_or_default(),
                should.unwrap_or_default()
            ));
        }
        found.into_iter().map(|what| Problem { after: self.struck.clone(), what }).collect()
    }
}

/// What is wrong with the starts of one call.
fn twice(starts: &[&Start]) -> Option<String> {
    let first = starts.first().filter(|_| starts.len() > 1)?;
    let Start { tool, call_id, effect, .. } = first;
    let mut outputs = starts.iter().filter_map(|start| start.output.as_deref());
    let one = outputs.next();
    match effect {
        EffectClass::AtMostOnce => {
            Some(format!("{tool} ({call_id}) is AtMostOnce, and was started {} times", starts.len()))
        }
        EffectClass::Idempotent => outputs.find(|other| Some(*other) != one).map(|other| {
            let one = one.unwrap_or_default();
            format!("{tool} ({call_id}) is Idempotent, and returned {one:?} and then {other:?} for the same key")
        }),
        EffectClass::ReadOnly => None,
    }
}
