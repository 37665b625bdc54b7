//! What all actors share: chance, the faults that are to come, and a record of what was done, to judge the driver by.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use terret_agent::machine::{QueueKind, Record};
use terret_agent::{EffectClass, Event, RunHandle};
use tokio::sync::Notify;

/// What is done to a session from outside, at a moment at which somebody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Crash,
    Cancel,
    Steer,
    FollowUp,
    Interrupt,
    Withdraw,
    Requeue,
    Subscribe,
    /// The next append fails, and stores nothing.
    Refuse,
    /// The next append fails after it has stored everything.
    StoreAndFail,
}

/// What has to happen in some seed, or the seeds prove little.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Seen {
    Point,
    Run,
    Crash,
    Cancelled,
    JournalFailed,
    ToolStarted,
    ToolRepeated,
    ToolPanicked,
    ToolLate,
    Discovered,
    Asked,
    Interrupted,
    Withdrawn,
    Requeued,
    HandedBack,
    Compacted,
    Retried,
    FellBack,
    Refused,
    DroppedRun,
    OutOfTime,
    Completed,
}

impl Seen {
    pub(crate) const ALL: &[Self] = {
        use Seen::*;
        &[
            Point,
            Run,
            Crash,
            Cancelled,
            JournalFailed,
            ToolStarted,
            ToolRepeated,
            ToolPanicked,
            ToolLate,
            Discovered,
            Asked,
            Interrupted,
            Withdrawn,
            Requeued,
            HandedBack,
            Compacted,
            Retried,
            FellBack,
            Refused,
            DroppedRun,
            OutOfTime,
            Completed,
        ]
    };
}

/// A message that somebody has said with success, and what became of it.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    /// The process crashed while it was under way: it may be lost.
    pub(crate) crashed: bool,
    /// The journal failed while it was under way: it may be handed back and be in the journal all the same.
    pub(crate) doubtful: bool,
    pub(crate) handed_back: u32,
    /// An event told that it was taken back.
    pub(crate) withdrawn: u32,
    /// It was to take the place of another one.
    pub(crate) changes: bool,
}

pub(crate) struct World {
    dice: Mutex<fastrand::Rng>,
    crash: Notify,
    inner: Mutex<Inner>,
}

#[derive(Default)]
pub(crate) struct Inner {
    pub(crate) points: u64,
    pub(crate) faults: Vec<(u64, Fault)>,
    pub(crate) lives: u32,
    pub(crate) prompts_left: u32,
    pub(crate) over: bool,
    pub(crate) records: Vec<Record>,
    /// How the next append fails.
    pub(crate) journal_fault: Option<Fault>,
    /// The journal has failed since the session was opened.
    pub(crate) journal_failed: bool,
    pub(crate) handle: Option<RunHandle>,
    pub(crate) numbers: u64,
    pub(crate) said: BTreeMap<String, Said>,
    /// Texts that were said in this life, whose run has not ended.
    pub(crate) under_way: HashSet<String>,
    /// The records of the runs whose end was told.
    pub(crate) told: Vec<std::ops::Range<usize>>,
    /// Each start of a tool: where its `CallOpened` is among the records, and its key.
    pub(crate) starts: Vec<(usize, String)>,
    pub(crate) verdicts: HashMap<String, Gated>,
    pub(crate) approved: HashSet<String>,
    pub(crate) approved_tools: HashSet<String>,
    pub(crate) running: Vec<(String, bool)>,
    /// The number of the last message that was seen to wait.
    pub(crate) waits: u64,
    seen: BTreeMap<Seen, u64>,
    problems: Vec<String>,
    trace: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gated {
    Allowed,
    Denied,
    Asked,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = fastrand::Rng::with_seed(seed);
        use Fault::*;
        let kinds = [
            Crash,
            Crash,
            Crash,
            Cancel,
            Steer,
            Steer,
            FollowUp,
            Interrupt,
            Withdraw,
            Requeue,
            Subscribe,
            Refuse,
            StoreAndFail,
        ];
        let mut faults: Vec<_> =
            (0..dice.u32(0..10)).map(|_| (dice.u64(1..150), kinds[dice.usize(..kinds.len())])).collect();
        faults.sort_by_key(|(at, _)| *at);
        let inner = Inner { faults, prompts_left: dice.u32(2..6), ..Inner::default() };
        Self { dice: Mutex::new(dice), crash: Notify::new(), inner: Mutex::new(inner) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    /// A number below `end`.
    pub(crate) fn roll(&self, end: u32) -> u32 {
        self.dice.lock().unwrap().u32(..end)
    }

    /// Whether something happens that happens once in `n` times.
    pub(crate) fn once_in(&self, n: u32) -> bool {
        self.roll(n) == 0
    }

    /// A number that no other thing has.
    pub(crate) fn number(&self) -> u64 {
        let mut inner = self.lock();
        inner.numbers += 1;
        inner.numbers
    }

    /// A moment at which somebody waits: for others, for some time, or for ever, because the process ends here.
    pub(crate) async fn point(&self, at: &'static str) {
        let due: Vec<Fault> = {
            let mut inner = self.lock();
            inner.points += 1;
            *inner.seen.entry(Seen::Point).or_default() += 1;
            let now = inner.points;
            inner.faults.extract_if(.., |(at, _)| *at <= now).map(|(_, fault)| fault).collect()
        };
        for fault in due {
            self.note(format!("{fault:?} at {at}"));
            if fault == Fault::Crash {
                self.crash.notify_one();
                return std::future::pending().await;
            }
            self.strike(fault);
        }
        match self.roll(4) {
            0 => tokio::task::yield_now().await,
            1 if self.once_in(4) => tokio::time::sleep(Duration::from_millis(50)).await,
            _ => {}
        }
    }

    pub(crate) async fn crashed(&self) {
        self.crash.notified().await;
    }

    pub(crate) fn strike(&self, fault: Fault) {
        let Some(handle) = self.lock().handle.clone() else { return };
        let id = self.lock().waits;
        match fault {
            Fault::Crash => unreachable!("it doesn't go on"),
            Fault::Cancel => handle.cancel("a fault"),
            Fault::Steer => self.say(false, |text| handle.steer(text)),
            Fault::FollowUp => self.say(false, |text| handle.follow_up(text)),
            Fault::Interrupt => self.say(false, |text| handle.interrupt(text)),
            Fault::Withdraw => _ = handle.withdraw(id),
            Fault::Requeue => self.say(true, |text| handle.requeue(id, text)),
            Fault::Subscribe => drop(handle.events()),
            Fault::Refuse | Fault::StoreAndFail => self.lock().journal_fault = Some(fault),
        }
    }

    /// Says something that nobody has said before.
    fn say(&self, changes: bool, how: impl FnOnce(String) -> bool) {
        let text = format!("said-{}-", self.number());
        if how(text.clone()) {
            let mut inner = self.lock();
            inner.under_way.insert(text.clone());
            inner.said.insert(text, Said { crashed: false, doubtful: false, handed_back: 0, withdrawn: 0, changes });
        }
    }

    /// A run is over; what was said meanwhile has met its fate, in one way or another.
    pub(crate) fn settle(&self, change: impl Fn(&mut Said)) {
        let mut inner = self.lock();
        for text in std::mem::take(&mut inner.under_way) {
            change(inner.said.get_mut(&text).unwrap());
        }
    }

    pub(crate) fn next_life(&self) {
        self.settle(|said| said.crashed = true);
        let mut inner = self.lock();
        inner.lives += 1;
        inner.handle = None;
        inner.journal_fault = None;
        inner.journal_failed = false;
        if !inner.running.is_empty() {
            let left = std::mem::take(&mut inner.running);
            inner.problems.push(format!("still running after everything was dropped: {left:?}"));
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        if self.lock().lives > 50 {
            self.problem("the session doesn't come to its end".into());
            return true;
        }
        self.lock().over
    }

    pub(crate) fn see(&self, kind: Seen) {
        *self.lock().seen.entry(kind).or_default() += 1;
    }

    pub(crate) fn seen(&self) -> BTreeMap<Seen, u64> {
        self.lock().seen.clone()
    }

    pub(crate) fn note(&self, line: String) {
        self.lock().trace.push(line);
    }

    pub(crate) fn problem(&self, problem: String) {
        let mut inner = self.lock();
        inner.trace.push(format!("PROBLEM: {problem}"));
        inner.problems.push(problem);
    }

    pub(crate) fn problems(&self) -> Vec<String> {
        self.lock().problems.clone()
    }

    /// What happened, without the names and times that are new each time.
    pub(crate) fn trace(&self) -> Vec<String> {
        self.lock().trace.clone()
    }

    /// A tool starts: whether it may, judged by the records alone.
    pub(crate) fn tool_starts(&self, call_id: &str, tool: &str, class: EffectClass, exclusive: bool, key: &str) {
        let mut problems = Vec::new();
        let mut inner = self.lock();
        *inner.seen.entry(Seen::ToolStarted).or_default() += 1;
        let last = |is: &dyn Fn(&Record) -> bool| inner.records.iter().rposition(is);
        let opened = last(&|it| matches!(it, Record::CallOpened { call_id: id } if id == call_id));
        let asked_for = last(&|it| match it {
            Record::ReplyAccepted { message, .. } => message.tool_calls().any(|call| call.id == call_id),
            _ => false,
        });
        let stopping = last(&|it| matches!(it, Record::Cancelled { .. } | Record::Interrupted | Record::Expired));
        let going_on = last(&|it| matches!(it, Record::RunStarted { .. } | Record::Halted { .. }));
        let ended = last(&|it| matches!(it, Record::RunEnded { .. }));
        let closed = last(&|it| match it {
            Record::CallClosed { result } => format!("{result:?}").contains(&format!("tool_call_id: {call_id:?}")),
            _ => false,
        });
        if asked_for.is_none() || opened < asked_for {
            problems.push("before its record was in the journal");
        }
        if closed > opened {
            problems.push("after it had its result");
        }
        if stopping > going_on {
            problems.push("after everything was to stop");
        }
        if ended > opened {
            problems.push("after its run had ended");
        }
        match inner.verdicts.get(call_id) {
            Some(Gated::Allowed) => {}
            Some(Gated::Asked) if inner.approved.contains(call_id) || inner.approved_tools.contains(tool) => {}
            None if inner.approved_tools.contains(tool) => {}
            _ => problems.push("without a verdict that allows it"),
        }
        if let Some(opened) = opened {
            let before: Vec<_> = inner.starts.iter().filter(|(at, _)| *at == opened).cloned().collect();
            if !before.is_empty() {
                *inner.seen.entry(Seen::ToolRepeated).or_default() += 1;
                if class == EffectClass::AtMostOnce {
                    problems.push("twice, and it must run at most once");
                }
            }
            if before.iter().any(|(_, other)| other != key) {
                problems.push("again with another key");
            }
            if inner.starts.iter().any(|(at, other)| *at != opened && other == key) {
                problems.push("with the key of another call");
            }
            inner.starts.push((opened, key.to_owned()));
        }
        if inner.running.iter().any(|(_, alone)| *alone || exclusive) {
            problems.push("beside an exclusive one");
        }
        if inner.running.len() >= 2 {
            problems.push("although two were running");
        }
        inner.running.push((call_id.to_owned(), exclusive));
        inner.trace.push(format!("{tool} {call_id} starts"));
        drop(inner);
        problems.into_iter().for_each(|why| self.problem(format!("the tool {tool} of {call_id} started {why}")));
    }

    pub(crate) fn tool_ends(&self, call_id: &str) {
        let mut inner = self.lock();
        if let Some(at) = inner.running.iter().position(|(id, _)| id == call_id) {
            inner.running.remove(at);
        }
    }

    /// Whose turn it is to be heard, as it is noted for a replay.
    pub(crate) fn note_event(&self, event: &Event) {
        let line = match event {
            Event::Delta { .. } | Event::Lagged | Event::Snapshot(_) | Event::ToolProgress { .. } => return,
            Event::Message(message) => format!("message {}", serde_json::to_value(message).unwrap()["role"]),
            Event::Queued(queued) if queued.kind == QueueKind::FollowUp => "follow-up queued".to_owned(),
            Event::Ended(report) => format!("ended: {:?}", report.outcome),
            event => format!("{event:?}").chars().take_while(char::is_ascii_alphabetic).collect(),
        };
        self.note(line);
    }
}
