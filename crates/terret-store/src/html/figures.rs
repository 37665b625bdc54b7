//! What a session took: sums, and a picture of where the time went.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use terret_llm::{Message, Money, Usage};

use super::escape;
use super::story::{Chapter, Turn};

/// What all of a session took.
#[derive(Default)]
pub(super) struct Figures {
    pub(super) messages: u64,
    pub(super) tool_calls: u64,
    pub(super) failed_calls: u64,
    pub(super) usage: Usage,
    pub(super) cost: Money,
    /// Who replied, and how often.
    pub(super) models: BTreeMap<String, u64>,
    /// The start of what was said, with the message's number.
    pub(super) prompts: Vec<(u64, String)>,
    turns: Vec<Time>,
}

/// Where the time of a turn went, in milliseconds.
#[derive(Clone, Copy, Default)]
struct Time {
    /// The number of its reply; 0 for none.
    reply: u64,
    model: i64,
    tools: i64,
}

impl Figures {
    pub(super) fn take(&mut self, chapter: &Chapter) {
        match chapter {
            Chapter::Said { number, message } => {
                self.messages += 1;
                if let Message::User(user) = &**message {
                    let text = user.content.iter().find_map(|content| content.as_text()).unwrap_or("(a picture)");
                    self.prompts.push((*number, first_line(text, 100)));
                }
            }
            Chapter::Turn(turn) => self.turn(turn),
            Chapter::Compacted { usage, cost, .. } => {
                self.usage += *usage;
                self.cost += *cost;
            }
            Chapter::AttemptFailed { took, .. } => self.turns.push(Time { model: *took, ..Time::default() }),
            _ => {}
        }
    }

    fn turn(&mut self, turn: &Turn) {
        let results = turn.calls.iter().filter_map(|call| call.result.as_deref());
        let (mut count, mut failed) = (0, 0);
        for result in results {
            count += 1;
            failed += u64::from(matches!(result, Message::ToolResult(result) if result.is_error));
        }
        self.messages += 1 + count;
        self.tool_calls += turn.calls.len() as u64;
        self.failed_calls += failed;
        self.cost += turn.cost;
        if let Message::Assistant(reply) = &*turn.message {
            self.usage += reply.usage;
            *self.models.entry(format!("{}/{}", reply.provider, reply.model)).or_default() += 1;
        }
        let (model, tools) = (turn.took.unwrap_or(0), turn.tools_took());
        self.turns.push(Time { reply: turn.number, model: model.max(0), tools });
    }

    pub(super) fn model_time(&self) -> i64 {
        self.turns.iter().map(|time| time.model).sum()
    }

    pub(super) fn tools_time(&self) -> i64 {
        self.turns.iter().map(|time| time.tools).sum()
    }

    pub(super) fn turns(&self) -> usize {
        self.turns.len()
    }

    /// A picture of where the time went, turn by turn: the model's below, the tools' above. Nothing where no time was kept.
    pub(super) fn timeline(&self, out: &mut String) {
        let per_column = self.turns.len().div_ceil(COLUMNS).max(1);
        let columns: Vec<&[Time]> = self.turns.chunks(per_column).collect();
        let height = |column: &[Time]| column.iter().map(|time| time.model + time.tools).sum::<i64>();
        let tallest = columns.iter().map(|column| height(column)).max().unwrap_or(0);
        if tallest == 0 {
            return;
        }
        let (step, steps) = scale(tallest);
        let top = step * steps;
        let y = |time: i64| BOTTOM - (BOTTOM - TOP) * time as f64 / top as f64;
        out.push_str(&format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"Time per turn: {} of the model, {} of tools\">\n",
            duration(self.model_time()),
            duration(self.tools_time())
        ));
        for line in 0..=steps {
            let (at, time) = (y(line * step), axis(line * step));
            let _ = writeln!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text class=\"axis\" \
                 x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{time}</text>",
                LEFT - 8.0,
                at + 4.0
            );
        }
        let room = (WIDTH - LEFT) / columns.len() as f64;
        let bar = (room * 0.8).clamp(1.0, 36.0).min(room);
        let mut first = 1;
        for (n, column) in columns.iter().enumerate() {
            let (model, tools) = column.iter().fold((0, 0), |(m, t), time| (m + time.model, t + time.tools));
            let x = LEFT + room * n as f64 + (room - bar) / 2.0;
            let last = first + column.len() - 1;
            let name = if first == last { format!("Turn {first}") } else { format!("Turns {first} to {last}") };
            first = last + 1;
            let anchor = column.iter().map(|time| time.reply).find(|reply| *reply > 0);
            if let Some(reply) = anchor {
                let _ = write!(out, "<a href=\"#m{reply}\">");
            }
            let _ = write!(
                out,
                "<g><title>{name}: model {}, tools {}</title><rect class=\"hit\" x=\"{:.1}\" y=\"{TOP}\" \
                 width=\"{room:.1}\" height=\"{:.1}\"/>",
                duration(model),
                duration(tools),
                LEFT + room * n as f64,
                BOTTOM - TOP
            );
            for (class, from, to) in [("model", 0, model), ("tools", model, model + tools)] {
                let tall = y(from) - y(to);
                if tall > 0.0 {
                    let _ = write!(
                        out,
                        "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{bar:.1}\" height=\"{tall:.1}\"/>",
                        y(to)
                    );
                }
            }
            out.push_str("</g>");
            out.push_str(if anchor.is_some() { "</a>\n" } else { "\n" });
        }
        let ends = [(LEFT, "start", "first", 1), (WIDTH, "end", "last", self.turns.len())];
        for (x, side, class, turn) in ends.into_iter().take(if self.turns.len() > 1 { 2 } else { 1 }) {
            let _ = write!(
                out,
                "<text class=\"axis {class}\" x=\"{x}\" y=\"{}\" text-anchor=\"{side}\">turn {turn}</text>",
                HEIGHT - 4.0
            );
        }
        out.push_str("</svg>\n");
    }
}

/// The most columns of the picture; with more turns, a column stands for several.
const COLUMNS: usize = 240;
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 190.0;
const LEFT: f64 = 84.0;
const TOP: f64 = 18.0;
const BOTTOM: f64 = 166.0;

/// A round step for an axis, and how many of them reach a time.
fn scale(time: i64) -> (i64, i64) {
    const MINUTE: i64 = 60_000;
    const ROUND: [i64; 24] = [
        1,
        2,
        5,
        10,
        20,
        50,
        100,
        200,
        500,
        1000,
        2000,
        5000,
        10_000,
        15_000,
        30_000,
        MINUTE,
        2 * MINUTE,
        5 * MINUTE,
        10 * MINUTE,
        15 * MINUTE,
        30 * MINUTE,
        60 * MINUTE,
        180 * MINUTE,
        720 * MINUTE,
    ];
    let step = ROUND.into_iter().find(|step| time <= step * 4).unwrap_or((time + 3) / 4);
    (step, ((time + step - 1) / step).max(1))
}

/// A time in as few characters as will do.
fn axis(milliseconds: i64) -> String {
    let of = |unit: i64, name: &str| {
        let number = format!("{:.1}", milliseconds as f64 / unit as f64);
        format!("{} {name}", number.trim_end_matches(".0"))
    };
    match milliseconds {
        0 => "0".into(),
        ..1000 => format!("{milliseconds} ms"),
        1000..60_000 => of(1000, "s"),
        60_000..3_600_000 => of(60_000, "min"),
        _ => of(3_600_000, "h"),
    }
}

/// A time as people say it.
pub(super) fn duration(milliseconds: i64) -> String {
    let seconds = milliseconds / 1000;
    match milliseconds {
        ..1000 => format!("{milliseconds} ms"),
        1000..60_000 if milliseconds % 1000 < 50 => format!("{seconds} s"),
        1000..60_000 => format!("{:.1} s", milliseconds as f64 / 1000.0),
        60_000..3_600_000 if seconds % 60 == 0 => format!("{} min", seconds / 60),
        60_000..3_600_000 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ if seconds / 60 % 60 == 0 => format!("{} h", seconds / 3600),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// A number with its thousands told apart.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            // A narrow space that doesn't break.
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// An amount of money, to a hundredth of a cent. None is told where no price is known.
pub(super) fn money(money: Money) -> String {
    match money.nanos() {
        0 => "–".into(),
        1..50_000 => "under $0.0001".into(),
        _ => {
            let text = format!("{:.4}", money.dollars());
            let (whole, cents) = text.split_once('.').unwrap_or((&text, ""));
            let cents = cents.trim_end_matches('0');
            format!("${whole}.{cents:0<2}")
        }
    }
}

/// The first line of a text that says something, cut to so many characters.
pub(super) fn first_line(text: &str, most: usize) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    match line.char_indices().nth(most) {
        None => line.to_owned(),
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
    }
}

/// The list of what was said, to go to it.
pub(super) fn contents(prompts: &[(u64, String)], out: &mut String) {
    if prompts.len() < 2 {
        return;
    }
    let _ = write!(out, "<nav><details><summary>{} prompts</summary><ol>", grouped(prompts.len() as u64));
    for (number, line) in prompts {
        let _ = write!(out, "<li><a href=\"#m{number}\">{}</a></li>", escape::escaped(line));
    }
    out.push_str("</ol></details></nav>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        let times =
            [(0, "0 ms"), (999, "999 ms"), (1000, "1 s"), (3240, "3.2 s"), (60_000, "1 min"), (72_000, "1 min 12 s")];
        for (milliseconds, expected) in times.into_iter().chain([(7_500_000, "2 h 5 min"), (7_200_000, "2 h")]) {
            assert_eq!(duration(milliseconds), expected);
        }
        let axes = [(0, "0"), (200, "200 ms"), (1500, "1.5 s"), (90_000, "1.5 min"), (7_200_000, "2 h")];
        for (milliseconds, expected) in axes {
            assert_eq!(axis(milliseconds), expected);
        }
        assert_eq!(grouped(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(grouped(12), "12");
        let amounts = [(0, "–"), (1, "under $0.0001"), (12_825_000, "$0.0128"), (1_500_000_000, "$1.50")];
        for (nanos, expected) in amounts {
            assert_eq!(money(Money::from_nanos(nanos)), expected);
        }
    }

    #[test]
    fn a_picture_of_many_turns_has_a_bounded_number_of_columns_and_all_of_the_time() {
        let turns = (1..=10_000).map(|reply| Time { reply, model: 2_000, tools: 1_000 });
        let figures = Figures { turns: turns.collect(), ..Figures::default() };
        let mut picture = String::new();
        figures.timeline(&mut picture);
        let columns = picture.matches("<title>").count();
        assert!((120..=COLUMNS).contains(&columns), "{columns}");
        assert!(
            picture.contains("<a href=\"#m1\"><g><title>Turns 1 to 42: model 1 min 24 s, tools 42 s</title>"),
            "{picture}"
        );
        assert!(picture.contains("turn 10000</text>"));
        assert_eq!((figures.model_time(), figures.tools_time()), (20_000_000, 10_000_000));

        let mut nothing = String::new();
        Figures::default().timeline(&mut nothing);
        assert_eq!(nothing, "");
    }

    #[test]
    fn an_axis_has_round_steps_and_reaches_the_tallest_bar() {
        for (time, expected) in [(1, (1, 1)), (400, (100, 4)), (401, (200, 3)), (61_000, (30_000, 3))] {
            assert_eq!(scale(time), expected);
        }
        for time in [1, 7, 999, 86_400_000, i64::from(u32::MAX)] {
            let (step, steps) = scale(time);
            assert!(step * steps >= time && steps <= 4, "{time}");
        }
    }
}
