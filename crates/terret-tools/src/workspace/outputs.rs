use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use tempfile::TempDir;
use terret_agent::Spill;

use super::Workspace;

/// Keeps results of any tool that are too long for the model where those of `bash` are kept: file tools can read them.
impl Spill for Workspace {
    fn keep<'a>(
        &'a self,
        _call_id: &'a str,
        text: &'a str,
    ) -> Pin<Box<dyn Future<Output = io::Result<String>> + Send + 'a>> {
        let (outputs, text) = (self.outputs().clone(), text.to_owned());
        let kept = tokio::task::spawn_blocking(move || {
            let (mut file, path) = outputs.create("result-")?;
            file.write_all(text.as_bytes())?;
            Ok(path.display().to_string())
        });
        Box::pin(async move { kept.await.unwrap_or_else(|error| Err(io::Error::other(error))) })
    }
}

/// Where outputs are kept that were too long for the model.
#[derive(Clone, Debug)]
pub(crate) struct Outputs(Arc<Kind>);

#[derive(Debug)]
enum Kind {
    /// Made when it is first needed, and removed with its last owner.
    Temporary(OnceLock<(TempDir, PathBuf)>),
    Lasting(PathBuf),
}

impl Outputs {
    pub(super) fn temporary() -> Self {
        Self(Arc::new(Kind::Temporary(OnceLock::new())))
    }

    pub(super) fn lasting(directory: PathBuf) -> Self {
        Self(Arc::new(Kind::Lasting(directory)))
    }

    /// The directory without symbolic links, if there is one yet.
    pub(crate) fn directory(&self) -> Option<&Path> {
        match &*self.0 {
            Kind::Temporary(made) => made.get().map(|(_, path)| path.as_path()),
            Kind::Lasting(path) => Some(path),
        }
    }

    /// Makes a new file of a unique name in the directory.
    pub(crate) fn create(&self, prefix: &str) -> io::Result<(std::fs::File, PathBuf)> {
        if let Kind::Temporary(made) = &*self.0
            && made.get().is_none()
        {
            let directory = tempfile::Builder::new().prefix("terret-").tempdir()?;
            let path = directory.path().canonicalize()?;
            // Whoever was quicker has made one as good as this, which is removed again.
            let _ = made.set((directory, path));
        }
        let directory = self.directory().ok_or_else(|| io::Error::other("no directory for outputs"))?;
        let file = tempfile::Builder::new().prefix(prefix).suffix(".log").tempfile_in(directory)?;
        Ok(file.keep()?)
    }
}
