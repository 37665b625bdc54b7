//! Work on this repository that isn't part of what it ships: `cargo run -p xtask -- TASK`.

mod book;
mod catalog;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(version, about = "Work on this repository that isn't part of what it ships")]
enum Task {
    /// For mdbook, as a preprocessor: let links out of the book lead to the repository
    Book(book::Args),
    /// Write the catalog of models and the page about it from downloaded public data
    Catalog(catalog::Args),
}

fn main() -> ExitCode {
    let result = match Task::parse() {
        Task::Book(args) => return book::run(&args),
        Task::Catalog(args) => catalog::run(&args),
    };
    let (line, code) = match result {
        Ok(done) => (done, ExitCode::SUCCESS),
        Err(error) => (format!("error: {error}"), ExitCode::FAILURE),
    };
    let _ = writeln!(std::io::stderr(), "{line}");
    code
}
