//! How much a model reasons: one scale for all models, and the part of it that a model has.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How much a model should reason, on one scale for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the names say it")]
pub enum Effort {
    Off,
    Minimal,
    Low,
    Medium,
    High,
    #[serde(rename = "xhigh")]
    XHigh,
    Max,
}

impl Effort {
    /// The whole scale, from the least to the most.
    pub const ALL: [Effort; 7] =
        [Self::Off, Self::Minimal, Self::Low, Self::Medium, Self::High, Self::XHigh, Self::Max];

    /// The name, as it stands in `provider/model:effort` and in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Effort::Off => "off",
            Effort::Minimal => "minimal",
            Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::High => "high",
            Effort::XHigh => "xhigh",
            Effort::Max => "max",
        }
    }
}

impl fmt::Display for Effort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a text is no effort.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no effort; there are off, minimal, low, medium, high, xhigh and max")]
pub struct InvalidEffort(String);

impl FromStr for Effort {
    type Err = InvalidEffort;

    fn from_str(name: &str) -> Result<Self, InvalidEffort> {
        Self::ALL.into_iter().find(|effort| effort.as_str() == name).ok_or_else(|| InvalidEffort(name.to_owned()))
    }
}

/// The levels of the scale that a model can be asked for. In JSON a list of their names.
///
/// A model that doesn't reason has `off` alone. One that reasons as it likes, without a control, has none.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Efforts(u8);

impl Efforts {
    /// Whether the level is one of them.
    pub const fn contains(self, effort: Effort) -> bool {
        self.0 & 1 << effort as u8 != 0
    }

    /// The levels, from the least to the most.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = Effort> {
        Effort::ALL.into_iter().filter(move |effort| self.contains(*effort))
    }

    /// Whether there is a level above `off`.
    pub fn reasons(self) -> bool {
        self.iter().any(|effort| effort != Effort::Off)
    }

    /// The level to ask for where `wanted` is wanted: itself, else the next one above it that the model has, else the
    /// next one below.
    ///
    /// Who wants reasoning never gets `off`: `None` if the model has no other level, and for a model without a control.
    ///
    /// ```
    /// use terret_llm::{Effort::*, Efforts};
    ///
    /// let model = Efforts::from_iter([Low, High]);
    /// assert_eq!([Off, Medium, Max].map(|wanted| model.nearest(wanted)), [Some(Low), Some(High), Some(High)]);
    /// ```
    pub fn nearest(self, wanted: Effort) -> Option<Effort> {
        let above = self.iter().find(|effort| *effort >= wanted);
        above.or_else(|| self.iter().rfind(|effort| *effort < wanted && *effort != Effort::Off))
    }
}

impl FromIterator<Effort> for Efforts {
    fn from_iter<I: IntoIterator<Item = Effort>>(efforts: I) -> Self {
        Self(efforts.into_iter().fold(0, |levels, effort| levels | 1 << effort as u8))
    }
}

impl fmt::Debug for Efforts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl Serialize for Efforts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Efforts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Vec::<Effort>::deserialize(deserializer)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::Effort::*;
    use super::*;

    #[test]
    fn the_nearest_level_is_searched_upward_first() {
        for (levels, wanted, nearest) in [
            (&Effort::ALL[..], Medium, Some(Medium)),
            // Above before below, however near the one below is.
            (&[Off, Low, Max], Medium, Some(Max)),
            (&[Off, Medium, High], Minimal, Some(Medium)),
            // Nothing above.
            (&[Off, Low, High], Max, Some(High)),
            (&[Minimal], Max, Some(Minimal)),
            // What can't be switched off gets its least level.
            (&[Minimal, High], Off, Some(Minimal)),
            (&[Off, High], Off, Some(Off)),
            // Without reasoning, only the wish for none can be met.
            (&[Off], Off, Some(Off)),
            (&[Off], High, None),
            (&[], Off, None),
            (&[], High, None),
        ] {
            let model: Efforts = levels.iter().copied().collect();
            assert_eq!(model.nearest(wanted), nearest, "{wanted} of {model:?}");
        }
    }

    #[test]
    fn a_level_is_called_the_same_everywhere() {
        for effort in Effort::ALL {
            assert_eq!(effort.as_str().parse(), Ok(effort));
            assert_eq!(serde_json::to_value(effort).unwrap(), effort.as_str());
        }
        assert!("highest".parse::<Effort>().unwrap_err().to_string().contains("\"highest\""));
    }

    #[test]
    fn levels_survive_json() {
        let efforts = Efforts::from_iter([High, Off, XHigh]);
        assert_eq!(serde_json::to_string(&efforts).unwrap(), r#"["off","high","xhigh"]"#);
        assert_eq!(serde_json::from_str::<Efforts>(r#"["xhigh","off","high","off"]"#).unwrap(), efforts);
        assert!(serde_json::from_str::<Efforts>(r#"["often"]"#).is_err());
    }
}
