//! The spans of a run, as a trace collector sees them. The names are those of OpenTelemetry's conventions for generative
//! AI: <https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/>.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

mod support;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use support::{agent, call};
use terret_llm::{ErrorKind, ModelError, ScriptedReply, Usage};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::{LookupSpan, Registry};

/// A span: its name, its parent's, and its fields.
#[derive(Clone, Debug, Default)]
struct Seen {
    name: String,
    parent: Option<String>,
    fields: BTreeMap<String, String>,
}

#[derive(Clone, Default)]
struct Collector(Arc<Mutex<BTreeMap<u64, Seen>>>);

impl Visit for Seen {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name().into(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name().into(), format!("{value:?}"));
    }
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Collector {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        let parent = span.parent().map(|parent| parent.name().to_owned());
        let mut seen = Seen { name: span.name().into(), parent, fields: BTreeMap::new() };
        attributes.record(&mut seen);
        self.0.lock().unwrap().insert(id.into_u64(), seen);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        values.record(self.0.lock().unwrap().get_mut(&id.into_u64()).unwrap());
    }
}

impl Collector {
    fn named(&self, name: &str) -> Vec<Seen> {
        self.0.lock().unwrap().values().filter(|seen| seen.name == name).cloned().collect()
    }
}

fn used(input: u64, cache_read: u64, output: u64) -> Usage {
    let mut usage = Usage::default();
    (usage.input, usage.cache_read, usage.output) = (input, cache_read, output);
    usage
}

// One test, because a subscriber is the thread's own.
#[tokio::test(start_paused = true)]
async fn a_run_its_model_calls_and_its_tools_are_spans_with_the_conventions_names() {
    let collector = Collector::default();
    let _subscriber = tracing::subscriber::set_default(Registry::default().with(collector.clone()));
    let overloaded = ScriptedReply::text("Le").error(ModelError::new(ErrorKind::Overloaded, "later"));
    let replies = [
        overloaded,
        call("c1", "add", r#"{"a":1,"b":2}"#).usage(used(10, 5, 7)),
        call("c2", "add", r#"{"a":100,"b":100}"#).usage(used(1, 0, 1)),
        ScriptedReply::text("secret answer").usage(used(20, 0, 3)),
    ];
    let session = agent(replies).build().unwrap().session();
    session.prompt("a secret question").report().await;

    let [run] = &collector.named("invoke_agent")[..] else { panic!("{:?}", collector.named("invoke_agent")) };
    assert_eq!(run.fields["gen_ai.operation.name"], "invoke_agent");
    assert_eq!(run.fields["gen_ai.conversation.id"], session.id().as_str());
    assert_eq!(run.fields["gen_ai.usage.input_tokens"], "36", "cached ones count");
    assert_eq!(run.fields["gen_ai.usage.output_tokens"], "11");
    assert!(!run.fields.contains_key("error.type"), "it completed");

    let calls = collector.named("chat");
    assert_eq!(calls.len(), 4);
    for call in &calls {
        assert_eq!(call.parent.as_deref(), Some("invoke_agent"));
        assert_eq!(call.fields["otel.name"], "chat script");
        assert_eq!(
            (&*call.fields["gen_ai.provider.name"], &*call.fields["gen_ai.request.model"]),
            ("scripted", "script")
        );
    }
    assert_eq!(calls[0].fields["error.type"], "overloaded");
    assert_eq!(calls[1].fields["gen_ai.usage.input_tokens"], "15");
    assert_eq!(calls[1].fields["gen_ai.usage.cache_read.input_tokens"], "5");
    assert_eq!(calls[1].fields["gen_ai.response.finish_reasons"], "ToolUse");

    let tools = collector.named("execute_tool");
    assert_eq!(tools.len(), 2);
    for tool in &tools {
        assert_eq!(tool.parent.as_deref(), Some("invoke_agent"));
        assert_eq!(tool.fields["gen_ai.tool.name"], "add");
    }
    assert_eq!(tools[0].fields["gen_ai.tool.call.id"], "c1");

    let all = format!("{:?}", collector.0.lock().unwrap());
    assert!(!all.contains("secret"), "what was said is in no span: {all}");
}
