//! `terret wire decode` and `terret wire encode`.

use serde_json::{Value, json};

use crate::terret::{Ran, Terret};

const SAYS_HI: &str = concat!(
    "data: {\"id\":\"r1\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"h\"}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"é\"},\"finish_reason\":\"stop\"}]}\n\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":20,",
    "\"prompt_tokens_details\":{\"cached_tokens\":80},\"completion_tokens_details\":{\"reasoning_tokens\":5}}}\n\n",
    "data: [DONE]\n\n",
);

fn decode(body: &str, args: &[&str]) -> Ran {
    Terret::new().args(["wire", "decode", "openai-completions"]).args(args).stdin(body).run()
}

fn lines(ran: &Ran) -> Vec<Value> {
    ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn without_time(message: &Value) -> Value {
    let mut message = message.clone();
    assert!(message.as_object_mut().unwrap().remove("timestamp").unwrap().as_i64().unwrap() > 1_600_000_000_000);
    message
}

#[test]
fn a_body_is_decoded_to_the_message_that_it_means() {
    let expected = json!({
        "role": "assistant", "content": [{"type": "text", "text": "hé"}], "provider": "groq", "model": "llama",
        "wire": "openai-completions", "stopReason": "stop", "rawStopReason": "stop", "responseId": "r1",
        "usage": {"input": 20, "cacheRead": 80, "cacheWrite": 0, "output": 20, "reasoning": 5},
    });
    for args in [&[][..], &["--chunk", "1"], &["--chunk", "7"], &["--chunk", "100000"], &["--status", "200"]] {
        let ran = decode(SAYS_HI, &[&["--model", "groq/llama"], args].concat()).exits(0);
        assert_eq!(lines(&ran).iter().map(without_time).collect::<Vec<_>>(), std::slice::from_ref(&expected));
    }
    let from_file = Terret::new().file("body.sse", SAYS_HI).args(["wire", "decode", "openai-completions", "body.sse"]);
    assert_eq!(lines(&from_file.run().exits(0))[0]["provider"], "unknown");
}

#[test]
fn events_are_the_stream_and_then_its_end() {
    let types = |ran: &Ran| lines(ran).iter().map(|event| event["type"].clone()).collect::<Vec<_>>();
    let block = ["start", "block_start", "block_delta", "block_delta", "block_end"];
    let whole = decode(SAYS_HI, &["--events"]).exits(0);
    assert_eq!(types(&whole), [&block[..], &["done"]].concat());
    let cut = &SAYS_HI[..SAYS_HI.find("data: {\"choices\":[],").unwrap()];
    let cut = cut.replace(",\"finish_reason\":\"stop\"", "");
    let broken = decode(&cut, &["--events", "--chunk", "1"]).exits(1);
    assert_eq!(types(&broken).last().unwrap(), "failed");
    assert_eq!(lines(&broken).last().unwrap()["error"]["kind"], "truncated");
}

#[test]
fn a_body_without_its_end_is_an_error_with_what_had_arrived() {
    let (first, _) = SAYS_HI.split_once("\n\n").unwrap();
    let failed = lines(&decode(first, &[]).exits(1)).pop().unwrap();
    assert_eq!(failed["error"]["kind"], "truncated");
    assert_eq!(failed["partial"]["content"], json!([{"type": "text", "text": "h"}]));
    let empty = lines(&decode("", &[]).exits(1)).pop().unwrap();
    assert_eq!(empty["partial"]["content"], json!([]));
}

#[test]
fn an_error_status_makes_the_body_an_error() {
    for (status, body, kind) in [
        ("401", r#"{"error":{"message":"bad key","type":"invalid_request_error"}}"#, "auth"),
        ("429", r#"{"error":{"message":"limit of 10 requests","type":"requests"}}"#, "rate_limited"),
        ("503", "<html>Service Unavailable</html>", "overloaded"),
        ("404", "", "not_found"),
    ] {
        let failed = lines(&decode(body, &["--status", status]).exits(1)).pop().unwrap();
        assert_eq!(
            (&failed["error"]["kind"], &failed["error"]["status"]),
            (&json!(kind), &json!(status.parse::<u16>().unwrap()))
        );
    }
}

#[test]
fn a_request_is_encoded_for_each_wire() {
    let request = json!({
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}], "timestamp": 1},
        ],
        "tools": [{"name": "ls", "description": "Lists.", "parameters": {"type": "object"}}],
        "options": {"maxOutputTokens": 100},
    });
    for (wire, model, text, limit) in [
        ("anthropic-messages", "anthropic/claude", "/messages/0/content/0/text", "/max_tokens"),
        ("openai-completions", "groq/llama", "/messages/1/content", "/max_completion_tokens"),
        ("openai-responses", "openai/gpt-5", "/input/0/content/0/text", "/max_output_tokens"),
        ("google-generative-ai", "google/gemini", "/contents/0/parts/0/text", "/generationConfig/maxOutputTokens"),
    ] {
        let ran =
            Terret::new().args(["wire", "encode", wire, "--model", model]).stdin(request.to_string()).run().exits(0);
        let body = lines(&ran).pop().unwrap();
        assert_eq!(body.pointer(text), Some(&json!("hi")), "{wire}: {body}");
        assert_eq!(body.pointer(limit), Some(&json!(100)), "{wire}: {body}");
    }
}

#[test]
fn what_was_decoded_can_be_encoded_again() {
    let message = lines(&decode(SAYS_HI, &["--model", "groq/llama"])).pop().unwrap();
    let user = |text: &str| json!({"role": "user", "content": text});
    let request = json!({"messages": [user("hi"), message, user("and now?")]});
    let encode = ["wire", "encode", "openai-completions", "--model", "groq/llama"];
    let ran = Terret::new().args(encode).stdin(request.to_string()).run().exits(0);
    let messages = &lines(&ran)[0]["messages"];
    assert_eq!((&messages[1]["role"], &messages[1]["content"]), (&json!("assistant"), &json!("hé")));
}

#[test]
fn what_can_not_be_read_is_named() {
    let encode = ["wire", "encode", "openai-completions", "--model", "groq/llama"];
    for (terret, part) in [
        (Terret::new().args(["wire", "decode", "soap"]), "anthropic-messages, openai-completions"),
        (Terret::new().args(["wire", "decode", "openai-completions", "nothing.sse"]), "nothing.sse"),
        (Terret::new().args(["wire", "decode", "openai-completions", "--chunk", "0"]), "--chunk"),
        (Terret::new().args(["wire", "encode", "openai-completions"]), "--model"),
        (Terret::new().args(encode).stdin("{"), "the request"),
        (Terret::new().args(encode).stdin(r#"{"messages":[{"role":"robot"}]}"#), "\"robot\""),
        (Terret::new().args(encode).stdin(r#"{"messages":[]}"#), "no message"),
        (Terret::new().args(["wire"]), "decode"),
    ] {
        let ran = terret.run().exits(2);
        assert_eq!(ran.stdout, "");
        assert!(ran.stderr.contains(part), "{}", ran.stderr);
    }
}
