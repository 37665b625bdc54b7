//! Sessions as pages: what they show, and that nothing in them runs or loads, whatever was said.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod support;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use html5ever::tendril::TendrilSink as _;
use markup5ever_rcdom::{Handle, NodeData, RcDom};
use support::{said, written};
use tempfile::TempDir;
use terret_agent::machine::{Outcome, Record};
use terret_agent::{Agent, SessionId, ToolOutput, tool};
use terret_llm::{Block, Content, Image, ScriptedModel, ScriptedReply, Thinking, ToolCall};
use terret_store::{Damage, Setup, SqliteJournal};

/// Breaks out of every place that a text could stand in, steers terminals and readers, and calls a server.
fn hostile(port: u16) -> String {
    format!(
        "</script></style></title></textarea></pre>--></svg><script>document.title='owned'</script>\
         <img src=x onerror=\"document.title='owned'\"><img src=\"http://127.0.0.1:{port}/a.png\">\
         <svg/onload=document.title='owned'><a href=\"javascript:document.title='owned'\">x</a>\
         <style>@import url(http://127.0.0.1:{port}/b.css);</style><base href=\"http://127.0.0.1:{port}/\">\
         ![x](http://127.0.0.1:{port}/c.png) [y](javascript:document.title='owned') \" onload=\"document.title='owned'\
         \u{1b}[31m\u{9b}1m\u{202e}evil\u{2066}\u{0}\u{7}\u{fffe} ' é"
    )
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Anything {
    #[serde(flatten)]
    _any: std::collections::BTreeMap<String, serde_json::Value>,
}

const PIXEL: &[u8] = include_bytes!("pixel.png");

/// A session in which everything that can hold a text holds this one.
async fn full_of(text: &str) -> (TempDir, SqliteJournal, SessionId) {
    let folder = tempfile::tempdir().unwrap();
    let journal = SqliteJournal::new(folder.path());
    let session = SessionId::from(format!("session {text}"));
    let text = text.to_owned();
    let diff = format!("--- a\n+++ b\n@@ -1 +1 @@\n-old {text}\n+new {text}\n");
    let output = text.clone();
    let acts = tool("edit", "", move |_: Anything, _| {
        let mut output = ToolOutput::text(output.clone()).with_details(&serde_json::json!({"diff": diff}));
        output.content.push(Content::Image(Image::new("image/png", PIXEL)));
        output.content.push(Content::Image(Image::new("image/svg+xml\" onload=\"x", b"<svg onload=x>")));
        async move { Ok(output) }
    });
    let reply = ScriptedReply::new([
        Block::Thinking(Thinking { thinking: text.clone(), ..Thinking::default() }),
        Block::text(format!("{text}\n\n```{text}\n{text}\n```\n\n|{text}|\n|-|\n|{text}|\n")),
        Block::ToolCall(ToolCall::new("c1", "edit", serde_json::json!({"path": text, &text: text}).to_string())),
        Block::ToolCall(ToolCall::new("c2", format!("no{text}"), "{}")),
        Block::ToolCall(ToolCall::new("c3", "edit", format!("{{{text}"))),
    ]);
    let model = ScriptedModel::new([reply, ScriptedReply::text(text.clone())]);
    let agent = Agent::builder(model).tool(acts).build().unwrap();
    let open = agent.open(Arc::new(journal.clone()), session.clone()).await.unwrap();
    let setup = Setup { folder: Some(text.clone()), ..Setup::default() };
    journal.set_up(&session, &setup).unwrap();
    let prompt = vec![Content::text(text.clone()), Content::Image(Image::new("image/png", PIXEL))];
    assert_eq!(open.prompt(prompt).report().await.outcome, Outcome::Completed);
    assert!(matches!(open.prompt(text.clone()).report().await.outcome, Outcome::Failed { .. }), "the script is over");
    journal.rename(&session, Some(&text)).unwrap();
    drop(open);
    (folder, journal, session)
}

fn exported(journal: &SqliteJournal, session: &SessionId) -> String {
    let mut page = Vec::new();
    assert_eq!(journal.export_html(session, &mut page).unwrap(), []);
    String::from_utf8(page).unwrap()
}

/// The page as a browser's parser sees it, without a complaint of that parser.
fn parsed(page: &str) -> RcDom {
    let dom = html5ever::parse_document(RcDom::default(), html5ever::ParseOpts::default()).one(page);
    assert_eq!(dom.errors.borrow().as_slice(), &[] as &[std::borrow::Cow<'static, str>]);
    dom
}

fn walk(node: &Handle, visit: &mut impl FnMut(&Handle)) {
    visit(node);
    node.children.borrow().iter().for_each(|child| walk(child, visit));
}

/// The elements of a page: name and attributes.
fn elements(dom: &RcDom) -> Vec<(String, Vec<(String, String)>)> {
    let mut found = Vec::new();
    walk(&dom.document, &mut |node| {
        if let NodeData::Element { name, attrs, .. } = &node.data {
            let attrs = attrs.borrow().iter().map(|it| (it.name.local.to_string(), it.value.to_string())).collect();
            found.push((name.local.to_string(), attrs));
        }
    });
    found
}

fn text_of(dom: &RcDom) -> String {
    let mut text = String::new();
    walk(&dom.document, &mut |node| {
        if let NodeData::Text { contents } = &node.data {
            text.push_str(&contents.borrow());
        }
    });
    text
}

const ELEMENTS: &[&str] = &[
    "a",
    "article",
    "b",
    "blockquote",
    "body",
    "br",
    "code",
    "dd",
    "del",
    "details",
    "div",
    "dl",
    "dt",
    "em",
    "fieldset",
    "figcaption",
    "figure",
    "g",
    "h1",
    "h3",
    "h4",
    "h5",
    "h6",
    "head",
    "header",
    "hr",
    "html",
    "img",
    "input",
    "label",
    "legend",
    "li",
    "line",
    "main",
    "meta",
    "nav",
    "ol",
    "p",
    "pre",
    "rect",
    "span",
    "strong",
    "style",
    "summary",
    "svg",
    "table",
    "tbody",
    "td",
    "text",
    "time",
    "title",
    "tr",
    "ul",
];
const ATTRIBUTES: &[&str] = &[
    "alt",
    "aria-label",
    "charset",
    "checked",
    "class",
    "content",
    "data-turns",
    "datetime",
    "height",
    "href",
    "http-equiv",
    "id",
    "lang",
    "name",
    "rel",
    "role",
    "src",
    "start",
    "text-anchor",
    "type",
    "viewBox",
    "width",
    "x",
    "x1",
    "x2",
    "y",
    "y1",
    "y2",
];

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_was_said_is_active_in_the_page() {
    let text = hostile(9);
    let (_folder, journal, session) = full_of(&text).await;
    let page = exported(&journal, &session);
    let dom = parsed(&page);
    for (name, attributes) in elements(&dom) {
        assert!(ELEMENTS.contains(&name.as_str()), "<{name}>");
        for (attribute, value) in attributes {
            assert!(ATTRIBUTES.contains(&attribute.as_str()), "<{name} {attribute}={value:?}>");
            match attribute.as_str() {
                "src" => assert!(value.starts_with("data:image/png;base64,"), "{value}"),
                "href" => assert!(value.starts_with("#m"), "{value}"),
                "http-equiv" => assert_eq!(value, "Content-Security-Policy"),
                _ => {}
            }
        }
    }
    let policy = elements(&dom)
        .into_iter()
        .find(|(name, attributes)| name == "meta" && attributes.len() == 2 && attributes[0].0 == "http-equiv");
    let policy = policy.unwrap().1[1].1.clone();
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
    let live = |c: char| {
        c.is_control() && !matches!(c, '\n' | '\t') || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert!(!page.contains(live));
    // It is all there, and can be seen.
    let shown = text_of(&dom);
    let seen = "<img src=x onerror=\"document.title='owned'\">";
    assert!(shown.matches(seen).count() > 10, "{}", shown.matches(seen).count());
    assert!(shown.contains("␛[31m\u{fffd}1m\u{fffd}evil\u{fffd}␀␇"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_shows_what_was_said_and_what_it_took() {
    let (_folder, journal, session) = full_of("*plain* text").await;
    let page = exported(&journal, &session);
    let shown = text_of(&parsed(&page));
    for part in [
        "*plain* text",
        "scripted/script",
        "no*plain* text",
        "failed",
        "+new *plain* text",
        "A picture of type image/svg+xml",
        "Run completed",
        "Run failed",
        "2 prompts",
        "7",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(
        page.contains("<div class=\"prose\"><p><em>plain</em> text</p>"),
        "Markdown of the model is shown as it is meant"
    );
    assert!(page.contains("<span class=\"added\">+new *plain* text\n</span>"));
    assert_eq!(page.matches("data:image/png;base64,").count(), 2);
    let ids: Vec<_> =
        elements(&parsed(&page)).into_iter().flat_map(|it| it.1).filter(|(name, _)| name == "id").collect();
    assert_eq!(ids.len(), ids.iter().collect::<BTreeSet<_>>().len(), "{ids:?}");
    for link in page.split("href=\"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(ids.iter().any(|(_, id)| id == link), "{link} leads nowhere");
    }
}

#[tokio::test]
async fn what_can_not_be_read_is_named_at_the_top() {
    let mut records: Vec<Record> = support::texts(0..6, 100);
    records[0] = said(vec![Content::text("first")]);
    let written = written(&records).await.closed().await;
    let db = rusqlite::Connection::open(written.file("journal.db")).unwrap();
    db.execute_batch("DROP TRIGGER a_record_is_never_deleted; DELETE FROM record WHERE seq = 3").unwrap();
    drop(db);
    let mut page = Vec::new();
    let damage = written.journal().export_html(&"session".to_owned().into(), &mut page).unwrap();
    assert_eq!(damage, [Damage::Missing { from: 3, to: 4 }, Damage::Unchecked { record: 4 }]);
    let shown = text_of(&parsed(&String::from_utf8(page).unwrap()));
    assert!(shown.contains("Damaged: record 3 is gone"), "{shown}");
}

/// In the browser itself: no complaint, no connection, and nothing that ran.
#[tokio::test(flavor = "multi_thread")]
async fn a_browser_shows_the_page_and_nothing_of_it_runs_or_loads() {
    let Some(chromium) = chromium() else {
        // Past the test runner, which shows nothing that a passing test prints.
        let _ = writeln!(
            std::io::stderr(),
            "\nSKIPPED: there is no Chromium here (TERRET_CHROMIUM says where it is): no page was opened in a browser"
        );
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, asked) = (listener.local_addr().unwrap().port(), Arc::new(AtomicBool::new(false)));
    std::thread::spawn({
        let asked = asked.clone();
        move || {
            for stream in listener.incoming() {
                asked.store(true, Ordering::SeqCst);
                let _ = stream.map(|mut stream| stream.read(&mut [0; 1024]));
            }
        }
    });
    let (folder, journal, session) = full_of(&hostile(port)).await;
    let path = folder.path().join("page.html");
    std::fs::write(&path, exported(&journal, &session)).unwrap();
    let opened = Command::new(chromium)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--enable-logging=stderr"])
        .args(["--virtual-time-budget=2000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .arg(format!("file://{}", path.display()))
        .output()
        .unwrap();
    let (dom, said) = (String::from_utf8_lossy(&opened.stdout), String::from_utf8_lossy(&opened.stderr));
    assert!(opened.status.success() && dom.contains("<main data-turns="), "{said}");
    assert!(!said.contains("CONSOLE"), "{said}");
    assert!(!dom.contains("<title>owned"), "a script ran");
    assert!(!asked.load(Ordering::SeqCst), "something was loaded");
}

fn chromium() -> Option<std::path::PathBuf> {
    if let Some(told) = std::env::var_os("TERRET_CHROMIUM") {
        return Some(told.into());
    }
    let folders: Vec<_> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))).find(|path| path.is_file())
}
