//! The second opinion: litellm's list, dollars per token in flat keys.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::Result;
use super::prices::{Rate, Told};
use super::sources::Archive;

/// Its names for our hosts, and how it begins the names of their models.
const PROVIDERS: [(&str, &str, &str); 15] = [
    ("anthropic", "anthropic", ""),
    ("azure", "azure", "azure/"),
    ("cerebras", "cerebras", "cerebras/"),
    ("deepseek", "deepseek", "deepseek/"),
    ("fireworks", "fireworks_ai", "fireworks_ai/"),
    ("google", "gemini", "gemini/"),
    ("groq", "groq", "groq/"),
    ("minimax", "minimax", "minimax/"),
    ("mistral", "mistral", "mistral/"),
    ("moonshot", "moonshot", "moonshot/"),
    ("openai", "openai", ""),
    ("together", "together_ai", "together_ai/"),
    ("vercel", "vercel_ai_gateway", "vercel_ai_gateway/"),
    ("xai", "xai", "xai/"),
    ("zai", "zai", "zai/"),
];

/// By host and model id.
pub(super) struct Prices(BTreeMap<(&'static str, String), Entry>);

pub(super) struct Entry {
    /// `None` where the list has amounts that aren't whole nano-dollars, or no price.
    pub(super) told: Option<Told>,
    /// Means the window for some models and the most input for others.
    pub(super) max_input: Option<u32>,
    pub(super) max_output: Option<u32>,
    pub(super) takes_tools: bool,
    /// When the provider takes it away, `YYYY-MM-DD`.
    pub(super) ends: Option<String>,
}

#[derive(Deserialize)]
struct Line {
    litellm_provider: Option<String>,
    mode: Option<String>,
    #[serde(default)]
    max_input_tokens: Value,
    #[serde(default)]
    max_output_tokens: Value,
    supports_function_calling: Option<bool>,
    deprecation_date: Option<String>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

pub(super) fn version(archive: &Archive) -> Result<String> {
    let metadata = archive.read("*.dist-info/METADATA")?;
    let version = metadata.lines().find_map(|line| line.strip_prefix("Version: "));
    Ok(version.ok_or("METADATA has no version")?.to_owned())
}

impl Prices {
    pub(super) fn read(archive: &Archive) -> Result<Self> {
        let text = archive.read("litellm/model_prices_and_context_window_backup.json")?;
        let lines: BTreeMap<String, Value> = serde_json::from_str(&text)?;
        let mut prices = BTreeMap::new();
        for (name, line) in lines {
            let Ok(line) = serde_json::from_value::<Line>(line) else { continue };
            let provider = PROVIDERS.iter().find(|(_, theirs, _)| line.litellm_provider.as_deref() == Some(*theirs));
            let Some((host, _, prefix)) =
                provider.filter(|_| matches!(line.mode.as_deref(), Some("chat" | "responses")))
            else {
                continue;
            };
            let Some(id) = name.strip_prefix(prefix) else { continue };
            prices.insert((*host, id.to_owned()), entry(&line));
        }
        Ok(Self(prices))
    }

    pub(super) fn get(&self, host: &'static str, id: &str) -> Option<&Entry> {
        self.0.get(&(host, id.to_owned()))
    }

    pub(super) fn of_host(&self, host: &'static str) -> impl Iterator<Item = (&str, &Entry)> {
        self.0.iter().filter(move |((of, _), _)| *of == host).map(|((_, id), entry)| (id.as_str(), entry))
    }
}

fn entry(line: &Line) -> Entry {
    let tokens = |value: &Value| value.as_f64().map(|tokens| tokens as u32);
    Entry {
        told: told(&line.rest),
        max_input: tokens(&line.max_input_tokens),
        max_output: tokens(&line.max_output_tokens),
        takes_tools: line.supports_function_calling == Some(true),
        ends: line.deprecation_date.clone(),
    }
}

fn told(fields: &BTreeMap<String, Value>) -> Option<Told> {
    fields.get("input_cost_per_token")?;
    let base = rate(fields, "", Rate::default())?;
    let mut tiers = BTreeMap::new();
    for key in fields.keys() {
        let threshold = key.strip_prefix("input_cost_per_token_above_").and_then(|rest| rest.strip_suffix("k_tokens"));
        if let Some(thousands) = threshold.and_then(|digits| digits.parse::<u64>().ok()) {
            tiers.insert(thousands * 1000, rate(fields, &format!("_above_{thousands}k_tokens"), base)?);
        }
    }
    Some(Told { base, tiers })
}

/// The rates under keys that end so; input and output that aren't there are as in `usual`. `None` if an amount isn't whole.
fn rate(fields: &BTreeMap<String, Value>, tier: &str, usual: Rate) -> Option<Rate> {
    let get = |key: &str, usual| match fields.get(&format!("{key}{tier}")).and_then(Value::as_f64) {
        Some(dollars_per_token) => per_million(dollars_per_token).map(Some),
        None => Some(usual),
    };
    let long = |time| get(&format!("cache_creation_input_token_cost_above_{time}"), None);
    Some(Rate {
        input: get("input_cost_per_token", Some(usual.input))??,
        output: get("output_cost_per_token", Some(usual.output))??,
        cache_read: known(get("cache_read_input_token_cost", None)?),
        cache_write: known(get("cache_creation_input_token_cost", None)?),
        cache_write_long: known(long("1hr")?.or(long("12hr")?)),
    })
}

/// As in the base, zero stands where there is no price for it.
fn known(nanos: Option<u64>) -> Option<u64> {
    nanos.filter(|nanos| *nanos > 0)
}

/// Nano-dollars per million tokens; `None` if that is not a whole number.
fn per_million(dollars_per_token: f64) -> Option<u64> {
    let nanos = dollars_per_token * 1e15;
    ((nanos - nanos.round()).abs() < 0.01).then_some(nanos.round() as u64)
}
