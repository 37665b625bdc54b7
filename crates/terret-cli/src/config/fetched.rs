//! Models that providers have listed since the embedded catalog was made: what `terret models update` keeps.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use terret::llm::ModelFacts;

use crate::exit::{Exit, Problem};
use crate::{files, output, places};

/// The longest file that is read, in bytes.
pub(super) const LONGEST: u64 = 16 << 20;

/// The file, which has the form of a `models.json`.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Fetched {
    pub(crate) models: BTreeMap<String, ModelFacts>,
}

impl Fetched {
    /// What was kept so far; nothing, if that can't be used.
    pub(crate) fn load() -> Self {
        let kept = place().and_then(|path| files::read(&path, LONGEST).ok()?);
        kept.and_then(|json| serde_json::from_slice(&json).ok()).unwrap_or_default()
    }

    /// In place of what a provider listed before.
    pub(crate) fn replace(&mut self, provider: &str, models: impl IntoIterator<Item = (String, ModelFacts)>) {
        self.models.retain(|name, _| name.split_once('/').is_none_or(|(of, _)| of != provider));
        self.models.extend(models);
    }

    pub(crate) fn keep(&self) -> Result<(), Problem> {
        let message = "there is no place to keep lists of models: set HOME or XDG_CACHE_HOME to an absolute path, or \
                       TERRET_HOME";
        let path = place().ok_or_else(|| Problem::new(Exit::Configuration, message))?;
        files::keep(&path, self)
    }
}

pub(super) fn place() -> Option<PathBuf> {
    places::cache().map(|folder| folder.join("listed-models.json"))
}

pub(super) fn unusable(path: &Path, error: &impl Display) -> String {
    let path = output::shortened_folder(&path.display().to_string());
    format!("not used: {path}: {error} (terret models update writes it anew)")
}
