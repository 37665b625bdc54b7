//! The ways in which one stream can arrive, and the ways in which it can break off.

use serde_json::Value;
use terret_llm::wire::WireFormat;

use crate::cases::Case;

/// Other ways in which the same stream could have arrived: each has a name, and its chunks.
pub(crate) fn chunkings(case: &Case) -> Vec<(String, Vec<Vec<u8>>)> {
    let bytes = |body: &[u8]| body.iter().map(|byte| vec![*byte]).collect();
    let mut chunkings = vec![("byte by byte".to_owned(), bytes(&case.body))];
    for seed in 0..4 {
        chunkings.push((format!("random cuts, seed {seed}"), random_cuts(&case.body, seed)));
    }
    if case.streamed {
        let lines = with_line_feeds(&case.body);
        let with = |end: &[u8]| lines.split(|byte| *byte == b'\n').collect::<Vec<_>>().join(end);
        for (name, body) in [("LF", with(b"\n")), ("CRLF", with(b"\r\n")), ("CR", with(b"\r"))] {
            chunkings.push((format!("{name} line ends"), vec![body.clone()]));
            chunkings.push((format!("{name} line ends, byte by byte"), bytes(&body)));
        }
        let marked = [b"\xEF\xBB\xBF".as_slice(), &case.body].concat();
        chunkings.push(("byte order mark".to_owned(), vec![marked]));
    }
    chunkings
}

/// Every prefix of the stream that ends between two events before its terminal, and some that end within one.
pub(crate) fn prefixes_without_a_terminal(case: &Case) -> Vec<Vec<u8>> {
    if case.status >= 400 {
        return Vec::new();
    }
    if !case.streamed {
        let mut random = Random(case.body.len() as u64);
        return (0..8).map(|_| case.body[..random.below(case.body.len())].to_vec()).collect();
    }
    let body = with_line_feeds(&case.body);
    let mut prefixes = vec![Vec::new()];
    let mut random = Random(body.len() as u64);
    let mut start = 0;
    for event in events(&body) {
        if ends_the_reply(&case.format, event) {
            return prefixes;
        }
        let within = start + random.below(event.len());
        start += event.len();
        prefixes.push(body[..start].to_vec());
        prefixes.push(body[..within].to_vec());
    }
    // No terminal at all: the whole stream is what its recording shows it to be.
    prefixes.pop();
    prefixes.pop();
    prefixes
}

/// Splits a stream after each blank line.
fn events(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = body;
    std::iter::from_fn(move || {
        let end = rest.windows(2).position(|pair| pair == b"\n\n").map_or(rest.len(), |at| at + 2);
        let (event, after) = rest.split_at(end);
        rest = after;
        (!event.is_empty()).then_some(event)
    })
}

/// Whether the provider says with this event why the reply ends. Some wires have one more event after it, which a
/// decoder may want to see or not.
pub(crate) fn ends_the_reply(format: &WireFormat, event: &[u8]) -> bool {
    let data = String::from_utf8_lossy(event)
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .map(str::trim)
        .collect::<Vec<_>>()
        .join("\n");
    if data == "[DONE]" {
        return true;
    }
    let Ok(data) = serde_json::from_str::<Value>(&data) else { return false };
    let any = |list: &Value, key: &str| list.as_array().into_iter().flatten().any(|one| !one[key].is_null());
    let kind = data["type"].as_str().unwrap_or_default();
    !data["error"].is_null()
        || match format {
            WireFormat::AnthropicMessages => {
                kind == "message_stop"
                    || !data["delta"]["stop_reason"].is_null()
                    || !data["message"]["stop_reason"].is_null()
            }
            WireFormat::OpenaiResponses => {
                ["response.completed", "response.incomplete", "response.failed", "error"].contains(&kind)
            }
            WireFormat::OpenaiCompletions => any(&data["choices"], "finish_reason"),
            WireFormat::GoogleGenerativeAi => {
                any(&data["candidates"], "finishReason") || !data["promptFeedback"]["blockReason"].is_null()
            }
            _ => false,
        }
}

/// Whether the recording has an event that says why the reply ends.
pub(crate) fn has_a_terminal(case: &Case) -> bool {
    let body = with_line_feeds(&case.body);
    !case.streamed || events(&body).any(|event| ends_the_reply(&case.format, event))
}

fn with_line_feeds(body: &[u8]) -> Vec<u8> {
    let lines: Vec<&[u8]> = body.split(|byte| *byte == b'\n').collect();
    let lines: Vec<&[u8]> = lines.iter().map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect();
    lines.join(b"\n".as_slice())
}

fn random_cuts(body: &[u8], seed: u64) -> Vec<Vec<u8>> {
    let mut random = Random(seed + body.len() as u64);
    let mut rest = body;
    let mut chunks = Vec::new();
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(random.below(200).min(rest.len()));
        chunks.push(chunk.to_vec());
        rest = after;
    }
    chunks
}

/// The generator SplitMix64: the same numbers on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % limit as u64).unwrap()
    }
}
