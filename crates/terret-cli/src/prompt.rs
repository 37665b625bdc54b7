//! The system prompt.

use std::path::Path;
use std::sync::Arc;

use crate::context::Context;
use crate::output_schema::Expected;

/// Short, and the same for all runs in a folder as long as its files are, so that providers can cache it.
pub(crate) fn system(folder: &Path, context: &Context, expected: Option<&Expected>) -> Arc<str> {
    let mut prompt = format!(
        "You are terret, a coding agent. You work in the folder {} with the tools you are given. Paths are relative to \
         it.\n\
         Look before you change: read the files that matter, and run the project's own tests or commands to see what is \
         true. Make the smallest change that does the job, in the style of what is there. When a tool reports an error, \
         read it and correct your call. Check your work before you say that it is done, and say plainly what you could \
         not do. Answer briefly.",
        folder.display()
    );
    if !context.instructions.is_empty() {
        prompt += "\n\nThese files hold instructions. Where two disagree, the later one counts, and what the user says \
                   counts before all of them.";
    }
    for instructions in &context.instructions {
        prompt += &format!("\n\n{instructions}");
    }
    let skills = context.skills.told();
    if !skills.is_empty() {
        prompt += &format!("\n\nSkills, which the tool skill reads:\n{}", skills.trim_end());
    }
    if let Some(expected) = expected {
        prompt += &format!("\n\n{}", expected.told());
    }
    prompt.into()
}
