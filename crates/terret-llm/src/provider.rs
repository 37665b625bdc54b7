//! From `provider/model` to a model that can be asked.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use secrecy::SecretString;

use crate::catalog::{Catalog, Listed, ModelFacts};
use crate::effort::{Effort, Efforts};
use crate::endpoint::{Auth, AuthScheme, BaseUrl, Endpoint, InvalidBaseUrl};
use crate::hosts::{CUSTOM, Host, hosts};
use crate::http_model::{HttpModel, Limits};
use crate::model::{Compat, ModelSpec};
#[cfg(feature = "http")]
use crate::retry::{Retry, RetryPolicy};
#[cfg(feature = "http")]
use crate::transport::HttpTransport;
use crate::transport::Transport;
use crate::wire::WireFormat;

/// The name of a model: `provider/model[:effort]`.
///
/// A model id may hold slashes and colons (`openrouter/qwen/qwen3-coder:free`, `ollama/qwen2.5-coder:7b`): what stands
/// before the first slash is the provider, and what stands behind the last colon is an effort only if it is the name of
/// one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelRef {
    /// Who is asked.
    pub provider: String,
    /// The model's id there.
    pub model: String,
    /// How much it should reason, for [`Options::effort`](crate::Options::effort).
    pub effort: Option<Effort>,
}

/// Why a text names no model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} does not name a model; write provider/model, for example anthropic/claude-sonnet-5-5 or openai/gpt-6.2-sol:high"
)]
pub struct InvalidModelRef(String);

impl FromStr for ModelRef {
    type Err = InvalidModelRef;

    fn from_str(text: &str) -> Result<Self, InvalidModelRef> {
        let invalid = || InvalidModelRef(text.to_owned());
        let (provider, rest) = text.trim().split_once('/').ok_or_else(invalid)?;
        let with_effort = rest.rsplit_once(':').and_then(|(model, word)| Some((model, Some(word.parse().ok()?))));
        let (model, effort) = with_effort.unwrap_or((rest, None));
        if provider.is_empty() || model.is_empty() {
            return Err(invalid());
        }
        Ok(Self { provider: provider.to_owned(), model: model.to_owned(), effort })
    }
}

impl fmt::Display for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider, self.model)?;
        self.effort.map_or(Ok(()), |effort| write!(f, ":{effort}"))
    }
}

/// What the user or the program wants different from what the host's entry and the environment say.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// Another address.
    pub base_url: Option<String>,
    /// Another wire.
    pub wire: Option<WireFormat>,
    /// The key.
    pub api_key: Option<SecretString>,
    /// What is known about models. By default the embedded list.
    pub catalog: Catalog,
}

/// A model and where it is: all that [`HttpModel`] needs but the transport.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The facts about the model, as far as the catalog and its host tell them.
    pub spec: ModelSpec,
    /// Whether the catalog lists the model. One that it doesn't gets defaults, and may be a misspelt one.
    pub listed: bool,
    /// Where it is.
    pub endpoint: Endpoint,
    /// How long the host may take.
    pub limits: Limits,
}

impl Resolved {
    /// The model, asked through this transport.
    pub fn connect(self, transport: Arc<dyn Transport>) -> HttpModel {
        HttpModel::new(self.spec, self.endpoint, transport).with_limits(self.limits)
    }
}

/// Why a model can't be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// Nobody of this name is known.
    #[error(
        "there is no provider {name:?}{}; for a server of your own, name the model custom/MODEL and give its address \
         with --base-url",
        did_you_mean(.nearest)
    )]
    UnknownProvider {
        /// The name.
        name: String,
        /// Known names that are spelled alike, the nearest first.
        nearest: Vec<&'static str>,
    },
    /// The host needs a key and none was found.
    #[error("there is no key for {provider}: set {}", one_of(.variables))]
    NoKey {
        /// The host.
        provider: &'static str,
        /// The environment variables that were looked for.
        variables: Vec<&'static str>,
    },
    /// The host has no address of its own and none was given.
    #[error("{provider} needs an address: give --base-url or set {}", one_of(.variables))]
    NoBaseUrl {
        /// The host.
        provider: &'static str,
        /// The environment variables that were looked for.
        variables: Vec<String>,
    },
    /// The address can't be used.
    #[error("{source}, in {origin}")]
    BaseUrl {
        /// Where it came from: an environment variable, or the override.
        origin: String,
        /// What is wrong with it.
        source: InvalidBaseUrl,
    },
    /// This crate doesn't speak that wire, or was built without it.
    #[error(
        "there is no wire {0:?} here; there are anthropic-messages, openai-completions, openai-responses and \
         google-generative-ai, unless the program was built without them"
    )]
    UnknownWire(String),
}

/// A model by its name, with what the process's environment says about keys and addresses, over HTTP, with retries.
///
/// Nothing is sent before the first call. [`resolve`] and [`Resolved::connect`] leave each of these choices to you.
///
/// ```no_run
/// let model = terret_llm::connect("anthropic/claude-sonnet-4-5")?;
/// # Ok::<_, terret_llm::ConnectError>(())
/// ```
#[cfg(feature = "http")]
pub fn connect(model: &str) -> Result<Retry<HttpModel>, ConnectError> {
    let resolved = resolve(&model.parse()?, &Overrides::default(), |name| std::env::var(name).ok())?;
    let transport = HttpTransport::with_limits(&resolved.limits);
    Ok(Retry::new(resolved.connect(Arc::new(transport)), RetryPolicy::default()))
}

/// Why [`connect`] can't make a model.
#[cfg(feature = "http")]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The text names no model.
    #[error(transparent)]
    Name(#[from] InvalidModelRef),
    /// The model can't be asked.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
}

/// Finds a model's host, address and key, and what is known about it. `env` looks an environment variable up (`|name| std::env::var(name).ok()`);
/// one that is empty counts as not set.
///
/// An override wins over the environment, and the environment over the host's entry. A key is needed unless the host is
/// local or the address is not the host's own: a server that the user names may need none.
///
/// A list price is what the host bills: at another address the model has the same limits and no price, unless a file of
/// the catalog gives it one. Azure's addresses are each customer's own, so that its models have none either.
pub fn resolve(
    model: &ModelRef,
    overrides: &Overrides,
    env: impl Fn(&str) -> Option<String>,
) -> Result<Resolved, ResolveError> {
    let env = |name: &str| env(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
    let host = Host::find(&model.provider).ok_or_else(|| unknown_provider(&model.provider))?;
    let address = address(host, overrides, env)?;
    let listed = overrides.catalog.look_up(host.id, &model.model);
    let listed_wire = listed.as_ref().and_then(|listed| listed.facts.wire.as_ref());
    let imitated = host.imitated_by.as_ref().filter(|_| !address.own);
    let wire = overrides.wire.as_ref().or(listed_wire).or(imitated).unwrap_or(&host.wire);
    if wire.wire().is_none() {
        return Err(ResolveError::UnknownWire(wire.to_string()));
    }
    let own = address.own;
    let base_url = address.base_url(host, wire)?;
    let limits = if host.local || base_url.is_loopback() { Limits::local() } else { Limits::default() };
    let mut endpoint = Endpoint::new(base_url);
    match auth(host, wire, overrides, env) {
        Some(auth) => endpoint = endpoint.with_auth(auth),
        None if own && !host.local => {
            let variables = host.keys.iter().map(|(name, _)| *name).collect();
            return Err(ResolveError::NoKey { provider: host.id, variables });
        }
        None => {}
    }
    let mut spec = ModelSpec::new(host.id, model.model.as_str(), wire.clone());
    // Servers that imitate a host rarely take all that it takes.
    spec.compat = if imitated.is_some() { Compat::default() } else { host.compat_for(&model.model).clone() };
    let is_listed = listed.is_some();
    if let Some(listed) = listed {
        describe(&mut spec, listed, own);
    }
    Ok(Resolved { spec, listed: is_listed, endpoint, limits })
}

/// Fills in what the catalog knows. `own` says whether the model is asked at its host's own address.
fn describe(spec: &mut ModelSpec, listed: Listed, own: bool) {
    let Listed { facts, price_is_given } = listed;
    let ModelFacts { wire: _, context_window, max_input, max_output, images, efforts, price } = facts;
    spec.context_window = context_window;
    spec.max_input = max_input;
    spec.max_output = max_output;
    spec.images = images.unwrap_or(spec.images);
    spec.efforts = efforts;
    spec.price = price.filter(|_| own || price_is_given);
    // There is nothing to encrypt, and OpenAI refuses to be asked.
    spec.compat.encrypted_reasoning &= efforts.is_none_or(|efforts| efforts != Efforts::from_iter([Effort::Off]));
}

/// Where a model is, as it was written.
struct Address {
    /// An address that replaces the host's own one, and where it came from, for messages.
    given: Option<(String, String)>,
    /// Whether it is one of the host's own addresses all the same.
    own: bool,
}

fn address(
    host: &'static Host,
    overrides: &Overrides,
    env: impl Fn(&str) -> Option<String>,
) -> Result<Address, ResolveError> {
    let variables = host.all_base_url_variables();
    let given = overrides.base_url.clone().map(|text| ("the base URL that was given".to_owned(), text));
    let given = given.or_else(|| variables.iter().find_map(|name| Some((name.clone(), env(name)?))));
    if given.is_none() && host.base_url.is_none() {
        return Err(ResolveError::NoBaseUrl { provider: host.id, variables });
    }
    let own = given.as_ref().is_none_or(|(_, text)| host.has_address(text));
    Ok(Address { given, own })
}

impl Address {
    fn base_url(self, host: &Host, wire: &WireFormat) -> Result<BaseUrl, ResolveError> {
        let (origin, text) =
            self.given.unwrap_or_else(|| (host.id.to_owned(), host.base_url_for(wire).unwrap_or_default().to_owned()));
        let text = if host.local && !self.own { local_address(&text, host.base_url) } else { text };
        let base_url = match host.path {
            _ if self.own => BaseUrl::exact(&text),
            Some(path) => BaseUrl::exact(&text).map(|base_url| base_url.or_path(path)),
            None => BaseUrl::new(&text, wire),
        };
        base_url.map_err(|source| ResolveError::BaseUrl { origin, source })
    }
}

/// An address as `OLLAMA_HOST` may hold it, which also tells the server where to listen: without a scheme, without a
/// port, or with the address that means all interfaces.
fn local_address(text: &str, own: Option<&str>) -> String {
    if text.contains("://") {
        return text.to_owned();
    }
    let text = text.replacen("0.0.0.0", "127.0.0.1", 1);
    let port = own.and_then(|own| own.rsplit(':').next()).and_then(|rest| rest.split('/').next()).unwrap_or_default();
    if text.contains(':') { format!("http://{text}") } else { format!("http://{text}:{port}") }
}

fn auth(host: &Host, wire: &WireFormat, overrides: &Overrides, env: impl Fn(&str) -> Option<String>) -> Option<Auth> {
    let (scheme, key) = match &overrides.api_key {
        Some(key) => (host.keys.first()?.1, key.clone()),
        None => host.keys.iter().find_map(|(name, scheme)| Some((*scheme, env(name)?.into())))?,
    };
    let scheme = match wire {
        WireFormat::AnthropicMessages if host.id == CUSTOM => AuthScheme::Header("x-api-key"),
        WireFormat::GoogleGenerativeAi if host.id == CUSTOM => AuthScheme::Header("x-goog-api-key"),
        _ => host.scheme_for(wire, scheme),
    };
    Some(Auth::new(scheme, &key))
}

fn unknown_provider(name: &str) -> ResolveError {
    let alike = |known: &str| strsim::jaro_winkler(&name.to_lowercase(), known);
    let mut nearest: Vec<&'static str> =
        hosts().iter().flat_map(Host::names).filter(|known| alike(known) > 0.8).collect();
    nearest.sort_by(|a, b| alike(b).total_cmp(&alike(a)));
    nearest.truncate(3);
    ResolveError::UnknownProvider { name: name.to_owned(), nearest }
}

fn did_you_mean(nearest: &[&str]) -> String {
    if nearest.is_empty() { String::new() } else { format!("; did you mean {}?", one_of(nearest)) }
}

fn one_of<S: AsRef<str>>(names: &[S]) -> String {
    names.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Encoded;

    #[test]
    fn a_model_is_named_by_provider_id_and_effort() {
        for (text, provider, model, effort) in [
            ("openai/gpt-5", "openai", "gpt-5", None),
            ("openai/gpt-5:high", "openai", "gpt-5", Some(Effort::High)),
            ("openai/gpt-5:xhigh", "openai", "gpt-5", Some(Effort::XHigh)),
            ("anthropic/claude-sonnet-4-5:off", "anthropic", "claude-sonnet-4-5", Some(Effort::Off)),
            ("openrouter/anthropic/claude-sonnet-4:beta", "openrouter", "anthropic/claude-sonnet-4:beta", None),
            ("openrouter/qwen/qwen3:free:low", "openrouter", "qwen/qwen3:free", Some(Effort::Low)),
            ("ollama/qwen2.5-coder:7b", "ollama", "qwen2.5-coder:7b", None),
            ("ollama/qwen2.5-coder:7b:minimal", "ollama", "qwen2.5-coder:7b", Some(Effort::Minimal)),
        ] {
            let expected = ModelRef { provider: provider.into(), model: model.into(), effort };
            assert_eq!(text.parse().as_ref(), Ok(&expected), "{text}");
            assert_eq!(expected.to_string(), text);
        }
        for text in ["", "gpt-5", "/gpt-5", "openai/", "openai/:high"] {
            assert!(text.parse::<ModelRef>().unwrap_err().to_string().contains("provider/model"), "{text}");
        }
    }

    /// Where a request to this model goes, and with which header.
    fn ask(model: &str, overrides: &Overrides, env: &[(&str, &str)]) -> Result<(String, String), ResolveError> {
        let env = |name: &str| env.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let resolved = resolve(&model.parse().unwrap(), overrides, env)?;
        let encoded = Encoded { path: "/x".into(), headers: Vec::new(), body: "{}".into() };
        let request = resolved.endpoint.address(encoded).unwrap();
        let keys = ["authorization", "x-api-key", "x-goog-api-key", "api-key"];
        let header =
            keys.iter().find_map(|name| Some(format!("{name}: {}", request.headers.get(*name)?.to_str().ok()?)));
        Ok((request.url, header.unwrap_or_default()))
    }

    #[test]
    fn address_and_key_come_from_the_host_and_the_environment() {
        for (model, env, url, header) in [
            ("openai/m", &[("OPENAI_API_KEY", "k")][..], "https://api.openai.com/v1/x", "authorization: Bearer k"),
            ("anthropic/m", &[("ANTHROPIC_API_KEY", "k")], "https://api.anthropic.com/v1/x", "x-api-key: k"),
            (
                "anthropic/m",
                &[("ANTHROPIC_API_KEY", " "), ("ANTHROPIC_AUTH_TOKEN", "k")],
                "https://api.anthropic.com/v1/x",
                "authorization: Bearer k",
            ),
            (
                "anthropic/m",
                &[("ANTHROPIC_API_KEY", "k"), ("ANTHROPIC_BASE_URL", "https://gateway/anthropic")],
                "https://gateway/anthropic/v1/x",
                "x-api-key: k",
            ),
            (
                "gemini/m",
                &[("GOOGLE_API_KEY", "k")],
                "https://generativelanguage.googleapis.com/v1beta/x",
                "x-goog-api-key: k",
            ),
            (
                "openai/m",
                &[("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", "http://127.0.0.1:9")],
                "http://127.0.0.1:9/v1/x",
                "authorization: Bearer k",
            ),
            ("openai/m", &[("OPENAI_BASE_URL", "http://127.0.0.1:9/v1/")], "http://127.0.0.1:9/v1/x", ""),
            (
                "azure/m",
                &[("AZURE_OPENAI_API_KEY", "k"), ("AZURE_OPENAI_ENDPOINT", "https://r.openai.azure.com/")],
                "https://r.openai.azure.com/openai/v1/x",
                "api-key: k",
            ),
            ("ollama/m", &[], "http://127.0.0.1:11434/v1/x", ""),
            ("ollama/m", &[("OLLAMA_HOST", "0.0.0.0")], "http://127.0.0.1:11434/v1/x", ""),
            ("ollama/m", &[("OLLAMA_HOST", "box:1234")], "http://box:1234/v1/x", ""),
            ("ollama/m", &[("OLLAMA_HOST", "https://box")], "https://box/v1/x", ""),
            ("vllm/m", &[("VLLM_API_KEY", "k")], "http://127.0.0.1:8000/v1/x", "authorization: Bearer k"),
        ] {
            let expected = Ok((url.to_owned(), header.to_owned()));
            assert_eq!(ask(model, &Overrides::default(), env), expected, "{model} {env:?}");
        }
    }

    #[test]
    fn an_override_wins_over_the_environment() {
        let overrides = Overrides {
            base_url: Some("https://mine".into()),
            wire: Some(WireFormat::AnthropicMessages),
            api_key: Some("mine".into()),
            ..Overrides::default()
        };
        let env = [("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", "https://theirs"), ("TERRET_API_KEY", "k")];
        let expected = |header: &str| Ok(("https://mine/v1/x".to_owned(), header.to_owned()));
        assert_eq!(ask("openai/m", &overrides, &env), expected("authorization: Bearer mine"));
        assert_eq!(ask("custom/m", &overrides, &env), expected("x-api-key: mine"));
    }

    /// The addresses are those of the hosts' documentation; which wire serves which model is the catalog's word.
    #[cfg(feature = "catalog")]
    #[test]
    fn a_model_is_asked_by_its_own_wire_at_that_wires_address_unless_another_wire_is_wanted() {
        use WireFormat::{AnthropicMessages, GoogleGenerativeAi, OpenaiCompletions, OpenaiResponses};
        let opencode = |path: &str| format!("https://opencode.ai/inference/{path}/x");
        let (openai, bearer) = (opencode("openai/v1"), "authorization: Bearer k");
        let openrouter = "https://openrouter.ai/api/v1/x".to_owned();
        let compatible = "https://generativelanguage.googleapis.com/v1beta/openai/x".to_owned();
        for (model, wanted, wire, url, header) in [
            ("opencode/claude-opus-5", None, AnthropicMessages, opencode("anthropic/v1"), "x-api-key: k"),
            ("opencode/gemini-3.5-flash", None, GoogleGenerativeAi, opencode("google/v1beta"), "x-goog-api-key: k"),
            ("opencode/gpt-5", None, OpenaiResponses, openai.clone(), bearer),
            ("zen/glm-5.3", None, OpenaiCompletions, openai.clone(), bearer),
            ("opencode/unlisted", None, OpenaiCompletions, openai.clone(), bearer),
            ("opencode/claude-opus-5", Some(OpenaiCompletions), OpenaiCompletions, openai, bearer),
            ("openrouter/anthropic/claude-opus-4.6", None, AnthropicMessages, openrouter.clone(), bearer),
            ("openrouter/openai/gpt-5", None, OpenaiCompletions, openrouter.clone(), bearer),
            ("openrouter/anthropic/claude-opus-4.6", Some(OpenaiCompletions), OpenaiCompletions, openrouter, bearer),
            ("minimax/m", None, AnthropicMessages, "https://api.minimax.io/anthropic/v1/x".into(), bearer),
            ("minimax/m", Some(OpenaiCompletions), OpenaiCompletions, "https://api.minimax.io/v1/x".into(), bearer),
            ("google/m", Some(OpenaiCompletions), OpenaiCompletions, compatible, bearer),
        ] {
            let overrides = Overrides { wire: wanted, api_key: Some("k".into()), ..Overrides::default() };
            let resolved = resolve(&model.parse().unwrap(), &overrides, |_| None).unwrap();
            assert_eq!(resolved.spec.wire, wire, "{model}");
            assert_eq!(ask(model, &overrides, &[]), Ok((url, header.to_owned())), "{model} by {wire}");
        }
        // Azure's addresses are each customer's own. It serves other vendors' models by another wire than OpenAI's.
        let azure = [("AZURE_OPENAI_API_KEY", "k"), ("AZURE_OPENAI_ENDPOINT", "https://r.openai.azure.com/")];
        for (model, wire) in [("azure/gpt-5", OpenaiResponses), ("azure/deepseek-v4-pro", OpenaiCompletions)] {
            let env = |name: &str| azure.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            let resolved = resolve(&model.parse().unwrap(), &Overrides::default(), env).unwrap();
            assert_eq!(resolved.spec.wire, wire, "{model}");
        }
    }

    /// One of a host's addresses, written out, is still its own: the list price holds there, and the path stays as it is.
    #[cfg(feature = "catalog")]
    #[test]
    fn any_of_a_hosts_addresses_is_its_own() {
        for (base_url, own) in [
            ("https://opencode.ai/inference/openai/v1", true),
            ("https://opencode.ai/inference/anthropic/v1/", true),
            ("https://opencode.example/inference/anthropic/v1", false),
        ] {
            let overrides =
                Overrides { base_url: Some(base_url.into()), api_key: Some("k".into()), ..Overrides::default() };
            let resolved = resolve(&"opencode/claude-opus-5".parse().unwrap(), &overrides, |_| None).unwrap();
            assert_eq!(resolved.spec.price.is_some(), own, "{base_url}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let none = Overrides::default();
        for (model, overrides, parts) in [
            ("opnai/gpt-5", &none, &["\"opnai\"", "openai", "custom/MODEL", "--base-url"][..]),
            ("qqqq/m", &none, &["\"qqqq\"; for a server of your own"]),
            ("anthropic/m", &none, &["anthropic", "ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN"]),
            ("custom/m", &none, &["custom", "--base-url", "TERRET_BASE_URL"]),
            ("azure/m", &none, &["AZURE_OPENAI_ENDPOINT"]),
            ("openai/m", &Overrides { base_url: Some("nonsense".into()), ..none.clone() }, &["nonsense", "was given"]),
            ("openai/m", &Overrides { wire: Some("soap".into()), ..none.clone() }, &["\"soap\"", "anthropic-messages"]),
        ] {
            let error = ask(model, overrides, &[]).unwrap_err().to_string();
            for part in parts {
                assert!(error.contains(part), "{error}");
            }
        }
    }

    #[test]
    fn the_key_is_shown_nowhere() {
        let overrides = Overrides { api_key: Some("sk-secret".into()), ..Overrides::default() };
        let resolved = resolve(&"openai/m".parse().unwrap(), &overrides, |_| None).unwrap();
        let shown = format!("{overrides:?} {resolved:?}");
        assert!(!shown.contains("secret"), "{shown}");
    }
}
