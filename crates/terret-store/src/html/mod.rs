//! Sessions as pages, for people: one file that needs nothing else, runs nothing and loads nothing.

mod call;
mod escape;
mod figures;
mod prose;
mod story;

use std::fmt::Write as _;
use std::io::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};
use terret_agent::SessionId;
use terret_agent::machine::Outcome;
use terret_llm::{AssistantMessage, Block, Message};

use crate::error::{Damage, StoreError};
use crate::journal::SqliteJournal;
use crate::time::iso;
use escape::escaped;
use figures::{Figures, duration, first_line, grouped, money};
use story::{Chapter, Story, Turn};

const STYLE: &str = include_str!("style.css");

impl SqliteJournal {
    /// Writes a session as a page of HTML that stands for itself: pictures are in it, and it neither runs nor loads
    /// anything. What couldn't be read stands at the top, and is returned.
    ///
    /// The session is read twice, and never held as a whole. Of a text of more than 128 KiB the start is shown.
    pub fn export_html(&self, session: &SessionId, out: &mut impl Write) -> Result<Vec<Damage>, StoreError> {
        let io = StoreError::Output;
        let (mut figures, mut records) = (Figures::default(), 0);
        let mut damage = self.tell(session, u64::MAX, |chapter, seen| {
            records = seen;
            figures.take(chapter);
            Ok(())
        })?;
        let mut end = self.reader(session)?;
        damage.extend(end.check_end()?.into_iter().filter(|it| !damage.contains(it)).collect::<Vec<_>>());
        let mut text = String::new();
        self.head(session, &figures, &damage, &mut text)?;
        out.write_all(text.as_bytes()).map_err(io)?;
        self.tell(session, records, |chapter, _| {
            text.clear();
            push_chapter(&mut text, chapter);
            out.write_all(text.as_bytes()).map_err(io)
        })?;
        out.write_all(b"</main>\n</body>\n</html>\n").map_err(io)?;
        Ok(damage)
    }

    /// Tells of the first `most` records of a session, each chapter with how many have been read.
    fn tell(
        &self,
        session: &SessionId,
        most: u64,
        mut hear: impl FnMut(&Chapter, u64) -> Result<(), StoreError>,
    ) -> Result<Vec<Damage>, StoreError> {
        let (mut reader, mut story, mut damage) = (self.reader(session)?, Story::default(), Vec::new());
        let mut read = 0;
        while read < most {
            let reading = reader.read(256)?;
            damage.extend(reading.damage);
            if reading.records.is_empty() {
                break;
            }
            for kept in reading.records.iter().take_while(|kept| kept.seq < most) {
                story.take(kept);
            }
            read = reading.records.last().map_or(most, |kept| kept.seq + 1);
            while let Some(chapter) = story.next() {
                hear(&chapter, read)?;
            }
        }
        story.rest().try_for_each(|chapter| hear(&chapter, read))?;
        Ok(damage)
    }

    fn head(
        &self,
        session: &SessionId,
        figures: &Figures,
        damage: &[Damage],
        out: &mut String,
    ) -> Result<(), StoreError> {
        let reader = self.reader(session)?;
        let (about, setup) = (reader.about()?, reader.setup()?);
        let prompt = figures.prompts.first().map(|(_, line)| line.as_str());
        let title = about.title.as_deref().or(prompt).unwrap_or(session.as_str());
        let title = escaped(&first_line(title, 120));
        // The style is the only thing that a browser is allowed to use beside the pictures in the page.
        let style = STANDARD.encode(Sha256::digest(STYLE));
        let _ = write!(
            out,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-{style}'; \
             img-src data:; base-uri 'none'; form-action 'none'\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"referrer\" content=\"no-referrer\">\n\
             <meta name=\"generator\" content=\"terret {}\">\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n",
            env!("CARGO_PKG_VERSION")
        );
        out.push_str(
            "<fieldset class=\"theme\"><legend>Colours</legend>\
             <label><input type=\"radio\" name=\"theme\" id=\"auto\" checked>auto</label>\
             <label><input type=\"radio\" name=\"theme\" id=\"light\">light</label>\
             <label><input type=\"radio\" name=\"theme\" id=\"dark\">dark</label></fieldset>\n",
        );
        let _ = write!(out, "<header class=\"top\">\n<h1>{title}</h1>\n<dl>");
        let mut fact = |name: &str, value: &str| {
            let _ = write!(out, "<div><dt>{name}</dt><dd>{value}</dd></div>");
        };
        fact("Session", &format!("<code>{}</code>", escaped(session.as_str())));
        fact("Begun", &time(about.created));
        if let Some(folder) = &setup.folder {
            fact("Folder", &format!("<code>{}</code>", escaped(folder)));
        }
        if !figures.models.is_empty() {
            let models: Vec<String> = figures.models.keys().map(|model| escaped(model)).collect();
            fact(if models.len() == 1 { "Model" } else { "Models" }, &models.join(", "));
        }
        fact("Messages", &grouped(figures.messages));
        let failed = match figures.failed_calls {
            0 => String::new(),
            failed => format!(" <span class=\"bad\">({} failed)</span>", grouped(failed)),
        };
        fact("Tool calls", &format!("{}{failed}", grouped(figures.tool_calls)));
        let usage = figures.usage;
        let input = usage.input + usage.cache_read + usage.cache_write;
        let cached = match usage.cache_read {
            0 => String::new(),
            cached => format!(" ({} cached)", grouped(cached)),
        };
        fact("Tokens", &format!("{} in{cached}, {} out", grouped(input), grouped(usage.output)));
        fact("Cost", &money(figures.cost));
        out.push_str("</dl>\n");
        for damage in damage {
            let _ = writeln!(out, "<p class=\"damage\"><b>Damaged:</b> {}</p>", escaped(&damage.to_string()));
        }
        if figures.model_time() + figures.tools_time() > 0 {
            let _ = writeln!(
                out,
                "<figure><figcaption><span>Where the time went, turn by turn</span> <span class=\"key model\">model \
                 {}</span> <span class=\"key tools\">tools {}</span></figcaption>",
                duration(figures.model_time()),
                duration(figures.tools_time())
            );
            figures.timeline(out);
            out.push_str("</figure>\n");
        }
        figures::contents(&figures.prompts, out);
        let _ = write!(out, "</header>\n<main data-turns=\"{}\">\n", figures.turns());
        Ok(())
    }
}

fn push_chapter(out: &mut String, chapter: &Chapter) {
    match chapter {
        Chapter::RunStarted { at } => {
            let _ = writeln!(out, "<p class=\"mark\">Run begun {}</p>", time(*at));
        }
        Chapter::Said { number, message } => {
            let Message::User(user) = &**message else { return };
            let _ =
                write!(out, "<article class=\"user\" id=\"m{number}\"><header><b>User</b> {}", time(user.timestamp));
            let _ = writeln!(out, "<a class=\"anchor\" href=\"#m{number}\">#{number}</a></header>");
            user.content.iter().for_each(|content| call::push_content(out, content));
            out.push_str("</article>\n");
        }
        Chapter::Turn(turn) => push_turn(out, turn),
        Chapter::AttemptFailed { at, why, took } => {
            let (why, took) = (escaped(why), duration(*took));
            let _ = writeln!(out, "<p class=\"mark bad\">The model call failed after {took}: {why} {}</p>", time(*at));
        }
        Chapter::Compacted { summary, .. } => {
            out.push_str("<article><details><summary>Summarised for the model: all that was said before</summary>");
            if let Message::User(summary) = &**summary {
                summary.content.iter().for_each(|content| call::push_content(out, content));
            }
            out.push_str("</details></article>\n");
        }
        Chapter::Cancelled { why } => {
            let _ = writeln!(out, "<p class=\"mark\">Cancelled: {}</p>", escaped(why));
        }
        Chapter::Resumed { at } => {
            let _ = writeln!(out, "<p class=\"mark\">Interrupted, and gone on with {}</p>", time(*at));
        }
        Chapter::RunEnded { outcome } => {
            let class = if *outcome == Outcome::Completed { "mark" } else { "mark bad" };
            let outcome = escaped(&outcome.to_string());
            let _ = writeln!(out, "<p class=\"{class}\">Run {outcome}</p>");
        }
    }
}

fn push_turn(out: &mut String, turn: &Turn) {
    let Message::Assistant(reply) = &*turn.message else { return };
    let number = turn.number;
    let _ = writeln!(
        out,
        "<article class=\"reply\" id=\"m{number}\"><header><b>{}/{}</b> {}{}<a class=\"anchor\" \
         href=\"#m{number}\">#{number}</a></header>",
        escaped(&reply.provider),
        escaped(&reply.model),
        time(reply.timestamp),
        facts(turn, reply)
    );
    let mut calls = turn.calls.iter();
    for block in &reply.content {
        match block {
            Block::Text(text) => {
                out.push_str("<div class=\"prose\">");
                prose::push(out, &text.text);
                out.push_str("</div>\n");
            }
            Block::Thinking(thinking) if thinking.thinking.trim().is_empty() => {}
            Block::Thinking(thinking) => {
                out.push_str("<details class=\"thinking\"><summary>Thinking</summary><div class=\"inside prose\">");
                prose::push(out, &thinking.thinking);
                out.push_str("</div></details>\n");
            }
            Block::Image(image) => call::push_image(out, image),
            Block::ToolCall(_) => {
                if let Some(called) = calls.next() {
                    call::push(out, called);
                }
            }
            _ => out.push_str("<p class=\"note\">A block that only its vendor can read.</p>\n"),
        }
    }
    out.push_str("</article>\n");
}

/// What a turn took.
fn facts(turn: &Turn, reply: &AssistantMessage) -> String {
    let usage = reply.usage;
    let input = usage.input + usage.cache_read + usage.cache_write;
    let mut facts = String::new();
    let mut fact = |fact: String| {
        let _ = write!(facts, " <span>{fact}</span>");
    };
    if let Some(took) = turn.took.filter(|took| *took > 0) {
        fact(duration(took));
    }
    if input + usage.output > 0 {
        fact(format!("{} in, {} out", grouped(input), grouped(usage.output)));
    }
    if turn.cost.nanos() > 0 {
        fact(money(turn.cost));
    }
    facts
}

/// A time, in UTC.
fn time(milliseconds: i64) -> String {
    if milliseconds <= 0 {
        return String::new();
    }
    let iso = iso(milliseconds);
    let (day, hour) = (iso.get(..10).unwrap_or_default(), iso.get(11..19).unwrap_or_default());
    format!("<time datetime=\"{iso}\">{day} {hour} UTC</time>")
}
