//! Model servers on this machine, found by asking for their lists of models where they listen.

use std::time::Duration;

use futures_util::future::join_all;
use serde::Deserialize;

use crate::endpoint::{BaseUrl, Endpoint};
use crate::hosts::{Host, hosts};
use crate::provider::{ModelRef, Overrides, resolve};
use crate::transport::HttpTransport;

/// A model server that answered.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LocalServer {
    /// Which one it is. Its id is the first half of the names of its models: `ollama/qwen3:8b`.
    pub host: &'static Host,
    /// Where it is.
    pub base_url: BaseUrl,
    /// Its models, in its own order. None is a valid answer: nothing was downloaded yet.
    pub models: Vec<LocalModel>,
}

/// A model of a server on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LocalModel {
    /// The model's id there.
    pub id: String,
    /// The most tokens that fit, if the server says so: as the model is loaded, else as it could be.
    pub context_window: Option<u32>,
}

/// Looks for the servers that are [local](Host::local), all at once, and waits for `within` at most; 300 ms are ample on
/// one machine. `env` looks an environment variable up, as for [`resolve`], and says where a server is that isn't at its
/// usual address, and its key.
///
/// A server that refuses, or that is another one than is looked for at that port, is not there. Each list is the one that
/// the server's own documentation describes: `/api/tags` of Ollama, `/v1/models` of llama.cpp and vLLM, `/api/v1/models`
/// of LM Studio (`/api/v0/models` before 0.4).
///
/// ```no_run
/// # async fn example() {
/// let env = |name: &str| std::env::var(name).ok();
/// for server in terret_llm::local_servers(std::time::Duration::from_millis(300), env).await {
///     for model in &server.models {
///         println!("{}/{}", server.host.id, model.id);
///     }
/// }
/// # }
/// ```
pub async fn local_servers(within: Duration, env: impl Fn(&str) -> Option<String>) -> Vec<LocalServer> {
    let transport = &HttpTransport::new();
    let looked_for: Vec<_> = hosts().iter().filter_map(|host| Some((host, endpoint(host, &env)?))).collect();
    let answers = looked_for.into_iter().map(|(host, endpoint)| async move {
        let models = tokio::time::timeout(within, models(host, &endpoint, transport)).await.ok()??;
        Some(LocalServer { host, base_url: endpoint.base_url().clone(), models })
    });
    join_all(answers).await.into_iter().flatten().collect()
}

/// Where a local server is, if its address makes sense.
fn endpoint(host: &Host, env: impl Fn(&str) -> Option<String>) -> Option<Endpoint> {
    let any = ModelRef { provider: host.id.to_owned(), model: "any".to_owned(), effort: None };
    let resolved = host.local.then(|| resolve(&any, &Overrides::default(), env))?;
    resolved.ok().map(|resolved| resolved.endpoint)
}

/// How a server lists its models: a path, counted from the root of the server, and how to read what is there.
type Listing = (&'static str, fn(&str) -> Option<Vec<LocalModel>>);

fn listings(host: &Host) -> &'static [Listing] {
    match host.id {
        "ollama" => &[("/api/tags", ollama)],
        "llamacpp" => &[("/v1/models", |json| openai(json, "llamacpp"))],
        "vllm" => &[("/v1/models", |json| openai(json, "vllm"))],
        "lmstudio" => &[("/api/v1/models", lm_studio), ("/api/v0/models", lm_studio)],
        _ => &[],
    }
}

async fn models(host: &Host, endpoint: &Endpoint, transport: &HttpTransport) -> Option<Vec<LocalModel>> {
    for (path, read) in listings(host) {
        let request = endpoint.listing(path)?;
        if let Some(models) = transport.fetch(request).await.ok().and_then(|json| read(&json)) {
            return Some(models);
        }
    }
    None
}

/// [Ollama: list models](https://docs.ollama.com/api/tags).
fn ollama(json: &str) -> Option<Vec<LocalModel>> {
    #[derive(Deserialize)]
    struct Tags {
        models: Vec<Tag>,
    }
    #[derive(Deserialize)]
    struct Tag {
        name: String,
    }
    let tags: Tags = serde_json::from_str(json).ok()?;
    Some(tags.models.into_iter().map(|tag| LocalModel { id: tag.name, context_window: None }).collect())
}

/// OpenAI's list, in which a server names itself as the owner of its models.
/// [llama.cpp](https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md) adds `meta`,
/// [vLLM](https://docs.vllm.ai/en/stable/serving/openai_compatible_server/) `max_model_len`.
fn openai(json: &str, owner: &str) -> Option<Vec<LocalModel>> {
    #[derive(Deserialize)]
    struct List {
        data: Vec<Listed>,
    }
    #[derive(Deserialize)]
    struct Listed {
        id: String,
        owned_by: Option<String>,
        max_model_len: Option<u32>,
        meta: Option<Meta>,
    }
    #[derive(Deserialize)]
    struct Meta {
        n_ctx: Option<u32>,
        n_ctx_train: Option<u32>,
    }
    let list: List = serde_json::from_str(json).ok()?;
    if list.data.iter().any(|listed| listed.owned_by.as_deref() != Some(owner)) {
        return None;
    }
    let models = list.data.into_iter().map(|Listed { id, max_model_len, meta, .. }| {
        let context_window = max_model_len.or_else(|| meta.and_then(|meta| meta.n_ctx.or(meta.n_ctx_train)));
        LocalModel { id, context_window }
    });
    Some(models.collect())
}

/// [LM Studio's REST API](https://lmstudio.ai/docs/developer/rest), and the one before it. Models that only embed are
/// left out.
fn lm_studio(json: &str) -> Option<Vec<LocalModel>> {
    #[derive(Deserialize)]
    struct List {
        #[serde(alias = "data")]
        models: Vec<Listed>,
    }
    #[derive(Deserialize)]
    struct Listed {
        #[serde(alias = "id")]
        key: String,
        #[serde(rename = "type")]
        kind: String,
        max_context_length: Option<u32>,
        loaded_context_length: Option<u32>,
        #[serde(default)]
        loaded_instances: Vec<Instance>,
    }
    #[derive(Deserialize)]
    struct Instance {
        config: Option<Config>,
    }
    #[derive(Deserialize)]
    struct Config {
        context_length: Option<u32>,
    }
    let list: List = serde_json::from_str(json).ok()?;
    let models = list.models.into_iter().filter(|listed| !listed.kind.starts_with("embedding")).map(|listed| {
        let loaded = listed.loaded_instances.into_iter().find_map(|instance| instance.config?.context_length);
        let context_window = loaded.or(listed.loaded_context_length).or(listed.max_context_length);
        LocalModel { id: listed.key, context_window }
    });
    Some(models.collect())
}
