//! Runs whose final reply has to be JSON of a schema.

use serde_json::{Value, json};

use crate::command_line::complains;
use crate::server::Server;
use crate::servers::chat_text;
use crate::terret::{Terret, text_of};

const CITY: &str = r#"{"type": "object", "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["city", "people"], "additionalProperties": false}"#;

fn with(schema: &str, replies: impl IntoIterator<Item = &'static str>) -> Terret {
    let replies: Vec<Value> = replies.into_iter().map(|text| json!({"text": text})).collect();
    Terret::scripted(replies).file("schema.json", schema).args(["--output-schema", "schema.json"])
}

#[test]
fn the_result_is_the_json_and_nothing_else() {
    let bern = r#"{"city": "Bern", "people": 137995}"#;
    assert_eq!(with(CITY, [bern]).run().exits(0).stdout, format!("{bern}\n"));
    let fenced = "```json\n{\"city\": \"Bern\", \"people\": 137995}\n```";
    assert_eq!(with(CITY, [fenced]).run().exits(0).stdout, format!("{bern}\n"));
    let ran = with(CITY, [fenced]).args(["--json"]).run().exits(0);
    assert_eq!(ran.result()["text"], bern);
    // The transcript keeps what was said.
    assert_eq!(text_of(&ran.messages()[1]), fenced);
    assert_eq!(with(r#"{"type": "array"}"#, ["[1]"]).run().exits(0).stdout, "[1]\n");
    let settings =
        Terret::scripted([json!({"text": "[1]"})]).home_file(".config/terret/list.json", r#"{"type": "array"}"#);
    assert_eq!(settings.config("output-schema = 'list.json'\n").run().exits(0).stdout, "[1]\n");
}

#[test]
fn a_model_that_answers_something_else_is_told_what_is_wrong() {
    let wrong = r#"{"city": 7, "land": "CH"}"#;
    let right = r#"{"city": "Bern", "people": 1}"#;
    let ran = with(CITY, ["It is Bern.", wrong, right]).args(["--json"]).run().exits(0);
    assert_eq!((&ran.result()["text"], &ran.result()["modelCalls"]), (&json!(right), &json!(3)));
    let said: Vec<String> = ran.messages().iter().filter(|message| message["role"] == "user").map(text_of).collect();
    assert!(said[1].contains("it is no JSON") && said[1].contains("\"additionalProperties\":false"), "{}", said[1]);
    for part in
        ["at \"/city\": 7 is not of type \"string\"", "\"people\" is a required property", "'land' was unexpected"]
    {
        assert!(said[2].contains(part), "{}", said[2]);
    }
}

#[test]
fn one_that_never_manages_fails_the_run() {
    let never = || with(CITY, ["no"; 10]);
    let ran = never().args(["-o", "json"]).run().exits(8);
    let error = &ran.result()["error"];
    assert_eq!(error["kind"], "output_schema");
    assert!(error["message"].as_str().unwrap().contains("it is no JSON"), "{error}");
    assert_eq!(ran.result()["modelCalls"], 4);
    let ran = never().run().exits(8);
    assert_eq!(ran.stdout, "");
    assert!(ran.stderr.contains("it is no JSON"), "{}", ran.stderr);
}

#[test]
fn a_provider_is_held_to_a_schema_that_it_takes_and_told_every_schema() {
    let open = r#"{"type": "object", "properties": {"city": {"type": "string", "minLength": 1}}}"#;
    for (schema, is_sent) in [(CITY, true), (open, false)] {
        let server = Server::answering([chat_text(r#"{"city": "Bern", "people": 1}"#)]);
        let terret = Terret::new().file("schema.json", schema).args(["-p", "x", "--output-schema", "schema.json"]);
        terret.args(["-m", "custom/m", "--base-url", &server.url]).run().exits(0);
        let body = &server.requests()[0].body;
        let sent: Value = serde_json::from_str(schema).unwrap();
        assert_eq!(body["response_format"]["json_schema"]["schema"] == sent, is_sent, "{body}");
        assert!(body["messages"][0]["content"].as_str().unwrap().ends_with(&sent.to_string()), "{body}");
    }
}

#[test]
fn a_schema_that_is_none_is_named() {
    for (schema, part) in [
        ("", "EOF"),
        ("{", "EOF"),
        (r#"{"type": "thing"}"#, "thing"),
        ("7", "7"),
        (r#"{"$ref": "https://example.com/schema.json"}"#, "example.com"),
        (r##"{"$ref": "#/nowhere"}"##, "nowhere"),
    ] {
        complains(|| with(schema, ["{}"]), 2, "usage", &["--output-schema: schema.json: ", part]);
    }
    for (path, part) in [("none.json", "No such file"), (".", "directory")] {
        let start = || Terret::scripted([json!({"text": "{}"})]).args(["--output-schema", path]);
        complains(start, 2, "usage", &[part]);
    }
}
