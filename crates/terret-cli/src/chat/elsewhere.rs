//! What is typed, in another program: `$VISUAL`, `$EDITOR`, or else vi.

use std::io::{self, Write as _};

use tokio::process::Command;

use super::input::{Arrivals, Told, suspend};

pub(crate) enum Edited {
    Text(String),
    /// The program was told to end meanwhile.
    Told(Told),
}

/// Lets somebody edit a text in a program that has the terminal meanwhile. An error says what is wrong with that.
pub(crate) async fn edit(text: &str, arrivals: &mut Arrivals) -> Result<Edited, String> {
    let named = |name| std::env::var(name).ok().filter(|editor| !editor.trim().is_empty());
    let editor = named("VISUAL").or_else(|| named("EDITOR")).unwrap_or_else(|| "vi".into());
    let failed = |error: io::Error| format!("{editor} can't be used: {error}");
    // A temporary file is its owner's alone.
    let mut file = tempfile::Builder::new().prefix("terret-").suffix(".md").tempfile().map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    // The variables may hold options.
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(file.path()).kill_on_drop(true);
    let mut child = command.spawn().map_err(failed)?;
    let status = loop {
        tokio::select! {
            biased;
            told = arrivals.next() => match told {
                Told::Terminate | Told::HangUp => return Ok(Edited::Told(told)),
                Told::Suspend => suspend(),
                // Ctrl-C is for the other program.
                Told::Interrupt | Told::Continue => {}
            },
            status = child.wait() => break status.map_err(failed)?,
        }
    };
    if !status.success() {
        return Err(format!("{editor} failed: {status}; what you typed is as it was"));
    }
    // By its name: an editor may have put another file there.
    let text = std::fs::read_to_string(file.path()).map_err(failed)?;
    Ok(Edited::Text(text.strip_suffix('\n').map_or(text.clone(), str::to_owned)))
}
