//! The ways in which one stream can arrive, and the ways in which it can break off.

use serde_json::Value;
use terret_llm::wire::WireFormat;

use crate::cases::Case;

/// One way in which a stream can arrive.
pub(crate) struct Arrival {
    pub(crate) name: String,
    body: Vec<u8>,
    /// The lengths of the chunks, until the body has none left.
    lengths: Lengths,
}

#[derive(Clone, Copy)]
enum Lengths {
    Whole,
    Bytes,
    Random { seed: u64 },
}

impl Arrival {
    fn new(name: impl Into<String>, body: &[u8], lengths: Lengths) -> Self {
        Self { name: name.into(), body: body.to_owned(), lengths }
    }

    pub(crate) fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.body.as_slice();
        let mut random = if let Lengths::Random { seed } = self.lengths { Random(seed) } else { Random(0) };
        std::iter::from_fn(move || {
            let length = match self.lengths {
                Lengths::Whole => rest.len(),
                Lengths::Bytes => 1,
                Lengths::Random { .. } => random.below(200),
            };
            let (chunk, after) = rest.split_at_checked(length).unwrap_or((rest, &[]));
            let over = rest.is_empty();
            rest = after;
            (!over).then_some(chunk)
        })
    }
}

/// Other ways in which the recorded stream could have arrived.
pub(crate) fn arrivals(case: &Case) -> Vec<Arrival> {
    let mut arrivals = vec![Arrival::new("byte by byte", &case.body, Lengths::Bytes)];
    for seed in 0..4 {
        arrivals.push(Arrival::new(format!("random cuts, seed {seed}"), &case.body, Lengths::Random { seed }));
    }
    if case.streamed {
        let lines = with_line_feeds(&case.body);
        for (name, end) in [("LF", b"\n".as_slice()), ("CRLF", b"\r\n"), ("CR", b"\r")] {
            let body = lines.split(|byte| *byte == b'\n').collect::<Vec<_>>().join(end);
            arrivals.push(Arrival::new(format!("{name} line ends"), &body, Lengths::Whole));
            arrivals.push(Arrival::new(format!("{name} line ends, byte by byte"), &body, Lengths::Bytes));
        }
        let marked = [b"\xEF\xBB\xBF".as_slice(), &case.body].concat();
        arrivals.push(Arrival::new("byte order mark", &marked, Lengths::Whole));
    }
    arrivals
}

/// A body, and the lengths at which it can break off before its terminal: between any two events of a stream, and at some
/// places within one.
pub(crate) fn cuts_before_the_terminal(case: &Case) -> (Vec<u8>, Vec<usize>) {
    if case.status >= 400 {
        return (Vec::new(), Vec::new());
    }
    let body = if case.streamed { with_line_feeds(&case.body) } else { case.body.clone() };
    let mut cuts = vec![0];
    let mut limit = body.len();
    if case.streamed {
        let mut end = 0;
        for event in events(&body) {
            if ends_the_reply(&case.format, event) {
                limit = end + 1;
                break;
            }
            end += event.len();
            cuts.push(end);
        }
        // Without any terminal, the last of these is the whole stream, which is what its recording shows it to be.
        cuts.retain(|cut| *cut < limit);
    }
    let mut random = Random(body.len() as u64);
    cuts.extend((0..16).map(|_| random.below(limit)));
    (body, cuts)
}

/// Splits a stream after each blank line.
fn events(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = body;
    std::iter::from_fn(move || {
        let end = memchr::memmem::find(rest, b"\n\n").map_or(rest.len(), |at| at + 2);
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
