//! `terret auth`: keep the keys of providers, and try them.

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use secrecy::SecretString;
use serde::Serialize;
use terret::llm::{Host, Message, Request, UserMessage, hosts};

use super::run::block_on;
use super::{finish, print_json, unwritable};
use crate::config::{self, Config};
use crate::exit::{Exit, Problem};
use crate::output::{line, note, shortened_folder};
use crate::{default_model, keys, model};

/// Keep the keys of providers, and try them
///
/// A key is never shown. A run takes its key from --api-key-file, else from the environment, else from the command that is configured as
/// api-key, else from what is kept here.
#[derive(Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Auth {
    /// Keep a key, in a file that only you can read
    ///
    /// The key is read from standard input; on a terminal it is asked for, and isn't shown.
    Set(Provider),
    /// Ask the provider for a word, to see whether the key is good; this costs a fraction of a cent
    Test(Test),
    /// List the providers that there is a key for, and where it comes from
    List(List),
    /// Forget a key that is kept
    Remove(Provider),
}

const EXAMPLES: &str = "\
Examples:
  terret auth set anthropic                  asks for it
  pass show openai | terret auth set openai
  terret auth test openai";

#[derive(Args)]
pub(crate) struct Provider {
    /// Whose key it is, for example anthropic; `terret --help` lists all
    #[arg(value_name = "PROVIDER", value_parser = host)]
    host: &'static Host,
}

#[derive(Args)]
pub(crate) struct Test {
    #[command(flatten)]
    provider: Provider,
    /// The model to ask, if not the provider's default one
    #[arg(short, long, value_name = "ID")]
    model: Option<String>,
    /// Try the key in this file
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<std::path::PathBuf>,
}

#[derive(Args)]
pub(crate) struct List {
    /// Print an array of JSON objects
    #[arg(long)]
    json: bool,
}

pub(super) fn host(name: &str) -> Result<&'static Host, String> {
    Host::find(name).ok_or_else(|| {
        let known: Vec<&str> = hosts().iter().map(|host| host.id).collect();
        let near = config::nearest(name, hosts().iter().flat_map(Host::names));
        let near = near.map(|near| format!("did you mean {near}? ")).unwrap_or_default();
        format!("{near}there are {}", known.join(", "))
    })
}

pub(crate) fn run(command: Auth) -> ExitCode {
    finish(match command {
        Auth::Set(Provider { host }) => set(host),
        Auth::Test(args) => test(&args),
        Auth::List(args) => list(&args),
        Auth::Remove(Provider { host }) => remove(host),
    })
}

fn set(host: &Host) -> Result<Exit, Problem> {
    let key = given(host).map_err(|error| Problem::usage(format!("the key can't be read: {error}")))?;
    let key = key.ok_or_else(|| Problem::new(Exit::Interrupted, "nothing was changed"))?;
    let key = keys::read(&key).map_err(|reason| Problem::usage(format!("that is no key: {reason}")))?;
    keep(host, key)
}

fn keep(host: &Host, key: SecretString) -> Result<Exit, Problem> {
    let path = keys::keep(host, key)?;
    note(&format!("the key for {} is kept in {}", host.id, shortened_folder(&path.display().to_string())));
    let config = Config::load(Path::new("."), &[])?;
    match keys::sources(host, &config)?.first() {
        Some(keys::Source::Stored(_)) | None => {}
        Some(stronger) => note(&format!("but {stronger} has one too, and wins")),
    }
    Ok(Exit::Completed)
}

/// What was given as a key; nothing, if somebody thought better of it.
fn given(host: &Host) -> io::Result<Option<Vec<u8>>> {
    let mut key = Vec::new();
    if !io::stdin().is_terminal() {
        io::stdin().take(1 << 20).read_to_end(&mut key)?;
        return Ok(Some(key));
    }
    let hidden = hidden_line(&format!("The key for {} (it isn't shown): ", host.id));
    writeln!(anstream::stderr())?;
    hidden
}

/// Reads a line from the terminal without showing it; nothing after Ctrl-C.
#[cfg(unix)]
fn hidden_line(question: &str) -> io::Result<Option<Vec<u8>>> {
    use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};

    const CTRL_C: u8 = 3;
    /// Puts the terminal back, whatever happens.
    struct Back(Termios);
    impl Drop for Back {
        fn drop(&mut self) {
            let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
        }
    }
    let before = tcgetattr(io::stdin())?;
    let mut hidden = before.clone();
    // Ctrl-C ends the line instead of the program, which would leave the terminal without an echo.
    hidden.local_modes -= LocalModes::ECHO | LocalModes::ISIG;
    hidden.special_codes[SpecialCodeIndex::VEOL] = CTRL_C;
    tcsetattr(io::stdin(), OptionalActions::Now, &hidden)?;
    let _back = Back(before);
    let mut out = anstream::stderr();
    write!(out, "{question}")?;
    out.flush()?;
    let mut key = Vec::new();
    for byte in io::stdin().lock().bytes() {
        match byte? {
            b'\n' => break,
            CTRL_C => return Ok(None),
            byte => key.push(byte),
        }
    }
    Ok(Some(key))
}

#[cfg(not(unix))]
fn hidden_line(_: &str) -> io::Result<Option<Vec<u8>>> {
    Err(io::Error::other("it can't be hidden on this system; pipe it in"))
}

fn test(args: &Test) -> Result<Exit, Problem> {
    let host = args.provider.host;
    let config = Config::load(Path::new("."), &[])?;
    let of_host = || default_model::of(host).map(str::to_owned);
    let id = args.model.clone().or_else(of_host).ok_or_else(|| {
        Problem::usage(format!("{} has no default model: say which one to ask, with --model ID", host.id))
    })?;
    let asked = model::Asked { model: format!("{}/{id}", host.id), ..model::Asked::default() };
    let asked = model::Asked { api_key_file: args.api_key_file.clone(), ..asked };
    block_on(async |signals| {
        let answered = async {
            let model = model::connect(&asked, &config).await?.model;
            note(&format!("asking {} …", asked.model));
            let message = Message::from(UserMessage::text("Reply with the word: yes", 0));
            let mut request = Request { messages: [message].into_iter().collect(), ..Request::default() };
            request.options.max_output_tokens = Some(16);
            let reply = model.stream(request, Default::default()).finish().await;
            reply
                .map_err(|failed| Problem::new(Exit::of_model(&failed.error), format!("{}: {}", host.id, failed.error)))
        };
        tokio::select! {
            biased;
            exit = signals.stop() => return Err(Problem::new(exit, exit.reason())),
            reply = answered => reply?,
        };
        note(&format!("{}: {id} has answered; the key is good", host.id));
        Ok(Exit::Completed)
    })
}

/// A provider as scripts are told of it.
#[derive(Serialize)]
struct Listed {
    provider: &'static str,
    /// Where a run takes the key from.
    from: String,
    /// Where there is one too.
    also: Vec<String>,
}

fn list(args: &List) -> Result<Exit, Problem> {
    let config = Config::load(Path::new("."), &[])?;
    let mut listed = Vec::new();
    for host in hosts() {
        let mut sources = keys::sources(host, &config)?.into_iter().map(|source| source.to_string());
        if let Some(from) = sources.next() {
            listed.push(Listed { provider: host.id, from, also: sources.collect() });
        }
    }
    if args.json {
        return print_json(&listed).map(|()| Exit::Completed);
    }
    if listed.is_empty() {
        note("there are no keys; `terret auth set PROVIDER` keeps one");
    }
    let show = || -> io::Result<()> {
        let mut out = anstream::stdout().lock();
        for Listed { provider, from, also } in &listed {
            let also = if also.is_empty() { String::new() } else { format!("; also {}", also.join(", ")) };
            writeln!(out, "{provider:<12}  {}", line(&format!("{from}{also}")))?;
        }
        out.flush()
    };
    show().map_err(unwritable)?;
    Ok(Exit::Completed)
}

fn remove(host: &Host) -> Result<Exit, Problem> {
    match keys::forget(host)? {
        Some(path) => note(&format!("the key for {} is no longer in {}", host.id, path.display())),
        None => return Err(Problem::usage(format!("no key is kept for {}", host.id))),
    }
    Ok(Exit::Completed)
}
