//! What an agent notices of who owns its session.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use terret_agent::machine::{Failure, Outcome};
use terret_agent::{Agent, JournalError, SessionId, tool};
use terret_llm::{ScriptedModel, ScriptedReply, ToolCall};
use terret_store::SqliteJournal;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

fn session() -> SessionId {
    "session".to_owned().into()
}

#[tokio::test]
async fn a_session_that_is_open_can_not_be_opened_again_until_its_last_run_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let agent = || Agent::builder(ScriptedModel::new([ScriptedReply::text("Hello.")])).build().unwrap();
    let open = || async { agent().open(Arc::new(SqliteJournal::new(folder.path())), session()).await };
    let first = open().await.unwrap();
    let refused = open().await.unwrap_err();
    assert!(matches!(refused, JournalError::Owned { .. }), "{refused}");

    let run = first.prompt("Hi!");
    drop(first);
    assert!(open().await.is_err(), "the run goes on");
    assert_eq!(run.report().await.outcome, Outcome::Completed);
    let reopened = open().await.unwrap();
    assert_eq!(reopened.transcript().await.len(), 2);
}

#[tokio::test]
async fn a_run_whose_session_was_taken_over_starts_nothing_further() {
    let folder = tempfile::tempdir().unwrap();
    let thief = SqliteJournal::new(folder.path());
    let (stolen, sent) = (Arc::new(Mutex::new(None)), Arc::new(AtomicU32::new(0)));
    let steal = {
        let (thief, stolen) = (thief.clone(), stolen.clone());
        tool("steal", "", move |_: Nothing, _| {
            let (thief, stolen) = (thief.clone(), stolen.clone());
            async move {
                let ownership = thief.take_over(&session()).await?;
                *stolen.lock().unwrap() = Some(ownership);
                Ok("stolen")
            }
        })
    };
    let send = {
        let sent = sent.clone();
        tool("send", "", move |_: Nothing, _| {
            sent.fetch_add(1, Ordering::SeqCst);
            async { Ok("sent") }
        })
    };
    let model = ScriptedModel::new([ScriptedReply::calls([
        ToolCall::new("c1", "steal", "{}"),
        ToolCall::new("c2", "send", "{}"),
    ])]);
    let agent = Agent::builder(model).tool(steal.exclusive()).tool(send.exclusive()).build().unwrap();
    let victim = agent.open(Arc::new(SqliteJournal::new(folder.path())), session()).await.unwrap();
    let report = victim.prompt("Go on.").report().await;
    let Outcome::Failed { failure: Failure::Journal(why) } = report.outcome else { panic!("{:?}", report.outcome) };
    assert!(why.contains("was taken over by process"), "{why}");
    assert_eq!(sent.load(Ordering::SeqCst), 0);

    // The new owner finds the first call in doubt, and settles it.
    drop(victim);
    drop(stolen.lock().unwrap().take());
    let model = ScriptedModel::new([ScriptedReply::text("I see.")]);
    let agent = Agent::builder(model).build().unwrap();
    let session = agent.open(Arc::new(thief), session()).await.unwrap();
    assert_eq!(session.go_on().report().await.outcome, Outcome::Completed);
    assert_eq!(session.transcript().await.len(), 5, "prompt, calls, two results, answer");
    assert_eq!(sent.load(Ordering::SeqCst), 0);
}
