//! Where the data comes from.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::Result;

/// A package that the data was taken from, as it stands in the catalog's header.
#[derive(Serialize)]
pub(super) struct Source {
    pub(super) role: &'static str,
    pub(super) registry: &'static str,
    pub(super) package: &'static str,
    pub(super) version: String,
    pub(super) sha256: String,
    pub(super) licence: &'static str,
}

impl Source {
    pub(super) fn new(
        role: &'static str,
        registry: &'static str,
        package: &'static str,
        version: String,
        sha256: String,
    ) -> Self {
        Self { role, registry, package, version, sha256, licence: "MIT" }
    }
}

/// A crate that this one is built with, by the lock file.
pub(super) fn locked_crate(lock: &Path, role: &'static str, package: &'static str) -> Result<Source> {
    let lock = fs::read_to_string(lock)?;
    let entry = lock.split("[[package]]").find(|entry| entry.contains(&format!("name = \"{package}\"\n")));
    let field = |name: &str| {
        let line = entry?.lines().find_map(|line| line.strip_prefix(&format!("{name} = \"")));
        line.map(|rest| rest.trim_end_matches('"').to_owned())
    };
    match (field("version"), field("checksum")) {
        (Some(version), Some(sha256)) => Ok(Source::new(role, "crates.io", package, version, sha256)),
        _ => Err(format!("{package} is not in the lock file").into()),
    }
}

/// A downloaded package, read through `tar` or `unzip`.
pub(super) struct Archive {
    path: PathBuf,
    sha256: String,
}

impl Archive {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let sha256 = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { path: path.to_owned(), sha256 })
    }

    pub(super) fn sha256(&self) -> String {
        self.sha256.clone()
    }

    /// The text of one of its files; `*` stands for any part of the name in a wheel.
    pub(super) fn read(&self, file: &str) -> Result<String> {
        let mut command = match self.path.extension().and_then(|extension| extension.to_str()) {
            Some("whl" | "zip") => Command::new("unzip"),
            _ => Command::new("tar"),
        };
        let is_zip = command.get_program() == "unzip";
        command.args(if is_zip { ["-p"] } else { ["-xzOf"] }).arg(&self.path).arg(file);
        let output = command.output().map_err(|error| format!("{:?}: {error}", command.get_program()))?;
        if !output.status.success() {
            let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("{}: {file}: {complaint}", self.path.display()).into());
        }
        Ok(String::from_utf8(output.stdout)?)
    }
}
