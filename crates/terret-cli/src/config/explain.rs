//! Where each value comes from, and what it takes the place of.

use serde::Serialize;

use super::settings::{ADD_UP, NAME_A_MODEL};
use super::{Config, Entry, settings};

/// What a key is set to, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Explained {
    pub(crate) key: String,
    /// As it is written; null where there is none.
    pub(crate) value: Option<String>,
    pub(crate) from: String,
    /// What it takes the place of, the strongest one first.
    pub(crate) overrides: Vec<Overridden>,
    /// What holds as well, the nearest to the command line first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) also: Vec<Overridden>,
    #[serde(skip)]
    pub(crate) help: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Overridden {
    pub(crate) value: String,
    pub(crate) from: String,
}

/// All settings in the order of the help, and then what is set for providers.
pub(crate) fn explain(config: &Config) -> Vec<Explained> {
    let mut explained: Vec<Explained> = Vec::new();
    for setting in settings() {
        let default = (!setting.default.is_empty()).then(|| quoted(&setting.default));
        explained.push(of_key(config, &setting.key, default, setting.help));
    }
    let mut of_providers: Vec<&str> = config.entries.iter().map(|entry| entry.key.as_str()).collect();
    of_providers.retain(|key| key.starts_with("providers."));
    of_providers.sort_unstable();
    of_providers.dedup();
    explained.extend(of_providers.into_iter().map(|key| of_key(config, key, None, String::new())));
    explained
}

fn of_key(config: &Config, key: &str, default: Option<String>, help: String) -> Explained {
    let (used, unused): (Vec<&Entry>, Vec<&Entry>) = config.all(key).partition(|entry| !config.is_passed_over(entry));
    let mut overrides: Vec<Overridden> = used
        .iter()
        .skip(1)
        .map(|entry| Overridden { value: entry.shown.clone(), from: entry.origin.to_string() })
        .collect();
    overrides.extend(unused.into_iter().map(|entry| Overridden {
        value: entry.shown.clone(),
        from: format!("{}, which is for another model", entry.origin),
    }));
    let also = if ADD_UP.contains(&key) { std::mem::take(&mut overrides) } else { Vec::new() };
    let by_default = || "the default".to_owned();
    match used.first() {
        Some(entry) => {
            overrides.extend(default.map(|value| Overridden { value, from: by_default() }));
            Explained {
                key: key.into(),
                value: Some(entry.shown.clone()),
                from: entry.origin.to_string(),
                overrides,
                also,
                help,
            }
        }
        None => Explained { key: key.into(), value: default, from: by_default(), overrides, also, help },
    }
}

impl Config {
    /// Whether it is an address or a wire that stands beside a weaker layer's model than the one that is asked.
    fn is_passed_over(&self, entry: &Entry) -> bool {
        let model = self.all("model").next().map(|model| model.origin.layer());
        NAME_A_MODEL.contains(&entry.key.as_str())
            && entry.key != "model"
            && model.is_some_and(|layer| entry.origin.layer() < layer)
    }
}

/// As TOML has it.
fn quoted(default: &str) -> String {
    let bare = default.parse::<f64>().is_ok() || matches!(default, "true" | "false");
    if bare { default.to_owned() } else { format!("{default:?}") }
}
