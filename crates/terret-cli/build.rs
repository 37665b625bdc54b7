//! Tells the program which commit it is built from.

use std::path::Path;
use std::process::Command;

fn main() {
    // A crate that was published has no repository, but says which commit it was.
    println!("cargo::rerun-if-changed=.cargo_vcs_info.json");
    let commit = published().or_else(checked_out);
    let version = env!("CARGO_PKG_VERSION");
    let version = commit.map_or_else(|| version.to_owned(), |commit| format!("{version} ({commit})"));
    println!("cargo::rustc-env=TERRET_VERSION={version}");
}

fn published() -> Option<String> {
    let info = std::fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, rest) = info.split_once("\"sha1\"")?;
    let commit = rest.split('"').nth(1)?;
    commit.get(..12).map(str::to_owned)
}

/// The commit and its date. A file that changes with each commit is watched, so that the answer stays true.
fn checked_out() -> Option<String> {
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if Path::new(&log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    // Another project's repository may hold the sources.
    git(&["ls-files", "--error-unmatch", "Cargo.toml"])?;
    git(&["log", "-1", "--format=%h %cs", "--abbrev=12"])
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
