//! Why a request has no answer: what it is nearest to, and what differs.

use std::fmt::Write as _;
use std::time::Duration;

use similar::{ChangeTag, TextDiff};

use super::exchange::{Asked, Exchange};

/// An exchange of the cassette, and whether it has answered.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) exchange: Exchange,
    pub(super) used: bool,
}

/// Lines of a difference that are shown.
const LINES: usize = 60;

/// Characters of a line that are shown.
const WIDTH: usize = 200;

/// The time after which a comparison is done by and large. Only requests that have little in common need so long.
const LONGEST: Duration = Duration::from_millis(500);

/// Says that the cassette has nothing for this request.
pub(super) fn explain(name: &str, exchanges: &[Recorded], asked: &Asked) -> String {
    let request = format!("{} {}", asked.method, asked.path);
    if exchanges.is_empty() {
        return format!("the cassette {name} is empty, and the request is {request}");
    }
    if exchanges.iter().any(|recorded| recorded.exchange.request.matches(asked)) {
        return format!("the cassette {name} has no further answer to {request}: all that it has were given already");
    }
    let wanted = page(asked);
    let rank = |recorded: &Recorded| {
        let request = &recorded.exchange.request;
        let same_path = request.path == asked.path;
        // Ratios are in 0.0..=1.0; as integers they can be compared.
        let ratio = TextDiff::configure().timeout(LONGEST).diff_lines(page(request), &wanted).ratio();
        (same_path, (ratio * 1e6) as u32, !recorded.used)
    };
    let nearest = exchanges.iter().enumerate().rev().max_by_key(|(_, recorded)| rank(recorded));
    let Some((index, recorded)) = nearest else { return String::new() };
    let used = if recorded.used { " (which was given already)" } else { "" };
    let difference = difference(&page(&recorded.exchange.request), &wanted);
    format!(
        "the cassette {name} has no answer to {request}; the nearest request is that of exchange {}{used} \
         (- recorded, + asked):\n{difference}",
        index + 1
    )
}

/// A request as text, one value a line.
fn page(asked: &Asked) -> String {
    let body = serde_json::to_string_pretty(&asked.body).unwrap_or_default();
    format!("{} {}\n{body}\n", asked.method, asked.path)
}

fn difference(recorded: &str, wanted: &str) -> String {
    let diff = TextDiff::configure().timeout(LONGEST).diff_lines(recorded, wanted);
    let mut shown = String::new();
    let mut lines = 0;
    for change in diff.grouped_ops(2).iter().flatten().flat_map(|op| diff.iter_changes(op)) {
        lines += 1;
        if lines > LINES {
            continue;
        }
        let sign = match change.tag() {
            ChangeTag::Delete => '-',
            ChangeTag::Insert => '+',
            ChangeTag::Equal => ' ',
        };
        let line = change.value().trim_end_matches('\n');
        let more = if line.chars().nth(WIDTH).is_some() { "…" } else { "" };
        let line: String = line.chars().take(WIDTH).collect();
        let _ = writeln!(shown, "{sign} {line}{more}");
    }
    if lines > LINES {
        let _ = writeln!(shown, "… and {} lines more", lines - LINES);
    }
    shown
}
