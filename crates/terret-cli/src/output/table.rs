//! Sessions as a table, for people.

use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anstyle::{AnsiColor, Style};
use terret::agent::SessionId;
use terret::llm::Money;
use terret::store::SessionInfo;

use super::clean;

/// Some sessions of a list, a line each.
pub(crate) struct Table<'a> {
    /// With how much of its name tells a session from all others.
    pub(crate) rows: Vec<(&'a SessionInfo, usize)>,
    numbered: bool,
}

impl<'a> Table<'a> {
    /// All sessions there are.
    pub(crate) fn of(all: &'a [SessionInfo]) -> Self {
        Self { rows: all.iter().zip(told_apart(all)).collect(), numbered: false }
    }

    /// Only these.
    pub(crate) fn only(mut self, keep: impl Fn(&SessionInfo) -> bool) -> Self {
        self.rows.retain(|(info, _)| keep(info));
        self
    }

    /// Only the first ones.
    pub(crate) fn first(mut self, most: usize) -> Self {
        self.rows.truncate(most);
        self
    }

    pub(crate) fn numbered(mut self) -> Self {
        self.numbered = true;
        self
    }

    /// Writes it for a terminal of this width, or for none.
    pub(crate) fn write(&self, out: &mut impl Write, width: Option<usize>) -> io::Result<()> {
        let mut lines: Vec<[String; COLUMNS]> = Vec::new();
        for (n, (info, told_apart)) in (1..).zip(&self.rows) {
            let number = if self.numbered { format!("{n}.") } else { String::new() };
            let id: String = info.id.as_str().chars().take(*told_apart).collect();
            let model = info.model.as_deref().or(info.setup.model.as_deref()).unwrap_or("-");
            let folder = info.setup.folder.as_deref().map_or_else(|| "-".into(), shortened_folder);
            lines.push([
                number,
                line(&id),
                ago(info.updated),
                info.messages.to_string(),
                cost(info.cost),
                cut(&line(model), 32),
                cut_start(&line(&folder), 32),
            ]);
        }
        let mut widths: [usize; COLUMNS] = HEADS.map(str::len);
        for cells in &lines {
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = (*width).max(cell.chars().count());
            }
        }
        if let [numbers, ..] = &mut widths
            && !self.numbered
        {
            *numbers = 0;
        }
        let before =
            |widths: &[usize; COLUMNS]| widths.iter().filter(|width| **width > 0).map(|it| it + 2).sum::<usize>();
        // On a narrow terminal, who asks wants to know which one it is rather than what it cost.
        for column in LEFT_OUT {
            if width.is_some_and(|width| before(&widths) + NAME > width)
                && let Some(it) = widths.get_mut(column)
            {
                *it = 0;
            }
        }
        let name_width = width.map_or(usize::MAX, |width| width.saturating_sub(before(&widths)).max(NAME));
        row(out, &HEADS.map(str::to_owned), &widths, DIM)?;
        writeln!(out, "{DIM}NAME{DIM:#}")?;
        for (cells, (info, _)) in lines.iter().zip(&self.rows) {
            row(out, cells, &widths, Style::new())?;
            writeln!(out, "{}", name(info, name_width))?;
        }
        Ok(())
    }
}

const COLUMNS: usize = 7;
const HEADS: [&str; COLUMNS] = ["", "ID", "WHEN", "MSGS", "COST", "MODEL", "FOLDER"];
/// Numbers are easier to compare at the right.
const RIGHT: [bool; COLUMNS] = [true, false, false, true, true, false, false];
/// The columns that are left out first where there is no room.
const LEFT_OUT: [usize; 5] = [6, 5, 4, 3, 2];
/// How much room a name has at least.
const NAME: usize = 24;
const DIM: Style = Style::new().dimmed();
const BAD: Style = AnsiColor::Red.on_default();

fn row(out: &mut impl Write, cells: &[String; COLUMNS], widths: &[usize; COLUMNS], style: Style) -> io::Result<()> {
    for ((cell, width), right) in cells.iter().zip(widths).zip(RIGHT).filter(|((_, width), _)| **width > 0) {
        match right {
            true => write!(out, "{style}{cell:>width$}{style:#}  ")?,
            false => write!(out, "{style}{cell:<width$}{style:#}  ")?,
        }
    }
    Ok(())
}

/// What somebody called it, else what was said first; and what is wrong with it.
fn name(info: &SessionInfo, width: usize) -> String {
    if let Some(trouble) = &info.trouble {
        return format!("{BAD}{}{BAD:#}", cut(&line(trouble), width));
    }
    let name = info.title.as_deref().or(info.first_prompt.as_deref()).unwrap_or_default();
    let name = line(name.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim());
    let mark = match (&info.origin, info.unfinished) {
        (None, false) => return cut(&name, width),
        (None, true) => "(not ended)",
        (Some(_), false) => "(copy)",
        (Some(_), true) => "(copy, not ended)",
    };
    format!("{} {DIM}{mark}{DIM:#}", cut(&name, width.saturating_sub(mark.len() + 1)))
}

/// How much of each name tells it from the others: at least eight characters.
fn told_apart(infos: &[SessionInfo]) -> Vec<usize> {
    const LEAST: usize = 8;
    let mut sorted: Vec<&str> = infos.iter().map(|info| info.id.as_str()).collect();
    sorted.sort_unstable();
    let common = |a: &str, b: &str| a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count();
    let length = |id: &SessionId| {
        let at = sorted.partition_point(|other| *other < id.as_str());
        let neighbours = [at.checked_sub(1).and_then(|at| sorted.get(at)), sorted.get(at + 1)];
        let shared = neighbours.into_iter().flatten().map(|other| common(other, id.as_str())).max();
        shared.map_or(LEAST, |shared| (shared + 1).max(LEAST))
    };
    infos.iter().map(|info| length(&info.id)).collect()
}

/// A time as people say it.
pub(crate) fn ago(milliseconds: i64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seconds = i64::try_from(now).unwrap_or(0) - milliseconds / 1000;
    match seconds {
        _ if milliseconds == 0 => "-".into(),
        i64::MIN..60 => "just now".into(),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        86_400..1_209_600 => format!("{} d ago", seconds / 86_400),
        1_209_600..31_536_000 => format!("{} wk ago", seconds / 604_800),
        _ => format!("{} y ago", seconds / 31_536_000),
    }
}

pub(crate) fn cost(money: Money) -> String {
    match money.nanos() {
        0 => "-".into(),
        1..1_000_000_000 => format!("${:.4}", money.dollars()),
        _ => format!("${:.2}", money.dollars()),
    }
}

/// With the home folder as people write it.
pub(crate) fn shortened_folder(folder: &str) -> String {
    let home = std::env::home_dir().filter(|home| home.parent().is_some());
    let inside = home.and_then(|home| Path::new(folder).strip_prefix(home).ok().map(Path::to_path_buf));
    match inside {
        Some(inside) if inside.as_os_str().is_empty() => "~".into(),
        Some(inside) => format!("~/{}", inside.display()),
        None => folder.to_owned(),
    }
}

/// Text on one line, safe for a terminal.
pub(crate) fn line(text: &str) -> String {
    clean(text).replace(['\n', '\t'], " ")
}

/// Text as a shell takes it for one word, safe for a terminal.
pub(crate) fn quoted(text: &str) -> String {
    let text = line(text);
    match text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:@+,".contains(c)) && !text.is_empty() {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => {
            let kept: String = text.chars().take(most.saturating_sub(1)).collect();
            format!("{kept}…")
        }
    }
}

fn cut_start(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().skip(count - most + 1).collect();
    format!("…{kept}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(id: &str, prompt: &str, origin: Option<&str>) -> SessionInfo {
        let origin = origin.map(|session| serde_json::json!({"session": session, "records": 3}));
        let info = serde_json::json!({
            "id": id, "title": null, "first_prompt": prompt, "created": 1, "updated": 1, "model": "anthropic/claude",
            "setup": {"folder": "/srv/a/long/way/to/the/project"}, "turns": 2, "messages": 4, "records": 9,
            "usage": {"input": 0, "cacheRead": 0, "cacheWrite": 0, "output": 0}, "cost": 0, "unfinished": true,
            "origin": origin, "trouble": null,
        });
        serde_json::from_value(info).unwrap()
    }

    fn lines(width: Option<usize>) -> Vec<String> {
        let infos =
            [info("0199-aaaa", &"what to do ".repeat(20), None), info("0199-bbbb", "what to do", Some("0199-aaaa"))];
        let mut out = Vec::new();
        Table::of(&infos).write(&mut out, width).unwrap();
        let plain = anstream::adapter::strip_bytes(&out).into_vec();
        String::from_utf8(plain).unwrap().lines().map(|line| line.trim_end().to_owned()).collect()
    }

    #[test]
    fn a_narrow_terminal_shows_fewer_columns_and_no_line_is_broken() {
        for width in [40, 60, 80, 120, 200] {
            for line in lines(Some(width)) {
                assert!(line.chars().count() <= width, "{width}: {line:?}");
                assert!(line.starts_with("ID") || line.contains("what to"), "{width}: {line:?}");
            }
        }
        assert!(lines(Some(200))[0].contains("FOLDER") && !lines(Some(60))[0].contains("FOLDER"));
    }

    #[test]
    fn copies_are_marked() {
        let lines = lines(None);
        assert!(lines[1].ends_with("(not ended)"), "{}", lines[1]);
        assert!(lines[2].ends_with("what to do (copy, not ended)"), "{}", lines[2]);
    }
}
