//! `terret models update`: asks providers which models they have.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use futures_util::future::join_all;
use terret::llm::{Catalog, Host, ListedModel, ModelFacts, ModelRef, list_models};

use super::{Listed, show, with_key};
use crate::commands::{print_json, unwritable};
use crate::config::{Config, Fetched};
use crate::exit::{Exit, Problem};
use crate::model;
use crate::output::{complain, note};

/// Ask providers which models they have, and keep those that aren't known yet
///
/// Limits and prices are what the provider's list tells, which is nothing at some. What the built-in list knows of a model
/// stays; a `models.json` changes it.
#[derive(Args)]
pub(crate) struct Update {
    /// The providers to ask [default: those whose key is there]
    #[arg(value_name = "PROVIDER", value_parser = crate::commands::auth::host)]
    providers: Vec<&'static Host>,
    /// Print the new models as an array of JSON objects
    #[arg(long)]
    json: bool,
}

/// The longest that a provider may take.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) async fn run(args: &Update, config: &Config) -> Result<Exit, Problem> {
    let providers = match args.providers.is_empty() {
        true => with_key(config)?.into_iter().filter(|host| !host.local).collect(),
        false => args.providers.clone(),
    };
    if providers.is_empty() {
        let message = "no provider can be asked: set a key, or keep one with `terret auth set PROVIDER`";
        return Err(Problem::new(Exit::Authentication, message));
    }
    let names: Vec<&str> = providers.iter().map(|host| host.id).collect();
    note(&format!("asking {} …", names.join(", ")));
    let mut fetched = Fetched::load();
    let (mut new, mut failed) = (Vec::new(), None);
    for (host, listed) in join_all(providers.into_iter().map(|host| ask(host, config))).await {
        match listed {
            Ok(listed) => {
                let count = listed.len();
                let unknown = unknown(host, listed);
                let models = if count == 1 { "1 model".into() } else { format!("{count} models") };
                note(&format!("{}: {models}, {} of them new", host.id, unknown.len()));
                new.extend(unknown.iter().map(|(name, facts)| Listed::new(name.clone(), facts.clone(), true)));
                fetched.replace(host.id, unknown.into_iter().map(|(name, facts)| (name.to_string(), facts)));
            }
            Err(problem) => {
                complain(&problem.message);
                failed.get_or_insert(problem.exit);
            }
        }
    }
    fetched.keep()?;
    if args.json {
        print_json(&new)?;
    } else {
        show(&new).map_err(unwritable)?;
    }
    Ok(failed.unwrap_or(Exit::Completed))
}

async fn ask(host: &'static Host, config: &Config) -> (&'static Host, Result<Vec<ListedModel>, Problem>) {
    let asked = async {
        let resolved = model::of_host(host, config).await?;
        let listed = tokio::time::timeout(PATIENCE, list_models(&resolved)).await;
        let timed_out = || Problem::new(Exit::Provider, format!("{}: no answer in {PATIENCE:?}", host.id));
        let failed = |error| Problem::new(Exit::of_model(&error), format!("{}: {error}", host.id));
        listed.map_err(|_| timed_out())?.map_err(failed)
    };
    (host, asked.await)
}

/// Those that the built-in list doesn't have, each once.
fn unknown(host: &Host, listed: Vec<ListedModel>) -> Vec<(ModelRef, ModelFacts)> {
    let built_in = Catalog::default();
    let new = listed.into_iter().filter(|model| built_in.get(host.id, &model.id).is_none());
    let by_id: BTreeMap<String, ModelFacts> = new.map(|model| (model.id, model.facts)).collect();
    let name = |model| ModelRef { provider: host.id.to_owned(), model, effort: None };
    by_id.into_iter().map(|(id, facts)| (name(id), facts)).collect()
}
