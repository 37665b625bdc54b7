//! The program `terret`.

mod commands;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "terret", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Look at what goes over the wire, to debug a provider
    #[command(subcommand)]
    Wire(commands::wire::Wire),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Wire(wire) => commands::wire::run(wire),
    }
}
