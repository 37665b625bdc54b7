//! What files tell the model: instructions of the user and the project, and skills.

mod frontmatter;
mod instructions;
mod nested;
pub(crate) mod skills;

use std::path::Path;

use crate::exit::Problem;
use crate::output;
use crate::project::Project;

use instructions::Instructions;
pub(crate) use nested::Nested;
pub(crate) use skills::Skills;

/// What is read before a run.
pub(crate) struct Context {
    /// The user's first, then those of the project from its root down.
    pub(crate) instructions: Vec<Instructions>,
    /// What the folders below say.
    pub(crate) nested: Nested,
    pub(crate) skills: Skills,
    /// What was left out, and why.
    pub(crate) left_out: Vec<String>,
}

impl Context {
    /// Reads it for runs in a folder. `names` are those of the files with instructions.
    pub(crate) fn load(folder: &Path, names: &[String], with_skills: bool) -> Result<Self, Problem> {
        let project = Project::of(folder);
        let mut left_out = Vec::new();
        let instructions = instructions::load(&project, names, &mut left_out);
        let skills = if with_skills { skills::load(&project, &mut left_out)? } else { Skills::default() };
        let nested = Nested::new(&project, names, &instructions);
        Ok(Self { instructions, nested, skills, left_out })
    }

    /// Says what was left out.
    pub(crate) fn tell(&self) {
        for note in &self.left_out {
            output::note(note);
        }
    }
}
