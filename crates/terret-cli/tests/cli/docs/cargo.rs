//! Commands for those who work on the repository. They build or download, which a test doesn't; what they name is there.

use std::fs;

use super::page::root;

/// Programs that aren't run, and why not.
const NOT_RUN: [(&str, &str); 5] = [
    ("cargo", "builds; what it names is looked up"),
    ("rustup", "downloads"),
    ("npm", "downloads"),
    ("pip", "downloads"),
    ("mdbook", "needs not be installed"),
];

/// What is wrong with a command of one of these programs; nothing for all others.
pub(super) fn check(command: &str) -> Option<Result<(), String>> {
    let words: Vec<&str> = command.split_whitespace().take_while(|word| !matches!(*word, "#" | "|")).collect();
    // Variables come first.
    let words: Vec<&str> = words.into_iter().skip_while(|word| word.contains('=')).collect();
    let (program, args) = words.split_first()?;
    NOT_RUN.iter().find(|(name, _)| name == program)?;
    Some(if *program == "cargo" { check_cargo(args) } else { Ok(()) })
}

/// Whether the options of a piece of code are cargo's or those of a script of this repository.
pub(super) fn knows_option(code: &str) -> bool {
    let ours = code.starts_with(".ci/features") && root().join(".ci/features").exists();
    let args: Vec<&str> = code.split_whitespace().collect();
    ours || check(code).is_some_and(|checked| checked.is_ok()) || check_cargo(&[&["build"], &*args].concat()).is_ok()
}

fn check_cargo(args: &[&str]) -> Result<(), String> {
    let mut args = args.iter().take_while(|arg| **arg != "--");
    match args.next() {
        Some(&("bench" | "build" | "doc" | "fuzz" | "install" | "run" | "test" | "tree")) => {}
        other => return Err(format!("no such command of cargo: {other:?}")),
    }
    let mut crate_folder = root();
    let must = |there: bool, what: &str| if there { Ok(()) } else { Err(format!("there is no {what}")) };
    while let Some(arg) = args.next() {
        let mut value = || args.next().copied().ok_or_else(|| format!("{arg} without a value"));
        match *arg {
            "-p" => {
                let name = value()?;
                crate_folder = [root().join("crates").join(name), root().join(name)]
                    .into_iter()
                    .find(|folder| folder.join("Cargo.toml").is_file())
                    .ok_or(format!("there is no crate {name}"))?;
            }
            "--bench" | "--test" | "--example" => {
                let (name, folder) =
                    (value()?, crate_folder.join(format!("{}s", arg.trim_matches('-')).replace("benchs", "benches")));
                must(folder.join(name).is_dir() || folder.join(format!("{name}.rs")).is_file(), name)?;
            }
            "--features" => {
                let manifest =
                    fs::read_to_string(crate_folder.join("Cargo.toml")).map_err(|error| error.to_string())?;
                for feature in value()?.split(',') {
                    must(manifest.lines().any(|line| line.starts_with(&format!("{feature} = "))), feature)?;
                }
            }
            "--profile" => {
                let (name, manifest) = (value()?, fs::read_to_string(root().join("Cargo.toml")).unwrap());
                must(manifest.contains(&format!("[profile.{name}]")), name)?;
            }
            "--path" | "--manifest-path" => {
                let path = value()?;
                must(root().join(path).exists(), path)?;
            }
            "--target" | "-e" | "--prefix" => drop(value()?),
            "--workspace" | "--locked" | "--no-default-features" | "--all-features" | "--release" | "--ignored" => {}
            name if !name.starts_with('-') => {}
            other => return Err(format!("{other} is not expected of cargo")),
        }
    }
    Ok(())
}
