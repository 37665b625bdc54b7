use std::iter::Sum;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Deserializer, Serialize};

/// Tokens of one or more model calls. No token is counted in two fields, except that `reasoning` is a part of
/// `output` and `cache_write_long` a part of `cache_write`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Usage {
    /// Input tokens that no cache served or stored.
    #[serde(deserialize_with = "count")]
    pub input: u64,
    /// Input tokens that were read from the provider's prompt cache.
    #[serde(deserialize_with = "count")]
    pub cache_read: u64,
    /// Input tokens that were written to the provider's prompt cache.
    #[serde(deserialize_with = "count")]
    pub cache_write: u64,
    /// The part of `cache_write` that was stored for the longer time (an hour, at Anthropic).
    #[serde(deserialize_with = "count", skip_serializing_if = "is_zero")]
    pub cache_write_long: u64,
    /// Output tokens, reasoning included.
    #[serde(deserialize_with = "count")]
    pub output: u64,
    /// The part of `output` that was reasoning, where the provider tells.
    #[serde(deserialize_with = "count", skip_serializing_if = "is_zero")]
    pub reasoning: u64,
}

impl Usage {
    /// All tokens: input, cache reads, cache writes, output.
    pub fn total(&self) -> u64 {
        [self.cache_read, self.cache_write, self.output].into_iter().fold(self.input, u64::saturating_add)
    }
}

impl Add for Usage {
    type Output = Usage;

    fn add(self, other: Usage) -> Usage {
        Usage {
            input: self.input.saturating_add(other.input),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
            cache_write_long: self.cache_write_long.saturating_add(other.cache_write_long),
            output: self.output.saturating_add(other.output),
            reasoning: self.reasoning.saturating_add(other.reasoning),
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        *self = *self + other;
    }
}

impl Sum for Usage {
    fn sum<I: Iterator<Item = Usage>>(usages: I) -> Usage {
        usages.fold(Usage::default(), Add::add)
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A token count as other programs may have written it: null and negative numbers are zero, fractions are cut.
fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let number = Option::<serde_json::Number>::deserialize(deserializer)?;
    Ok(number.map_or(0, |number| number.as_u64().unwrap_or_else(|| number.as_f64().unwrap_or(0.0) as u64)))
}
