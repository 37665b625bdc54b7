//! Typed calls: the schema that is asked for, and what becomes of the reply.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use terret_llm::transport::{HttpRequest, SendFuture, Transport};
use terret_llm::wire::{EncodeError, WireFormat};
use terret_llm::{
    BaseUrl, CompleteError, Completed, Endpoint, ErrorKind, HttpModel, Message, ModelSpec, Options, OutputSchema,
    RawJson, Request, SchemaSupport, ScriptedModel, StopReason, ToolSpec, UserMessage, complete,
};

/// A recipe.
#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct Recipe {
    /// What it is called.
    title: String,
    #[schemars(range(min = 1, max = 12))]
    servings: u8,
    #[serde(default)]
    vegan: bool,
    source: Option<String>,
    steps: Vec<Step>,
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Step {
    Wait {
        minutes: f64,
    },
    /// Heat it.
    Heat {
        level: Level,
    },
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Level {
    Low,
    High,
}

/// A tree, which contains itself.
#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct Tree {
    name: String,
    /// What hangs below it.
    children: Vec<Tree>,
}

/// Written after the vendors' pages on structured outputs: everything is required, nothing is open, and no keyword
/// stands there that one of them refuses.
fn recipe() -> Value {
    json!({
        "type": "object",
        "description": "A recipe.",
        "properties": {
            "title": {"type": "string", "description": "What it is called."},
            "servings": {"type": "integer", "description": "minimum: 1, maximum: 12"},
            "vegan": {"type": "boolean"},
            "source": {"type": ["string", "null"]},
            "steps": {
                "type": "array",
                "items": {
                    "anyOf": [
                        {
                            "type": "object",
                            "properties": {
                                "kind": {"type": "string", "enum": ["wait"]},
                                "minutes": {"type": "number"},
                            },
                            "required": ["kind", "minutes"],
                            "additionalProperties": false,
                        },
                        {
                            "type": "object",
                            "description": "Heat it.",
                            "properties": {
                                "kind": {"type": "string", "enum": ["heat"]},
                                "level": {"type": "string", "enum": ["low", "high"]},
                            },
                            "required": ["kind", "level"],
                            "additionalProperties": false,
                        },
                    ],
                },
            },
        },
        "required": ["title", "servings", "steps", "source", "vegan"],
        "additionalProperties": false,
    })
}

fn ask() -> Request {
    Request { messages: [Message::from(UserMessage::text("hi", 0))].into_iter().collect(), ..Request::default() }
}

/// What `T` comes out as if the model says this.
async fn said<T: JsonSchema + for<'de> Deserialize<'de>>(script: Value) -> Result<Completed<T>, CompleteError> {
    complete(&ScriptedModel::parse(&script.to_string()).unwrap(), ask()).await
}

/// A sorted list, for comparing what has no order.
fn sorted(mut schema: Value) -> Value {
    fn walk(value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    if let (true, Value::Array(list)) = (key == "required", &mut *value) {
                        list.sort_by_key(Value::to_string);
                    }
                    walk(value);
                }
            }
            Value::Array(list) => list.iter_mut().for_each(walk),
            _ => {}
        }
    }
    walk(&mut schema);
    schema
}

#[test]
fn a_type_becomes_a_schema_that_all_providers_take() {
    let OutputSchema { name, schema } = OutputSchema::of::<Recipe>();
    assert_eq!(name, "Recipe");
    assert_eq!(sorted(schema.to_value().unwrap()), sorted(recipe()));
    assert_eq!(OutputSchema::of::<Vec<Recipe>>().name, "Array_of_Recipe");
}

#[test]
fn a_type_that_contains_itself_refers_to_itself() {
    let schema = OutputSchema::of::<Tree>().schema.to_value().unwrap();
    let below = &schema["properties"]["children"]["items"];
    let reference = below["$ref"].as_str().unwrap();
    assert_eq!(below, &json!({"$ref": reference}), "nothing stands beside a reference");
    let place = reference.strip_prefix('#').unwrap();
    assert!(schema.pointer(place).unwrap()["properties"].is_object(), "{schema}");
    assert_eq!(schema["additionalProperties"], false);
}

#[test]
fn each_wire_sends_the_schema_in_its_place_and_as_a_strict_one_where_it_can_say_so() {
    use WireFormat::*;
    let schema = OutputSchema::of::<Recipe>();
    let sent = schema.schema.to_value().unwrap();
    for (wire, place, expected) in [
        (AnthropicMessages, "/output_config/format", json!({"type": "json_schema", "schema": sent})),
        (
            OpenaiCompletions,
            "/response_format",
            json!({"type": "json_schema", "json_schema": {"name": "Recipe", "strict": true, "schema": sent}}),
        ),
        (
            OpenaiResponses,
            "/text/format",
            json!({"type": "json_schema", "name": "Recipe", "strict": true, "schema": sent}),
        ),
        (GoogleGenerativeAi, "/generationConfig/responseJsonSchema", sent.clone()),
    ] {
        let Some(encoder) = wire.wire() else { continue };
        let mut options = Options::default();
        options.output_schema = Some(schema.clone());
        let encoded = encoder.encode(&ModelSpec::new("host", "model", wire.clone()), &Request { options, ..ask() });
        let body: Value = serde_json::from_slice(&encoded.unwrap().body.to_bytes()).unwrap();
        assert_eq!(body.pointer(place), Some(&expected), "{wire}");
    }
}

#[tokio::test]
async fn a_reply_is_read_as_the_type() {
    let answer = json!({
        "title": "Soup", "servings": 2, "vegan": true, "source": null,
        "steps": [{"kind": "heat", "level": "high"}, {"kind": "wait", "minutes": 20}],
    });
    let steps = vec![Step::Heat { level: Level::High }, Step::Wait { minutes: 20.0 }];
    let soup = Recipe { title: "Soup".into(), servings: 2, vegan: true, source: None, steps };
    for text in [answer.to_string(), format!("```json\n{answer:#}\n```\n"), format!("```\n{answer}```")] {
        let completed: Completed<Recipe> = said(json!({"text": text, "usage": {"output": 7}})).await.unwrap();
        assert_eq!(completed.value, soup);
        assert_eq!(completed.reply.message().usage.output, 7);
    }
}

#[tokio::test]
async fn what_is_no_object_is_asked_for_in_one() {
    let model = ScriptedModel::parse("{\"text\":\"{\\\"value\\\":[\\\"low\\\",\\\"high\\\"]}\"}").unwrap();
    let completed: Completed<Vec<Level>> = complete(&model, ask()).await.unwrap();
    assert_eq!(completed.value, [Level::Low, Level::High]);
    let [request] = model.requests().try_into().unwrap();
    let list = json!({"type": "array", "items": {"type": "string", "enum": ["low", "high"]}});
    let expected = json!({
        "type": "object", "properties": {"value": list}, "required": ["value"], "additionalProperties": false,
    });
    assert_eq!(request.options.output_schema.unwrap().schema.to_value().unwrap(), expected);

    let completed: Completed<u32> = said(json!({"text": "{\"value\":7}"})).await.unwrap();
    assert_eq!(completed.value, 7);
    let tree = "{\"value\":{\"name\":\"a\",\"children\":[]}}";
    let completed: Completed<Option<Tree>> = said(json!({"text": tree})).await.unwrap();
    assert_eq!(completed.value, Some(Tree { name: "a".into(), children: Vec::new() }));
}

#[tokio::test]
async fn an_answer_of_another_form_keeps_its_text() {
    for (text, reason) in [
        ("Here you are: {}", "expected value at line 1"),
        (r#"{"value":300}"#, "expected u8"),
        (r#"{"value":1} and more"#, "trailing characters"),
        ("", "EOF"),
    ] {
        match said::<u8>(json!({"text": text})).await {
            Err(CompleteError::Malformed { text: kept, source, reply }) => {
                assert_eq!((kept.as_str(), reply.message().text().as_str()), (text, text));
                assert!(source.to_string().contains(reason), "{source}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_reply_that_stopped_early_is_no_answer() {
    let call = json!({"type": "toolCall", "id": "1", "name": "read", "arguments": {}});
    for (script, reason) in [
        (json!({"text": "{\"value\":1}", "stopReason": "length"}), StopReason::Length),
        (json!({"text": "I won't.", "stopReason": "refusal"}), StopReason::Refusal),
        (json!({"content": [call]}), StopReason::ToolUse),
    ] {
        match said::<u8>(script).await {
            Err(CompleteError::Unfinished { reply }) => assert_eq!(reply.message().stop_reason, reason),
            other => panic!("{other:?}"),
        }
    }
    match said::<u8>(json!({"error": {"kind": "overloaded"}})).await {
        Err(CompleteError::Failed(failed)) => assert_eq!(failed.error.kind, ErrorKind::Overloaded),
        other => panic!("{other:?}"),
    }
}

/// Fails the test that sends something.
struct Nowhere;

impl Transport for Nowhere {
    fn send(&self, request: HttpRequest) -> SendFuture<'_> {
        panic!("sent to {}", request.url)
    }
}

#[tokio::test]
async fn a_model_without_schemas_is_not_asked() {
    let mut without = ModelSpec::new("deepseek", "deepseek-chat", WireFormat::OpenaiCompletions);
    without.compat.output_schema = SchemaSupport::None;
    let gemini = ModelSpec::new("google", "gemini-2.5-pro", WireFormat::GoogleGenerativeAi);
    let parameters = RawJson::parse(r#"{"type":"object"}"#).unwrap();
    let tool = ToolSpec { name: "read".into(), description: "Reads.".into(), parameters };
    let with_tools = Request { tools: vec![tool].into(), ..ask() };
    for (spec, request) in [(without, ask()), (gemini, with_tools)] {
        if spec.wire.wire().is_none() {
            continue;
        }
        let endpoint = Endpoint::new(BaseUrl::exact("https://host.invalid").unwrap());
        let model = HttpModel::new(spec, endpoint, Arc::new(Nowhere));
        match complete::<Recipe>(&model, request).await {
            Err(CompleteError::Unsupported(EncodeError::Unsupported { option, .. })) => {
                assert_eq!(option, "output_schema");
            }
            other => panic!("{other:?}"),
        }
    }
}
