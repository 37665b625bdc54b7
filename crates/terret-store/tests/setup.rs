//! What a session was set up with, and what of it and of its run goes into a fork.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::sync::Arc;

use tempfile::TempDir;
use terret_agent::machine::{Outcome, Record};
use terret_agent::{Agent, EffectClass, Journal, SessionId, tool};
use terret_llm::{Message, ScriptedModel, ScriptedReply, ToolCall};
use terret_store::{Setup, SqliteJournal, StoreError};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

fn id(name: &str) -> SessionId {
    name.to_owned().into()
}

/// A session of a question, a call, its result and an answer.
async fn talk(folder: &TempDir) -> SqliteJournal {
    let journal = SqliteJournal::new(folder.path());
    let look = tool("look", "", |_: Nothing, _| async { Ok("It is raining.") }).effect(EffectClass::ReadOnly);
    let call = ScriptedReply::calls([ToolCall::new("c1", "look", "{}")]);
    let model = ScriptedModel::new([call, ScriptedReply::text("It rains.")]);
    let agent = Agent::builder(model).tool(look).build().unwrap();
    let session = agent.open(Arc::new(journal.clone()), id("weather")).await.unwrap();
    assert_eq!(session.prompt("Well?").report().await.outcome, Outcome::Completed);
    journal
}

#[tokio::test]
async fn what_a_session_was_set_up_with_is_kept_beside_its_records_and_goes_into_its_forks() {
    let folder = tempfile::tempdir().unwrap();
    let journal = talk(&folder).await;
    let setup = |session: &str| journal.reader(&id(session)).unwrap().setup().unwrap();
    assert_eq!(setup("weather"), Setup::default(), "nothing was said");
    let first = Setup { folder: Some("/project".into()), model: Some("p/m:high".into()), ..Setup::default() };
    let second = Setup {
        base_url: Some("http://127.0.0.1:1/v1".into()),
        wire: Some("openai-completions".into()),
        ..first.clone()
    };
    let owned = journal.own(&id("weather")).await.unwrap();
    for now in [&first, &second] {
        journal.set_up(&id("weather"), now).unwrap();
        assert_eq!((&setup("weather"), &journal.list().unwrap()[0].setup), (now, now));
    }
    drop(owned);
    journal.fork(&id("weather"), None, &id("another way")).unwrap();
    assert_eq!(setup("another way"), second);
    assert_eq!(journal.check(&id("weather")).unwrap(), []);
    assert!(matches!(journal.set_up(&id("nobody"), &first), Err(StoreError::Unknown { .. })));
    let file = "{\"type\":\"session\",\"version\":3,\"id\":\"x\",\"cwd\":\"/there\"}\n{\"type\":\"message\",\"id\":\"1\",\"parentId\":null,\
                \"message\":{\"role\":\"user\",\"content\":\"a\"}}";
    journal.import_pi(file.as_bytes(), &id("imported")).unwrap();
    assert_eq!(setup("imported").folder.as_deref(), Some("/there"));
}

#[tokio::test]
async fn rules_of_a_session_are_changed_beside_the_rest_and_stay_out_of_its_forks() {
    let folder = tempfile::tempdir().unwrap();
    let journal = talk(&folder).await;
    journal.set_up(&id("weather"), &Setup { folder: Some("/project".into()), ..Setup::default() }).unwrap();
    std::thread::scope(|scope| {
        for rule in ["a", "b", "c", "d"] {
            let journal = &journal;
            scope.spawn(move || journal.change_setup(&id("weather"), |setup| setup.rules.allow.push(rule.into())));
        }
    });
    let setup = |session: &str| journal.reader(&id(session)).unwrap().setup().unwrap();
    let mut kept = setup("weather");
    kept.rules.allow.sort();
    assert_eq!((kept.folder.as_deref(), kept.rules.allow.join("")), (Some("/project"), "abcd".to_owned()));
    journal.fork(&id("weather"), None, &id("fork")).unwrap();
    assert_eq!(setup("fork"), Setup { folder: Some("/project".into()), ..Setup::default() });
}

#[tokio::test]
async fn a_fork_of_a_run_at_work_does_not_go_on_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let journal = talk(&folder).await;
    let whole: Vec<_> = journal.load(&id("weather")).await.unwrap();
    let opened = whole.iter().position(|record| matches!(record, Record::CallOpened { .. })).unwrap();
    journal.append(&id("at work"), 0, &whole[..=opened]).await.unwrap();
    let forked = journal.fork(&id("at work"), None, &id("fork")).unwrap();
    assert_eq!(forked.records, opened as u64 + 1);
    let model = ScriptedModel::new([ScriptedReply::text("I see.")]);
    let agent = Agent::builder(model).build().unwrap();
    let session = agent.open(Arc::new(journal.clone()), id("fork")).await.unwrap();
    assert_eq!(session.interrupted().await, None);
    assert_eq!(session.go_on().report().await.outcome, Outcome::Completed);
    let transcript = session.transcript().await;
    assert!(matches!(&*transcript[2], Message::ToolResult(result) if result.tool_call_id == "c1"), "{transcript:?}");
    let original = agent.open(Arc::new(journal), id("at work")).await.unwrap();
    assert!(original.interrupted().await.is_some());
}
