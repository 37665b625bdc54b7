use std::fmt;
use std::sync::OnceLock;

use super::{Level, SandboxError};

/// What holds commands on this machine, and why the rest doesn't.
#[derive(Clone, Debug)]
pub struct Ladder {
    /// The levels that were tried, the best first.
    pub rungs: Vec<Rung>,
}

/// One level, and how trying it went.
#[derive(Clone, Debug)]
pub struct Rung {
    /// The level.
    pub level: Level,
    /// Whether a command that was run there could write where it may, and not where it may not.
    pub holds: Result<(), SandboxError>,
    /// What it leaves open that a better level doesn't, in words.
    pub gaps: Vec<String>,
}

impl Ladder {
    /// Tries all levels, by running a command on each. Blocks, for some ten milliseconds.
    pub fn probe() -> Self {
        Self { rungs: Level::ALL.iter().copied().map(Rung::probe).collect() }
    }

    /// The best level that holds, or all the reasons why there is none. Blocks the first time; the answer is kept for
    /// the life of the program.
    pub fn best() -> Result<Level, Ladder> {
        static BEST: OnceLock<Result<Level, Ladder>> = OnceLock::new();
        let climb = || {
            let mut rungs = Vec::new();
            for &level in Level::ALL {
                let rung = Rung::probe(level);
                if rung.holds.is_ok() {
                    return Ok(level);
                }
                rungs.push(rung);
            }
            Err(Ladder { rungs })
        };
        BEST.get_or_init(climb).clone()
    }
}

/// A line for each level.
impl fmt::Display for Ladder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, rung) in self.rungs.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            match &rung.holds {
                Ok(()) => write!(f, "{}: works", rung.level)?,
                Err(error) => write!(f, "{}: {error}", rung.level)?,
            }
            for gap in &rung.gaps {
                write!(f, "; {gap}")?;
            }
        }
        Ok(())
    }
}

impl Rung {
    fn probe(level: Level) -> Self {
        let holds = std::thread::scope(|scope| {
            // A thread of its own, because the caller may be in a runtime.
            let tried = scope.spawn(|| attempt::attempt(level)).join();
            tried.unwrap_or_else(|_| Err(SandboxError::Unavailable("the attempt failed".to_owned())))
        });
        let gaps = match level {
            #[cfg(target_os = "linux")]
            Level::Landlock if holds.is_ok() => super::landlock::gaps(),
            #[cfg(target_os = "macos")]
            Level::Seatbelt => super::seatbelt::gaps(),
            _ => vec![],
        };
        Self { level, holds, gaps }
    }
}

mod attempt {
    use std::fs;
    use std::io::{self, Read as _};
    use std::process::ExitStatus;

    use process_wrap::tokio::CommandWrap;

    use super::super::{Cell, CommandLine, Level, ResourceLimits, SandboxError, Variables, View};

    /// Writes where it may, and tries to where it may not.
    const COMMAND: &str = "echo inside >inside && { echo escaped >../outside; true; }";

    pub(super) fn attempt(level: Level) -> Result<(), SandboxError> {
        let (held, said) = run(level)??;
        match held {
            Held::Yes => Ok(()),
            Held::No => Err(SandboxError::Unavailable("a command that was run in it could write outside".to_owned())),
            Held::DidNotRun => {
                let said = said.lines().next().unwrap_or("it said nothing").to_owned();
                Err(SandboxError::Unavailable(format!("a command can't be run in it: {said}")))
            }
        }
    }

    enum Held {
        Yes,
        No,
        DidNotRun,
    }

    type Attempt = Result<(Held, String), SandboxError>;

    fn run(level: Level) -> Result<Attempt, SandboxError> {
        let tried = || -> io::Result<Attempt> {
            let place = match tempfile::Builder::new().prefix("terret-probe-").tempdir() {
                Ok(place) => place,
                Err(error) => {
                    let advice = "set TMPDIR to a folder that can be written";
                    return Ok(Err(SandboxError::Unavailable(format!(
                        "there is no place to try it in ({error}); {advice}"
                    ))));
                }
            };
            let place = place.path().canonicalize()?;
            let (directory, scratch, outside) = (place.join("work"), place.join("tmp"), place.join("outside"));
            fs::create_dir(&directory)?;
            fs::create_dir(&scratch)?;
            fs::write(&outside, "untouched")?;
            let cell = match Cell::new(level, &View::of_probe(&directory, &scratch), ResourceLimits::default()) {
                Ok(cell) => cell,
                Err(error) => return Ok(Err(error)),
            };
            let (status, said) = wait(cell, &directory)?;
            let ran =
                status.success() && fs::read(directory.join("inside")).is_ok_and(|content| content == b"inside\n");
            let held = match (ran, fs::read(&outside)? == b"untouched") {
                (_, false) => Held::No,
                (true, true) => Held::Yes,
                (false, true) => Held::DidNotRun,
            };
            Ok(Ok((held, said)))
        };
        tried().map_err(|error| SandboxError::Unavailable(format!("it could not be tried: {error}")))
    }

    fn wait(cell: Cell, directory: &std::path::Path) -> io::Result<(ExitStatus, String)> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let inner =
                CommandLine { program: "/bin/sh".to_owned(), arguments: vec!["-c".to_owned(), COMMAND.to_owned()] };
            let (mut reader, writer) = io::pipe()?;
            let mut command = cell.command(inner, &Variables::from([("PATH".into(), "/usr/bin:/bin".into())]))?;
            command.current_dir(directory);
            command.stdout(writer.try_clone()?).stderr(writer);
            let mut child = cell.spawn(CommandWrap::from(command)).await?;
            let status = child.wait().await?;
            let mut said = String::new();
            reader.read_to_string(&mut said)?;
            Ok((status, said))
        })
    }
}
