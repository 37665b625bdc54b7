//! What a call allocates: an image is nobody's to copy, and a delta is its own text and little else.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, LazyLock};

use allocation_counter::{AllocationInfo, measure};
use terret_llm::wire::{Encoder, ReplyReader, WireFormat};
use terret_llm::{
    BaseUrl, Content, Draft, Endpoint, HttpModel, HttpTransport, Image, Message, Model, ModelSpec, Request,
    StreamEvent, UserMessage,
};

const WIRES: [WireFormat; 4] = [
    WireFormat::AnthropicMessages,
    WireFormat::OpenaiCompletions,
    WireFormat::OpenaiResponses,
    WireFormat::GoogleGenerativeAi,
];

/// Of an image, in bytes.
const LARGE: usize = 20 << 20;

/// In bytes: for the rest of the request, and the buffers of its way to a server.
const LITTLE: u64 = 64 << 10;

fn spec(wire: &WireFormat) -> Arc<ModelSpec> {
    ModelSpec::new("test", "model", wire.clone()).into()
}

/// A question about an image.
static REQUEST: LazyLock<Request> = LazyLock::new(|| {
    let picture = Content::Image(Image::new("image/png", &vec![7; LARGE]));
    let look = UserMessage { content: vec![picture, Content::text("What is it?")], timestamp: 0 };
    Request { messages: [Message::from(look)].into_iter().collect(), ..Request::default() }
});

#[test]
fn writing_a_request_copies_no_image() {
    let mut request = REQUEST.clone();
    for wire in WIRES {
        let encoder = Encoder::new(spec(&wire));
        for _ in 0..3 {
            let mut length = 0;
            let AllocationInfo { bytes_total, .. } = measure(|| length = encoder.encode(&request).unwrap().body.len());
            assert!(length > LARGE / 3 * 4, "{wire}: the image is in the body of {length} bytes");
            assert!(bytes_total < LITTLE, "{wire}: {bytes_total} bytes");
            request.messages.push(Message::from(UserMessage::text("Are you sure?", 0)));
        }
    }
}

#[test]
fn sending_a_request_copies_no_image() {
    let request = REQUEST.clone();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = BaseUrl::exact(&format!("http://{}", server.local_addr().unwrap())).unwrap();
    let reads_all = std::thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        let mut last = [0; 64 * 1024];
        let mut left = LARGE / 3 * 4;
        while left > 0 {
            left = left.saturating_sub(stream.read(&mut last).unwrap());
        }
        stream.write_all(b"HTTP/1.1 418 I'm a teapot\r\ncontent-length: 0\r\n\r\n").unwrap();
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let model = HttpModel::new(spec(&WireFormat::default()), Endpoint::new(url), Arc::new(HttpTransport::new()));
    let mut status = None;
    let AllocationInfo { bytes_total, .. } = measure(|| {
        let failed = runtime.block_on(model.stream(request.clone(), Default::default()).finish()).unwrap_err();
        status = failed.error.status;
    });
    reads_all.join().unwrap();
    assert_eq!(status, Some(418));
    assert!(bytes_total < LITTLE, "{bytes_total} bytes");
}

#[test]
fn a_delta_allocates_its_text_and_a_list_where_the_wire_has_one() {
    let responses = |kind: &str, rest: &str| format!("event: {kind}\ndata: {{\"type\":\"{kind}\",{rest}}}\n\n");
    for (wire, begin, delta, lists) in [
        (
            WireFormat::AnthropicMessages,
            "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n".to_owned(),
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\" word\"}}\n\n".to_owned(),
            0,
        ),
        (
            WireFormat::OpenaiCompletions,
            String::new(),
            "data: {\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},\"finish_reason\":null}],\"usage\":null}\n\n".to_owned(),
            1,
        ),
        (
            WireFormat::OpenaiResponses,
            responses(
                "response.output_item.added",
                r#""output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]}"#,
            ),
            responses(
                "response.output_text.delta",
                r#""item_id":"msg_1","output_index":0,"content_index":0,"delta":" word""#,
            ),
            0,
        ),
        (
            WireFormat::GoogleGenerativeAi,
            String::new(),
            "data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \" word\"}],\"role\": \"model\"},\"index\": 0}],\"usageMetadata\": {\"promptTokenCount\": 10}}\r\n\r\n".to_owned(),
            2,
        ),
    ] {
        const DELTAS: usize = 1000;
        let mut reader = ReplyReader::new(wire.wire().unwrap().decoder(), Draft::new(&spec(&wire)));
        reader.push(format!("{begin}{delta}").as_bytes());
        while reader.next_event().is_some() {}
        let mut words = 0;
        let AllocationInfo { count_total, .. } = measure(|| {
            for _ in 0..DELTAS {
                reader.push(delta.as_bytes());
                while let Some(event) = reader.next_event() {
                    words += usize::from(matches!(event, StreamEvent::BlockDelta { text, .. } if text == " word"));
                }
            }
        });
        assert_eq!(words, DELTAS, "{wire}");
        // The reply's text grows in steps.
        let steps = 16;
        assert!(count_total <= (DELTAS * (1 + lists) + steps) as u64, "{wire}: {count_total} for {DELTAS} deltas");
    }
}
