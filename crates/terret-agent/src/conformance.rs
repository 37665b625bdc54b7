//! What every [`Journal`] must do, as a test suite. Behind the cargo feature `conformance`.
//!
//! ```
//! use std::sync::Arc;
//!
//! use terret_agent::{Journal, MemoryJournal, conformance};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! conformance::check(|| {
//!     let journal = MemoryJournal::new();
//!     move || Arc::new(journal.clone()) as Arc<dyn Journal>
//! })
//! .await;
//! # }
//! ```

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test suite says what is wrong by a panic")]

use std::collections::BTreeMap;
use std::sync::Arc;

use terret_llm::{
    AssistantMessage, Block, Content, ErrorKind, Image, Message, ModelError, Money, Opaque, RawJson, StopReason, Text,
    Thinking, ToolCall, ToolResultMessage, Usage, UserMessage, wire::WireFormat,
};

use crate::machine::{Budget, Epoch, Failure, Limits, Outcome, QueueKind, Record, Recovery, RunId, Task, ToolFacts};
use crate::{Journal, JournalError, SessionId};

/// Checks everything. Panics at the first thing that is wrong, with its name.
///
/// `empty` makes an empty place for sessions. What it returns opens a journal there: each one is what a process that
/// is started now would see, so a durable journal must read everything anew.
pub async fn check<Place: Fn() -> Arc<dyn Journal>>(empty: impl Fn() -> Place) {
    a_session_that_nobody_wrote_is_empty(&empty()).await;
    records_come_back_in_order(&empty()).await;
    what_was_appended_is_there_for_everybody(&empty()).await;
    an_empty_append_changes_nothing(&empty()).await;
    a_writer_that_is_behind_is_refused(&empty()).await;
    a_writer_that_is_ahead_is_refused(&empty()).await;
    of_two_writers_one_is_refused(&empty()).await;
    writers_at_the_same_time_never_mix(&empty()).await;
    ownership_ends_when_it_is_dropped(&empty()).await;
    sessions_of_similar_names_are_different(&empty()).await;
    every_content_comes_back_equal(&empty()).await;
    many_records_at_once_are_one_append(&empty()).await;
}

/// Loading a session that doesn't exist is no error, and doesn't make it exist.
pub async fn a_session_that_nobody_wrote_is_empty(place: &impl Fn() -> Arc<dyn Journal>) {
    let nobody = SessionId::new();
    assert_eq!(place().load(&nobody).await, Ok(Vec::new()));
    drop(place().own(&nobody).await.unwrap());
    assert_eq!(place().load(&nobody).await, Ok(Vec::new()));
}

/// Within an append and across appends.
pub async fn records_come_back_in_order(place: &impl Fn() -> Arc<dyn Journal>) {
    let (journal, session) = (place(), SessionId::new());
    let owned = journal.own(&session).await.unwrap();
    for first in [0, 3, 6] {
        journal.append(&session, first, &numbered(first..first + 3)).await.unwrap();
    }
    assert_eq!(journal.load(&session).await, Ok(numbered(0..9)), "for the writer");
    assert_eq!(place().load(&session).await, Ok(numbered(0..9)), "for a reader beside the writer");
    drop(owned);
    assert_eq!(place().load(&session).await, Ok(numbered(0..9)), "for a later reader");
}

/// An append is durable on return: whoever opens the journal afterwards goes on from there.
pub async fn what_was_appended_is_there_for_everybody(place: &impl Fn() -> Arc<dyn Journal>) {
    let session = SessionId::new();
    for step in 0..5 {
        let journal = place();
        let _owned = journal.own(&session).await.unwrap();
        assert_eq!(journal.load(&session).await, Ok(numbered(0..step)));
        journal.append(&session, step, &numbered(step..step + 1)).await.unwrap();
    }
}

/// No records: nothing is kept, but a writer that is behind still learns it.
pub async fn an_empty_append_changes_nothing(place: &impl Fn() -> Arc<dyn Journal>) {
    let (journal, session) = (place(), SessionId::new());
    assert_eq!(journal.append(&session, 0, &[]).await, Ok(()));
    journal.append(&session, 0, &numbered(0..2)).await.unwrap();
    assert_eq!(journal.append(&session, 2, &[]).await, Ok(()));
    assert_eq!(journal.append(&session, 1, &[]).await, Err(behind(&session, 1, 2)));
    assert_eq!(journal.load(&session).await, Ok(numbered(0..2)));
}

/// And nothing of its records is kept.
pub async fn a_writer_that_is_behind_is_refused(place: &impl Fn() -> Arc<dyn Journal>) {
    let (journal, session) = (place(), SessionId::new());
    journal.append(&session, 0, &numbered(0..4)).await.unwrap();
    for expected in [0, 3] {
        let refused = journal.append(&session, expected, &numbered(50..53)).await;
        assert_eq!(refused, Err(behind(&session, expected, 4)));
    }
    assert_eq!(journal.load(&session).await, Ok(numbered(0..4)));
    journal.append(&session, 4, &numbered(4..5)).await.unwrap();
}

/// A journal that has lost records must not get a gap.
pub async fn a_writer_that_is_ahead_is_refused(place: &impl Fn() -> Arc<dyn Journal>) {
    let (journal, session) = (place(), SessionId::new());
    assert_eq!(journal.append(&session, 3, &numbered(3..4)).await, Err(behind(&session, 3, 0)));
    assert_eq!(journal.load(&session).await, Ok(Vec::new()));
}

/// Two processes open the same session. Whether the second is refused, or the first is fenced: one appends, the other
/// is told, and nothing of its records is there.
pub async fn of_two_writers_one_is_refused(place: &impl Fn() -> Arc<dyn Journal>) {
    let (one, two, session) = (place(), place(), SessionId::new());
    one.append(&session, 0, &numbered(0..2)).await.unwrap();
    let _first = one.own(&session).await.unwrap();
    let second = two.own(&session).await;
    let mut accepted = Vec::new();
    for (journal, records) in [(&one, numbered(100..103)), (&two, numbered(200..203))] {
        match journal.append(&session, 2, &records).await {
            Ok(()) => accepted.push(records),
            Err(JournalError::Behind { .. } | JournalError::Owned { .. } | JournalError::Fenced { .. }) => {}
            Err(other) => panic!("not a refusal: {other}"),
        }
    }
    let [accepted] = accepted.try_into().unwrap_or_else(|all: Vec<_>| panic!("{} writers were accepted", all.len()));
    assert_eq!(place().load(&session).await.unwrap(), [numbered(0..2), accepted].concat());
    assert!(matches!(second, Ok(_) | Err(JournalError::Owned { .. })), "{second:?}");
}

/// Many writers that all go on from the same record, all at once: exactly one does.
pub async fn writers_at_the_same_time_never_mix(place: &impl Fn() -> Arc<dyn Journal>) {
    let session = SessionId::new();
    let (journal, elsewhere) = (place(), place());
    let batches: Vec<_> = (0..8).map(|writer| numbered(writer * 10..writer * 10 + 5)).collect();
    let appends = batches.iter().enumerate().map(|(at, records)| {
        let journal = if at % 2 == 0 { &journal } else { &elsewhere };
        journal.append(&session, 0, records)
    });
    let results = futures_util::future::join_all(appends).await;
    let accepted: Vec<_> = results.iter().zip(&batches).filter(|(result, _)| result.is_ok()).collect();
    assert_eq!(accepted.len(), 1, "{results:?}");
    assert_eq!(place().load(&session).await.as_ref(), Ok(accepted.first().unwrap().1));
}

/// In the same process and in another.
pub async fn ownership_ends_when_it_is_dropped(place: &impl Fn() -> Arc<dyn Journal>) {
    let (journal, session) = (place(), SessionId::new());
    for _ in 0..3 {
        drop(journal.own(&session).await.unwrap());
        drop(place().own(&session).await.unwrap());
    }
}

/// A name is any text: it is never a path, a pattern or a query.
pub async fn sessions_of_similar_names_are_different(place: &impl Fn() -> Arc<dyn Journal>) {
    let long = "long".repeat(1000);
    let names = [
        "",
        " ",
        ".",
        "..",
        "/",
        "../up",
        "a/b",
        "a\\b",
        "a",
        "A",
        "a.",
        "a ",
        "%61",
        "a%",
        "a_",
        "ä",
        "a\u{308}",
        "nul",
        "con",
        "a\0b",
        "a\nb",
        "-rf",
        "~",
        "$HOME",
        "*",
        "';DROP TABLE record;--",
        "x-61",
        "\u{202e}a",
        &long,
    ];
    let journal = place();
    for (at, name) in names.iter().enumerate() {
        let session = SessionId::from((*name).to_owned());
        let number = at as u64;
        journal.append(&session, 0, &numbered(number..number + 1)).await.unwrap_or_else(|e| panic!("{name:?}: {e}"));
    }
    for (at, name) in names.iter().enumerate() {
        let session = SessionId::from((*name).to_owned());
        let number = at as u64;
        assert_eq!(place().load(&session).await, Ok(numbered(number..number + 1)), "{name:?}");
    }
}

/// Every kind of record, and everything that models, tools and people can say.
pub async fn every_content_comes_back_equal(place: &impl Fn() -> Arc<dyn Journal>) {
    let (journal, session) = (place(), SessionId::new());
    let _owned = journal.own(&session).await.unwrap();
    for (at, record) in all_kinds().into_iter().enumerate() {
        let kept = std::slice::from_ref(&record);
        journal.append(&session, at as u64, kept).await.unwrap_or_else(|e| panic!("record {at}: {e}"));
    }
    let loaded = place().load(&session).await.unwrap();
    for (at, (loaded, kept)) in loaded.iter().zip(all_kinds()).enumerate() {
        assert!(*loaded == kept, "record {at} came back different");
    }
    assert_eq!(loaded.len(), all_kinds().len());
}

/// Also if they are more than fits into any buffer.
pub async fn many_records_at_once_are_one_append(place: &impl Fn() -> Arc<dyn Journal>) {
    let (journal, session) = (place(), SessionId::new());
    journal.append(&session, 0, &numbered(0..3000)).await.unwrap();
    assert_eq!(place().load(&session).await, Ok(numbered(0..3000)));
}

fn behind(session: &SessionId, expected: u64, found: u64) -> JournalError {
    JournalError::Behind { session: session.clone(), expected, found }
}

/// Records that can be told apart.
fn numbered(numbers: std::ops::Range<u64>) -> Vec<Record> {
    numbers.map(|number| Record::CallOpened { call_id: format!("call {number}") }).collect()
}

fn all_kinds() -> Vec<Record> {
    let epoch = Epoch::default().next();
    let facts = BTreeMap::from([("sh\u{0}".to_owned(), ToolFacts { exclusive: true, ..ToolFacts::default() })]);
    let picture: Vec<u8> = (0..100_000u32).map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    let image = Image::new("image/png", &picture);
    let mut records = vec![
        Record::RunStarted {
            run: RunId("r\"1".into()),
            limits: Limits::default(),
            tools: Arc::new(facts),
            at: 1_700_000_000_000,
            prompt: None,
            models: 2.try_into().unwrap(),
            task: Task::AnswerReviewed,
        },
        Record::Withdrawn { id: 1 },
        Record::CompactionStarted { epoch, cut: 3 },
        Record::CallStopped { usage: Usage::default(), cost: Money::from_nanos(1) },
        Record::Interrupted,
        Record::Halted { still_running: vec!["c1".into()] },
        Record::CallAsked { call_id: "c1".into(), question: "may it\u{2028}?".into() },
        Record::CallApproved { call_id: "c1".into(), arguments: Some("{\n}".into()), for_run: true },
        Record::BudgetExceeded { budget: Budget::Loop },
        Record::Expired,
        Record::ModelCalled { epoch },
        Record::Delivered { ids: vec![0, u64::from(u32::MAX) + 1] },
        Record::CallAllowed { call_id: String::new() },
        Record::CallOpened { call_id: "toolu_\u{1f980}".into() },
        Record::Cancelled { reason: "Ctrl-C\u{7}\u{1b}[2J".into() },
        Record::Resumed,
        Record::RunEnded { outcome: Outcome::Completed },
        Record::RunEnded { outcome: Outcome::Cancelled { reason: String::new(), still_running: vec!["c1".into()] } },
        Record::RunEnded { outcome: Outcome::Failed { failure: Failure::Refused } },
        Record::AttemptFailed {
            failure: Failure::Model(ModelError::new(ErrorKind::Overloaded, "come back\nlater\u{0}")),
            recovery: Some(Recovery::Retry { at: -1 }),
            usage: Usage::default(),
            cost: Money::ZERO,
        },
        said(vec![]),
        said(vec![Content::Image(Image::new("image/png", b"\x89PNG"))]),
        said(vec![Content::text("look"), Content::Image(image.clone()), Content::Image(image.clone())]),
        returned(vec![Content::Image(image.clone())], Some(format!("[{}1]", "12345,".repeat(40_000)))),
        returned(vec![], Some(r#"{"a":1.0,"a":1e400,"b":"\ud83d","c":[ 1 ]}"#.into())),
    ];
    let large = ["x".repeat(2 << 20), "\"\\\n\u{0}".repeat(50_000), "ü\u{2028}".repeat(60_000), "AAAA".repeat(30_000)];
    let texts = [
        "",
        "\u{0}",
        "a\u{0}b",
        "\u{2028}\u{2029}",
        "\r\n\r",
        "\u{feff}",
        "\u{fffd}",
        "\u{1f980}",
        "\\u0000",
        "\"data\":\"",
    ];
    for text in texts.iter().map(|text| (*text).to_owned()).chain(large) {
        records.push(said(vec![Content::text(text.clone())]));
        records.push(returned(vec![Content::text(text.clone())], None));
        records.push(replied(vec![Block::text(text.clone()), Block::ToolCall(ToolCall::new("c", "sh", text))]));
    }
    for arguments in [
        "{}",
        "",
        r#"{"a":"\ud83d"}"#,
        r#"{"a":"\ud83d\ude00 \u2028"}"#,
        "{\n  \"a\" : 1\r\n}\n",
        r#"{"a":123456789012345678901234567890,"a":1.10}"#,
        r#"{"a": "cut o"#,
        r#"{"a":1} and more"#,
        "\u{0}",
        "null",
    ] {
        records.push(replied(vec![Block::ToolCall(ToolCall::new("c", "", arguments))]));
    }
    let signed = Some("sig+/=\n".to_owned());
    let raw = |json: &str| RawJson::parse(json).unwrap();
    records.push(replied(vec![
        Block::Thinking(Thinking { thinking: "hm".into(), signature: signed.clone(), redacted: false }),
        Block::Thinking(Thinking { thinking: String::new(), signature: signed.clone(), redacted: true }),
        Block::Text(Text { text: "so".into(), signature: signed, annotations: Some(raw(r#"[{"url":"\ud83d"}]"#)) }),
        Block::Image(image),
        Block::Opaque(Opaque { wire: WireFormat::from("some-wire"), raw: raw(r#"{"type":"x","n":1.0e+2}"#) }),
    ]));
    records
}

fn said(content: Vec<Content>) -> Record {
    let message = UserMessage { content, timestamp: -1 };
    Record::Queued { kind: QueueKind::FollowUp, message: Arc::new(message.into()) }
}

fn returned(content: Vec<Content>, details: Option<String>) -> Record {
    Record::CallClosed {
        result: Arc::new(Message::ToolResult(ToolResultMessage {
            tool_call_id: "c1".into(),
            tool_name: "sh".into(),
            content,
            details: details.map(|details| RawJson::parse(&details).unwrap()),
            is_error: true,
            timestamp: i64::MAX,
        })),
    }
}

fn replied(content: Vec<Block>) -> Record {
    let reply = AssistantMessage {
        content,
        provider: "somebody".into(),
        model: "m\u{0}".into(),
        wire: WireFormat::from("some-wire"),
        stop_reason: StopReason::ToolUse,
        raw_stop_reason: Some("tool_use".into()),
        usage: Usage::default(),
        response_id: Some(String::new()),
        error: None,
        timestamp: 1_700_000_000_000,
    };
    Record::ReplyAccepted { message: Arc::new(reply.into()), cost: Money::ZERO }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryJournal;

    #[tokio::test]
    async fn the_journal_in_memory_conforms() {
        check(|| {
            let journal = MemoryJournal::new();
            move || Arc::new(journal.clone()) as Arc<dyn Journal>
        })
        .await;
    }
}
