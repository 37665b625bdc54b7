//! A server on a loopback port that writes each event of an answer as an HTTP chunk of its own, and all of them as fast
//! as the socket takes them: many to a write, so that how much a read finds doesn't depend on how fast the reader is. What it answers stands in the path: `/WIRE/KIND/DELTAS/…`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use terret_llm::wire::WireFormat;

/// What an answer is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// Text, about a token a delta.
    Text,
    /// One tool call, its arguments in fragments of 100 bytes.
    Arguments,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Text => "text",
            Kind::Arguments => "arguments",
        }
    }

    /// What one delta holds.
    pub(crate) fn fragment(self) -> &'static str {
        match self {
            Kind::Text => " delta",
            // As source code stands in arguments: a line break is an escape in them, and its backslash another one.
            Kind::Arguments => {
                r"        let total: u64 = items.iter().map(|item| item.price * item.count).sum();  // in cents\n   "
            }
        }
    }
}

/// Starts the server; returns its address.
pub(crate) fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            std::thread::spawn(|| answer_all(stream));
        }
    });
    address
}

fn answer_all(mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some(path) = read_request(&mut reader) {
        let mut parts = path.split('/').skip(1);
        let wire = WireFormat::from(parts.next().unwrap());
        let kind = if parts.next() == Some("text") { Kind::Text } else { Kind::Arguments };
        let deltas: usize = parts.next().unwrap().parse().unwrap();
        if answer(&mut stream, &wire, kind, deltas).is_err() {
            return;
        }
    }
}

fn read_request(reader: &mut impl BufRead) -> Option<String> {
    let mut first = String::new();
    reader.read_line(&mut first).ok().filter(|read| *read > 0)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().to_ascii_lowercase() {
            line if line.is_empty() => break,
            line => {
                if let Some(value) = line.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
            }
        }
    }
    std::io::copy(&mut reader.take(length), &mut std::io::sink()).ok()?;
    first.split(' ').nth(1).map(str::to_owned)
}

fn answer(stream: &mut TcpStream, wire: &WireFormat, kind: Kind, deltas: usize) -> std::io::Result<()> {
    let (begin, delta, end) = match wire {
        WireFormat::AnthropicMessages => anthropic_messages(kind),
        WireFormat::OpenaiResponses => openai_responses(kind),
        WireFormat::GoogleGenerativeAi => google_generative_ai(kind),
        _ => openai_completions(kind),
    };
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")?;
    let chunk = |event: &str| format!("{:x}\r\n{event}\r\n", event.len());
    stream.write_all(chunk(&begin).as_bytes())?;
    let delta = chunk(&delta);
    let together = 64 * 1024 / delta.len();
    for done in (0..deltas).step_by(together) {
        stream.write_all(delta.repeat(together.min(deltas - done)).as_bytes())?;
    }
    stream.write_all(chunk(&end).as_bytes())?;
    stream.write_all(b"0\r\n\r\n")
}

/// The fragment as it stands in a JSON string.
fn escaped(kind: Kind) -> String {
    kind.fragment().replace('\\', r"\\")
}

/// What arguments begin and end with, as they stand in a JSON string.
const ARGUMENTS_BEGIN: &str = r#"{\"text\":\""#;
const ARGUMENTS_END: &str = r#"\"}"#;

/// How many characters the arguments have that are in no fragment.
pub(crate) const AROUND_ARGUMENTS: usize = r#"{"text":""}"#.len();

/// What comes before the deltas, one delta, and what comes after them.
type Events = (String, String, String);

fn anthropic_messages(kind: Kind) -> Events {
    let event = |name: &str, data: &str| format!("event: {name}\ndata: {data}\n\n");
    let (block, delta, stop) = match kind {
        Kind::Text => (r#"{"type":"text","text":""}"#, r#""type":"text_delta","text""#, "end_turn"),
        Kind::Arguments => (
            r#"{"type":"tool_use","id":"toolu_01","name":"write","input":{}}"#,
            r#""type":"input_json_delta","partial_json""#,
            "tool_use",
        ),
    };
    let delta = |text: &str| {
        let data = format!(r#"{{"type":"content_block_delta","index":0,"delta":{{{delta}:"{text}"}}}}"#);
        event("content_block_delta", &data)
    };
    let around = |text: &str| if kind == Kind::Arguments { delta(text) } else { String::new() };
    let begin = [
        event(
            "message_start",
            r#"{"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":25,"output_tokens":1}}}"#,
        ),
        event("content_block_start", &format!(r#"{{"type":"content_block_start","index":0,"content_block":{block}}}"#)),
        around(ARGUMENTS_BEGIN),
    ];
    let end = [
        around(ARGUMENTS_END),
        event("content_block_stop", r#"{"type":"content_block_stop","index":0}"#),
        event(
            "message_delta",
            &format!(
                r#"{{"type":"message_delta","delta":{{"stop_reason":"{stop}","stop_sequence":null}},"usage":{{"output_tokens":15}}}}"#
            ),
        ),
        event("message_stop", r#"{"type":"message_stop"}"#),
    ];
    (begin.concat(), delta(&escaped(kind)), end.concat())
}

fn openai_completions(kind: Kind) -> Events {
    let event = |choices: &str, usage: &str| {
        format!(
            "data: {}{choices}{}{usage}}}\n\n",
            r#"{"id":"chatcmpl-9xKQ","object":"chat.completion.chunk","created":1760000000,"model":"gpt-5","service_tier":"default","system_fingerprint":"fp_44709d6fcb","choices":"#,
            r#","usage":"#
        )
    };
    let choice = |delta: &str, reason: &str| {
        format!(r#"[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{reason}}}]"#)
    };
    let delta = |text: &str| {
        let delta = match kind {
            Kind::Text => format!(r#"{{"content":"{text}"}}"#),
            Kind::Arguments => format!(r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":"{text}"}}}}]}}"#),
        };
        event(&choice(&delta, "null"), "null")
    };
    let (begin, end, stop) = match kind {
        Kind::Text => (r#"{"role":"assistant","content":"","refusal":null}"#.to_owned(), String::new(), "stop"),
        Kind::Arguments => (
            r#"{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"write","arguments":""}}]}"#.to_owned(),
            delta(ARGUMENTS_END),
            "tool_calls",
        ),
    };
    let begin = event(&choice(&begin, "null"), "null");
    let begin = if kind == Kind::Arguments { begin + &delta(ARGUMENTS_BEGIN) } else { begin };
    let end = [
        end,
        event(&choice("{}", &format!("{stop:?}")), "null"),
        event("[]", r#"{"prompt_tokens":25,"completion_tokens":15,"total_tokens":40}"#),
        "data: [DONE]\n\n".to_owned(),
    ];
    (begin, delta(&escaped(kind)), end.concat())
}

fn openai_responses(kind: Kind) -> Events {
    let event = |name: &str, data: &str| {
        format!("event: {name}\ndata: {{\"type\":\"{name}\",\"sequence_number\":7,{data}}}\n\n")
    };
    let (item, delta) = match kind {
        Kind::Text => (
            r#"{"id":"msg_68af4030baa48193b0b43b4c2a176a1a","type":"message","status":"in_progress","role":"assistant","content":[]}"#,
            "response.output_text.delta",
        ),
        Kind::Arguments => (
            r#"{"id":"msg_68af4030baa48193b0b43b4c2a176a1a","type":"function_call","status":"in_progress","call_id":"call_1","name":"write","arguments":""}"#,
            "response.function_call_arguments.delta",
        ),
    };
    let delta = |text: &str| {
        let place = match kind {
            Kind::Text => r#""content_index":0,"#,
            Kind::Arguments => "",
        };
        let data = format!(
            r#""item_id":"msg_68af4030baa48193b0b43b4c2a176a1a","output_index":0,{place}"delta":"{text}","logprobs":[],"obfuscation":"oqsJ4Xb1""#
        );
        event(delta, &data)
    };
    let around = |text: &str| if kind == Kind::Arguments { delta(text) } else { String::new() };
    let begin = [
        event("response.created", r#""response":{"id":"resp_1","status":"in_progress","output":[]}"#),
        event("response.output_item.added", &format!(r#""output_index":0,"item":{item}"#)),
        around(ARGUMENTS_BEGIN),
    ];
    // Without the whole text once more, which is what hosts do; that it costs a parse is not what a delta costs.
    let end = [
        around(ARGUMENTS_END),
        event(
            "response.completed",
            r#""response":{"id":"resp_1","status":"completed","output":[],"usage":{"input_tokens":25,"output_tokens":15}}"#,
        ),
    ];
    (begin.concat(), delta(&escaped(kind)), end.concat())
}

fn google_generative_ai(kind: Kind) -> Events {
    let event = |part: &str, reason: &str| {
        format!(
            "data: {{\"candidates\":[{{\"content\":{{\"parts\":[{part}],\"role\":\"model\"}}{reason},\"index\":0}}],{}}}\n\n",
            r#""usageMetadata":{"promptTokenCount":25,"candidatesTokenCount":15,"totalTokenCount":40,"promptTokensDetails":[{"modality":"TEXT","tokenCount":25}]},"modelVersion":"gemini-2.5-flash","responseId":"mAo4aLqSM9""#
        )
    };
    let delta = |text: &str| match kind {
        Kind::Text => event(&format!(r#"{{"text":"{text}"}}"#), ""),
        Kind::Arguments => event(
            &format!(
                r#"{{"functionCall":{{"partialArgs":[{{"jsonPath":"$.text","stringValue":"{text}","willContinue":true}}],"willContinue":true}}}}"#
            ),
            "",
        ),
    };
    let finish = r#","finishReason":"STOP""#;
    let (begin, end) = match kind {
        Kind::Text => (event(r#"{"text":""}"#, ""), event(r#"{"text":""}"#, finish)),
        Kind::Arguments => (
            event(r#"{"functionCall":{"name":"write","willContinue":true}}"#, ""),
            event(r#"{"functionCall":{"partialArgs":[{"jsonPath":"$.text","stringValue":""}]}}"#, finish),
        ),
    };
    // Here a fragment is a part of the value, not of the JSON that holds it: what is an escape elsewhere is one here.
    let text = kind.fragment();
    (begin, delta(text), end)
}
