//! The base: `@earendil-works/pi-ai`, a file a provider, `{wire: {"type:id": model}}`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Number, Value};

use super::Result;
use super::sources::Archive;

/// Its provider files and the hosts that they are about.
pub(super) const PROVIDERS: [(&str, &str); 19] = [
    ("anthropic", "anthropic"),
    ("azure", "azure"),
    ("cerebras", "cerebras"),
    ("deepseek", "deepseek"),
    ("fireworks", "fireworks"),
    ("google", "google"),
    ("groq", "groq"),
    ("huggingface", "huggingface"),
    ("minimax", "minimax"),
    ("mistral", "mistral"),
    ("moonshotai", "moonshot"),
    ("nvidia", "nvidia"),
    ("openai", "openai"),
    ("opencode", "opencode"),
    ("openrouter", "openrouter"),
    ("together", "together"),
    ("vercel-ai-gateway", "vercel"),
    ("xai", "xai"),
    ("zai", "zai"),
];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Model {
    pub(super) id: String,
    /// Its word for the wire.
    pub(super) api: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) reasoning: bool,
    pub(super) input: Vec<String>,
    pub(super) cost: Cost,
    pub(super) context_window: Option<u32>,
    pub(super) max_tokens: Option<u32>,
    /// Our level to the vendor's word; null if the model doesn't have it.
    #[serde(default)]
    pub(super) thinking_level_map: BTreeMap<String, Option<String>>,
    #[serde(default)]
    pub(super) compat: Compat,
}

/// Dollars per million tokens. Zero stands for free, and for not known.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Cost {
    pub(super) input: Number,
    pub(super) output: Number,
    pub(super) cache_read: Number,
    pub(super) cache_write: Number,
    #[serde(default)]
    pub(super) input_tokens_above: Option<u64>,
    #[serde(default)]
    pub(super) tiers: Vec<Cost>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Compat {
    pub(super) supports_reasoning_effort: Option<bool>,
    pub(super) thinking_format: Option<String>,
    pub(super) force_adaptive_thinking: bool,
}

pub(super) fn version(archive: &Archive) -> Result<String> {
    let package: Value = serde_json::from_str(&archive.read("package/package.json")?)?;
    Ok(package.get("version").and_then(Value::as_str).ok_or("package.json has no version")?.to_owned())
}

/// A provider's chat models. All of them take tools.
pub(super) fn models(archive: &Archive, provider: &str) -> Result<Vec<Model>> {
    let text = archive.read(&format!("package/dist/providers/data/{provider}.json"))?;
    let by_wire: BTreeMap<String, BTreeMap<String, Model>> =
        serde_json::from_str(&text).map_err(|error| format!("{provider}.json: {error}"))?;
    let models = by_wire.into_values().flat_map(BTreeMap::into_values);
    Ok(models.filter(|model| model.kind == "chat").collect())
}
