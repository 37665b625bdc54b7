//! Files that change the catalog.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::{Catalog, CatalogError, Listed, ModelFacts};
use crate::hosts::Host;

/// By name, `provider/model`.
pub(super) type Changes = BTreeMap<String, Change>;

/// What has become of a model.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    Set(Listed),
    Removed,
}

/// Reads a file's changes to the catalog as it is.
pub(super) fn read(catalog: &Catalog, origin: &str, text: &str) -> Result<Changes, CatalogError> {
    let file: File =
        serde_json::from_str(text).map_err(|source| CatalogError::Syntax { origin: origin.to_owned(), source })?;
    let mut changes = Changes::new();
    for (model, patch) in file.models.0 {
        let refused = |reason| CatalogError::Model { origin: origin.to_owned(), model: model.clone(), reason };
        let (provider, id) = name(&model).map_err(refused)?;
        let change = match patch {
            None => Change::Removed,
            Some(patch) => Change::Set(patched(catalog, provider, id, patch).map_err(refused)?),
        };
        if changes.insert(format!("{provider}/{id}"), change).is_some() {
            return Err(refused("it is named twice".to_owned()));
        }
    }
    Ok(changes)
}

fn name(model: &str) -> Result<(&'static str, &str), String> {
    let (provider, id) =
        model.split_once('/').filter(|(_, id)| !id.is_empty()).ok_or("models are named provider/model".to_owned())?;
    let host = Host::find(provider).ok_or_else(|| format!("there is no provider {provider:?}"))?;
    Ok((host.id, id))
}

fn patched(catalog: &Catalog, provider: &str, id: &str, mut patch: Map<String, Value>) -> Result<Listed, String> {
    let like = patch.remove("like");
    let known = match &like {
        None => catalog.look_up(provider, id).unwrap_or_default(),
        Some(Value::String(model)) => {
            let (provider, id) = name(model)?;
            catalog.look_up(provider, id).ok_or_else(|| format!("like: {model} is not listed"))?
        }
        Some(other) => return Err(format!("like: {other} is not the name of a model")),
    };
    let price_is_given = known.price_is_given || like.is_some() || patch.contains_key("price");
    let Ok(Value::Object(mut facts)) = serde_json::to_value(known.facts) else { return Err("it is no object".into()) };
    facts.extend(patch);
    // `null` stands for nothing known, as a missing field does.
    let facts: ModelFacts = serde_json::from_value(Value::Object(facts)).map_err(|error| error.to_string())?;
    check(&facts)?;
    Ok(Listed { facts, price_is_given })
}

fn check(facts: &ModelFacts) -> Result<(), String> {
    let ModelFacts { wire, context_window, max_input, max_output, .. } = facts;
    if let Some(wire) = wire.as_ref().filter(|wire| wire.wire().is_none()) {
        return Err(format!("wire: there is no wire {:?}", wire.as_str()));
    }
    for (field, limit) in [("contextWindow", context_window), ("maxInput", max_input), ("maxOutput", max_output)] {
        if *limit == Some(0) {
            return Err(format!("{field}: it can't be 0; null says that it isn't known"));
        }
        if let Some((limit, window)) = limit.zip(*context_window).filter(|(limit, window)| limit > window) {
            return Err(format!("{field}: {limit} tokens don't fit a context window of {window}"));
        }
    }
    Ok(())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    models: Patches,
}

/// The entries of an object as they stand, so that a name which stands twice can be noticed.
struct Patches(Vec<(String, Option<Map<String, Value>>)>);

impl<'de> Deserialize<'de> for Patches {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Patches;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with models, each one an object or null")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Patches, A::Error> {
                let mut patches = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    patches.push(entry);
                }
                Ok(Patches(patches))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}
