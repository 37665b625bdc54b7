//! Which models a provider has for a key, by its own word.

use serde_json::Value;

use crate::catalog::ModelFacts;
use crate::error::{ErrorKind, ModelError};
use crate::hosts::Host;
use crate::price::{Price, Rates};
use crate::provider::Resolved;
use crate::transport::HttpTransport;

/// A model that a provider lists.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ListedModel {
    /// The model's id there.
    pub id: String,
    /// What the list says about it, which is nothing at some providers.
    pub facts: ModelFacts,
}

/// Asks a provider which models there are for a key. Any of its models will do as `resolved`: only the address and the key
/// count. Takes as long as the server does; dropping the future ends the call.
///
/// Models that don't talk (embeddings, speech, pictures) are left out: as the list tells, else by their names. Up to 1,000
/// models are asked for.
///
/// | host | what its list says |
/// |---|---|
/// | [anthropic](https://platform.claude.com/docs/en/api/models/list) | window, most output |
/// | [google](https://ai.google.dev/api/models) | window, most output |
/// | [openrouter](https://openrouter.ai/docs/models), [vercel](https://vercel.com/docs/ai-gateway/models-and-providers) | window, most output, images, prices |
/// | [mistral](https://docs.mistral.ai/api/endpoint/models), [groq](https://console.groq.com/docs/models), [together](https://docs.together.ai/reference/models-1) | window, and most output at Groq |
/// | others | names |
pub async fn list_models(resolved: &Resolved) -> Result<Vec<ListedModel>, ModelError> {
    let host = Host::find(&resolved.spec.provider);
    let (query, headers): (_, &[_]) = match host.map(|host| host.id) {
        Some("anthropic") => ("?limit=1000", &[("anthropic-version", "2023-06-01")]),
        Some("google") => ("?pageSize=1000", &[]),
        _ => ("", &[]),
    };
    let request = resolved.endpoint.models(query, headers)?;
    let listed = HttpTransport::with_limits(&resolved.limits).fetch(request).await.and_then(|json| read(host, &json));
    listed.map_err(|mut error| {
        resolved.endpoint.redact(&mut error);
        error
    })
}

fn read(host: Option<&Host>, json: &str) -> Result<Vec<ListedModel>, ModelError> {
    let protocol = |reason: &str| ModelError::new(ErrorKind::Protocol, format!("that is no list of models: {reason}"));
    let list: Value = serde_json::from_str(json).map_err(|error| protocol(&error.to_string()))?;
    // OpenAI's shape, Google's, and Together's.
    let models = list.get("data").or_else(|| list.get("models")).unwrap_or(&list).as_array();
    let models = models.ok_or_else(|| protocol("it has no array `data` or `models`"))?;
    let host = host.map_or("", |host| host.id);
    Ok(models.iter().map(Entry).filter(Entry::talks).filter_map(|entry| entry.listed(host)).collect())
}

/// What stands about a model. What is missing, or has another type than it should have, isn't known.
struct Entry<'a>(&'a Value);

impl<'a> Entry<'a> {
    fn talks(&self) -> bool {
        const TALKING: [&str; 6] = ["chat", "language", "code", "model", "base", "fine-tuned"];
        /// For lists that don't tell.
        const OTHERS: [&str; 10] =
            ["embed", "whisper", "tts", "dall-e", "moderation", "transcribe", "realtime", "audio", "image", "rerank"];
        let name = self.id().unwrap_or_default().to_lowercase();
        let kind = self.0.get("type").and_then(Value::as_str);
        kind.is_none_or(|kind| TALKING.contains(&kind))
            && self.has("/supportedGenerationMethods", "generateContent") != Some(false)
            && self.has("/architecture/output_modalities", "text") != Some(false)
            && self.0.pointer("/capabilities/completion_chat") != Some(&Value::Bool(false))
            && !OTHERS.iter().any(|other| name.contains(other))
    }

    fn listed(&self, host: &str) -> Option<ListedModel> {
        let id = self.id()?;
        let context_window = self.tokens(&[
            "/top_provider/context_length",
            "/context_length",
            "/context_window",
            "/max_context_length",
            "/max_input_tokens",
            "/inputTokenLimit",
        ]);
        let outputs =
            ["/top_provider/max_completion_tokens", "/max_completion_tokens", "/max_tokens", "/outputTokenLimit"];
        let max_output = self.tokens(&outputs).filter(|most| context_window.is_none_or(|window| *most <= window));
        let images = self.has("/architecture/input_modalities", "image");
        let price = self.price(host, id);
        let facts = ModelFacts { context_window, max_output, images, price, ..ModelFacts::default() };
        Some(ListedModel { id: id.to_owned(), facts })
    }

    fn id(&self) -> Option<&'a str> {
        // Google's.
        let name = || self.text("/name").map(|name| name.strip_prefix("models/").unwrap_or(name));
        self.text("/id").or_else(name).filter(|id| !id.is_empty())
    }

    fn text(&self, pointer: &str) -> Option<&'a str> {
        self.0.pointer(pointer).and_then(Value::as_str)
    }

    /// Whether an array has this text in it, if there is one.
    fn has(&self, pointer: &str, text: &str) -> Option<bool> {
        self.0.pointer(pointer).and_then(Value::as_array).map(|array| array.iter().any(|it| it == text))
    }

    /// The first of these numbers that there is.
    fn tokens(&self, pointers: &[&str]) -> Option<u32> {
        let number =
            |pointer: &&str| u32::try_from(self.0.pointer(pointer)?.as_u64()?).ok().filter(|number| *number > 0);
        pointers.iter().find_map(number)
    }

    /// In dollars per token, as decimal text, at the two hosts that say so. A price of nothing is one only where the name
    /// says it.
    fn price(&self, host: &str, id: &str) -> Option<Price> {
        let rate = |name: &str| self.text(&format!("/pricing/{name}")).and_then(nano_dollars_per_million);
        let (input, output) = match host {
            "openrouter" => (rate("prompt")?, rate("completion")?),
            "vercel" => (rate("input")?, rate("output")?),
            _ => return None,
        };
        if input == 0 && output == 0 && !id.ends_with(":free") {
            return None;
        }
        let storage = rate("input_cache_write");
        // OpenRouter's guide to prompt caching: for Gemini models, the input is charged beside the storage.
        let both = host == "openrouter" && id.starts_with("google/");
        let cache_write = storage.map_or(input, |storage| if both { input.saturating_add(storage) } else { storage });
        let cache_read = rate("input_cache_read").unwrap_or(input);
        Some(Price::flat(Rates { input, output, cache_read, cache_write, cache_write_long: cache_write }))
    }
}

/// `0.000003` a token is $3 per million.
fn nano_dollars_per_million(text: &str) -> Option<u64> {
    /// A million dollars per million tokens.
    const MOST: f64 = 1e15;
    let nanos = (text.trim().parse::<f64>().ok()? * 1e15).round();
    // In this range nothing is lost.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    (0.0..=MOST).contains(&nanos).then_some(nanos as u64)
}
