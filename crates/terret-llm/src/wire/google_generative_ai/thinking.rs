//! How much a model is asked to think, in the terms of its generation.
//!
//! Source: the thinking guide and the models' pages. Gemini 3 and later take a level, Gemini 2.5 a budget in tokens,
//! older models don't think. Where a model's levels aren't known, its id tells which ones it is likely to take.

use serde::Serialize;

use crate::effort::{Effort, Efforts};

/// What the id of a model tells about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Generation {
    family: Family,
    version: (u32, u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Pro,
    Flash,
    FlashLite,
    Gemma,
    Other,
}

/// `generationConfig.thinkingConfig`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ThinkingConfig {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    include_thoughts: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_level: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_budget: Option<u32>,
}

impl Generation {
    /// Reads the id; one that names no version (`gemini-flash-latest`, a new name) is taken for the newest.
    pub(super) fn of(id: &str) -> Self {
        let id = id.to_ascii_lowercase();
        let after = |name: &str| id.split_once(name).map(|(_, rest)| rest);
        let family = if id.contains("gemma") {
            Family::Gemma
        } else if id.contains("flash-lite") {
            Family::FlashLite
        } else if id.contains("flash") {
            Family::Flash
        } else if id.contains("pro") {
            Family::Pro
        } else {
            Family::Other
        };
        let number = after("gemini-").or_else(|| after("gemma-")).unwrap_or_default();
        let number = number.split(|c: char| !c.is_ascii_digit() && c != '.').next().unwrap_or_default();
        let mut digits = number.split('.').map(str::parse);
        let version = match (digits.next(), digits.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => (major, minor),
            (Some(Ok(major)), _) => (major, 0),
            _ => (u32::MAX, 0),
        };
        Self { family, version }
    }

    /// Whether it is of the third generation or a later one. Those sign their calls, take media in function responses,
    /// and combine tools with an output schema.
    pub(super) fn is_3_or_later(self) -> bool {
        self.version >= (3, 0) && self.family != Family::Gemma
    }

    /// The configuration for this effort, of those that the model is known to have. `None` if it can't be asked to think.
    pub(super) fn thinking(self, effort: Effort, known: Option<Efforts>) -> Option<ThinkingConfig> {
        let include_thoughts = effort != Effort::Off;
        let levels = if self.family == Family::Gemma { (4, 0) } else { (3, 0) };
        if self.version >= levels {
            let thinking_level = Some(self.level(effort, known));
            return Some(ThinkingConfig { include_thoughts, thinking_level, thinking_budget: None });
        }
        let thinks = self.version >= (2, 5) && self.family != Family::Gemma;
        thinks.then(|| ThinkingConfig {
            include_thoughts,
            thinking_level: None,
            thinking_budget: Some(self.budget(effort)),
        })
    }

    fn level(self, effort: Effort, known: Option<Efforts>) -> &'static str {
        match effort {
            Effort::Minimal if known.is_some() => "MINIMAL",
            Effort::Low if known.is_some() => "LOW",
            Effort::Medium if known.is_some() => "MEDIUM",
            Effort::XHigh if known.is_some() => "XHIGH",
            Effort::Off | Effort::Minimal if self.has_minimal() => "MINIMAL",
            Effort::Low if self.family == Family::Gemma => "MINIMAL",
            Effort::Medium if self.family == Family::Gemma => "HIGH",
            Effort::Medium if self.family == Family::Pro && self.version == (3, 0) => "HIGH",
            Effort::Off | Effort::Minimal | Effort::Low => "LOW",
            Effort::Medium => "MEDIUM",
            Effort::High | Effort::XHigh | Effort::Max => "HIGH",
        }
    }

    fn has_minimal(self) -> bool {
        match self.family {
            Family::FlashLite | Family::Gemma => true,
            Family::Flash => self.version <= (3, 6),
            Family::Pro | Family::Other => false,
        }
    }

    /// Tokens. Only Flash models can be told not to think.
    fn budget(self, effort: Effort) -> u32 {
        let least = if self.family == Family::FlashLite { 512 } else { 128 };
        match effort {
            Effort::Off if matches!(self.family, Family::Flash | Family::FlashLite) => 0,
            Effort::Off | Effort::Minimal => least,
            Effort::Low => 2048,
            Effort::Medium => 8192,
            Effort::High | Effort::XHigh | Effort::Max if self.family == Family::Pro => 32_768,
            Effort::High | Effort::XHigh | Effort::Max => 24_576,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_tell_family_and_version() {
        for (id, family, version) in [
            ("gemini-2.5-pro", Family::Pro, (2, 5)),
            ("models/gemini-2.5-flash-lite-preview-09-2025", Family::FlashLite, (2, 5)),
            ("gemini-3-pro-preview", Family::Pro, (3, 0)),
            ("gemini-3.1-flash-lite", Family::FlashLite, (3, 1)),
            ("publishers/google/models/gemini-2.0-flash-001", Family::Flash, (2, 0)),
            ("gemini-4-argon", Family::Other, (4, 0)),
            ("gemini-flash-latest", Family::Flash, (u32::MAX, 0)),
            ("gemma-3-27b-it", Family::Gemma, (3, 0)),
            ("something-new", Family::Other, (u32::MAX, 0)),
        ] {
            assert_eq!(Generation::of(id), Generation { family, version }, "{id}");
        }
    }
}
