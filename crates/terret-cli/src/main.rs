//! The program `terret`: parse, run, exit.

mod cassette;
mod chat;
mod cli;
mod commands;
mod config;
mod context;
mod default_model;
mod exit;
mod files;
mod keys;
mod model;
mod output;
mod output_schema;
mod permissions;
mod places;
mod project;
mod prompt;
mod sandbox;
mod session;
mod signals;
mod trust;

use std::process::ExitCode;

use clap::Parser as _;

use cli::{Cli, Command};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return cli::complain(error, std::env::args_os().skip(1)),
    };
    match cli.command {
        None => match cli::misspelt(&cli.run) {
            Some(problem) => {
                output::fail_to_start(cli.run.format(), &problem);
                problem.exit.into()
            }
            None => commands::run::run_or_talk(cli.run),
        },
        Some(Command::Run(args)) => commands::run::run(args),
        Some(Command::Auth(command)) => commands::auth::run(command),
        Some(Command::Config(command)) => commands::config::run(command),
        Some(Command::Demo(args)) => commands::demo::run(&args),
        Some(Command::Completions(args)) => commands::generated::completions(&args),
        Some(Command::Man(args)) => commands::generated::man(&args),
        Some(Command::Resume(args)) => match args.into_run() {
            Ok(args) => commands::run::run_or_talk(args),
            Err(error) => cli::complain(error, std::env::args_os().skip(1)),
        },
        Some(Command::Models(args)) => commands::models::run(&args),
        Some(Command::Permissions(args)) => commands::permissions::run(args),
        Some(Command::Prompt(command)) => commands::prompt::run(command),
        Some(Command::Doctor(args)) => commands::doctor::run(&args),
        Some(Command::Sessions(sessions)) => commands::sessions::run(sessions),
        Some(Command::Trust(args)) => commands::trust::run(&args),
        Some(Command::Wire(wire)) => commands::wire::run(wire),
    }
}
