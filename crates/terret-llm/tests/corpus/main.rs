//! Recorded streams of real providers decode as the vendors' own SDKs decode them, at every chunking and up to every cut.
//!
//! The recordings aren't part of this repository. They are looked for at `TERRET_WIRE_CORPUS`, else at
//! `../shared/wire/dev` beside it; without them these tests skip, and say so.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod cases;
mod cuts;
#[path = "../fold/mod.rs"]
mod fold;
mod reading;
mod rules;

use std::panic::{AssertUnwindSafe, catch_unwind};

use cases::{Case, cases};
use fold::differs_from_fold;
use reading::{End, Outcome, read};

#[test]
fn anthropic_messages() {
    check_all("anthropic-messages");
}

#[test]
fn openai_completions() {
    check_all("openai-completions");
}

#[test]
fn openai_responses() {
    check_all("openai-responses");
}

#[test]
fn google_generative_ai() {
    check_all("google-generative-ai");
}

#[test]
fn errors() {
    check_all("errors");
}

#[test]
fn multi_turn() {
    check_all("multi-turn");
}

/// Checks every case below a folder of the corpus, and fails with all that differ.
fn check_all(folder: &str) {
    let Some(cases) = cases(folder) else { return };
    let mut differences = Vec::new();
    for case in &cases {
        let problems = catch_unwind(AssertUnwindSafe(|| check(case))).unwrap_or_else(|panic| {
            let formatted = panic.downcast_ref::<String>().map(String::as_str);
            vec![format!("panicked: {}", formatted.or(panic.downcast_ref::<&str>().copied()).unwrap_or_default())]
        });
        differences.extend(problems.into_iter().map(|problem| format!("{}: {problem}", case.name)));
    }
    assert!(differences.is_empty(), "{} cases, these differ:\n{}", cases.len(), differences.join("\n"));
}

fn check(case: &Case) -> Vec<String> {
    let whole = read(case, [case.body.as_slice()]);
    let mut problems = rules::compare(case, &whole.end);
    problems.extend(is_the_fold_of_its_events(&whole));
    for arrival in cuts::arrivals(case) {
        let other = read(case, arrival.chunks());
        problems.extend(differ(&whole, &other).map(|difference| format!("{}: {difference}", arrival.name)));
    }
    let (body, cuts) = cuts::cuts_before_the_terminal(case);
    for cut in cuts {
        let outcome = read(case, [&body[..cut]]);
        let problems_of_cut = is_truncated(&outcome).into_iter().chain(is_the_fold_of_its_events(&outcome));
        problems.extend(problems_of_cut.map(|problem| format!("cut after {cut} bytes: {problem}")));
    }
    problems
}

fn is_the_fold_of_its_events(outcome: &Outcome) -> Option<String> {
    differs_from_fold(&outcome.events, outcome.end.message(), matches!(outcome.end, End::Done(_)))
}

fn is_truncated(outcome: &Outcome) -> Option<String> {
    match &outcome.end {
        End::Done(_) => Some("done, without the wire's terminal".to_owned()),
        End::Failed(error, _) if error.kind == terret_llm::ErrorKind::Truncated => None,
        End::Failed(error, _) => Some(format!("not truncated, but {error}")),
    }
}

/// The first difference between two readings of the same stream.
fn differ(whole: &Outcome, other: &Outcome) -> Option<String> {
    let longest = whole.events.len().max(other.events.len());
    let events = (0..longest).map(|n| (n, whole.events.get(n), other.events.get(n)));
    if let Some((n, one, two)) = events.into_iter().find(|(_, one, two)| one != two) {
        return Some(format!("event {n} is {two:?}, whole {one:?}"));
    }
    (whole.end != other.end).then(|| format!("ends in {:?}, whole {:?}", other.end, whole.end))
}
