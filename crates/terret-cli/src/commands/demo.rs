//! `terret demo`: a scripted model, the real loop and the real tools, on a small broken project in a temporary folder.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use terret::agent::machine::Outcome;
use terret::agent::{Agent, Event, Report};
use terret::llm::wire::WireFormat;
use terret::llm::{ModelSpec, Price, Rates, ScriptedModel};
use terret::tools::{BashOptions, Ladder, Profile, Workspace, workspace_tools};

use crate::cli::DemoArgs;
use crate::exit::{Exit, Problem};
use crate::output::{self, Output, Progress, complain};

const PROMPT: &str = "The tests of this project fail. Find out why, and fix it.";
const SCRIPT: &str = include_str!("../../demo/script.jsonl");
const PROJECT: [(&str, &str); 3] = [
    ("README.md", include_str!("../../demo/project/README.md")),
    ("cart.sh", include_str!("../../demo/project/cart.sh")),
    ("test.sh", include_str!("../../demo/project/test.sh")),
];

/// Example prices for the scripted tokens, so that the sum at the end means something.
const RATES: Rates = Rates {
    input: 3_000_000_000,
    output: 15_000_000_000,
    cache_read: 300_000_000,
    cache_write: 3_750_000_000,
    cache_write_long: 6_000_000_000,
};

pub(crate) fn run(args: &DemoArgs) -> ExitCode {
    demo(args)
        .unwrap_or_else(|problem| {
            complain(&problem.message);
            problem.exit
        })
        .into()
}

fn demo(args: &DemoArgs) -> Result<Exit, Problem> {
    let failed = |what: &str, error: &dyn std::fmt::Display| Problem::new(Exit::RunFailed, format!("{what}: {error}"));
    let folder = tempfile::Builder::new()
        .prefix("terret-demo-")
        .tempdir()
        .map_err(|error| failed("can't make a temporary folder (TMPDIR says where)", &error))?;
    let path = folder.path().canonicalize().map_err(|error| failed("the temporary folder", &error))?;
    for (name, text) in PROJECT {
        fs::write(path.join(name), text).map_err(|error| failed(name, &error))?;
    }
    let agent = agent(&path).map_err(|error| failed("the demo's agent", &*error))?;
    let intro = || -> io::Result<()> {
        let mut out = anstream::stdout();
        writeln!(out, "{BOLD}terret demo{BOLD:#}: the model is scripted; the loop, the tools and the files are real.")?;
        writeln!(out, "{DIM}A small broken project in {}{DIM:#}\n", path.display())?;
        writeln!(out, "{BOLD}> {PROMPT}{BOLD:#}")
    };
    intro().map_err(|error| failed("standard output", &error))?;
    let exit = super::run::block_on(async |signals| {
        let output = Demo { progress: Progress::new(Box::new(anstream::stdout()), true), folder: &path };
        Ok(super::run::follow(agent.prompt(PROMPT), Box::new(output), signals, None).await)
    })?;
    if args.keep {
        let kept = folder.keep();
        // The demo itself is over; a closed output doesn't change how it went.
        let _ = writeln!(io::stdout(), "kept: {}", kept.display());
    }
    Ok(exit)
}

fn agent(folder: &Path) -> Result<Agent, Box<dyn std::error::Error>> {
    let mut spec = ModelSpec::new("scripted", "demo", WireFormat::from("scripted"));
    spec.price = Some(Price::flat(RATES));
    let model = ScriptedModel::parse(SCRIPT)?.with_spec(spec);
    // The script is this program's own, so that it may run where no sandbox works, too.
    let profile = if Ladder::best().is_ok() { Profile::Workspace } else { Profile::Full };
    let tools = workspace_tools(&Workspace::new(folder)?.profile(profile), BashOptions::default());
    Ok(Agent::builder(model).tools(tools).build()?)
}

/// Shows the run, and at the end what has changed and what it took.
struct Demo<'a> {
    progress: Progress,
    folder: &'a Path,
}

impl Output for Demo<'_> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.progress.event(event)
    }

    fn ended(&mut self, report: &Report, took: Duration) -> io::Result<()> {
        self.progress.end_line()?;
        let out = &mut self.progress.out;
        writeln!(out, "\n{BOLD}What changed{BOLD:#}")?;
        for (name, before) in PROJECT {
            let after = fs::read_to_string(self.folder.join(name)).unwrap_or_default();
            let diff = similar::TextDiff::from_lines(before, &after);
            let diff = diff.unified_diff().context_radius(1).header(name, name).to_string();
            for line in output::clean(&diff).lines() {
                let style = match line.as_bytes().first() {
                    Some(b'+') => ADDED,
                    Some(b'-') => REMOVED,
                    _ => DIM,
                };
                writeln!(out, "  {style}{line}{style:#}")?;
            }
        }
        writeln!(out, "\n{BOLD}What it took{BOLD:#}")?;
        writeln!(out, "  {}", output::summary(report, took, true))?;
        writeln!(
            out,
            "  {DIM}(tokens as scripted, at $3 in and $15 out per million; `terret --help` says how to ask a real model){DIM:#}"
        )?;
        if report.outcome != Outcome::Completed {
            complain(&report.outcome.to_string());
        }
        out.flush()
    }
}

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const ADDED: Style = AnsiColor::Green.on_default();
const REMOVED: Style = AnsiColor::Red.on_default();
