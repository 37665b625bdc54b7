//! The program `terret`: parse, run, exit.

mod cli;
mod commands;
mod exit;
mod model;
mod output;
mod places;
mod sandbox;
mod session;
mod signals;

use std::process::ExitCode;

use clap::Parser as _;

use cli::{Cli, Command};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return cli::complain(&error, std::env::args_os().skip(1)),
    };
    match cli.command {
        None => commands::run::run(cli.run),
        Some(Command::Run(args)) => commands::run::run(args),
        Some(Command::Demo(args)) => commands::demo::run(&args),
        Some(Command::Doctor(args)) => commands::doctor::run(&args),
        Some(Command::Sessions(sessions)) => commands::sessions::run(sessions),
        Some(Command::Wire(wire)) => commands::wire::run(wire),
    }
}
