//! `terret prompt show`: what a run would send.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Subcommand;
use terret::llm::{Message, Request, UserMessage};

use super::run::{equip, folder};
use super::{finish, print_json, unwritable};
use crate::cli::RunArgs;
use crate::config::Config;
use crate::exit::{Exit, Problem};
use crate::output::clean;

/// Show what the model is told
#[derive(Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Prompt {
    /// Print the system prompt and the tools that a run with the same options would send
    ///
    /// With --json, the request as `terret wire encode` reads it, from which that makes the exact bytes.
    Show(Box<RunArgs>),
}

const EXAMPLES: &str = "\
Examples:
  terret prompt show
  terret prompt show --tools read,grep --no-skills";

pub(crate) fn run(command: Prompt) -> ExitCode {
    let Prompt::Show(args) = command;
    finish(show(*args))
}

fn show(args: RunArgs) -> Result<Exit, Problem> {
    let folder = folder(args.cd.as_deref(), None)?;
    let config = Config::load(&folder, &args.set)?;
    config.tell_unused();
    let json = args.json;
    let args = args.configured(&config)?;
    let equipment = equip(&args, &folder)?;
    equipment.context.tell();
    let prompt = args.prompt.clone().map(|prompt| equipment.context.skills.expand(prompt)).transpose()?;
    let tools: Vec<_> = equipment.tools.iter().map(|tool| tool.spec().clone()).collect();
    if json {
        let messages = prompt.map(|prompt| Message::from(UserMessage::text(prompt, 0)));
        let request = Request {
            system: Some(equipment.system),
            messages: messages.into_iter().collect(),
            tools: tools.into(),
            ..Request::default()
        };
        return print_json(&request).map(|()| Exit::Completed);
    }
    let print = || -> io::Result<()> {
        let mut out = anstream::stdout().lock();
        writeln!(out, "{}", clean(&equipment.system))?;
        for tool in &tools {
            writeln!(out, "\n[tool {}] {}\n{}", tool.name, clean(&tool.description), tool.parameters.as_str())?;
        }
        if let Some(prompt) = &prompt {
            writeln!(out, "\n[user] {}", clean(prompt))?;
        }
        out.flush()
    };
    print().map_err(unwritable)?;
    Ok(Exit::Completed)
}
