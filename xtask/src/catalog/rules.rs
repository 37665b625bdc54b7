//! What isn't taken over from the base as it stands, and why.

use std::collections::BTreeSet;

use terret_llm::wire::WireFormat;
use terret_llm::{Effort, Efforts, Host};

use super::base::Model;
use super::prices::Told;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rule {
    LeftOut,
    OwnWire,
    OneWire,
    CutWindow,
    SharedWindow,
    NoPrice,
    Unreachable,
    Outvoted,
    Inclusive,
    Completed,
    LongWrites,
    StorageOnly,
    ForeignWords,
    SwitchOnly,
    NoControl,
    WireLevels,
    Snapshot,
    OtherSnapshot,
}

impl Rule {
    /// As the page about the catalog tells it.
    pub(super) fn why(self) -> &'static str {
        match self {
            Rule::LeftOut => "Left out: the model can't be asked by its host's wire (Google's research agents).",
            Rule::OwnWire => {
                "The host has several wires, and this model is asked by another than the usual one. Where the base has one \
                 wire for all models of a host, the table of hosts decides."
            }
            Rule::OneWire => {
                "Fireworks serves these models by Anthropic's wire as well, on which the base asks them. They are asked by \
                 the usual one, whose words for levels of reasoning they take."
            }
            Rule::CutWindow => {
                "The base gives the threshold of the higher price as the window. Listed is the window of the same \
                 model at Azure, in the same source; OpenAI's model pages say 1,050,000 as well."
            }
            Rule::SharedWindow => {
                "The window is shared between input and output, so that the input has a limit of its own: the window \
                 less the most output, as the second opinion tells it (OpenAI's model pages: 272,000 and 128,000 of \
                 400,000; 922,000 and 128,000 of 1,050,000)."
            }
            Rule::NoPrice => {
                "Zero in the base, and neither called `:free` nor free in the second opinion: no price is listed."
            }
            Rule::Unreachable => "The higher price holds above the whole window: it isn't listed.",
            Rule::Outvoted => {
                "The other two sources agree on a price for input and output that isn't the base's: listed is theirs."
            }
            Rule::Inclusive => {
                "xAI's higher price holds from its threshold on, not above it (its price list: \">= 200k\"): listed is \
                 one token less."
            }
            Rule::Completed => {
                "Rates for cache reads, cache writes or long-lived writes come from the second opinion, which agrees on \
                 input and output."
            }
            Rule::LongWrites => {
                "Long-lived cache writes (an hour) of Claude models cost twice the input, by Anthropic's price list; \
                 OpenRouter's guide to prompt caching says the same for its."
            }
            Rule::StorageOnly => {
                "OpenRouter's price of a cache write is the storage alone for Gemini models; by its guide to prompt \
                 caching, the input is charged beside it. Listed is the sum."
            }
            Rule::ForeignWords => {
                "The host has other words for its levels of reasoning than the wire; no levels are listed."
            }
            Rule::SwitchOnly => "Reasoning can be switched on and off, and no more: listed are `off` and `high`.",
            Rule::NoControl => "Reasoning can't be controlled: no level is listed, not even `off`.",
            Rule::WireLevels => {
                "Levels are listed as the wire can express them: budgets in tokens for older Claude models and for \
                 other models on Anthropic's wire (up to `xhigh`), `minimal` only where Claude has it, `off` for \
                 Gemini 2.5 only where the budget can be 0, and for Claude Sonnet 5.5, which can leave out thinking \
                 ahead of its reply."
            }
            Rule::Snapshot => {
                "Dated names that only the second opinion lists, with the facts of the undated model: price and most \
                 output agree."
            }
            Rule::OtherSnapshot => "The same, but they don't agree, so that the dated name is not listed.",
        }
    }
}

pub(super) fn is_left_out(host: &str, id: &str) -> bool {
    host == "google" && id.starts_with("deep-research")
}

/// The wire behind the base's word for it.
pub(super) fn wire(api: &str) -> Option<WireFormat> {
    let wire = WireFormat::from(api.strip_prefix("azure-").unwrap_or(api));
    (!matches!(wire, WireFormat::Other(_))).then_some(wire)
}

pub(super) fn keeps_to_one_wire(host: &str) -> bool {
    host == "fireworks"
}

/// The levels of reasoning that the model can be asked for by its own wire, or its host's.
pub(super) fn efforts(host: &str, model: &Model, wire: Option<&WireFormat>) -> (Option<Efforts>, Option<Rule>) {
    use Effort::{High, Max, Minimal, Off, XHigh};
    if !model.reasoning {
        return (Some(Efforts::from_iter([Off])), None);
    }
    let told = |effort: Effort| model.thinking_level_map.get(effort.as_str());
    let foreign = |effort: Effort| {
        let word = told(effort).and_then(Option::as_deref).map(str::to_ascii_lowercase);
        word.is_some_and(|word| word != effort.as_str() && (effort, word.as_str()) != (Off, "none"))
    };
    if Effort::ALL.into_iter().any(foreign) {
        return (None, Some(Rule::ForeignWords));
    }
    // Without a word, the first five are there and the others aren't.
    let has = |effort: &Effort| told(*effort).map_or(*effort < XHigh, Option::is_some);
    let base: BTreeSet<Effort> = Effort::ALL.into_iter().filter(has).collect();
    let is_claude = model.id.contains("claude");
    let mut levels = base.clone();
    let mut rule = Rule::WireLevels;
    let mut set = |effort, to| if to { levels.insert(effort) } else { levels.remove(&effort) };
    match wire.or(Host::find(host).map(|host| &host.wire)) {
        _ if model.compat.supports_reasoning_effort == Some(false) && model.compat.thinking_format.is_some() => {
            rule = Rule::SwitchOnly;
            levels.retain(|effort| [Off, High].contains(effort));
        }
        _ if model.compat.supports_reasoning_effort == Some(false) => {
            rule = Rule::NoControl;
            levels.clear();
        }
        Some(WireFormat::AnthropicMessages) if is_claude && model.compat.force_adaptive_thinking => {
            set(Minimal, matches!(told(Minimal), Some(Some(_))));
            set(Off, base.contains(&Off) || model.id.replace('.', "-").contains("claude-sonnet-5-5"));
        }
        Some(WireFormat::AnthropicMessages) => {
            set(XHigh, base.contains(&High));
            set(Max, false);
        }
        Some(WireFormat::GoogleGenerativeAi) if model.id.contains("2.5") => {
            set(Off, model.id.contains("flash"));
        }
        _ => {}
    }
    let changed = (levels != base).then_some(rule);
    (Some(levels.into_iter().collect()), changed)
}

/// Lowers thresholds that themselves belong to the tier above them.
pub(super) fn lowers_thresholds(host: &str, told: &mut Told) -> bool {
    let lowers = host == "xai" && !told.tiers.is_empty();
    if lowers {
        told.tiers = std::mem::take(&mut told.tiers).into_iter().map(|(above, rate)| (above - 1, rate)).collect();
    }
    lowers
}

/// Makes a price that is storage alone the price of a cache write.
pub(super) fn adds_storage(host: &str, id: &str, told: &mut Told) -> bool {
    if host != "openrouter" || !id.contains("google/") {
        return false;
    }
    let mut added = false;
    for rate in told.rates() {
        if let Some(write) = rate.cache_write.as_mut().filter(|write| **write < rate.input) {
            *write += rate.input;
            added = true;
        }
    }
    added
}

pub(super) fn adds_long_writes(id: &str, told: &mut Told) -> bool {
    let mut added = false;
    for rate in told.rates() {
        // A cache that costs a quarter more to write is Anthropic's.
        let is_claude = id.contains("claude") && rate.cache_write == Some(rate.input + rate.input / 4);
        if is_claude && rate.cache_write_long.is_none() {
            rate.cache_write_long = Some(2 * rate.input);
            added = true;
        }
    }
    added
}

/// The id without the date at its end, `-YYYY-MM-DD` or `-YYYYMMDD`.
pub(super) fn undated(id: &str) -> Option<&str> {
    [[4, 2, 2].as_slice(), &[8]].into_iter().find_map(|date| {
        date.iter().rev().try_fold(id, |id, digits| {
            let (rest, part) = id.rsplit_once('-')?;
            (part.len() == *digits && part.bytes().all(|byte| byte.is_ascii_digit())).then_some(rest)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_at_the_end_of_an_id_is_cut() {
        for (id, expected) in [
            ("gpt-5-2025-08-07", Some("gpt-5")),
            ("claude-opus-4-7-20260416", Some("claude-opus-4-7")),
            ("gpt-4-0613", None),
            ("claude-opus-4-7", None),
            ("20260416", None),
        ] {
            assert_eq!(undated(id), expected, "{id}");
        }
    }
}
