//! Skills: folders with instructions for a kind of work ([agentskills.io](https://agentskills.io/specification)).
//!
//! A model is told the name and the description of each; it reads the instructions when they are needed, and the other
//! files of the folder when those say so. A skill of a project can hold programs that it tells the model to run, so that
//! its `SKILL.md` needs a decision ([`crate::trust`]).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use terret::agent::{EffectClass, SharedTool, ToolError, tool};

use super::frontmatter;
use crate::exit::{Exit, Problem};
use crate::output::shortened_folder;
use crate::project::Project;
use crate::trust::{self, Candidate, Kind, State, Trust};
use crate::{files, places};

/// Where a folder of a project may have skills.
const IN_PROJECT: [&str; 3] = [".terret/skills", ".agents/skills", ".claude/skills"];

/// More skills than this in one place are too many to tell of.
const MOST: usize = 100;

/// The longest file of a skill that is read, in bytes.
const LONGEST: u64 = 1 << 20;

/// How many bytes the descriptions may have together.
const LONGEST_LIST: usize = 16 << 10;

/// A folder of instructions for a kind of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Skill {
    pub(crate) name: String,
    pub(crate) description: String,
    /// Whether the model is told of it; else only people call it.
    pub(crate) is_told: bool,
    folder: PathBuf,
    body: String,
}

/// The skills that there are, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Skills {
    skills: Arc<[Skill]>,
    /// Skills of the project that nobody has trusted.
    untrusted: Vec<String>,
}

/// The `SKILL.md` files in a folder of a project, sorted.
pub(crate) fn in_project(folder: &Path) -> Vec<PathBuf> {
    IN_PROJECT.iter().flat_map(|place| in_place(&folder.join(place))).collect()
}

fn in_place(place: &Path) -> Vec<PathBuf> {
    // A folder that holds far more is no folder of skills.
    let entries = fs::read_dir(place).into_iter().flatten().flatten().take(100 * MOST);
    let mut found: Vec<PathBuf> =
        entries.map(|entry| entry.path().join("SKILL.md")).filter(|path| path.exists()).collect();
    found.sort();
    found.truncate(MOST);
    found
}

/// The user's places.
fn of_user() -> Vec<PathBuf> {
    let home = std::env::home_dir().filter(|home| home.is_absolute());
    let of_home = home.iter().flat_map(|home| [home.join(".agents/skills"), home.join(".claude/skills")]);
    places::config().map(|folder| folder.join("skills")).into_iter().chain(of_home).collect()
}

/// All skills: of those of one name, the one that is nearest to the folder.
pub(super) fn load(project: &Project, left_out: &mut Vec<String>) -> Result<Skills, Problem> {
    let (mut skills, mut untrusted): (Vec<Skill>, Vec<Candidate>) = (Vec::new(), Vec::new());
    let mut take = |path: &Path, content: io::Result<Vec<u8>>| {
        let content = content.map_err(|error| format!("it can't be read: {error}"));
        match content.and_then(|content| skill(path, &content)) {
            Ok(skill) if skills.iter().any(|other| other.name == skill.name) => {}
            Ok(skill) => skills.push(skill),
            Err(reason) => left_out.push(format!("not a skill: {}: {reason}", shown(path))),
        }
    };
    let candidates = Trust::load()?.candidates(project).into_iter().rev().flatten();
    for candidate in candidates.filter(|candidate| candidate.kind == Kind::Skill) {
        match candidate.state {
            State::Trusted => take(&candidate.path, Ok(candidate.content)),
            _ => untrusted.push(candidate),
        }
    }
    for path in of_user().iter().flat_map(|place| in_place(place)) {
        take(&path, files::read(&path, LONGEST).map(Option::unwrap_or_default));
    }
    left_out.extend(trust::not_used(&untrusted));
    skills.sort_by(|a, b| a.name.cmp(&b.name));
    let untrusted = untrusted.iter().filter_map(|candidate| folder_name(&candidate.path)).collect();
    Ok(Skills { skills: skills.into(), untrusted })
}

fn skill(path: &Path, content: &[u8]) -> Result<Skill, String> {
    let text = str::from_utf8(content).map_err(|_| "it is not UTF-8")?;
    let mut read = frontmatter::read(text)?;
    let name = read.values.remove("name").ok_or("it has no name")?;
    let description = read.values.remove("description").unwrap_or_default();
    let description = description.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let valid = (1..=64).contains(&name.len()) && name.chars().all(is_name) && !name.starts_with('-');
    if !valid || name.ends_with('-') || name.contains("--") {
        return Err(format!("{name:?} is no name: it has up to 64 of a-z, 0-9 and single dashes"));
    }
    if folder_name(path).as_deref() != Some(&name) {
        return Err(format!("it is called {name:?}, but its folder isn't"));
    }
    if !(1..=1024).contains(&description.chars().count()) {
        return Err("its description must have 1 to 1024 characters".into());
    }
    let is_told = read.values.get("disable-model-invocation").is_none_or(|disabled| disabled != "true");
    let folder = path.parent().unwrap_or(path).to_owned();
    Ok(Skill { name, description, is_told, folder, body: read.body })
}

fn folder_name(path: &Path) -> Option<String> {
    Some(path.parent()?.file_name()?.to_string_lossy().into_owned())
}

impl Skill {
    /// What a model reads.
    fn text(&self) -> String {
        format!("Skill {}, in {} (its paths are relative to that):\n\n{}", self.name, self.folder.display(), self.body)
    }

    /// A file of its folder.
    fn file(&self, name: &str) -> Result<String, String> {
        let refused = |error: io::Error| format!("{name}: {error}");
        let path = self.folder.join(name).canonicalize().map_err(refused)?;
        let folder = self.folder.canonicalize().map_err(refused)?;
        if !path.starts_with(&folder) {
            return Err(format!("{name} is not in the skill's folder"));
        }
        let bytes = files::read(&path, LONGEST).map_err(refused)?.unwrap_or_default();
        String::from_utf8(bytes).map_err(|_| format!("{name} is not text"))
    }
}

/// Reads the instructions of a skill.
#[derive(Deserialize, JsonSchema)]
struct ReadSkill {
    /// The skill's name.
    name: String,
    /// Another file of its folder.
    file: Option<String>,
}

impl Skills {
    /// The name of the tool that reads them.
    pub(crate) const TOOL: &str = "skill";

    /// What the model is told, a line each.
    pub(crate) fn told(&self) -> String {
        let mut list = String::new();
        for skill in self.skills.iter().filter(|skill| skill.is_told) {
            let line = format!("- {}: {}\n", skill.name, skill.description);
            if list.len() + line.len() <= LONGEST_LIST {
                list += &line;
            }
        }
        list
    }

    /// The tool by which the model reads them, if it is told of any.
    pub(crate) fn tool(&self) -> Option<SharedTool> {
        let skills: Vec<Skill> = self.skills.iter().filter(|skill| skill.is_told).cloned().collect();
        if skills.is_empty() {
            return None;
        }
        let skills = Arc::new(skills);
        let read = move |ReadSkill { name, file }: ReadSkill, _| {
            let skills = skills.clone();
            async move {
                let skill = skills.iter().find(|skill| skill.name == name);
                let skill = skill.ok_or_else(|| ToolError::new(format!("There is no skill {name:?}.")))?;
                match file {
                    None => Ok(skill.text()),
                    Some(file) => skill.file(&file).map_err(ToolError::new),
                }
            }
        };
        let description = "Reads a skill's instructions, or a file that they name. Do so before work that it is for.";
        Some(Arc::new(tool(Self::TOOL, description, read).effect(EffectClass::ReadOnly)))
    }

    /// The prompt, with the instructions of the skill that it begins with, as in `/skill:pdf Read a.pdf`.
    pub(crate) fn expand(&self, prompt: String) -> Result<String, Problem> {
        let Some(rest) = prompt.strip_prefix("/skill:") else { return Ok(prompt) };
        let (name, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        if let Some(skill) = self.skills.iter().find(|skill| skill.name == name) {
            return Ok(format!("{}\n\n{}", skill.text(), rest.trim()).trim_end().to_owned());
        }
        if self.untrusted.iter().any(|untrusted| untrusted == name) {
            let message =
                format!("/skill:{name}: nobody has trusted this skill of the project (terret trust shows it and asks)");
            return Err(Problem::new(Exit::Configuration, message));
        }
        let known: Vec<&str> = self.skills.iter().map(|skill| skill.name.as_str()).collect();
        let known = if known.is_empty() { "none".into() } else { known.join(", ") };
        Err(Problem::usage(format!("/skill:{name}: there is no such skill; there are {known}")))
    }
}

fn shown(path: &Path) -> String {
    shortened_folder(&path.display().to_string())
}
