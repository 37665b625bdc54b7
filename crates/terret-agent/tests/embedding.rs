//! What embedders put into an agent: hooks, result types, limits, places for what is too long, shared budgets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

mod support;

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;
use support::{Ran, agent, call, text};
use terret_agent::machine::{Budget, Failure, Limits, Outcome};
use terret_agent::{
    Agent, Event, FnTool, HookError, Hooks, Review, SharedBudget, SharedLimits, Spill, ToolContext, ToolOutput, tool,
};
use terret_llm::{
    AssistantMessage, Content, Message, Money, Request, ScriptedModel, ScriptedReply, ToolCall, UserMessage,
};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

fn hanging() -> FnTool {
    tool("hang", "", |_: Nothing, _| async move {
        std::future::pending::<()>().await;
        Ok("never")
    })
}

// Hooks.

/// Notes what it is called for.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    fn add(&self, note: impl Into<String>) {
        self.0.lock().unwrap().push(note.into());
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Hooks for Notes {
    fn before_model<'a>(&'a self, mut request: Request) -> BoxFuture<'a, Result<Request, HookError>> {
        self.add("before_model");
        request.messages.push(Message::from(UserMessage::text("(by the hook)", 0)));
        Box::pin(std::future::ready(Ok(request)))
    }

    fn before_tool<'a>(&'a self, call: &'a ToolCall, arguments: &'a Value) -> BoxFuture<'a, Result<(), HookError>> {
        self.add(format!("before_tool {} {arguments}", call.name));
        Box::pin(std::future::ready(Ok(())))
    }

    fn after_tool<'a>(
        &'a self,
        call: &'a ToolCall,
        mut output: ToolOutput,
    ) -> BoxFuture<'a, Result<ToolOutput, HookError>> {
        self.add(format!("after_tool {}", call.name));
        output.content.push(Content::text(" (seen)"));
        Box::pin(std::future::ready(Ok(output)))
    }

    fn at_end<'a>(&'a self, reply: &'a AssistantMessage) -> BoxFuture<'a, Result<Review, HookError>> {
        self.add(format!("at_end {}", reply.text()));
        let review = if reply.text().ends_with('!') { Review::Accept } else { Review::Object("Louder.".into()) };
        Box::pin(std::future::ready(Ok(review)))
    }
}

#[tokio::test]
async fn hooks_are_called_in_their_places_and_what_they_change_is_a_copy() {
    let notes = Notes::default();
    let replies = [call("c1", "add", r#"{"a":1,"b":2}"#), ScriptedReply::text("3."), ScriptedReply::text("3!")];
    let model = ScriptedModel::new(replies);
    let agent = Agent::builder(model.clone()).tool(support::add()).hooks(notes.clone()).build().unwrap();
    let session = agent.session();
    let ran = Ran::to_end(session.prompt("?")).await;
    assert_eq!(ran.report().text.as_deref(), Some("3!"));
    assert_eq!(
        notes.all(),
        [
            "before_model",
            "before_tool add {\"a\":1,\"b\":2}",
            "after_tool add",
            "before_model",
            "at_end 3.",
            "before_model",
            "at_end 3!"
        ]
    );
    assert_eq!(text(&ran.results()[0]), "3 (seen)");
    let sent = model.requests().pop().unwrap().messages;
    assert_eq!(
        (sent.len(), session.transcript().await.len()),
        (6, 6),
        "the transcript holds none of the hook's messages"
    );
    assert!(serde_json::to_string(&sent).unwrap().contains("(by the hook)"));
    assert!(!serde_json::to_string(&session.transcript().await).unwrap().contains("(by the hook)"));
    assert!(serde_json::to_string(&sent).unwrap().contains("Louder."), "the objection is said to the model");
}

/// Fails, or panics, in one place.
struct Broken(&'static str, bool);

impl Broken {
    fn at(&self, place: &str) -> Result<(), HookError> {
        match place == self.0 {
            true if self.1 => panic!("broken"),
            true => Err(HookError("broken".into())),
            false => Ok(()),
        }
    }
}

impl Hooks for Broken {
    fn before_model<'a>(&'a self, request: Request) -> BoxFuture<'a, Result<Request, HookError>> {
        Box::pin(async move { self.at("before_model").map(|()| request) })
    }

    fn before_tool<'a>(&'a self, _: &'a ToolCall, _: &'a Value) -> BoxFuture<'a, Result<(), HookError>> {
        Box::pin(async move { self.at("before_tool") })
    }

    fn after_tool<'a>(&'a self, _: &'a ToolCall, output: ToolOutput) -> BoxFuture<'a, Result<ToolOutput, HookError>> {
        Box::pin(async move { self.at("after_tool").map(|()| output) })
    }

    fn at_end<'a>(&'a self, _: &'a AssistantMessage) -> BoxFuture<'a, Result<Review, HookError>> {
        Box::pin(async move { self.at("at_end").map(|()| Review::Accept) })
    }
}

#[tokio::test]
async fn a_hook_that_fails_or_panics_is_never_passed_over() {
    for panics in [false, true] {
        for place in ["before_model", "at_end"] {
            let replies = [call("c1", "add", r#"{"a":1,"b":2}"#), ScriptedReply::text("3.")];
            let ran = Ran::to_end(agent(replies).hooks(Broken(place, panics)).build().unwrap().prompt("?")).await;
            match ran.outcome() {
                Outcome::Failed { failure: Failure::Hook { hook, message } } => {
                    assert!(hook == place && message.contains("broken"), "{hook}: {message}");
                }
                other => panic!("{place}: {other:?}"),
            }
        }
        for (place, said) in [("before_tool", "Not executed"), ("after_tool", "withheld")] {
            let replies = [call("c1", "add", r#"{"a":1,"b":2}"#), ScriptedReply::text("Hm.")];
            let ran = Ran::to_end(agent(replies).hooks(Broken(place, panics)).build().unwrap().prompt("?")).await;
            let result = &ran.results()[0];
            assert!(result.is_error && text(result).contains(said) && text(result).contains("broken"), "{result:?}");
            assert!(!text(result).contains('3'), "{place}: the output is not shown");
            assert_eq!(ran.outcome(), &Outcome::Completed);
        }
    }
}

// Results of a type.

#[derive(Debug, PartialEq, serde::Deserialize, schemars::JsonSchema)]
struct City {
    name: String,
    inhabitants: u32,
}

#[tokio::test]
async fn a_typed_run_yields_a_value_and_its_tools_work_as_ever() {
    let replies = [
        call("c1", "add", r#"{"a":60,"b":74}"#),
        ScriptedReply::text(
            r#"```json
{"name":"Bern","inhabitants":134000}
```"#,
        ),
    ];
    let typed = agent(replies).build().unwrap().run::<City>("?").value().await.unwrap();
    assert_eq!(typed.value, City { name: "Bern".into(), inhabitants: 134_000 });
    assert_eq!(typed.report.spent.tool_calls, 1);
}

#[tokio::test]
async fn what_does_not_fit_the_type_goes_back_to_the_model_a_bounded_number_of_times() {
    let wrong = || ScriptedReply::text(r#"{"name":"Bern"}"#);
    let model = ScriptedModel::new([wrong(), ScriptedReply::text(r#"{"name":"Bern","inhabitants":1}"#)]);
    let typed = Agent::builder(model.clone()).build().unwrap().run::<City>("?").value().await.unwrap();
    assert_eq!(typed.value.inhabitants, 1);
    let objection = serde_json::to_string(model.requests()[1].messages.last().unwrap()).unwrap();
    assert!(objection.contains("\\\"inhabitants\\\" is a required property"), "{objection}");

    let report = agent([wrong(), wrong(), wrong(), wrong(), wrong()]).build().unwrap().run::<City>("?").value().await;
    let report = report.unwrap_err();
    assert!(matches!(report.outcome, Outcome::Failed { failure: Failure::Objected(_) }), "{:?}", report.outcome);
    assert_eq!(report.spent.model_calls, 4, "the answer, and three more after objections");
}

#[tokio::test]
async fn a_typed_run_tells_the_model_the_schema() {
    let model = ScriptedModel::new([ScriptedReply::text("[1,2]")]);
    let typed = Agent::builder(model.clone()).system("Be brief.").build().unwrap().run::<Vec<u8>>("?").value().await;
    let told = model.requests()[0].system.clone().unwrap();
    assert!(told.starts_with("Be brief.") && told.contains(r#""type":"array""#), "{told}");
    // A list stands in a field, as providers want it.
    assert!(typed.is_err());
    let model = ScriptedModel::new([ScriptedReply::text(r#"{"value":[1,2]}"#)]);
    assert_eq!(Agent::builder(model).build().unwrap().run::<Vec<u8>>("?").value().await.unwrap().value, [1, 2]);
}

// Limits of tools.

#[tokio::test(start_paused = true)]
async fn a_tool_that_takes_too_long_is_stopped_and_the_run_goes_on() {
    let started = tokio::time::Instant::now();
    let replies = || [call("c1", "hang", "{}"), ScriptedReply::text("It hangs.")];
    let limited = agent(replies()).tool(hanging()).tool_time_limit(Duration::from_secs(30)).build().unwrap();
    let ran = Ran::to_end(limited.prompt("?")).await;
    assert_eq!(ran.outcome(), &Outcome::Completed);
    assert!(text(&ran.results()[0]).contains("time limit of 30 s"), "{}", text(&ran.results()[0]));
    assert_eq!(started.elapsed().as_secs(), 32, "the limit and the grace period");
    // The tool's own limit wins.
    let own = agent(replies()).tool(hanging().time_limit(Duration::from_secs(5)));
    let ran = Ran::to_end(own.tool_time_limit(Duration::from_secs(30)).build().unwrap().prompt("?")).await;
    assert!(text(&ran.results()[0]).contains("time limit of 5 s"));
}

#[tokio::test(start_paused = true)]
async fn what_a_tool_says_when_it_is_told_to_stop_is_kept() {
    let polite = tool("polite", "", |_: Nothing, context: ToolContext| async move {
        context.cancel.cancelled().await;
        Ok("half of it")
    });
    let agent =
        agent([call("c1", "polite", "{}"), ScriptedReply::text("So.")]).tool(polite.time_limit(Duration::from_secs(5)));
    let ran = Ran::to_end(agent.build().unwrap().prompt("?")).await;
    let result = &ran.results()[0];
    assert!(
        result.is_error && text(result).contains("time limit") && text(result).ends_with("half of it"),
        "{result:?}"
    );
}

struct Shelf(Arc<Mutex<Vec<String>>>);

impl Spill for Shelf {
    fn keep<'a>(&'a self, _: &'a str, text: &'a str) -> BoxFuture<'a, std::io::Result<String>> {
        let mut shelf = self.0.lock().unwrap();
        shelf.push(text.to_owned());
        Box::pin(std::future::ready(Ok(format!("place {}", shelf.len()))))
    }
}

#[tokio::test]
async fn what_is_too_long_is_kept_whole_elsewhere() {
    let shelf = Arc::default();
    let long = tool("long", "", |_: Nothing, _| async { Ok("0123456789".repeat(100)) });
    let agent = agent([call("c1", "long", "{}"), ScriptedReply::text("So.")]).tool(long);
    let agent = agent.output_limit(20).spill(Shelf(Arc::clone(&shelf))).build().unwrap();
    let ran = Ran::to_end(agent.prompt("?")).await;
    assert!(text(&ran.results()[0]).ends_with("[All of it is in place 1]"), "{}", text(&ran.results()[0]));
    assert_eq!(shelf.lock().unwrap()[..], ["0123456789".repeat(100)]);
}

#[tokio::test]
async fn the_texts_of_a_result_are_limited_together_and_kept_together() {
    let shelf = Arc::default();
    let many = tool("many", "", |_: Nothing, _| async {
        let mut output = ToolOutput::text("first");
        output.content.extend((0..10_000).map(|_| Content::text("b")));
        output.content.push(Content::text("last"));
        Ok(output)
    });
    let agent = agent([call("c1", "many", "{}"), ScriptedReply::text("So.")]).tool(many);
    let agent = agent.output_limit(20).spill(Shelf(Arc::clone(&shelf))).build().unwrap();
    let ran = Ran::to_end(agent.prompt("?")).await;
    let result = &ran.results()[0];
    assert_eq!(result.content.len(), 1);
    let told = text(result);
    assert!(told.starts_with("first\nb\n") && told.contains("last\n[All of it is in place 1]"), "{told}");
    assert_eq!(shelf.lock().unwrap()[..], [format!("first\n{}last", "b\n".repeat(10_000))]);
}

#[tokio::test]
async fn pictures_and_details_are_limited_as_well() {
    let shelf = Arc::default();
    let large = tool("large", "", |_: Nothing, _| async {
        let picture = vec![0; 10 << 20];
        let output = ToolOutput::text("a").with_image("image/png", &picture).with_image("image/png", &picture);
        Ok(output.with_details(&"d".repeat(5 << 20)))
    });
    let agent = agent([call("c1", "large", "{}"), ScriptedReply::text("So.")]).tool(large);
    let ran = Ran::to_end(agent.spill(Shelf(Arc::clone(&shelf))).build().unwrap().prompt("?")).await;
    let result = &ran.results()[0];
    assert!(matches!(result.content[..], [Content::Text(_), Content::Image(_), Content::Text(_)]));
    assert!(text(result).contains("[A picture (image/png, 13981016 bytes) is left out here"), "{}", text(result));
    let details = result.details.as_ref().unwrap().as_str();
    assert!(details.contains("5242882 bytes of details") && details.contains("place 1"), "{details}");
    assert_eq!(shelf.lock().unwrap()[0].len(), 5_242_882, "a JSON string in its quotes");
}

#[tokio::test(start_paused = true)]
async fn what_a_tool_discovers_goes_through_the_hooks_and_the_limits() {
    struct Redact;
    impl Hooks for Redact {
        fn after_tool<'a>(
            &'a self,
            _: &'a ToolCall,
            output: ToolOutput,
        ) -> BoxFuture<'a, Result<ToolOutput, HookError>> {
            let text = output.content[0].as_text().unwrap().replace("secret", "******");
            Box::pin(std::future::ready(Ok(ToolOutput::text(text))))
        }
    }
    let pay = tool("pay", "", |_: Nothing, _| async { Ok(std::future::pending::<String>().await) })
        .discover(|_| async { Some(ToolOutput::text("secret".repeat(100))) });
    let replies = [call("c1", "pay", "{}"), ScriptedReply::text("So.")];
    let mut run = agent(replies).tool(pay).hooks(Redact).output_limit(12).build().unwrap().prompt("?");
    let handle = run.handle();
    let mut told = String::new();
    while let Some(event) = run.next().await {
        match event {
            Event::ToolStarted { .. } => {
                tokio::task::yield_now().await;
                handle.interrupt("And?");
            }
            Event::ToolEnded { result } => told = serde_json::to_string(&result).unwrap(),
            _ => {}
        }
    }
    assert!(told.contains("******") && told.contains("left out here") && !told.contains("secret"), "{told}");
}

#[tokio::test]
async fn a_typed_reply_is_held_to_the_schema_that_was_sent() {
    let loose = [
        r#"["Bern",134000]"#,
        r#"{"name":"Bern","inhabitants":134000,"mayor":"?"}"#,
        r#"{"name":"Bern","inhabitants":134000} {}"#,
        "Here it is: {\"name\":\"Bern\",\"inhabitants\":134000}",
    ];
    for reply in loose {
        let right = ScriptedReply::text(r#"{"name":"Bern","inhabitants":134000}"#);
        let typed = agent([ScriptedReply::text(reply), right]).build().unwrap().run::<City>("?").value().await.unwrap();
        assert_eq!(typed.report.spent.model_calls, 2, "{reply} is objected to");
    }
}

// Budgets of several runs.

#[tokio::test]
async fn a_budget_can_be_spent_by_several_runs_together() {
    let budget = SharedBudget::new(SharedLimits { model_calls: Some(3), ..SharedLimits::default() });
    let replies = || {
        let more = |n| call(&format!("c{n}"), "add", r#"{"a":1,"b":1}"#);
        [more(1), more(2), ScriptedReply::text("Done.")]
    };
    let agent = || agent(replies()).shared_budget(budget.clone()).build().unwrap();
    assert_eq!(agent().prompt("?").report().await.outcome, Outcome::Completed);
    assert_eq!(budget.spent().model_calls, 3);
    let report = agent().prompt("?").report().await;
    let out_of_calls = Outcome::OutOfBudget { budget: Budget::ModelCalls, still_running: Vec::new() };
    assert_eq!((report.outcome, report.spent.model_calls), (out_of_calls.clone(), 0), "nothing is left for another");

    // A run in whose middle the rest is spent ends there, and its calls have their results.
    let budget = SharedBudget::new(SharedLimits { model_calls: Some(2), ..SharedLimits::default() });
    let agent = support::agent(replies()).shared_budget(budget.clone()).build().unwrap();
    let ran = Ran::to_end(agent.prompt("?")).await;
    assert_eq!((ran.outcome(), ran.results().len()), (&out_of_calls, 2));
    assert_eq!(budget.exhausted(), Some(Budget::ModelCalls));
    let unlimited = SharedBudget::new(SharedLimits { cost: Some(Money::from_nanos(1)), ..SharedLimits::default() });
    assert_eq!(unlimited.exhausted(), None);
}

#[tokio::test]
async fn objections_can_be_forbidden() {
    let mut limits = Limits::default();
    limits.objections = 0;
    let report = agent([ScriptedReply::text("no json")]).limits(limits).build().unwrap().run::<City>("?").value().await;
    assert!(matches!(report.unwrap_err().outcome, Outcome::Failed { failure: Failure::Objected(_) }));
}

#[tokio::test(start_paused = true)]
async fn a_shared_budget_that_others_use_up_ends_a_run_that_waits_for_a_retry() {
    use terret_llm::{ErrorKind, ModelError};
    let budget = SharedBudget::new(SharedLimits { model_calls: Some(2), ..SharedLimits::default() });
    let late = ModelError::new(ErrorKind::RateLimited, "slowly").with_retry_after(Duration::from_secs(50));
    let waiting =
        agent([ScriptedReply::text("").error(late)]).shared_budget(budget.clone()).build().unwrap().prompt("?");
    let started = tokio::time::Instant::now();
    tokio::time::sleep(Duration::from_secs(1)).await;
    agent([ScriptedReply::text("So.")]).shared_budget(budget).build().unwrap().prompt("?").report().await;
    let handle = waiting.handle();
    // A run looks at the budget when something happens to it, and at the latest before its next model call.
    handle.steer("and?");
    let report = waiting.report().await;
    let out_of_calls = Outcome::OutOfBudget { budget: Budget::ModelCalls, still_running: Vec::new() };
    assert_eq!((report.outcome, report.undelivered.len()), (out_of_calls, 1));
    assert_eq!(started.elapsed().as_secs(), 1);
}
