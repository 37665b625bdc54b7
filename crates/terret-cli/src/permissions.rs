//! What runs without a question, what is asked about, and what happens where nobody can be asked.

use terret::agent::{Question, SharedTool};
use terret::llm::ToolCall;
use terret::tools::{Decision, RuleJudge, Rules, Unmatched, Workspace};

use crate::cli::{PermissionMode, RunArgs};

/// The beginning of the reason of a run that was cancelled because nobody could be asked.
pub(crate) const NOBODY: &str = "a permission was needed, and nobody can be asked here";

/// What judges the calls of a run.
pub(crate) fn gate(args: &RunArgs, workspace: &Workspace, tools: &[SharedTool]) -> RuleJudge {
    let mut rules = Rules::new();
    for (decision, of_this) in
        [(Decision::Allow, &args.allow), (Decision::Ask, &args.ask), (Decision::Deny, &args.deny)]
    {
        of_this.iter().for_each(|rule| rules.add(decision, rule.clone()));
    }
    let unmatched = match args.permission_mode {
        PermissionMode::ReadOnly => Unmatched::Deny,
        PermissionMode::Ask => Unmatched::Ask,
        PermissionMode::Workspace | PermissionMode::Full => Unmatched::Allow,
    };
    RuleJudge::new(workspace, tools, rules, unmatched)
}

/// Why a run ends that has a question, and what would spare it.
pub(crate) fn nobody_to_ask(question: &Question) -> String {
    format!("{NOBODY}: {}; --allow '{}' lets it run", described(&question.call), rule(&question.call))
}

fn described(call: &ToolCall) -> String {
    format!("{} {}", call.name, call.arguments.as_str())
}

/// A rule that lets this call run, as narrow as it can be written on a command line.
fn rule(call: &ToolCall) -> String {
    let arguments: serde_json::Value = call.arguments.parse().unwrap_or_default();
    let text = |name: &str| arguments.get(name).and_then(serde_json::Value::as_str);
    // What is more than one command, or means something else in a rule or on a command line, needs a rule for the tool.
    let odd = |c: char| c.is_control() || "'\"*?[]{}()<>|&;$`\\!#~".contains(c);
    let is_plain = |text: &&str| !text.contains(odd) && text.len() <= 100;
    match text("command").or(text("path")).filter(is_plain) {
        Some(what) => format!("{}({what})", call.name),
        None => call.name.clone(),
    }
}
