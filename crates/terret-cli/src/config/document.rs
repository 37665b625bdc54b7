//! A configuration file, from bytes to entries; with what is wrong in it, and where.

use std::ops::Range;
use std::path::Path;

use terret::llm::BaseUrl;
use terret::llm::hosts;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::settings::{Kind, Setting, settings};
use super::{Entry, Layer, Origin};

/// Whose file it is.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) path: &'a Path,
    pub(super) layer: Layer,
}

/// The keys of a provider's table.
const OF_PROVIDER: [&str; 2] = ["api-key", "base-url"];

/// A file that is being read.
pub(super) struct Document<'a> {
    text: &'a str,
    /// `None` for the value of `--set`.
    context: Option<Context<'a>>,
    settings: Vec<Setting>,
    entries: Vec<Entry>,
    problems: Vec<String>,
}

/// Reads `KEY=VALUE`. A value that isn't TOML is a text.
pub(super) fn of_set(text: &str) -> Result<Vec<Entry>, Vec<String>> {
    let Some((key, value)) = text.split_once('=') else {
        return Err(vec![format!("--set: {text:?} is not KEY=VALUE, as in --set max-turns=50")]);
    };
    let (key, value) = (key.trim(), value.trim());
    let line = match DeValue::parse(value) {
        Ok(_) if !value.contains('\n') => format!("{key} = {value}"),
        _ => format!("{key} = {}", toml_text(value)),
    };
    let mut document = Document::new(&line, None);
    document.take_in();
    document.done()
}

fn toml_text(text: &str) -> String {
    // What JSON escapes, TOML escapes in the same way, all but U+007F.
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007F")
}

impl<'a> Document<'a> {
    /// The entries of a file, or everything that is wrong with it.
    pub(super) fn read(bytes: &[u8], context: Context<'_>) -> Result<Vec<Entry>, Vec<String>> {
        let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
        let text = match str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
                let before = String::from_utf8_lossy(valid);
                let (line, column) = place(&before, before.len());
                return Err(vec![format!("{}:{line}:{column}: it is not UTF-8 here", context.path.display())]);
            }
        };
        let mut document = Document::new(text, Some(context));
        document.take_in();
        document.done()
    }

    fn new(text: &'a str, context: Option<Context<'a>>) -> Self {
        Self { text, context, settings: settings(), entries: Vec::new(), problems: Vec::new() }
    }

    fn done(self) -> Result<Vec<Entry>, Vec<String>> {
        if self.problems.is_empty() { Ok(self.entries) } else { Err(self.problems) }
    }

    fn take_in(&mut self) {
        let table = match DeTable::parse(self.text) {
            Ok(table) => table,
            Err(error) => {
                let span = error.span().unwrap_or(0..0);
                let message = match self.before(span.start) {
                    // What comes next may be a key that was pasted in here, so that it isn't shown.
                    "" => error.message().to_owned(),
                    before => format!("{}, behind {before:?}", error.message()),
                };
                return self.complain(&span, &message);
            }
        };
        for (key, value) in table.get_ref() {
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("providers", DeValue::Table(providers)) => self.providers(providers),
                ("providers", _) => self.complain(&value.span(), "providers is a table, as in [providers.openai]"),
                (name, found) => match self.settings.iter().find(|setting| setting.key == name).cloned() {
                    Some(setting) => match self.values(&setting, found) {
                        Ok(values) => self.push(&setting.key, values, key.span(), value.span()),
                        Err(reason) => self.complain(&value.span(), &format!("{name}: {reason}")),
                    },
                    None => {
                        let known = self.settings.iter().map(|setting| setting.key.as_str());
                        let message = unknown("key", name, known.chain(["providers"]));
                        self.complain(&key.span(), &message);
                    }
                },
            }
        }
    }

    fn providers(&mut self, providers: &DeTable<'_>) {
        for (name, table) in providers {
            let provider = name.get_ref().as_ref();
            if !hosts().iter().any(|host| host.names().any(|known| known == provider)) {
                let known = hosts().iter().flat_map(|host| host.names());
                let message = unknown("provider", provider, known);
                self.complain(&name.span(), &message);
                continue;
            }
            let DeValue::Table(table) = table.get_ref() else {
                let message = format!("providers.{provider} is a table, as in [providers.{provider}]");
                self.complain(&table.span(), &message);
                continue;
            };
            for (key, value) in table {
                self.of_provider(provider, key, value);
            }
        }
    }

    fn of_provider(&mut self, provider: &str, key: &Spanned<std::borrow::Cow<'_, str>>, value: &Spanned<DeValue<'_>>) {
        let name = key.get_ref().as_ref();
        if !OF_PROVIDER.contains(&name) {
            let message = unknown("key", name, OF_PROVIDER.into_iter());
            return self.complain(&key.span(), &message);
        }
        let whole = format!("providers.{provider}.{name}");
        let problem = match value.get_ref().as_str() {
            None => format!("{whole} is a text, not {}", kind_of(value.get_ref())),
            Some(text) if name == "api-key" && !text.trim_start().starts_with('!') => format!(
                "{whole} is a command that prints the key, as in \"!pass show {provider}\"; a key itself doesn't belong \
                 into a file of settings: `terret auth set {provider}` keeps it"
            ),
            Some(text) => match (name, BaseUrl::exact(text)) {
                ("base-url", Err(error)) => format!("{whole}: {error}"),
                _ => return self.push(&whole, vec![text.to_owned()], key.span(), value.span()),
            },
        };
        self.complain(&value.span(), &problem);
    }

    /// The value as the flag would have it.
    fn values(&self, setting: &Setting, value: &DeValue<'_>) -> Result<Vec<String>, String> {
        let wrong = || format!("it takes {}, not {}", setting.value, kind_of(value));
        let one = |value: &DeValue<'_>| match (setting.kind(), value) {
            (Kind::Switch, DeValue::Boolean(on)) => Ok(on.to_string()),
            (Kind::Switch, _) => Err(wrong()),
            (_, DeValue::String(text)) if text.contains('\0') => Err("it holds a NUL".into()),
            (_, DeValue::String(path)) if setting.is_path() => Ok(self.seen_from_here(path)),
            (_, DeValue::String(text)) => Ok(text.to_string()),
            (Kind::Number, DeValue::Integer(number)) if number.radix() == 10 => Ok(number.as_str().to_owned()),
            (Kind::Number, DeValue::Float(number)) => Ok(number.as_str().to_owned()),
            _ => Err(wrong()),
        };
        let values = match (setting.kind(), value) {
            (Kind::List, DeValue::Array(items)) if items.is_empty() => vec![String::new()],
            (Kind::List, DeValue::Array(items)) => {
                items.iter().map(|item| one(item.get_ref())).collect::<Result<Vec<_>, _>>()?
            }
            _ => vec![one(value)?],
        };
        if setting.key == "base-url"
            && let Some(Err(error)) = values.first().map(|text| BaseUrl::exact(text))
        {
            return Err(error.to_string());
        }
        setting.check(&values)?;
        Ok(values)
    }

    /// A path as seen from the folder of the file.
    fn seen_from_here(&self, path: &str) -> String {
        let folder = self.context.and_then(|context| context.path.parent());
        folder.map_or_else(|| path.to_owned(), |folder| folder.join(path).display().to_string())
    }

    fn push(&mut self, key: &str, values: Vec<String>, at: Range<usize>, value: Range<usize>) {
        let origin = match self.context {
            None => Origin::Set,
            Some(Context { path, layer }) => {
                Origin::File { layer, path: path.to_owned(), line: place(self.text, at.start).0 }
            }
        };
        let shown = match key.ends_with("base-url").then(|| values.first().map(|text| BaseUrl::exact(text))) {
            // Without what may be secret.
            Some(Some(Ok(base_url))) => format!("{:?}", base_url.to_string()),
            _ => self.text.get(value).unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" "),
        };
        self.entries.push(Entry { key: key.to_owned(), values, shown, origin });
    }

    fn complain(&mut self, at: &Range<usize>, message: &str) {
        self.problems.push(match self.context {
            None => format!("--set: {message}"),
            Some(Context { path, .. }) => {
                let (line, column) = place(self.text, at.start);
                format!("{}:{line}:{column}: {message}", path.display())
            }
        });
    }

    /// What stands before a place, in its line.
    fn before(&self, at: usize) -> &'a str {
        let before = self.text.get(..at).unwrap_or_default();
        before.rsplit('\n').next().unwrap_or_default().trim()
    }
}

/// Line and column of a place in a text, both counted from 1, the column in characters.
fn place(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

/// The known name that was probably meant.
pub(crate) fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    // People write flags with underscores, and the other way round.
    let alike = |known: &str| strsim::jaro_winkler(&name.to_lowercase().replace('_', "-"), known);
    known.max_by(|a, b| alike(a).total_cmp(&alike(b))).filter(|known| alike(known) > 0.8)
}

fn unknown<'n>(what: &str, name: &str, known: impl Iterator<Item = &'n str>) -> String {
    match nearest(name, known) {
        Some(nearest) => format!("there is no {what} {name:?}; did you mean {nearest}?"),
        None => format!("there is no {what} {name:?}"),
    }
}

fn kind_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
