//! Sessions that come from pi and go to it, and to people.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::sync::Arc;

use terret_agent::machine::Outcome;
use terret_agent::{Agent, SessionId};
use terret_llm::{Block, Message, Money, ScriptedModel, ScriptedReply, ToolCall};
use terret_store::{SqliteJournal, StoreError};

/// A file as pi writes it: a branch that was left, a broken line, a call without a result, and a failed reply.
const PI: &str = r#"{"type":"session","version":3,"id":"0199","timestamp":"2026-01-02T03:04:05.000Z","cwd":"/home/me/it"}
{"type":"model_change","id":"00000001","parentId":null,"timestamp":"2026-01-02T03:04:05.000Z","provider":"anthropic","modelId":"m"}
{"type":"message","id":"00000002","parentId":"00000001","timestamp":"2026-01-02T03:04:05.000Z","message":{"role":"user","content":"Is it raining?","timestamp":1767323045000}}
{"type":"message","id":"0000000a","parentId":"00000002","timestamp":"2026-01-02T03:04:05.000Z","message":{"role":"assistant","content":[{"type":"text","text":"on the branch that was left"}],"api":"anthropic-messages","provider":"anthropic","model":"m","usage":{"input":1,"output":1,"cacheRead":0,"cacheWrite":0,"totalTokens":2,"cost":{"total":9}},"stopReason":"stop","timestamp":1}}
{"type":"message","id":"00000003","parentId":"00000002","timestamp":"2026-01-02T03:04:05.000Z","message":{"role":"assistant","content":[{"type":"thinking","thinking":"hm","thinkingSignature":"sig"},{"type":"toolCall","id":"c1","name":"look","arguments":{"at":"sky"}},{"type":"toolCall","id":"c2","name":"look","arguments":{}}],"api":"anthropic-messages","provider":"anthropic","model":"m","usage":{"input":3,"output":25,"cacheRead":0,"cacheWrite":7,"totalTokens":35,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0125}},"stopReason":"toolUse","timestamp":1767323046000}}
{"type":"message","id":"00000004","parentId":"00000003","timestamp":"2026-01-02T03:04:05.000Z","message":{"role":"toolResult","toolCallId":"c1","toolName":"look","content":[{"type":"text","text":"grey"},{"type":"image","data":"iVBORw==","mimeType":"image/png"}],"details":{"n":1.0},"isError":false,"timestamp":1767323047000}}
{"type":"message","id":"00000005","parentId":"00000004","times
{"type":"message","id":"00000006","parentId":"00000005","timestamp":"2026-01-02T03:04:05.000Z","message":{"role":"assistant","content":[],"api":"anthropic-messages","provider":"anthropic","model":"m","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"total":0}},"stopReason":"error","errorMessage":"overloaded","timestamp":1}}
{"type":"message","id":"00000007","parentId":"00000006","timestamp":"2026-01-02T03:04:05.000Z","message":{"role":"bashExecution","command":"date","output":"noon","exitCode":0,"cancelled":false,"truncated":false,"timestamp":5}}
{"type":"session_info","id":"00000008","parentId":"00000007","timestamp":"2026-01-02T03:04:05.000Z","name":"Weather"}
{"type":"message","id":"00000009","parentId":"00000008","timestamp":"2026-01-02T03:04:05.000Z","message":{"role":"assistant","content":[{"type":"text","text":"It is."}],"api":"anthropic-messages","provider":"anthropic","model":"m","usage":{"input":1,"output":1,"cacheRead":0,"cacheWrite":0,"totalTokens":2,"cost":{"total":0.5}},"stopReason":"stop","timestamp":1767323048000}}
"#;

fn id(name: &str) -> SessionId {
    name.to_owned().into()
}

#[tokio::test]
async fn a_file_of_pi_becomes_a_session_that_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let journal = SqliteJournal::new(folder.path());
    let imported = journal.import_pi(PI.as_bytes(), &id("imported")).unwrap();
    assert_eq!(imported.messages, 6);
    let [broken, failed, left, kinds] = imported.left_out.as_slice() else { panic!("{:?}", imported.left_out) };
    assert!(
        broken.starts_with("line 7: ") && broken.contains("; received {\"type\":\"message\",\"id\":\"00000005\""),
        "{broken}"
    );
    assert_eq!(left, "1 entry of branches that were left");
    assert_eq!(kinds, "1 entry of type \"model_change\"");
    assert_eq!(failed, "line 8: a reply that failed or was aborted");

    let (transcript, damage) = journal.transcript(&id("imported")).unwrap();
    assert_eq!(damage, []);
    let texts: Vec<String> = transcript.iter().map(|message| text(message)).collect();
    assert_eq!(
        texts,
        [
            "Is it raining?",
            "",
            "grey",
            "Outcome unknown: no result of this call was kept.",
            "I ran `date`. It printed:\n\nnoon",
            "It is."
        ]
    );
    let info = journal.list().unwrap().remove(0);
    assert_eq!(info.created, 1_767_323_045_000, "as the file says");
    assert_eq!((info.title.as_deref(), info.turns, info.unfinished), (Some("Weather"), 2, false));
    assert_eq!(info.cost, Money::from_nanos(512_500_000), "of the branch that was taken");
    assert_eq!((info.usage.input, info.usage.output, info.usage.cache_write), (4, 26, 7));

    let agent = Agent::builder(ScriptedModel::new([ScriptedReply::text("Still.")])).build().unwrap();
    let session = agent.open(Arc::new(journal.clone()), id("imported")).await.unwrap();
    assert_eq!(session.prompt("And now?").report().await.outcome, Outcome::Completed);
    assert_eq!(session.transcript().await.len(), 8);
}

#[tokio::test]
async fn what_is_exported_for_pi_comes_back_equal() {
    let folder = tempfile::tempdir().unwrap();
    let journal = SqliteJournal::new(folder.path());
    journal.import_pi(PI.as_bytes(), &id("first")).unwrap();
    let mut file = Vec::new();
    assert_eq!(journal.export_pi(&id("first"), "/home/me/it", &mut file).unwrap(), []);
    let imported = journal.import_pi(file.as_slice(), &id("second")).unwrap();
    assert_eq!((imported.messages, imported.left_out.len()), (6, 0));
    assert_eq!(journal.transcript(&id("first")).unwrap(), journal.transcript(&id("second")).unwrap());
    let costs: Vec<_> = journal.list().unwrap().into_iter().map(|info| (info.cost, info.title)).collect();
    assert_eq!(costs[0], costs[1]);
}

/// Every key as pi's own program expects it.
#[tokio::test]
async fn an_export_is_spelled_as_pi_spells_it() {
    let folder = tempfile::tempdir().unwrap();
    let journal = SqliteJournal::new(folder.path());
    journal.import_pi(PI.as_bytes(), &id("first")).unwrap();
    let mut file = Vec::new();
    journal.export_pi(&id("first"), "/home/me/it", &mut file).unwrap();
    let lines: Vec<serde_json::Value> =
        String::from_utf8(file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        (&lines[0]["type"], &lines[0]["version"], &lines[0]["cwd"]),
        (&"session".into(), &3.into(), &"/home/me/it".into())
    );
    assert_eq!(
        (&lines[1]["type"], &lines[1]["name"], &lines[1]["parentId"]),
        (&"session_info".into(), &"Weather".into(), &().into())
    );
    for pair in lines[1..].windows(2) {
        assert_eq!(pair[1]["parentId"], pair[0]["id"]);
    }
    let original = PI.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let original: Vec<_> = original.map(|line| line["message"].clone()).collect();
    assert_eq!(lines[3]["message"]["content"], original[4]["content"]);
    for key in ["role", "api", "provider", "model", "stopReason", "timestamp", "usage"] {
        assert_eq!(lines[3]["message"][key], original[4][key], "{key}");
    }
    assert_eq!(lines[4]["message"], original[5]);
}

#[tokio::test]
async fn a_compaction_stands_for_what_it_replaced() {
    let line = |id: &str, parent: &str, text: &str| {
        format!(
            r#"{{"type":"message","id":"{id}","parentId":{parent},"message":{{"role":"user","content":"{text}"}}}}"#
        )
    };
    let file = [
        r#"{"type":"session","version":3,"id":"x"}"#.to_owned(),
        line("1", "null", "long ago"),
        line("2", "\"1\"", "kept"),
        r#"{"type":"compaction","id":"3","parentId":"2","timestamp":"2026-01-02T03:04:05.000Z","summary":"much was said","firstKeptEntryId":"2","tokensBefore":9}"#.into(),
        line("4", "\"3\"", "later"),
    ];
    let folder = tempfile::tempdir().unwrap();
    let journal = SqliteJournal::new(folder.path());
    let imported = journal.import_pi(file.join("\n").as_bytes(), &id("it")).unwrap();
    assert_eq!(imported.left_out, ["1 entry that a summary stands for"]);
    let (transcript, _) = journal.transcript(&id("it")).unwrap();
    let Message::User(summary) = &*transcript[0] else { panic!() };
    assert_eq!(summary.timestamp, 1_767_323_045_000, "when it was made");
    let texts: Vec<String> = transcript.iter().map(|message| text(message)).collect();
    assert_eq!(texts, ["A summary of the conversation up to here:\n\nmuch was said", "kept", "later"]);
}

#[tokio::test]
async fn what_an_import_leaves_out_is_named_and_times_are_kept() {
    let file = [
        r#"{"type":"session","version":3,"id":"x","timestamp":"2026-01-02T03:04:05.000Z"}"#,
        r#"{"type":"message","id":"1","parentId":null,"timestamp":"2026-01-02T03:04:05.500Z","message":{"role":"user","content":"a"}}"#,
        r#"{"type":"message","id":"2","parentId":"1","message":{"role":"bashExecution","command":"ls","excludeFromContext":true}}"#,
        r#"{"type":"label","id":"3","parentId":"2","targetId":"1","label":"here"}"#,
        r#"{"type":"custom","id":"4","parentId":"3","data":{}}"#,
        r#"{"type":"label","id":"5","parentId":"4","targetId":"1"}"#,
        r#"{"type":"message","id":"6","parentId":"5","message":{"role":"wizard","content":"b"}}"#,
        r#"{"type":"custom_message","id":"7","parentId":"6","timestamp":"2026-01-02T03:04:06.000Z","content":"c"}"#,
        r#"{"type":"session_info","id":"8","parentId":"7","name":" A\nlong\u001b[31m   name "}"#,
    ];
    let folder = tempfile::tempdir().unwrap();
    let journal = SqliteJournal::new(folder.path());
    let imported = journal.import_pi(file.join("\n").as_bytes(), &id("it")).unwrap();
    let [unknown, rest @ ..] = imported.left_out.as_slice() else { panic!("{:?}", imported.left_out) };
    assert!(unknown.starts_with("line 7: ") && unknown.contains("wizard"), "{unknown}");
    let expected = ["of commands that were kept from the model", "of type \"label\"", "of type \"custom\""];
    assert_eq!(rest.len(), 3, "{rest:?}");
    for (said, (count, what)) in rest.iter().zip([1, 2, 1].into_iter().zip(expected)) {
        assert!(said.starts_with(&count.to_string()) && said.ends_with(what), "{said}");
    }
    let (transcript, _) = journal.transcript(&id("it")).unwrap();
    let times: Vec<i64> = transcript
        .iter()
        .filter_map(|it| if let Message::User(it) = &**it { Some(it.timestamp) } else { None })
        .collect();
    assert_eq!(times, [1_767_323_045_500, 1_767_323_046_000]);
    assert_eq!(journal.list().unwrap()[0].title.as_deref(), Some("A long [31m name"));
    let mut exported = Vec::new();
    journal.export_pi(&id("it"), "/", &mut exported).unwrap();
    let exported = String::from_utf8(exported).unwrap();
    assert!(exported.contains(r#""timestamp":"2026-01-02T03:04:05.500Z","message":"#), "{exported}");
}

#[tokio::test]
async fn the_first_version_is_a_list() {
    let file = "{\"type\":\"session\",\"id\":\"x\"}\n{\"type\":\"message\",\"message\":{\"role\":\"user\",\"content\":\"a\"}}\n\
                {\"type\":\"message\",\"message\":{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"b\"}]}}";
    let folder = tempfile::tempdir().unwrap();
    let journal = SqliteJournal::new(folder.path());
    assert_eq!(journal.import_pi(file.as_bytes(), &id("it")).unwrap().messages, 2);
}

#[tokio::test]
async fn what_is_no_file_of_pi_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let journal = SqliteJournal::new(folder.path());
    for (file, why) in [
        ("", "it has no entries"),
        ("hello", "the first line can't be read"),
        ("hello", "; received hello"),
        ("{\"type\":\"message\"}", "the first line is of type \"message\", not \"session\""),
        ("{\"type\":\"session\",\"version\":4}", "it is of version 4, and 3 is the newest that is known here"),
    ] {
        let refused = journal.import_pi(file.as_bytes(), &id("it")).unwrap_err();
        assert!(matches!(&refused, StoreError::NotPi(said) if said.contains(why)), "{refused}");
    }
    assert_eq!(journal.list().unwrap(), []);
}

#[tokio::test]
async fn markdown_is_for_people() {
    let folder = tempfile::tempdir().unwrap();
    let journal = SqliteJournal::new(folder.path());
    journal.import_pi(PI.as_bytes(), &id("it")).unwrap();
    let mut text = Vec::new();
    journal.export_markdown(&id("it"), &mut text).unwrap();
    let expected = r#"# Weather

## User

*2026-01-02T03:04:05.000Z*

Is it raining?

## anthropic/m

*2026-01-02T03:04:06.000Z*

<details><summary>Thinking</summary>

hm

</details>

**look**

```json
{"at":"sky"}
```

**look**

```json
{}
```

<details><summary>Result of look</summary>

```
grey
```

*(a picture, image/png)*

</details>

<details><summary>Result of look (failed)</summary>

```
Outcome unknown: no result of this call was kept.
```

</details>

## User

*1970-01-01T00:00:00.005Z*

I ran `date`. It printed:

noon

## anthropic/m

*2026-01-02T03:04:08.000Z*

It is.

"#;
    assert_eq!(String::from_utf8(text).unwrap(), expected);
}

/// Whatever stands in a message, the next one begins behind it.
#[tokio::test]
async fn nothing_in_a_message_reaches_beyond_it_in_markdown() {
    for open in [
        "```",
        "```rust\nfn main() {}",
        "~~~~ text\n```\n~~~",
        "- a list\n\n  ```\n  code",
        "> ```\n> code",
        "<details>",
        "</details>\n</details>",
        "<!-- a comment",
        "<script>\nalert(1)",
        "<pre>\n\n```\n",
        "text <b>and <!-- more",
        "    indented",
        "| a |",
        "# heading",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let journal = SqliteJournal::new(folder.path());
        let name = "a`b\n# c*";
        let reply = ScriptedReply::new([
            Block::text(open),
            Block::ToolCall(ToolCall::new("c1", name, serde_json::json!({"text": open}).to_string())),
        ]);
        let agent = Agent::builder(ScriptedModel::new([reply, ScriptedReply::text("The end.")])).build().unwrap();
        let session = agent.open(Arc::new(journal.clone()), id("it")).await.unwrap();
        assert_eq!(session.prompt(open).report().await.outcome, Outcome::Completed);
        journal.rename(&id("it"), Some("a\n## b")).unwrap();
        let mut text = Vec::new();
        journal.export_markdown(&id("it"), &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let mut headings = Vec::new();
        let (mut in_heading, mut html) = (false, Vec::new());
        for event in pulldown_cmark::Parser::new(&text) {
            use pulldown_cmark::{Event, Tag, TagEnd};
            match event {
                Event::Start(Tag::Heading { .. }) => {
                    in_heading = true;
                    headings.push(String::new());
                }
                Event::End(TagEnd::Heading(_)) => in_heading = false,
                Event::Text(it) | Event::Code(it) if in_heading => headings.last_mut().unwrap().push_str(&it),
                Event::Html(it) | Event::InlineHtml(it) => html.push(it.trim().to_owned()),
                _ => {}
            }
        }
        headings.retain(|heading| heading != "heading");
        assert_eq!(headings, ["a ## b", "User", "scripted/script", "scripted/script"], "{open:?}\n{text}");
        let expected = ["<details><summary>Result of a`b # c* (failed)</summary>", "</details>"];
        assert_eq!(html, expected, "{open:?}\n{text}");
        assert!(text.contains("**a\\`b # c\\***"), "{text}");
    }
}

fn text(message: &Message) -> String {
    match message {
        Message::User(user) => user.content.iter().filter_map(|content| content.as_text()).collect(),
        Message::Assistant(reply) => reply.text(),
        Message::ToolResult(result) => result.content.iter().filter_map(|content| content.as_text()).collect(),
    }
}
