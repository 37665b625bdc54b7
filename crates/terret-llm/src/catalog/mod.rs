//! What is known about models before they are asked: their limits, their levels of reasoning, their prices.

mod changes;
mod table;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use crate::effort::Efforts;
use crate::hosts::Host;
use crate::price::Price;
use crate::provider::ModelRef;
use crate::wire::WireFormat;
use changes::{Change, Changes};

/// The models that are known by name, and what is known about each.
///
/// The embedded list comes from public data (`docs/catalog.md` says from which, and how); it is a snapshot, and a model
/// that it doesn't know can be asked all the same, with defaults. Without the cargo feature `catalog` it is empty. Files
/// add to it, change it and remove from it; later ones win, so that a user's file goes before a project's:
///
/// ```json
/// {"models": {
///   "anthropic/claude-sonnet-4-5": {"maxOutput": 32000},
///   "openai/gpt-6": {"contextWindow": 400000, "efforts": ["low", "high"], "price": {"input": 1.25, "output": 10}},
///   "azure/my-deployment": {"like": "openai/gpt-5", "price": null},
///   "openrouter/openrouter/auto": null
/// }}
/// ```
///
/// A field that is named replaces what was known of it, `null` forgets it, and what isn't named stays. `like` takes
/// everything over from another model of the list as it was before this file. Fields are those of [`ModelFacts`] in
/// JSON; `price` is always whole ([`Price`]).
///
/// ```
/// use terret_llm::Catalog;
///
/// let mine = r#"{"models": {"custom/mine": {"contextWindow": 8192}}}"#;
/// let catalog = Catalog::default().with_changes("models.json", mine)?;
/// assert_eq!(catalog.get("custom", "mine").and_then(|facts| facts.context_window), Some(8192));
/// # Ok::<_, terret_llm::CatalogError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    changes: Arc<Changes>,
}

/// What is known about a model. Everything that isn't is left to defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ModelFacts {
    /// The wire that it is asked by, if not its host's usual one. At the host's own address, it is asked where the host
    /// serves that wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wire: Option<WireFormat>,
    /// The most tokens that fit, input and output together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u32>,
    /// The most tokens that the input can have, where that is less than the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_input: Option<u32>,
    /// The most tokens that a reply can have, reasoning included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u32>,
    /// Whether it accepts images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images: Option<bool>,
    /// The levels of reasoning that it can be asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub efforts: Option<Efforts>,
    /// What its tokens cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
}

/// Why a file can't change the catalog.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// The file can't be read.
    #[error("{}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not JSON of the right form.
    #[error("{origin}: {source}")]
    Syntax {
        /// The file, by the name that it was given with.
        origin: String,
        /// What is wrong, and in which line.
        source: serde_json::Error,
    },
    /// What it says about a model makes no sense.
    #[error("{origin}: {model}: {reason}")]
    Model {
        /// The file, by the name that it was given with.
        origin: String,
        /// The model, as the file names it.
        model: String,
        /// What is wrong.
        reason: String,
    },
}

impl Catalog {
    /// The same with the changes of a file.
    pub fn with_file(self, path: &Path) -> Result<Self, CatalogError> {
        let text = fs::read_to_string(path).map_err(|source| CatalogError::Read { path: path.to_owned(), source })?;
        self.with_changes(&path.display().to_string(), &text)
    }

    /// The same with the changes of a file's text. `origin` names it in errors.
    pub fn with_changes(mut self, origin: &str, text: &str) -> Result<Self, CatalogError> {
        let changes = changes::read(&self, origin, text)?;
        Arc::make_mut(&mut self.changes).extend(changes);
        Ok(self)
    }

    /// The same with those models of a file's text that it doesn't know yet.
    pub fn with_additions(mut self, origin: &str, text: &str) -> Result<Self, CatalogError> {
        let mut additions = changes::read(&self, origin, text)?;
        additions.retain(|name, _| name.split_once('/').is_none_or(|(provider, id)| self.get(provider, id).is_none()));
        Arc::make_mut(&mut self.changes).extend(additions);
        Ok(self)
    }

    /// What is known about a model, by its provider's id or alias. A look-up takes some microseconds.
    pub fn get(&self, provider: &str, model: &str) -> Option<ModelFacts> {
        self.look_up(provider, model).map(|listed| listed.facts)
    }

    /// All models, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (ModelRef, ModelFacts)> {
        let names: BTreeSet<&str> = table::names().chain(self.changes.keys().map(String::as_str)).collect();
        names.into_iter().filter_map(|name| {
            let (provider, model) = name.split_once('/')?;
            let facts = self.get(provider, model)?;
            Some((ModelRef { provider: provider.to_owned(), model: model.to_owned(), effort: None }, facts))
        })
    }

    /// The models whose name, `provider/model`, holds each of these words, in any case.
    pub fn search(&self, words: &str) -> impl Iterator<Item = (ModelRef, ModelFacts)> {
        let words = words.to_lowercase();
        self.iter().filter(move |(name, _)| {
            let name = name.to_string().to_lowercase();
            words.split_whitespace().all(|word| name.contains(word))
        })
    }

    pub(crate) fn look_up(&self, provider: &str, model: &str) -> Option<Listed> {
        let provider = Host::find(provider).map_or(provider, |host| host.id);
        let name = format!("{provider}/{model}");
        match self.changes.get(&name) {
            Some(Change::Removed) => None,
            Some(Change::Set(listed)) => Some(listed.clone()),
            None => Some(Listed { facts: table::find(&name)?, price_is_given: false }),
        }
    }
}

/// A model of the catalog.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Listed {
    pub(crate) facts: ModelFacts,
    /// Whether the price is the user's word, which holds at any address, or the list price of the model's host.
    pub(crate) price_is_given: bool,
}
