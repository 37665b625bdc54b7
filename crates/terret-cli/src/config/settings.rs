//! Which settings there are: the flags of a run, all but those that say which run it is.

use std::any::TypeId;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::ValueRange;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, Args as _, Command};

use super::{Entry, Origin};
use crate::cli::RunArgs;

/// The flags that are no settings: they say what is to be done this once, or where settings are.
const NO_SETTINGS: [&str; 13] = [
    "print",
    "json",
    "cd",
    "continue",
    "resume",
    "fork",
    "session-id",
    "set",
    "help",
    "version",
    "api-key-file",
    "record",
    "replay",
];

/// The settings that say together who is asked: an address is only good for the model that it stands beside.
pub(super) const NAME_A_MODEL: [&str; 3] = ["model", "base-url", "wire"];

/// The settings of which all layers hold together: what somebody forbids, nobody nearer to the command line takes away.
pub(super) const ADD_UP: [&str; 3] = ["allow", "ask", "deny"];

/// What is there already for a provider: `TERRET_BASE_URL` is the address of `custom/…`, and each provider has its own.
const WITHOUT_VARIABLE: [&str; 2] = ["base-url", "wire"];

/// A setting, made of a flag.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// The flag without its dashes.
    pub(crate) key: String,
    /// The environment variable that holds it.
    pub(crate) variable: Option<String>,
    /// What a value looks like.
    pub(crate) value: String,
    /// The value without any configuration; empty where there is none.
    pub(crate) default: String,
    pub(crate) help: String,
    kind: Kind,
    /// Whether a value is a path, which is counted from the folder of the file that it stands in.
    is_path: bool,
}

/// What a value may be in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Switch,
    Text,
    /// A number, or a text such as `5m`.
    Number,
    List,
}

/// All settings, in the order of the help.
pub(crate) fn settings() -> Vec<Setting> {
    parser().get_arguments().filter_map(Setting::of).collect()
}

fn parser() -> Command {
    RunArgs::augment_args(Command::new("terret")).no_binary_name(true).disable_help_flag(true)
}

impl Setting {
    /// The setting that a flag is, if it is one.
    pub(crate) fn of(arg: &Arg) -> Option<Self> {
        let key = arg.get_long().filter(|long| !NO_SETTINGS.contains(long))?.to_owned();
        let variable = format!("TERRET_{}", key.to_uppercase().replace('-', "_"));
        let kind = kind(arg);
        let names = arg.get_value_names().unwrap_or_default().join(" ");
        let possible: Vec<String> = arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
        let value = match kind {
            Kind::Switch => "true or false".to_owned(),
            _ if !possible.is_empty() => possible.join(", "),
            Kind::List => format!("list of {names}"),
            _ => names,
        };
        let default = arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned());
        Some(Self {
            variable: (!WITHOUT_VARIABLE.contains(&key.as_str())).then_some(variable),
            value,
            default: default.collect::<Vec<_>>().join(","),
            help: arg.get_help().map(ToString::to_string).unwrap_or_default(),
            key,
            kind,
            is_path: arg.get_value_parser().type_id() == TypeId::of::<PathBuf>(),
        })
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn is_path(&self) -> bool {
        self.is_path
    }

    /// What is wrong with these values, by the flag's own parser.
    pub(super) fn check(&self, values: &[String]) -> Result<(), String> {
        let flag = match self.kind {
            Kind::Switch => return Ok(()),
            _ => format!("--{}={}", self.key, values.join(",")),
        };
        let Err(error) = parser().try_get_matches_from([flag]) else { return Ok(()) };
        let given = error.get(ContextKind::InvalidValue).map(ToString::to_string).unwrap_or_default();
        Err(match error.get(ContextKind::ValidValue) {
            Some(ContextValue::Strings(valid)) => format!("{given:?} is none of {}", valid.join(", ")),
            _ => match std::error::Error::source(&error) {
                Some(reason) => format!("{given:?}: {reason}"),
                None => format!("{given:?} is no {}", self.value),
            },
        })
    }
}

fn kind(arg: &Arg) -> Kind {
    let of = arg.get_value_parser().type_id();
    let single = arg.get_num_args().is_none_or(|range| range == ValueRange::SINGLE);
    match arg.get_action() {
        ArgAction::SetTrue => Kind::Switch,
        ArgAction::Append => Kind::List,
        _ if !single || arg.get_value_delimiter().is_some() => Kind::List,
        _ if of == TypeId::of::<String>() || of == TypeId::of::<PathBuf>() || !arg.get_possible_values().is_empty() => {
            Kind::Text
        }
        _ => Kind::Number,
    }
}

/// What the environment sets. `variable` looks one up; one that is empty counts as not set.
pub(super) fn of_variables(variable: impl Fn(&str) -> Option<OsString>) -> Result<Vec<Entry>, Vec<String>> {
    let (mut entries, mut problems) = (Vec::new(), Vec::new());
    for setting in settings() {
        let Some(name) = &setting.variable else { continue };
        let Some(value) = variable(name).filter(|value| !value.is_empty()) else { continue };
        match from_variable(&setting, value) {
            Ok(values) => entries.push(Entry {
                key: setting.key.clone(),
                shown: format!("{:?}", values.join(",")),
                values,
                origin: Origin::Variable(name.clone()),
            }),
            Err(reason) => problems.push(format!("{name}: {reason}")),
        }
    }
    if problems.is_empty() { Ok(entries) } else { Err(problems) }
}

/// Variables that are nearly the one of a setting, and that one.
pub(super) fn misspelt_variables(names: impl Iterator<Item = String>) -> Vec<(String, String)> {
    let known: Vec<String> = settings().into_iter().filter_map(|setting| setting.variable).collect();
    let nearest = |name: &str| {
        let distance = |known: &String| strsim::damerau_levenshtein(name, known);
        known.iter().map(|known| (distance(known), known)).min().filter(|(distance, _)| (1..=2).contains(distance))
    };
    let ours = names.filter(|name| name.starts_with("TERRET_") && !known.contains(name));
    let mut misspelt: Vec<(String, String)> =
        ours.filter_map(|name| nearest(&name).map(|(_, known)| (name.clone(), known.clone()))).collect();
    misspelt.sort();
    misspelt
}

fn from_variable(setting: &Setting, value: OsString) -> Result<Vec<String>, String> {
    let value = value.into_string().map_err(|_| "it is not UTF-8".to_owned())?;
    let values = match setting.kind {
        Kind::Switch => match value.to_lowercase().as_str() {
            "1" | "true" | "yes" => vec!["true".to_owned()],
            "0" | "false" | "no" => vec!["false".to_owned()],
            _ => return Err(format!("{value:?} is neither true nor false")),
        },
        Kind::List => value.split(',').map(|part| part.trim().to_owned()).collect(),
        _ => vec![value],
    };
    setting.check(&values)?;
    Ok(values)
}
