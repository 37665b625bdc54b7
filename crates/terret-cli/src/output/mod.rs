//! What the program prints: the result on standard output, progress and complaints on standard error.

mod clean;
mod json;
mod patience;
mod table;
mod text;

use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::time::Duration;

use terret::agent::{Agent, Event, Report};
use terret::llm::ModelSpec;

pub(crate) use clean::{clean, clean_json};
pub(crate) use json::print_message;
pub(crate) use patience::{Patience, over, patiently};
pub(crate) use table::{Table, ago, cost, cut, line, quoted, shortened_folder};
pub(crate) use text::{Progress, summary};

use crate::cli::OutputFormat;
use crate::exit::Problem;
use crate::session::Opened;

/// Tells of a run as it goes. An error means that nobody can be told any more.
pub(crate) trait Output {
    fn event(&mut self, event: &Event) -> io::Result<()>;

    /// The run has ended: the result, and nothing after it.
    fn ended(&mut self, report: &Report, took: Duration) -> io::Result<()>;
}

/// What is known of a run before it starts.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub(crate) session: String,
    /// Whether a later run can go on with the session.
    pub(crate) kept: bool,
    /// The run that goes on, if one was interrupted.
    pub(crate) interrupted: Option<String>,
    pub(crate) model: String,
    pub(crate) folder: String,
    pub(crate) tools: Vec<String>,
    /// Whether the model's price is known, so that a cost of zero means no cost.
    pub(crate) priced: bool,
}

impl Start {
    pub(crate) fn new(agent: &Agent, opened: &Opened, folder: &Path) -> Self {
        let spec: &ModelSpec = agent.model().spec();
        Self {
            session: opened.session.id().to_string(),
            kept: opened.kept,
            interrupted: opened.interrupted.as_ref().map(|interrupted| interrupted.run.0.clone()),
            model: format!("{}/{}", spec.provider, spec.id),
            folder: folder.display().to_string(),
            tools: agent.tools().specs().iter().map(|spec| spec.name.clone()).collect(),
            priced: spec.price.is_some(),
        }
    }
}

pub(crate) fn to(format: OutputFormat, start: &Start) -> Box<dyn Output> {
    match format {
        OutputFormat::Text => Box::new(text::Text::new(start)),
        OutputFormat::Json => Box::new(json::Json::new(start)),
        OutputFormat::StreamJson => Box::new(json::StreamJson::new(start)),
    }
}

/// Says why no run was started: on standard error, and as a result where one is expected.
pub(crate) fn fail_to_start(format: OutputFormat, problem: &Problem) {
    complain(&problem.message);
    if format != OutputFormat::Text {
        print_failed_start(problem);
    }
}

/// The result line of a run that was never started.
pub(crate) fn print_failed_start(problem: &Problem) {
    // Nothing can be told when even printing fails.
    let _ = writeln!(io::stdout(), "{}", json::failed_start(problem));
}

/// How wide the terminal is that people read, if there is one.
pub(crate) fn width() -> Option<usize> {
    terminal_size::terminal_size().map(|(width, _)| width.0.into())
}

/// Something to know that is no trouble, on standard error.
pub(crate) fn note(message: &str) {
    let style = anstyle::Style::new().dimmed();
    let message = if io::stderr().is_terminal() { clean(message) } else { message.into() };
    // Nothing can be told when even printing fails.
    let _ = over(|| writeln!(anstream::stderr(), "{style}{message}{style:#}"));
}

/// One clear message on standard error.
pub(crate) fn complain(message: &str) {
    let style = anstyle::AnsiColor::Red.on_default().bold();
    let message = if io::stderr().is_terminal() { clean(message) } else { message.into() };
    // Nothing can be told when even printing fails.
    let _ = over(|| writeln!(anstream::stderr(), "{style}terret:{style:#} {message}"));
}
