//! What is typed, in another program: `$VISUAL`, `$EDITOR`, or else vi.

use std::io::{self, Write as _};

use tokio::process::Command;

use super::input::{Arrivals, Told};

/// Lets somebody edit a text in a program that has the terminal meanwhile, and returns what it has become or why it hasn't,
/// unless the program is told to end.
pub(crate) async fn edit(text: &str, arrivals: &mut Arrivals) -> Result<Result<String, String>, Told> {
    let edited = edited(text);
    tokio::pin!(edited);
    loop {
        match arrivals.unless_told(&mut edited).await {
            // Ctrl-C is for the other program.
            Err(Told::Interrupt) => {}
            done => return done,
        }
    }
}

async fn edited(text: &str) -> Result<String, String> {
    let named = |name| std::env::var(name).ok().filter(|editor| !editor.trim().is_empty());
    let editor = named("VISUAL").or_else(|| named("EDITOR")).unwrap_or_else(|| "vi".into());
    let failed = |error: io::Error| format!("{editor} can't be used: {error}");
    // A temporary file is its owner's alone.
    let mut file = tempfile::Builder::new().prefix("terret-").suffix(".md").tempfile().map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    // The variables may hold options.
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(file.path()).kill_on_drop(true);
    let status = command.status().await.map_err(failed)?;
    if !status.success() {
        return Err(format!("{editor} failed: {status}; what you typed is as it was"));
    }
    // By its name: an editor may have put another file there.
    let text = std::fs::read_to_string(file.path()).map_err(failed)?;
    Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
}
