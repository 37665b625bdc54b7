//! `docs/events.schema.json` holds for every line that the program prints.

use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::{Value, json};

static SCHEMA: LazyLock<Validator> = LazyLock::new(|| {
    let schema = include_str!("../../../../docs/events.schema.json");
    jsonschema::draft202012::new(&serde_json::from_str(schema).unwrap()).unwrap()
});

/// Every line is as the schema says, and exactly the last one is a result.
#[track_caller]
pub(crate) fn check(output: &str) {
    assert!(output.ends_with('\n'), "the last line has no end: {output}");
    let last = output.lines().count() - 1;
    for (n, line) in output.lines().enumerate() {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let problems: Vec<String> = SCHEMA.iter_errors(&event).map(|error| error.to_string()).collect();
        assert!(problems.is_empty(), "{line}\n{}", problems.join("\n"));
        assert_eq!(event["type"] == "result", n == last, "{output}");
    }
}

/// The checks above can fail.
#[test]
fn the_schema_refuses_what_the_program_does_not_print() {
    let result = json!({
        "v": 1, "type": "result", "outcome": "completed", "exitCode": 0, "text": "", "stopReason": "stop",
        "sessionId": "s", "model": "p/m", "modelCalls": 1, "toolCalls": 0, "costUsd": null, "durationMs": 0,
        "usage": {"input": 0, "cacheRead": 0, "cacheWrite": 0, "output": 0},
    });
    assert!(SCHEMA.is_valid(&result));
    for (pointer, value) in [
        ("/v", json!(2)),
        ("/type", json!("brand_new")),
        ("/exitCode", json!(1)),
        ("/outcome", json!("failed")),
        ("/outcome", json!("brand_new")),
        ("/stopReason", json!("brand_new")),
        ("/usage/input", json!(-1)),
        ("/costUsd", json!("0")),
        ("/modelCalls", json!(null)),
    ] {
        let mut changed = result.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        assert!(!SCHEMA.is_valid(&changed), "{changed}");
    }
    for (key, value) in [("brandNew", json!(1)), ("error", json!({"kind": "server", "message": ""}))] {
        let mut more = result.clone();
        more[key] = value;
        assert!(!SCHEMA.is_valid(&more), "{more}");
    }
    for key in result.as_object().unwrap().keys() {
        let mut less = result.clone();
        less.as_object_mut().unwrap().remove(key);
        assert!(!SCHEMA.is_valid(&less), "{less}");
    }
}
