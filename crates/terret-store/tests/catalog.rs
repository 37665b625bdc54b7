//! Sessions as people handle them: listed, found, searched, renamed, forked and deleted.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::BoxFuture;
use support::{picture, said, texts, written};
use tempfile::TempDir;
use terret_agent::machine::Outcome;
use terret_agent::{Agent, EffectClass, Event, HookError, Hooks, Journal, Review, SessionId, tool};
use terret_llm::{AssistantMessage, Content, Message, Money, ScriptedModel, ScriptedReply, ToolCall};
use terret_store::{Damage, Origin, SqliteJournal, StoreError};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

fn id(name: &str) -> SessionId {
    name.to_owned().into()
}

/// A session of two runs: a question, a call, its result and an answer; another question and its answer.
async fn talk(folder: &TempDir, name: &str, about: &str) -> SqliteJournal {
    let journal = SqliteJournal::new(folder.path());
    let look =
        tool("look", "", |_: Nothing, _| async { Ok("It is\nraining CATS today") }).effect(EffectClass::ReadOnly);
    let model = ScriptedModel::new([
        ScriptedReply::calls([ToolCall::new("c1", "look", "{}")]),
        ScriptedReply::text("It rains."),
        ScriptedReply::text("Yes."),
    ]);
    let agent = Agent::builder(model).tool(look).build().unwrap();
    let session = agent.open(Arc::new(journal.clone()), id(name)).await.unwrap();
    for prompt in [about, "Still?"] {
        assert_eq!(session.prompt(prompt).report().await.outcome, Outcome::Completed);
    }
    drop(session);
    journal
}

#[tokio::test]
async fn sessions_are_listed_with_what_people_know_them_by_the_newest_first() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(SqliteJournal::new(folder.path().join("none")).list().unwrap(), []);
    talk(&folder, "older", "  What is the weather?\n").await;
    let journal = talk(&folder, "newer, with a name that is no file's", "And now?").await;
    // One that nothing was said in.
    let _owned = journal.own(&id("empty")).await.unwrap();

    for _ in 0..2 {
        let list = journal.list().unwrap();
        assert_eq!(
            list.iter().map(|info| info.id.as_str()).collect::<Vec<_>>(),
            ["newer, with a name that is no file's", "older"]
        );
        let older = &list[1];
        assert_eq!(older.first_prompt.as_deref(), Some("What is the weather?"));
        assert_eq!((older.turns, older.cost, older.unfinished), (3, Money::ZERO, false));
        assert_eq!(older.model.as_deref(), Some("scripted/script"));
        assert!(older.created > 1_700_000_000_000 && older.updated >= older.created);
        assert_eq!((&older.trouble, &older.origin, &older.title), (&None, &None, &None));
    }
}

#[tokio::test]
async fn the_index_may_be_lost_damaged_or_stale() {
    let folder = tempfile::tempdir().unwrap();
    let journal = talk(&folder, "first", "One?").await;
    let list = journal.list().unwrap();
    let index = folder.path().join("index.db");
    assert!(index.exists());
    std::fs::write(&index, "this is not an index, but it is long enough to be taken for one").unwrap();
    assert_eq!(journal.list().unwrap(), list);
    std::fs::remove_file(&index).unwrap();
    assert_eq!(journal.list().unwrap(), list);

    journal.append(&id("first"), list[0].records, &texts(0..1, 10)).await.unwrap();
    talk(&folder, "second", "Two?").await;
    journal.delete(&id("second")).unwrap();
    let later = journal.list().unwrap();
    assert_eq!((later.len(), later[0].records), (1, list[0].records + 1));
}

#[tokio::test]
async fn a_session_is_found_by_its_name_its_title_and_the_start_of_its_name() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["abcd-1", "abcd-2", "abcd-2-and-more", "other"] {
        talk(&folder, name, "?").await;
    }
    let journal = SqliteJournal::new(folder.path());
    assert_eq!(journal.find("o").unwrap().id, id("other"));
    assert_eq!(journal.find("abcd-2").unwrap().id, id("abcd-2"), "a whole name is no prefix");
    journal.rename(&id("abcd-1"), Some("other")).unwrap();
    assert_eq!(journal.find("other").unwrap().id, id("other"), "a name goes before a title");
    journal.rename(&id("abcd-1"), Some("abcd")).unwrap();
    assert_eq!(journal.find("abcd").unwrap().id, id("abcd-1"), "a title goes before the start of a name");
    journal.rename(&id("abcd-1"), None).unwrap();
    for nobody in ["x", ""] {
        assert!(matches!(journal.find(nobody), Err(StoreError::Unknown { .. })));
    }
    let ambiguous = journal.find("abcd").unwrap_err();
    assert!(matches!(&ambiguous, StoreError::Ambiguous { sessions, .. } if sessions.len() == 3));
    assert!(ambiguous.to_string().contains("\"abcd\" may be 3 sessions"), "{ambiguous}");
}

#[tokio::test]
async fn a_search_finds_what_was_said_and_nothing_that_was_not() {
    let folder = tempfile::tempdir().unwrap();
    talk(&folder, "weather", "What is the Wetter like? ÄÖÜ").await;
    let journal = talk(&folder, "other", "?").await;
    let found = |text| {
        let hits = journal.search(text, 10).unwrap();
        hits.into_iter().map(|hit| (hit.session.id.to_string(), hit.line)).collect::<Vec<_>>()
    };
    let of = |session: &str, line: &str| (session.to_owned(), line.to_owned());
    assert_eq!(found("wetter"), [of("weather", "What is the Wetter like? ÄÖÜ")]);
    assert_eq!(found("cats"), [of("other", "raining CATS today"), of("weather", "raining CATS today")]);
    assert_eq!(found("look").len(), 2, "the name of a tool that was called");
    for nothing in ["timestamp", "runStarted", "toolCallId", "%", "_"] {
        assert_eq!(found(nothing), [], "{nothing}");
    }
    assert_eq!(journal.search("cats", 1).unwrap().len(), 1);
}

#[tokio::test]
async fn a_search_takes_its_text_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let journal =
        talk(&folder, "weather", r#"say "quoted" AND NEAR(x, y) OR text:a* -b ^c {d} 'e'; DROP TABLE said; --"#).await;
    let hits = |text: &str| journal.search(text, 10).unwrap().len();
    for there in [
        r#""quoted""#,
        "AND NEAR(",
        "text:a*",
        "-b ^c",
        "{d} 'e';",
        "; DROP TABLE said; --",
        "or te",
        "\"",
        "*",
        "a",
        "",
    ] {
        assert!(hits(there) >= 1, "{there}");
    }
    let long = "quoted".repeat(100_000);
    for not_there in
        [r#""quoted" OR"#, "quo*", "x\0y", "\0", "\0quoted", "\"\"\"", "NEAR(quoted", "\u{fffd}", "say\nsay", &long]
    {
        assert_eq!(hits(not_there), 0, "{not_there:?}");
    }
}

#[tokio::test]
async fn a_search_finds_what_is_new_and_nothing_that_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let journal = talk(&folder, "first", "One zebra?").await;
    let found = |text| {
        let hits = journal.search(text, 10).unwrap();
        hits.into_iter().map(|hit| (hit.session.id.to_string(), hit.record)).collect::<Vec<_>>()
    };
    assert_eq!(found("zebra"), [("first".to_owned(), 0)]);
    let records = journal.load(&id("first")).await.unwrap().len() as u64;
    journal.append(&id("first"), records, &[said(vec![Content::text("two zebras")])]).await.unwrap();
    assert_eq!(found("zebra"), [("first".to_owned(), 0), ("first".to_owned(), records)]);
    talk(&folder, "second", "A ZEBRA!").await;
    assert_eq!(found("zebra").len(), 3);
    journal.delete(&id("first")).unwrap();
    assert_eq!(found("zebra"), [("second".to_owned(), 0)]);
    // Another one of the same name and length.
    talk(&folder, "first", "One okapi?").await;
    journal.append(&id("first"), records, &texts(0..1, 10)).await.unwrap();
    assert_eq!((found("zebra").len(), found("okapi").len()), (1, 1));
}

/// A search, a page and a fork call a message by the same number.
#[tokio::test]
async fn messages_have_one_number_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let journal = talk(&folder, "weather", "First.").await;
    talk(&folder, "other", "Elsewhere.").await;
    // Is known to the index before more is said.
    journal.search("First", 10).unwrap();
    let model = ScriptedModel::new([ScriptedReply::text("Notes."), ScriptedReply::text("Third.")]);
    let agent = Agent::builder(model).build().unwrap();
    let session = agent.open(Arc::new(journal.clone()), id("weather")).await.unwrap();
    // A summary takes no number away.
    assert_eq!(session.compact().report().await.outcome, Outcome::Completed);
    assert_eq!(session.prompt("Once more.").report().await.outcome, Outcome::Completed);
    assert!(session.transcript().await.len() < 8);
    drop(session);
    let mut page = Vec::new();
    journal.export_html(&id("weather"), &mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    for (text, number) in
        [("First.", 1), ("CATS", 3), ("It rains.", 4), ("Still?", 5), ("Once more.", 7), ("Third.", 8), ("Th", 8)]
    {
        let hits = journal.search(text, 10).unwrap();
        let hit = hits.iter().find(|hit| hit.session.id == id("weather")).unwrap();
        assert_eq!(hit.message, Some(number), "{text}");
        if number != 3 {
            let article = page.split(&format!("id=\"m{number}\"")).nth(1).unwrap();
            assert!(article.split("</article>").next().unwrap().contains(text), "{text}");
        }
        let copy = id(&format!("copy-{text}"));
        journal.fork(&id("weather"), Some(usize::try_from(number).unwrap()), &copy).unwrap();
        let last = journal.transcript(&copy).unwrap().0;
        assert!(format!("{:?}", last.last()).contains(text), "{text}");
        journal.delete(&copy).unwrap();
    }
}

/// What is wrong with a reply is said to the model, and so it is a message as others are.
#[tokio::test]
async fn an_objection_has_a_number_and_is_found() {
    struct Louder;

    impl Hooks for Louder {
        fn at_end<'a>(&'a self, reply: &'a AssistantMessage) -> BoxFuture<'a, Result<Review, HookError>> {
            let is_loud = reply.text().ends_with('!');
            Box::pin(async move { Ok(if is_loud { Review::Accept } else { Review::Object("Louder, please.".into()) }) })
        }
    }

    let folder = tempfile::tempdir().unwrap();
    let journal = SqliteJournal::new(folder.path());
    let model = ScriptedModel::new([ScriptedReply::text("Quiet."), ScriptedReply::text("Loud!")]);
    let agent = Agent::builder(model).hooks(Louder).build().unwrap();
    let session = agent.open(Arc::new(journal.clone()), id("talk")).await.unwrap();
    assert_eq!(session.prompt("Say it.").report().await.outcome, Outcome::Completed);
    drop(session);

    assert_eq!(journal.list().unwrap()[0].messages, 4);
    for (text, number) in [("Say it.", 1), ("Quiet.", 2), ("Louder, please.", 3), ("Loud!", 4)] {
        assert_eq!(journal.search(text, 10).unwrap()[0].message, Some(number), "{text}");
        let copy = id(&format!("copy {number}"));
        journal.fork(&id("talk"), Some(usize::try_from(number).unwrap()), &copy).unwrap();
        let last = journal.transcript(&copy).unwrap().0;
        assert!(format!("{:?}", last.last()).contains(text), "{text}");
        journal.delete(&copy).unwrap();
    }
}

#[tokio::test]
async fn a_fork_of_more_messages_than_there_are_says_how_many_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let journal = talk(&folder, "weather", "?").await;
    assert_eq!(journal.fork(&id("weather"), Some(6), &id("all-of-it")).unwrap().left_out, 0);
    let error = journal.fork(&id("weather"), Some(99), &id("too-much")).unwrap_err();
    assert!(matches!(error, StoreError::TooFew { messages: 99, there: 6, .. }), "{error}");
    assert!(error.to_string().contains("has 6 messages, and 99 were asked for"), "{error}");
    assert_eq!(journal.list().unwrap().len(), 2, "nothing was made");
}

#[tokio::test]
async fn a_fork_of_a_damaged_session_says_how_many_messages_it_leaves_out() {
    let folder = tempfile::tempdir().unwrap();
    let journal = talk(&folder, "weather", "?").await;
    let seq = journal.search("It rains.", 1).unwrap()[0].record;
    let database = rusqlite::Connection::open(folder.path().join("weather/journal.db")).unwrap();
    database.execute_batch("DROP TRIGGER a_record_is_never_deleted").unwrap();
    database.execute("DELETE FROM record WHERE seq = ?1", [seq]).unwrap();
    drop(database);
    // The answer is lost, and a question and its answer after it can be read.
    let (readable, damage) = journal.transcript(&id("weather")).unwrap();
    assert_eq!((readable.len(), damage.is_empty()), (5, false));
    let forked = journal.fork(&id("weather"), None, &id("copied")).unwrap();
    assert_eq!((forked.left_out, journal.transcript(&id("copied")).unwrap().0.len()), (2, 3));
    assert_eq!(journal.fork(&id("weather"), Some(4), &id("some")).unwrap().left_out, 1);
    assert_eq!(journal.fork(&id("weather"), Some(3), &id("whole")).unwrap().left_out, 0);
}

#[tokio::test]
async fn the_search_index_may_be_lost_or_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let journal = talk(&folder, "first", "One zebra?").await;
    let index = folder.path().join("search.db");
    let hits = journal.search("zebra", 10).unwrap();
    assert_eq!(hits.len(), 1);
    let content = std::fs::read(&index).unwrap();
    let zeroed = |from: usize| [&content[..from], &vec![0; content.len() - from]].concat();
    for damaged in
        [b"".to_vec(), b"not an index, but long enough for one".repeat(40), content[..5000].to_vec(), zeroed(100)]
    {
        std::fs::write(&index, damaged).unwrap();
        assert_eq!(journal.search("zebra", 10).unwrap(), hits);
    }
    std::fs::remove_file(&index).unwrap();
    std::fs::create_dir(&index).unwrap();
    assert_eq!(journal.search("zebra", 10).unwrap(), hits, "where there can't be an index, everything is read");
}

#[tokio::test]
async fn a_search_reads_only_what_may_hold_the_text() {
    let folder = tempfile::tempdir().unwrap();
    let journal = talk(&folder, "first", "One zebra?").await;
    talk(&folder, "second", "One okapi?").await;
    assert_eq!(journal.search("zebra", 10).unwrap().len(), 1);
    // Behind everybody's back.
    let database = rusqlite::Connection::open(folder.path().join("second/journal.db")).unwrap();
    let change = "UPDATE record SET body = replace(body, 'okapi', 'zebra')";
    database.execute_batch(&format!("DROP TRIGGER a_record_is_never_changed; {change}")).unwrap();
    assert_eq!(journal.search("zebra", 10).unwrap().len(), 1);
    assert_eq!(journal.search("okapi", 10).unwrap(), [], "a hit is what stands there");
}

#[cfg(unix)]
#[tokio::test]
async fn a_fork_shares_the_blobs_and_keeps_them_when_the_other_session_is_deleted() {
    use std::os::unix::fs::MetadataExt as _;
    let folder = tempfile::tempdir().unwrap();
    let journal = SqliteJournal::new(folder.path());
    let records = [picture(), texts(0..1, 100_000).remove(0)];
    journal.append(&id("first"), 0, &records).await.unwrap();
    journal.fork(&id("first"), None, &id("second")).unwrap();
    let blobs = |session: &str| {
        let entries = std::fs::read_dir(folder.path().join(session).join("blobs")).unwrap();
        let entry = |entry: std::io::Result<std::fs::DirEntry>| {
            let entry = entry.unwrap();
            (entry.file_name(), entry.metadata().unwrap().ino())
        };
        entries.map(entry).collect::<std::collections::BTreeMap<_, _>>()
    };
    assert_eq!(blobs("first").len(), 2);
    assert_eq!(blobs("first"), blobs("second"), "the same files");
    journal.delete(&id("first")).unwrap();
    assert_eq!(journal.check(&id("second")).unwrap(), []);
    assert!(journal.load(&id("second")).await.unwrap() == records);
}

#[tokio::test]
async fn a_session_is_renamed_also_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let journal = talk(&folder, "weather", "?").await;
    let title = || journal.list().unwrap()[0].title.clone();
    journal.rename(&id("weather"), Some("Rain")).unwrap();
    assert_eq!(title().as_deref(), Some("Rain"));
    let _owned = journal.own(&id("weather")).await.unwrap();
    journal.rename(&id("weather"), None).unwrap();
    assert_eq!(title(), None);
    assert!(matches!(journal.rename(&id("none"), None), Err(StoreError::Unknown { .. })));
    let records = journal.load(&id("weather")).await.unwrap().len() as u64;
    journal.append(&id("weather"), records, &texts(0..1, 10)).await.unwrap();
}

#[tokio::test]
async fn a_session_is_deleted_with_all_its_files_unless_it_is_open() {
    let folder = tempfile::tempdir().unwrap();
    let journal = talk(&folder, "weather", "?").await;
    let owned = journal.own(&id("weather")).await.unwrap();
    assert!(matches!(journal.delete(&id("weather")), Err(StoreError::Owned { .. })));
    drop(owned);
    journal.delete(&id("weather")).unwrap();
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == "index.db"), "{left:?}");
    assert!(matches!(journal.delete(&id("weather")), Err(StoreError::Unknown { .. })));
    assert_eq!(journal.load(&id("weather")).await, Ok(Vec::new()));
}

#[tokio::test]
async fn a_fork_has_the_messages_before_the_cut_and_goes_its_own_way() {
    let folder = tempfile::tempdir().unwrap();
    let journal = talk(&folder, "weather", "Rain?").await;
    let (whole, _) = journal.transcript(&id("weather")).unwrap();
    assert_eq!(whole.len(), 6, "question, call, result, answer, question, answer");
    for (messages, expected) in [(None, 6), (Some(1), 1), (Some(2), 3), (Some(3), 3), (Some(4), 4), (Some(6), 6)] {
        let new = SessionId::new();
        let forked = journal.fork(&id("weather"), messages, &new).unwrap();
        assert_eq!(forked.damage, []);
        let (transcript, _) = journal.transcript(&new).unwrap();
        assert_eq!(transcript[..], whole[..expected], "{messages:?}");
        let info = journal.list().unwrap().into_iter().find(|info| info.id == new);
        let origin = Origin { session: id("weather"), records: forked.records };
        assert_eq!(info.and_then(|info| info.origin), Some(origin));
    }
    let nothing = SessionId::new();
    assert_eq!(journal.fork(&id("weather"), Some(0), &nothing).unwrap().records, 0);
    assert!(matches!(journal.reader(&nothing), Err(StoreError::Unknown { .. })), "nothing is no session");

    let new = id("another way");
    journal.fork(&id("weather"), Some(4), &new).unwrap();
    let agent = Agent::builder(ScriptedModel::new([ScriptedReply::text("No.")])).build().unwrap();
    let session = agent.open(Arc::new(journal.clone()), new.clone()).await.unwrap();
    let report = session.prompt("Really?").report().await;
    assert_eq!((report.outcome, report.text.as_deref()), (Outcome::Completed, Some("No.")));
    let transcript = session.transcript().await;
    assert_eq!(transcript[..4], whole[..4]);
    assert!(matches!(&*transcript[5], Message::Assistant(reply) if reply.text() == "No."));
    assert_eq!(journal.transcript(&id("weather")).unwrap().0, whole, "the other one is as it was");
    assert!(matches!(journal.fork(&id("weather"), None, &new), Err(StoreError::Owned { .. })));
    drop(session);
    assert!(
        matches!(journal.fork(&id("weather"), None, &new), Err(StoreError::Behind { .. })),
        "it is not overwritten"
    );
}

#[tokio::test]
async fn what_is_readable_of_a_damaged_session_can_be_forked_and_the_list_tells_of_the_damage() {
    let killed = written(&texts(0..12, 900)).await.killed();
    let log = std::fs::read(killed.file("journal.db-wal")).unwrap();
    std::fs::write(killed.file("journal.db-wal"), &log[..log.len() / 2]).unwrap();
    let journal = killed.journal();
    let list = journal.list().unwrap();
    assert!(list[0].trouble.as_deref().unwrap().contains("of 12 records are gone from the end"), "{list:?}");
    let forked = journal.fork(&id("session"), None, &id("rescued")).unwrap();
    assert_eq!(forked.damage.last(), Some(&Damage::Shortened { found: forked.records, known: 12 }));
    let whole = texts(0..forked.records, 900);
    assert_eq!(journal.load(&id("rescued")).await.unwrap(), whole);
    assert!(matches!(journal.rename(&id("session"), Some("x")), Err(StoreError::Damaged { .. })));
}

#[tokio::test]
async fn what_was_listed_once_is_not_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let journal = talk(&folder, "weather", "?").await;
    let before = journal.list().unwrap().remove(0);
    // Behind everybody's back, so that whoever reads it again notices.
    let database = rusqlite::Connection::open(folder.path().join("weather/journal.db")).unwrap();
    database
        .execute_batch("DROP TRIGGER a_record_is_never_changed; UPDATE record SET body = '' WHERE seq = 0")
        .unwrap();
    drop(database);
    journal.append(&id("weather"), before.records, &texts(0..1, 10)).await.unwrap();
    let after = journal.list().unwrap().remove(0);
    assert_eq!((after.records, after.trouble), (before.records + 1, None));
    assert_eq!(after.first_prompt, before.first_prompt);
    let damage = journal.reader(&id("weather")).unwrap().read_all().unwrap().damage;
    assert!(matches!(damage[..], [Damage::Changed { record: 0 }, Damage::Unreadable { record: 0, .. }]), "{damage:?}");
}

#[tokio::test]
async fn a_copy_of_a_session_at_work_starts_nothing_and_asks_no_tool_what_it_did() {
    let folder = tempfile::tempdir().unwrap();
    let journal = SqliteJournal::new(folder.path());
    let replies = [ScriptedReply::calls([ToolCall::new("c1", "endless", "{}")])];
    let (started, discovered) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let endless = || {
        let (started, discovered) = (started.clone(), discovered.clone());
        tool("endless", "", move |_: Nothing, _| {
            started.fetch_add(1, Ordering::SeqCst);
            async {
                std::future::pending::<()>().await;
                Ok("never")
            }
        })
        .discover(move |_| {
            discovered.fetch_add(1, Ordering::SeqCst);
            async { None }
        })
    };
    let agent = Agent::builder(ScriptedModel::new(replies)).tool(endless()).build().unwrap();
    let session = agent.open(Arc::new(journal.clone()), id("at work")).await.unwrap();
    let mut run = session.prompt("?");
    while !matches!(run.next().await, Some(Event::ToolStarted { .. })) {}

    journal.fork(&id("at work"), None, &id("copy")).unwrap();
    let model = ScriptedModel::new([ScriptedReply::text("As you like.")]);
    let agent = Agent::builder(model.clone()).tool(endless()).build().unwrap();
    let copy = agent.open(Arc::new(journal.clone()), id("copy")).await.unwrap();
    assert_eq!(copy.prompt("and now?").report().await.outcome, Outcome::Completed);
    assert_eq!((started.load(Ordering::SeqCst), discovered.load(Ordering::SeqCst)), (1, 0));
    let sent = serde_json::to_string(&model.requests()[0].messages).unwrap();
    assert!(sent.contains("Outcome unknown") && sent.contains("and now?"), "{sent}");
    drop(run);
}
