//! Which model a run asks when neither the command line, nor its session, nor the configuration says so.

use std::time::Duration;

use terret::llm::{Host, hosts, local_servers};

use crate::config::Config;
use crate::exit::{Exit, Problem};
use crate::keys;

/// The providers whose keys are looked for, in this order, and the model that each is asked for: its model for everyday
/// work, neither the largest nor the smallest.
///
/// Not in the list are providers where no model is an obvious choice, and those whose key is often there for something
/// else, such as Hugging Face's.
pub(crate) const DEFAULTS: [(&str, &str); 11] = [
    ("anthropic", "claude-sonnet-5-5"),
    ("openai", "gpt-6.2-sol"),
    ("google", "gemini-pro-latest"),
    ("openrouter", "anthropic/claude-sonnet-5.5"),
    ("vercel", "anthropic/claude-sonnet-5.5"),
    ("xai", "grok-4.7"),
    ("mistral", "mistral-large-latest"),
    ("deepseek", "deepseek-v4-pro"),
    ("moonshot", "kimi-k3"),
    ("zai", "glm-5.3"),
    ("groq", "openai/gpt-oss-120b"),
];

/// The model that a provider is asked for where nobody has said which.
pub(crate) fn of(host: &Host) -> Option<&'static str> {
    DEFAULTS.iter().find(|(provider, _)| *provider == host.id).map(|(_, model)| *model)
}

/// How long servers on this machine may take to say that they are there.
pub(crate) const PATIENCE: Duration = Duration::from_millis(300);

/// A model that nobody asked for by name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) name: String,
    /// Where the choice comes from, for people.
    pub(crate) because: String,
}

/// The model of the first provider whose key is in the environment, else of the first one for which there is a key
/// otherwise, else the first model of a server on this machine.
pub(crate) async fn find(config: &Config, env: impl Fn(&str) -> Option<String>) -> Result<Found, Problem> {
    if let Some(found) = with_key(&env) {
        return Ok(found);
    }
    for (provider, model) in DEFAULTS {
        let Some(host) = Host::find(provider) else { continue };
        if let Some(source) = keys::sources(host, config)?.first() {
            return Ok(Found { name: format!("{provider}/{model}"), because: source.to_string() });
        }
    }
    let servers = local_servers(PATIENCE, &env).await;
    let model = servers.iter().find_map(|server| Some((server, server.models.first()?)));
    let found = model.map(|(server, model)| Found {
        name: format!("{}/{}", server.host.id, model.id),
        because: format!("the server at {}", server.base_url),
    });
    found.ok_or_else(|| no_model(&env))
}

fn with_key(env: impl Fn(&str) -> Option<String>) -> Option<Found> {
    DEFAULTS.iter().find_map(|(provider, model)| {
        let variable = key_variable(Host::find(provider)?, &env)?;
        Some(Found { name: format!("{provider}/{model}"), because: variable.to_owned() })
    })
}

/// The variable that holds a key for a host.
fn key_variable(host: &Host, env: impl Fn(&str) -> Option<String>) -> Option<&'static str> {
    let is_set = |variable: &str| env(variable).is_some_and(|value| !value.trim().is_empty());
    host.keys.iter().map(|(variable, _)| *variable).find(|variable| is_set(variable))
}

fn no_model(env: impl Fn(&str) -> Option<String>) -> Problem {
    let hint = match hosts().iter().find(|host| key_variable(host, &env).is_some()) {
        Some(host) => format!("there is a key for {0}, so name one of its models with --model {0}/MODEL", host.id),
        None => "set a key (ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY …) or keep one with `terret auth set PROVIDER`, or start a local server (Ollama, \
                 llama.cpp …), or name a model and its server with --model custom/MODEL --base-url URL"
            .into(),
    };
    Problem::new(
        Exit::Configuration,
        format!(
            "no model: there is none to ask; {hint}. `terret --help` lists all providers, and `terret demo` needs none"
        ),
    )
}

#[cfg(test)]
mod tests {
    use terret::llm::Catalog;

    use super::*;

    #[test]
    fn each_default_is_in_the_catalog_and_has_a_price() {
        for (provider, model) in DEFAULTS {
            assert_eq!(Host::find(provider).map(|host| host.id), Some(provider));
            let facts = Catalog::default().get(provider, model);
            assert!(facts.is_some_and(|facts| facts.price.is_some()), "{provider}/{model}");
        }
    }

    #[test]
    fn the_documentation_lists_them_in_their_order() {
        let table: String =
            DEFAULTS.iter().map(|(provider, model)| format!("| `{provider}` | `{model}` |\n")).collect();
        assert!(include_str!("../../../docs/models.md").contains(&table), "{table}");
    }

    #[test]
    fn the_first_key_of_the_list_decides() {
        let found = |set: &[(&str, &str)]| {
            with_key(|name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
                .map(|found| (found.name, found.because))
        };
        let expect = |name: &str, because: &str| Some((name.to_owned(), because.to_owned()));
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[("HF_TOKEN", "k")]), None);
        assert_eq!(found(&[("ANTHROPIC_API_KEY", " ")]), None);
        let both = [("OPENAI_API_KEY", "k"), ("ANTHROPIC_AUTH_TOKEN", "k")];
        assert_eq!(found(&both), expect("anthropic/claude-sonnet-5-5", "ANTHROPIC_AUTH_TOKEN"));
        assert_eq!(found(&both[..1]), expect("openai/gpt-6.2-sol", "OPENAI_API_KEY"));
    }
}
