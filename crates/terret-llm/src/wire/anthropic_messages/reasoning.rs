//! What a model takes of reasoning, and what it then no longer takes of sampling and of forced calls.
//!
//! Anthropic's models are told apart by family and version, and a version that isn't known yet is taken for the latest
//! one that is. Other models on this wire take what Anthropic's first reasoning models took.

use serde::Serialize;

use super::unsupported;
use crate::request::{Effort, Options, ToolChoice};
use crate::wire::EncodeError;

/// How a model reasons.
pub(super) struct Reasoning {
    model: Model,
    effort: Option<Effort>,
}

/// The field `thinking`.
#[derive(Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Thinking {
    Disabled,
    /// No reasoning ahead of the reply, but notes between tool calls.
    BetweenTools,
    Enabled {
        budget_tokens: u32,
    },
    Adaptive {
        #[serde(skip_serializing_if = "Option::is_none")]
        display: Option<&'static str>,
    },
}

impl Reasoning {
    pub(super) fn new(model_id: &str, effort: Option<Effort>) -> Self {
        Self { model: Model::of(model_id), effort }
    }

    /// The field `thinking`. Without a wish it is left out, and the model does what it does by itself; so it is where a
    /// turn goes on that began without thinking, and the model can't change that in mid-turn.
    pub(super) fn thinking(&self, max_tokens: u32, goes_on_without: bool) -> Result<Option<Thinking>, EncodeError> {
        match (self.effort, self.model.control()) {
            (None, _) | (Some(Effort::Off), Control::None) => Ok(None),
            (Some(Effort::Off), _) => match self.model.off() {
                None => Err(unsupported("effort", "this model always reasons; ask for low")),
                off => Ok(off),
            },
            (Some(_), Control::None) => Err(unsupported("effort", "this model can't reason; leave it out")),
            (Some(_), Control::Budget) if goes_on_without && self.model.is_claude() => Ok(None),
            (Some(effort), Control::Budget) => budget(effort, max_tokens).map(Some),
            // From this version on, only signatures come unless the text is asked for.
            (Some(_), Control::Effort) => {
                Ok(Some(Thinking::Adaptive { display: self.model.is_at_least(4, 7).then_some("summarized") }))
            }
        }
    }

    /// The field `effort` of `output_config`.
    pub(super) fn effort(&self) -> Option<&'static str> {
        match (self.model.control(), self.effort?) {
            (Control::None | Control::Budget, _) | (_, Effort::Off) => None,
            (Control::Effort, Effort::Minimal | Effort::Low) => Some("low"),
            (Control::Effort, Effort::Medium) => Some("medium"),
            (Control::Effort, Effort::XHigh) if self.model.is_at_least(4, 7) => Some("xhigh"),
            (Control::Effort, Effort::High | Effort::XHigh) => Some("high"),
            (Control::Effort, Effort::Max) => Some("max"),
        }
    }

    /// Refuses the options that the provider would refuse.
    pub(super) fn check(&self, options: &Options) -> Result<(), EncodeError> {
        let Options { temperature, top_p, top_k, tool_choice, .. } = options;
        let fixed = self.model.is_at_least(4, 7);
        let reasons = self.is_on();
        let hint =
            if fixed { "this model samples in its own way only" } else { "it can't be set while the model reasons" };
        if (fixed || reasons) && temperature.is_some_and(|temperature| temperature != 1.0) {
            return Err(unsupported("temperature", hint));
        }
        if top_p.is_some_and(|top_p| fixed || reasons && top_p < 0.95) {
            return Err(unsupported("top_p", hint));
        }
        if top_p.is_some() && temperature.is_some() && self.model.is_at_least(4, 1) {
            return Err(unsupported("top_p", "this model takes either a temperature or this"));
        }
        if top_k.is_some() && (fixed || reasons) {
            return Err(unsupported("top_k", hint));
        }
        let forced = matches!(tool_choice, Some(ToolChoice::Required | ToolChoice::Tool(_)));
        if forced && (reasons || self.model.off() != Some(Thinking::Disabled)) {
            return Err(unsupported("tool_choice", "a model that reasons can't be forced to call; use auto"));
        }
        Ok(())
    }

    /// Whether the model may reason.
    fn is_on(&self) -> bool {
        match self.effort {
            Some(effort) => effort != Effort::Off,
            None => self.model.is_at_least(5, 0),
        }
    }
}

/// Which field tells how much a model reasons.
enum Control {
    None,
    Budget,
    Effort,
}

/// A model of Anthropic's by its family and version, or some other one.
enum Model {
    Claude { family: Family, version: (u32, u32) },
    Other,
}

enum Family {
    Opus,
    Sonnet,
    /// Fable and Mythos.
    Largest,
    Any,
}

impl Model {
    /// Reads ids such as `claude-sonnet-4-5-20250929`, `claude-3-7-sonnet-latest`, `us.anthropic.claude-opus-4-1-v1:0`
    /// and `anthropic/claude-opus-4.6`. Without a version it is the latest.
    fn of(id: &str) -> Self {
        let id = id.to_ascii_lowercase();
        let Some((_, name)) = id.split_once("claude") else { return Model::Other };
        let words = || name.split(|c: char| !c.is_ascii_alphanumeric());
        let family = match words().find(|word| ["opus", "sonnet", "fable", "mythos"].contains(word)) {
            Some("opus") => Family::Opus,
            Some("sonnet") => Family::Sonnet,
            Some(_) => Family::Largest,
            None => Family::Any,
        };
        // Longer numbers are dates.
        let number = |word: &str| word.parse::<u32>().ok().filter(|_| word.len() <= 2);
        let mut numbers = words().skip_while(|word| number(word).is_none()).map_while(number);
        let version = (numbers.next().unwrap_or(u32::MAX), numbers.next().unwrap_or(0));
        Model::Claude { family, version }
    }

    fn is_claude(&self) -> bool {
        matches!(self, Model::Claude { .. })
    }

    fn is_at_least(&self, major: u32, minor: u32) -> bool {
        matches!(self, Model::Claude { version, .. } if *version >= (major, minor))
    }

    fn control(&self) -> Control {
        match self {
            Model::Claude { version, .. } if *version < (3, 7) => Control::None,
            Model::Claude { version, .. } if *version >= (4, 6) => Control::Effort,
            Model::Claude { .. } | Model::Other => Control::Budget,
        }
    }

    /// How not to reason, if that can be asked for.
    fn off(&self) -> Option<Thinking> {
        match self {
            Model::Claude { family: Family::Largest, .. } => None,
            Model::Claude { family: Family::Opus, .. } if self.is_at_least(5, 5) => None,
            Model::Claude { family: Family::Sonnet, .. } if self.is_at_least(5, 5) => Some(Thinking::BetweenTools),
            Model::Claude { .. } | Model::Other => Some(Thinking::Disabled),
        }
    }
}

/// A budget is a part of `max_tokens`, and the least one is 1,024 tokens; as many are left for the answer, if that is
/// possible.
fn budget(effort: Effort, max_tokens: u32) -> Result<Thinking, EncodeError> {
    const LEAST: u32 = 1024;
    if max_tokens <= LEAST {
        return Err(unsupported("effort", "reasoning needs more than 1024 max_output_tokens"));
    }
    let wanted = match effort {
        Effort::Off | Effort::Minimal => LEAST,
        Effort::Low => 2048,
        Effort::Medium => 8192,
        Effort::High => 16_384,
        // Anthropic advises against more.
        Effort::XHigh | Effort::Max => 32_768,
    };
    Ok(Thinking::Enabled { budget_tokens: wanted.min(max_tokens - LEAST).max(LEAST) })
}
