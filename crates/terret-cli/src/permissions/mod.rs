//! What runs without a question, what is asked about, and what happens where nobody can be asked.
//!
//! Rules come from the command line, the configuration, the project (`project.rs`: those that somebody gave for it, kept
//! outside of it) and the session (`session.rs`). They hold all together; where they say different things, a denial wins
//! over a question, and a question over a permission.

mod project;
mod session;

use std::path::{Path, PathBuf};

use clap::ValueEnum as _;
use serde_json::Value;
use terret::agent::{Question, SharedTool};
use terret::llm::ToolCall;
use terret::store::GivenRules;
use terret::tools::{Decision, Judgement, Rule, RuleJudge, Rules, Unmatched, Why, Workspace};

use crate::cli::{PermissionMode, RunArgs};
use crate::config::{Config, Layer, Origin};
use crate::exit::{Exit, Problem};
use crate::output::{quoted, shortened_folder};

pub(crate) use project::OfProject;
pub(crate) use session::{change as change_session, read as read_session};

/// The beginning of the reason of a run that was cancelled because nobody could be asked.
pub(crate) const NOBODY: &str = "a permission was needed, and nobody can be asked here";

/// The rules that hold for the runs in a folder.
#[derive(Clone, Debug)]
pub(crate) struct Permissions {
    mode: PermissionMode,
    /// Those of the command line and of the configuration.
    configured: Vec<Given>,
    pub(crate) project: OfProject,
    pub(crate) session: Rules,
}

/// How long a rule holds that somebody gives when asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Session,
    Project,
}

/// A rule, and where it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) decision: Decision,
    pub(crate) rule: Rule,
    pub(crate) source: Source,
}

/// Where a rule was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Flag,
    Configured(Origin),
    /// For the project with this root.
    Project(PathBuf),
    Session,
}

impl Permissions {
    /// The rules for a run; `session` are those that were given for its session.
    pub(crate) fn of(args: &RunArgs, config: &Config, folder: &Path, session: &GivenRules) -> Result<Self, Problem> {
        let mut permissions = Self::load(args.permission_mode, config, folder, session)?;
        let flags = [(Decision::Allow, &args.allow), (Decision::Ask, &args.ask), (Decision::Deny, &args.deny)];
        for (decision, rule) in flags.into_iter().flat_map(|(decision, of)| of.iter().map(move |rule| (decision, rule)))
        {
            // What is configured has become the flag's default.
            let is_known = |given: &Given| given.decision == decision && given.rule.to_string() == rule.to_string();
            if !permissions.configured.iter().any(is_known) {
                permissions.configured.push(Given { decision, rule: rule.clone(), source: Source::Flag });
            }
        }
        Ok(permissions)
    }

    /// The rules that hold whatever the command line says.
    pub(crate) fn load(
        mode: PermissionMode,
        config: &Config,
        folder: &Path,
        session: &GivenRules,
    ) -> Result<Self, Problem> {
        let mut configured = Vec::new();
        for decision in [Decision::Deny, Decision::Ask, Decision::Allow] {
            for entry in config.all(&decision.to_string()) {
                for text in &entry.values {
                    let rule: Rule = text.parse().map_err(|error: terret::tools::RuleError| {
                        Problem::new(Exit::Configuration, format!("{}: {error}", entry.origin))
                    })?;
                    let rule = match &entry.origin {
                        // Like the paths in it, from the folder in which .terret is.
                        Origin::File { layer: Layer::Project, path, .. } => {
                            match path.parent().and_then(Path::parent) {
                                Some(folder) => rule.from_folder(folder),
                                None => rule,
                            }
                        }
                        _ => rule,
                    };
                    configured.push(Given { decision, rule, source: Source::Configured(entry.origin.clone()) });
                }
            }
        }
        Ok(Self { mode, configured, project: OfProject::load(folder)?, session: read_session(session)? })
    }

    /// All of them, wherever they were given.
    pub(crate) fn all(&self) -> Vec<Given> {
        let root = self.project.root();
        let of_project = self.project.rules.iter().map(|(decision, rule)| Given {
            decision,
            rule: rule.clone().from_folder(root),
            source: Source::Project(root.to_owned()),
        });
        let of_session =
            self.session.iter().map(|(decision, rule)| Given { decision, rule: rule.clone(), source: Source::Session });
        self.configured.iter().cloned().chain(of_project).chain(of_session).collect()
    }

    /// Whether a rule has a say in this mode. What somebody has permitted in another one doesn't widen one that only looks.
    pub(crate) fn counts(&self, given: &Given) -> bool {
        let is_kept = matches!(given.source, Source::Project(_) | Source::Session);
        !(given.decision == Decision::Allow && is_kept) || self.takes_permissions()
    }

    /// The rules as they hold now.
    pub(crate) fn rules(&self) -> Rules {
        let all = self.all().into_iter().filter(|given| self.counts(given));
        all.map(|given| (given.decision, given.rule)).collect()
    }

    /// What has to be said of rules that are about no tool of these: a mistyped denial would deny nothing.
    pub(crate) fn about_no_tool(&self, known: &[&str]) -> Vec<String> {
        self.all()
            .iter()
            .filter_map(|given| Some(format!("{}: {}", given.from(), about_no_tool(&given.rule, known)?)))
            .collect()
    }

    /// What judges the calls of a run.
    pub(crate) fn judge(&self, workspace: &Workspace, tools: &[SharedTool]) -> RuleJudge {
        let unmatched = match self.mode {
            PermissionMode::ReadOnly => Unmatched::Deny,
            PermissionMode::Ask => Unmatched::Ask,
            PermissionMode::Workspace | PermissionMode::Full => Unmatched::Allow,
        };
        RuleJudge::new(workspace, tools, self.rules(), unmatched)
    }

    /// Where a rule that holds was given.
    pub(crate) fn source_of(&self, decision: Decision, rule: &Rule) -> Option<Given> {
        let is_it = |given: &Given| given.decision == decision && given.rule == *rule && self.counts(given);
        self.all().into_iter().find(is_it)
    }

    /// Whether a permission that somebody gives for the project or the session has a say.
    pub(crate) fn takes_permissions(&self) -> bool {
        self.mode != PermissionMode::ReadOnly
    }

    /// The mode, as the flag has it.
    pub(crate) fn mode_name(&self) -> String {
        self.mode.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

impl Given {
    /// What kind of place it was given in.
    pub(crate) fn scope(&self) -> &'static str {
        match &self.source {
            Source::Flag | Source::Configured(Origin::Set) => "flag",
            Source::Configured(Origin::Variable(_)) => "environment",
            Source::Configured(Origin::File { .. }) => "file",
            Source::Project(_) => "project",
            Source::Session => "session",
        }
    }

    /// The place.
    pub(crate) fn from(&self) -> String {
        match &self.source {
            Source::Flag => format!("--{}", self.decision),
            Source::Configured(origin) => origin.to_string(),
            Source::Project(root) => shortened_folder(&root.display().to_string()),
            Source::Session => "this session".to_owned(),
        }
    }

    /// Both, for people.
    pub(crate) fn place(&self) -> String {
        match &self.source {
            Source::Session => self.from(),
            _ => format!("{}, {}", self.scope(), self.from()),
        }
    }

    /// The rule as it was given.
    pub(crate) fn bare(&self) -> Rule {
        self.rule.to_string().parse().unwrap_or_else(|_| self.rule.clone())
    }

    /// How it is taken back.
    pub(crate) fn taken_back(&self) -> String {
        let rule = quoted(&self.rule.to_string());
        match &self.source {
            Source::Flag => format!("leave out --{}", self.decision),
            Source::Configured(origin) => format!("take it out of {origin}"),
            Source::Project(_) => format!("`terret permissions revoke {rule}`"),
            Source::Session => format!("`terret permissions revoke -r SESSION {rule}`"),
        }
    }
}

/// The rule that somebody may have meant.
pub(crate) fn nearest(meant: &str, among: &[Given]) -> Option<String> {
    let alike = |rule: &String| strsim::jaro_winkler(meant, rule);
    let rules = among.iter().map(|given| given.rule.to_string());
    rules.max_by(|a, b| alike(a).total_cmp(&alike(b))).filter(|rule| alike(rule) > 0.8)
}

/// What is done about a call as it came.
pub(crate) fn explain(judge: &RuleJudge, call: &ToolCall) -> Judgement {
    judge.explain(&call.name, &arguments(call))
}

/// Whether a call needs no question by the rules as they are now.
pub(crate) fn is_allowed(judge: &RuleJudge, call: &ToolCall) -> bool {
    explain(judge, call).decision == Decision::Allow
}

/// The narrowest rules that let a call run, counted from a folder; none where none would.
pub(crate) fn proposed(judge: &RuleJudge, call: &ToolCall, folder: &Path) -> Vec<Rule> {
    judge.permissions_for(&call.name, &arguments(call), folder)
}

fn arguments(call: &ToolCall) -> Value {
    call.arguments.parse().unwrap_or_default()
}

/// What has to be said of a rule that is about no tool of these.
pub(crate) fn about_no_tool(rule: &Rule, known: &[&str]) -> Option<String> {
    let tool = rule.tool().filter(|tool| !known.contains(tool))?;
    Some(format!("there is no tool {tool:?}, which {rule} is about; there are {}", known.join(", ")))
}

/// Why a run ends that has a question, and what would spare it.
pub(crate) fn nobody_to_ask(question: &Question, judge: Option<(&RuleJudge, &Path)>) -> String {
    let call = &question.call;
    let what = format!("{NOBODY}: {} {}", call.name, call.arguments.as_str());
    let Some((judge, folder)) = judge else { return what };
    let listed = |rules: &[Rule], before: &str| {
        let rules: Vec<String> = rules.iter().map(|rule| format!("{before}'{}'", shell(rule))).collect();
        rules.join(" ")
    };
    let for_this_run = proposed(judge, call, folder);
    if for_this_run.is_empty() {
        return match explain(judge, call).why {
            Why::Rules(rules) => {
                let rules: Vec<String> = rules.iter().map(ToString::to_string).collect();
                format!("{what}; the rule {} asks about it, whatever is allowed", rules.join(", "))
            }
            _ => what,
        };
    }
    let root = crate::project::Project::of(folder);
    let for_project = proposed(judge, call, root.root().unwrap_or(folder));
    format!(
        "{what}; {} lets it run, and `terret permissions allow {}` from now on in this project",
        listed(&for_this_run, "--allow "),
        listed(&for_project, "")
    )
}

/// A rule as it stands between the quotes of a shell.
fn shell(rule: &Rule) -> String {
    rule.to_string().replace('\'', r"'\''")
}
