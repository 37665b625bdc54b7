//! Which model is asked: what `--model` says, else a clear message.

use std::sync::Arc;

use terret::llm::wire::WireFormat;
use terret::llm::{
    Effort, HttpTransport, Model, ModelRef, Overrides, ResolveError, Retry, RetryPolicy, ScriptedModel, hosts, resolve,
};
use terret::store::Setup;

use crate::cli::RunArgs;
use crate::exit::{Exit, Problem};

/// A model that can be asked, and how much it should reason.
pub(crate) struct Chosen {
    pub(crate) model: Arc<dyn Model>,
    pub(crate) effort: Option<Effort>,
}

/// Which model a run asks: the one of the command line, else the one that its session was set up with.
pub(crate) fn asked(args: &RunArgs, setup: &Setup) -> Setup {
    let wire = args.wire.as_ref().map(ToString::to_string);
    let mut asked = match &args.model {
        Some(model) => Setup { model: Some(absolute(model)), ..Setup::default() },
        None => setup.clone(),
    };
    asked.base_url = args.base_url.clone().or(asked.base_url);
    asked.wire = wire.or(asked.wire);
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

pub(crate) fn choose(asked: &Setup) -> Result<Chosen, Problem> {
    let Some(name) = &asked.model else { return Err(no_model()) };
    if let Some(path) = name.strip_prefix("scripted:") {
        if asked.base_url.is_some() || asked.wire.is_some() {
            return Err(Problem::usage("a scripted model has no server: leave out --base-url and --wire"));
        }
        let model = ScriptedModel::from_path(path).map_err(|error| Problem::usage(error.to_string()))?;
        return Ok(Chosen { model: Arc::new(model), effort: None });
    }
    // A server of the user's own needs no provider's name.
    let name = if asked.base_url.is_some() && !name.contains('/') { format!("custom/{name}") } else { name.clone() };
    let name: ModelRef = name.parse().map_err(|error| Problem::usage(format!("--model: {error}")))?;
    let overrides = Overrides {
        base_url: asked.base_url.clone(),
        wire: asked.wire.as_deref().map(WireFormat::from),
        ..Overrides::default()
    };
    let resolved = resolve(&name, &overrides, env).map_err(|error| match error {
        ResolveError::NoKey { .. } => Problem::new(Exit::Authentication, error.to_string()),
        _ => Problem::usage(error.to_string()),
    })?;
    let transport = HttpTransport::with_limits(&resolved.limits);
    let model = Retry::new(resolved.connect(Arc::new(transport)), RetryPolicy::default());
    Ok(Chosen { model: Arc::new(model), effort: name.effort })
}

fn no_model() -> Problem {
    let with_key = hosts().iter().find(|host| host.keys.iter().any(|(variable, _)| env(variable).is_some()));
    let hint = match with_key {
        Some(host) => format!("there is a key for {}, so for example --model {}/MODEL", host.id, host.id),
        None => "for example --model anthropic/claude-sonnet-4-5 with ANTHROPIC_API_KEY set, or --model custom/MODEL \
                 --base-url http://127.0.0.1:8080/v1 for a local server"
            .into(),
    };
    Problem::usage(format!("no model: say which one with --model provider/model; {hint}. `terret demo` needs none"))
}

fn env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
