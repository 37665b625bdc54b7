//! The walls between the crates, said over what cargo itself knows.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// What each crate may use of the others. The arrow only points right.
const MAY_USE: &[(&str, &[&str])] = &[
    ("terret-llm", &[]),
    ("terret-agent", &["terret-llm"]),
    ("terret-store", &["terret-agent", "terret-llm"]),
    ("terret-tools", &["terret-agent"]),
    ("terret", &["terret-agent", "terret-llm", "terret-store", "terret-tools"]),
    ("terret-cli", &["terret"]),
];

/// What must not be reachable from a crate, in words.
const MUST_NOT_REACH: &[(&str, &[&str], &str)] = &[
    ("terret-llm", &["rusqlite", "clap"], "the provider layer knows neither sessions nor terminals"),
    ("terret-agent", &["rusqlite", "clap", "ignore", "rustix"], "the loop knows neither SQL nor files nor terminals"),
    ("terret-tools", &["rusqlite", "clap"], "tools know neither the journal nor the terminal"),
];

#[test]
fn the_arrow_between_the_crates_only_points_right() {
    let ours = dependencies();
    for (name, may_use) in MAY_USE {
        let used = ours.get(*name).unwrap_or_else(|| panic!("there is no crate {name}"));
        let used: BTreeSet<&str> = used.iter().map(String::as_str).filter(|it| it.starts_with("terret")).collect();
        let allowed: BTreeSet<&str> = may_use.iter().copied().collect();
        assert!(used.is_subset(&allowed), "{name} uses {used:?}, and may use {allowed:?}");
    }
    let known: BTreeSet<&str> = MAY_USE.iter().map(|(name, _)| *name).collect();
    let unknown: Vec<&String> =
        ours.keys().filter(|name| name.starts_with("terret") && !known.contains(name.as_str())).collect();
    assert!(unknown.is_empty(), "say what these may use: {unknown:?}");
}

#[test]
fn what_a_room_must_not_hold_is_not_a_direct_dependency() {
    let ours = dependencies();
    for (name, forbidden, why) in MUST_NOT_REACH {
        let used = &ours[*name];
        for dependency in *forbidden {
            assert!(!used.contains(*dependency), "{name} uses {dependency}: {why}");
        }
    }
    let http = ["reqwest", "hyper", "http"];
    assert!(http.iter().all(|it| !ours["terret-agent"].contains(*it)), "the loop never hears of HTTP");
}

/// The normal dependencies of each crate of the workspace, as their manifests name them.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo metadata");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON of cargo metadata");
    let packages = metadata["packages"].as_array().expect("packages");
    packages
        .iter()
        .map(|package| {
            let normal = package["dependencies"].as_array().into_iter().flatten().filter(|it| it["kind"].is_null());
            let names = normal.filter_map(|it| it["name"].as_str().map(str::to_owned)).collect();
            (package["name"].as_str().unwrap_or_default().to_owned(), names)
        })
        .collect()
}
