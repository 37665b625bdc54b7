//! JSON that is still being written, against `serde_json`.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Value, json};
use terret_llm::{Arguments, PartialJson, PartialJsonError};

/// Whether every part of `earlier` is still there in `later`, if need be longer.
fn grew(earlier: &Value, later: &Value) -> bool {
    match (earlier, later) {
        (Value::String(a), Value::String(b)) => b.starts_with(a),
        (Value::Array(a), Value::Array(b)) => a.len() <= b.len() && a.iter().zip(b).all(|(a, b)| grew(a, b)),
        (Value::Object(a), Value::Object(b)) => a.iter().all(|(name, a)| b.get(name).is_some_and(|b| grew(a, b))),
        (a, b) => a == b,
    }
}

/// Feeds a text piece by piece, looks after each one, and ends it.
fn feed(pieces: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Value, PartialJsonError> {
    let mut partial = PartialJson::new();
    let mut earlier = None;
    for piece in pieces {
        partial.push(piece.as_ref());
        let now = partial.value().cloned();
        match (&earlier, &now) {
            (Some(earlier), Some(now)) => assert!(grew(earlier, now), "{earlier} became {now}"),
            (earlier, None) => assert_eq!(earlier, &None, "it is gone"),
            (None, Some(_)) => {}
        }
        earlier = now;
    }
    partial.finish()
}

fn characters(text: &str) -> Vec<String> {
    text.chars().map(String::from).collect()
}

#[test]
fn what_has_begun_is_in_view() {
    for (text, expected) in [
        ("", None),
        ("  ", None),
        ("tru", None),
        ("12", None),
        (r#"""#, Some(json!(""))),
        ("{", Some(json!({}))),
        (r#"{"pa"#, Some(json!({}))),
        (r#"{"path":"#, Some(json!({}))),
        (r#"{"path":""#, Some(json!({"path": ""}))),
        (r#"{"path":"a\"#, Some(json!({"path": "a"}))),
        (r#"{"path":"a\u00"#, Some(json!({"path": "a"}))),
        (r#"{"path":"a\u00e9"#, Some(json!({"path": "aé"}))),
        (r#"{"path":"\ud83d"#, Some(json!({"path": ""}))),
        (r#"{"path":"\ud83d\ude00"#, Some(json!({"path": "😀"}))),
        (r#"{"path":"\ud83d\n"#, Some(json!({"path": "\u{fffd}\n"}))),
        (r#"{"n":12"#, Some(json!({}))),
        (r#"{"n":12,"#, Some(json!({"n": 12}))),
        (r#"{"n":nul"#, Some(json!({}))),
        (r#"{"n":null"#, Some(json!({"n": null}))),
        (r#"{"a":[{"b":["x","y"#, Some(json!({"a": [{"b": ["x", "y"]}]}))),
        (r#"{"a":[{"b":["x"]}],"c":{"#, Some(json!({"a": [{"b": ["x"]}], "c": {}}))),
        (r#"{"a":1,"a":"x"#, Some(json!({"a": "x"}))),
        // An error stops the view, and takes nothing from it.
        (r#"{"a":["x"},"b":1}"#, Some(json!({"a": ["x"]}))),
        ("{\"a\":\"x\ny\"}", Some(json!({"a": "x"}))),
    ] {
        let mut whole = PartialJson::new();
        whole.push(text);
        assert_eq!(whole.value(), expected.as_ref(), "{text}");
        assert_eq!(whole.value(), expected.as_ref(), "looking changes nothing: {text}");
        let mut pieces = PartialJson::new();
        for piece in characters(text) {
            pieces.push(&piece);
            pieces.value();
        }
        assert_eq!(pieces.value(), expected.as_ref(), "a character at a time: {text}");
    }
}

#[test]
fn an_end_that_comes_too_early_is_told_from_an_error() {
    for text in ["", " ", "{", r#"{"a""#, r#"{"a":1"#, "[1,", "-", "[1.", "1e+", "tru", r#""a"#, r#""\u00"#, "[[]"] {
        assert_eq!(feed([text]), Err(PartialJsonError::Incomplete), "{text}");
    }
    for text in [
        "]",
        "[1,]",
        "{,}",
        r#"{"a":1,}"#,
        r#"{"a" 1}"#,
        "{a:1}",
        "[1}",
        "{]",
        "truth",
        "nil",
        "01",
        "-.",
        "1e999",
        "1 2",
        "{} {}",
        r#""\x""#,
        r#""\u00g0""#,
        "\"\t\"",
        "+1",
        "é",
        "'a'",
    ] {
        assert!(serde_json::from_str::<Value>(text).is_err(), "{text}");
        assert_eq!(feed([text]), Err(PartialJsonError::Invalid), "{text}");
    }
}

#[test]
fn it_goes_as_deep_as_serde_json_and_no_deeper() {
    for depth in [127, 128] {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let inner = if open == "[" { "" } else { "1" };
            let text = format!("{}{inner}{}", open.repeat(depth), close.repeat(depth));
            assert_eq!(feed([&text]).ok(), serde_json::from_str(&text).ok(), "{depth}");
        }
    }
    assert_eq!(feed(["[".repeat(1_000_000)]), Err(PartialJsonError::Invalid));
}

/// Two megabytes in 20,000 fragments, looked at after each. Were any of them paid for twice, this would not end.
#[test]
fn a_long_text_in_many_fragments_is_viewed_throughout() {
    let line = "fn main() { println!(\"é\\n\"); }\n".repeat(20);
    let text = json!({"path": "src/main.rs", "edits": [{"new": line.repeat(1_600)}, line.repeat(1_600)]}).to_string();
    assert!(text.len() > 2_000_000);
    let size = text.len().div_ceil(20_000);
    let mut partial = PartialJson::new();
    let mut rest = text.as_str();
    let mut seen = 0;
    while !rest.is_empty() {
        let end = (size..).find(|end| *end >= rest.len() || rest.is_char_boundary(*end)).unwrap().min(rest.len());
        let (piece, behind) = rest.split_at(end);
        partial.push(piece);
        let new = partial.value().and_then(|value| value.pointer("/edits/0/new")?.as_str()).map_or(0, str::len);
        assert!(new >= seen);
        (seen, rest) = (new, behind);
    }
    assert_eq!(seen, line.len() * 1_600);
    assert_eq!(partial.finish().unwrap(), serde_json::from_str::<Value>(&text).unwrap());
}

/// Any JSON.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[\\PC\n\"\\\\\u{0}]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::from),
            btree_map("[a-c\"é]{0,3}", inner, 0..5).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Text of JSON's own characters, most of which is none.
fn almost() -> impl Strategy<Value = String> {
    let token = prop_oneof![
        Just("{"),
        Just("}"),
        Just("["),
        Just("]"),
        Just(","),
        Just(":"),
        Just("\"a\""),
        Just("\"\\ud83d\""),
        Just("\"\\ud83d\\ude00\\u00e9\\\\\""),
        Just("1"),
        Just("-0"),
        Just("0.5e-3"),
        Just("true"),
        Just("null"),
        Just(" "),
        Just("\""),
        Just("\\"),
        Just("é"),
        Just("1e400"),
        Just("123456789012345678901234567890"),
    ];
    vec(token, 0..12).prop_map(|tokens| tokens.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_prefix_grows_into_what_serde_json_reads(value in value(), pretty: bool, size in 1..9_usize) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        let read: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(feed([&text]), Ok(read.clone()));
        let pieces: Vec<String> = characters(&text).chunks(size).map(|piece| piece.concat()).collect();
        prop_assert_eq!(feed(pieces), Ok(read));
    }

    #[test]
    fn any_text_is_read_as_arguments_are_or_refused_as_they_are(text in prop_oneof![almost(), any::<String>()]) {
        prop_assume!(!text.trim().is_empty());
        let expected = Arguments::new(&text).parse::<Value>().ok();
        prop_assert_eq!(feed([&text]).ok(), expected.clone());
        // Names may stand twice here, so that the view may shrink; the end is the same.
        let mut partial = PartialJson::new();
        for piece in characters(&text) {
            partial.push(&piece);
            partial.value();
        }
        prop_assert_eq!(partial.finish().ok(), expected);
    }
}
