//! Which model is asked, and how.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use secrecy::SecretString;
use terret::llm::wire::WireFormat;
use terret::llm::{
    Catalog, Effort, Host, Model, ModelRef, Overrides, ResolveError, Resolved, Retry, RetryPolicy, ScriptedModel,
    resolve,
};
use terret::store::Setup;

use crate::cassette::Cassette;
use crate::cli::RunArgs;
use crate::config::{Config, Layer};
use crate::default_model::{self, Found};
use crate::exit::{Exit, Problem};
use crate::{keys, output};

/// A model that can be asked, and how much it should reason.
pub(crate) struct Chosen {
    pub(crate) model: Arc<dyn Model>,
    pub(crate) effort: Option<Effort>,
}

/// Which model a run asks, and where: what the command line says, else what its session was set up with, else what is
/// configured.
///
/// An address and a wire are those of the model that they stand beside: what is weaker than the layer that names the
/// model doesn't count, so that a key never goes to another provider's address.
pub(crate) fn asked(args: &RunArgs, session: &Setup, config: &Config) -> Setup {
    let of_args = Setup {
        model: args.model.clone(),
        base_url: args.base_url.clone(),
        wire: args.wire.as_ref().map(ToString::to_string),
        ..Setup::default()
    };
    let of_layer = |layer| {
        let text = |key| config.text_in(layer, key).map(str::to_owned);
        Setup { model: text("model"), base_url: text("base-url"), wire: text("wire"), ..Setup::default() }
    };
    let [set, others @ ..] = Layer::STRONGEST_FIRST;
    let layers = [of_args, of_layer(set), session.clone()].into_iter().chain(others.map(of_layer));
    let mut asked = Setup { folder: session.folder.clone(), ..Setup::default() };
    for layer in layers {
        asked.base_url = asked.base_url.or(layer.base_url);
        asked.wire = asked.wire.or(layer.wire);
        if let Some(model) = layer.model {
            asked.model = Some(absolute(&model));
            break;
        }
    }
    asked
}

/// A script by its whole path, which is good in every folder.
fn absolute(model: &str) -> String {
    let path = model.strip_prefix("scripted:").and_then(|path| std::path::absolute(path).ok());
    path.map_or_else(|| model.to_owned(), |path| format!("scripted:{}", path.display()))
}

/// Without what may be secret: an address can hold a password or a key.
pub(crate) fn without_secrets(asked: &Setup) -> Setup {
    match asked.base_url.as_ref().is_some_and(|url| url.contains(['@', '?'])) {
        true => Setup { folder: asked.folder.clone(), ..Setup::default() },
        false => asked.clone(),
    }
}

/// The model that is asked; where nobody has said which, the one that can be asked without another word.
pub(crate) async fn choose(
    asked: &mut Setup,
    api_key_file: Option<&Path>,
    cassette: &Cassette,
    config: &Config,
) -> Result<Chosen, Problem> {
    let model = match &asked.model {
        Some(name) => name,
        None if asked.base_url.is_some() => {
            return Err(Problem::usage("--base-url: say which model the server has, with --model custom/MODEL"));
        }
        None => {
            let Found { name, because } = default_model::find(config, env).await?;
            output::note(&format!("model: {name}, because of {because} (--model names another one)"));
            asked.model.insert(name)
        }
    };
    let asked = Asked {
        model: model.clone(),
        base_url: asked.base_url.clone(),
        wire: asked.wire.clone(),
        api_key_file: api_key_file.map(Path::to_owned),
        cassette: cassette.clone(),
    };
    connect(&asked, config).await
}

/// The models to fall back on. They reason as much as the first one does.
pub(crate) async fn fallbacks(
    names: &[String],
    cassette: &Cassette,
    config: &Config,
) -> Result<Vec<Arc<dyn Model>>, Problem> {
    let mut fallbacks = Vec::new();
    for name in names.iter().map(|name| name.trim()).filter(|name| !name.is_empty()) {
        let asked = Asked { model: absolute(name), cassette: cassette.clone(), ..Asked::default() };
        let of_fallback = |problem: Problem| Problem { message: format!("--fallback-model: {problem}"), ..problem };
        let Chosen { model, effort } = connect(&asked, config).await.map_err(of_fallback)?;
        if let Some(effort) = effort {
            return Err(Problem::usage(format!(
                "--fallback-model: {name}: leave out :{effort}; it reasons as much as the model that it stands in for"
            )));
        }
        fallbacks.push(model);
    }
    Ok(fallbacks)
}

/// A model as it is asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    /// As on the command line.
    pub(crate) model: String,
    pub(crate) base_url: Option<String>,
    pub(crate) wire: Option<String>,
    pub(crate) api_key_file: Option<PathBuf>,
    pub(crate) cassette: Cassette,
}

impl Asked {
    fn name(&self, catalog: &Catalog) -> Result<ModelRef, Problem> {
        // A server of the user's own needs no provider's name.
        let custom = self.base_url.is_some() && !self.model.contains('/');
        let name = if custom { format!("custom/{}", self.model) } else { self.model.clone() };
        name.parse().map_err(|error| match whole_name(&name, catalog) {
            Some(whole) => Problem::usage(format!("--model: {name:?} does not name a model; did you mean {whole}?")),
            None => Problem::usage(format!("--model: {error}; `terret models WORD` searches them")),
        })
    }
}

/// What may be meant by a provider without a model, or by a model without its provider.
fn whole_name(half: &str, catalog: &Catalog) -> Option<ModelRef> {
    let of_provider =
        Host::find(half).and_then(|host| format!("{}/{}", host.id, default_model::of(host)?).parse().ok());
    let of_model = || {
        let named = |provider: &str| format!("{provider}/{half}").parse::<ModelRef>().ok();
        let mut all = default_model::DEFAULTS.iter().filter_map(|(provider, _)| named(provider));
        all.find(|name| catalog.get(&name.provider, &name.model).is_some())
    };
    of_provider.or_else(of_model)
}

/// The model with its key. Nothing is sent.
pub(crate) async fn connect(asked: &Asked, config: &Config) -> Result<Chosen, Problem> {
    if let Some(path) = asked.model.strip_prefix("scripted:") {
        if asked.base_url.is_some() || asked.wire.is_some() {
            return Err(Problem::usage("a scripted model has no server: leave out --base-url and --wire"));
        }
        if !asked.cassette.is_none() {
            return Err(Problem::usage("a scripted model has no server: there is nothing to --record or to --replay"));
        }
        let model = ScriptedModel::from_path(path).map_err(|error| Problem::usage(error.to_string()))?;
        return Ok(Chosen { model: Arc::new(model), effort: None });
    }
    let name = asked.name(&config.catalog)?;
    let api_key = match Host::find(&name.provider) {
        _ if asked.cassette.is_replay() => Some("not needed".into()),
        Some(host) => keys::find(host, asked.api_key_file.as_deref(), config).await?,
        None => None,
    };
    let resolved = resolved(asked, &name, api_key, config)?;
    let transport = asked.cassette.transport(&resolved.limits)?;
    let model = Retry::new(resolved.connect(transport), RetryPolicy::default());
    Ok(Chosen { model: Arc::new(model), effort: name.effort })
}

fn resolved(asked: &Asked, name: &ModelRef, key: Option<SecretString>, config: &Config) -> Result<Resolved, Problem> {
    let overrides = Overrides {
        base_url: asked.base_url.clone(),
        wire: asked.wire.as_deref().map(WireFormat::from),
        api_key: key,
        catalog: config.catalog.clone(),
    };
    let resolved = resolve(name, &overrides, |variable| env(variable).or_else(|| configured(name, variable, config)));
    resolved.map_err(|error| match error {
        ResolveError::NoKey { provider, .. } => {
            Problem::new(Exit::Authentication, format!("{error}, or keep one with `terret auth set {provider}`"))
        }
        _ => Problem::usage(error.to_string()),
    })
}

/// Where a host is, and its key. Nothing is sent.
pub(crate) async fn of_host(host: &Host, config: &Config) -> Result<Resolved, Problem> {
    let any = ModelRef { provider: host.id.to_owned(), model: "any".to_owned(), effort: None };
    let key = keys::find(host, None, config).await?;
    resolved(&Asked::default(), &any, key, config)
}

/// Whether there is an address for a host, beside its key.
pub(crate) fn has_address(host: &Host, config: &Config) -> bool {
    let any = ModelRef { provider: host.id.to_owned(), model: "any".to_owned(), effort: None };
    resolved(&Asked::default(), &any, Some("any".into()), config).is_ok()
}

/// What is configured in place of an environment variable: the address of a provider.
fn configured(model: &ModelRef, variable: &str, config: &Config) -> Option<String> {
    let host = Host::find(&model.provider)?;
    let own = format!("{}_BASE_URL", host.id.to_ascii_uppercase());
    // The last one that is looked for, so that all of them win over it.
    let last = host.base_url_variables.last().map_or(own, |last| (*last).to_owned());
    (variable == last).then(|| config.of_provider(host, "base-url")?.values.first().cloned())?
}

pub(crate) fn env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
