//! What a source tells about a price, in nano-dollars per million tokens.

use std::collections::BTreeMap;

use serde_json::{Number, json};
use terret_llm::{Price, Rates, Tier};

use super::Result;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Told {
    pub(super) base: Rate,
    /// By threshold.
    pub(super) tiers: BTreeMap<u64, Rate>,
}

/// What isn't told is `None`, not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rate {
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) cache_read: Option<u64>,
    pub(super) cache_write: Option<u64>,
    pub(super) cache_write_long: Option<u64>,
}

impl Told {
    pub(super) fn is_free(&self) -> bool {
        self.base.input == 0 && self.base.output == 0
    }

    /// Whether the other one tells the same about plain input and output.
    pub(super) fn agrees(&self, other: &Told) -> bool {
        (self.base.input, self.base.output) == (other.base.input, other.base.output)
    }

    /// Adds what only the other one knows.
    pub(super) fn complete(&mut self, other: &Told) {
        self.base.complete(&other.base);
        for (above, rate) in &mut self.tiers {
            if let Some(other) = other.tiers.get(above) {
                rate.complete(other);
            }
        }
    }

    pub(super) fn rates(&mut self) -> impl Iterator<Item = &mut Rate> {
        std::iter::once(&mut self.base).chain(self.tiers.values_mut())
    }
}

impl Rate {
    fn complete(&mut self, other: &Rate) {
        self.cache_read = self.cache_read.or(other.cache_read);
        self.cache_write = self.cache_write.or(other.cache_write);
        self.cache_write_long = self.cache_write_long.or(other.cache_write_long);
    }
}

impl From<&Told> for Price {
    fn from(told: &Told) -> Self {
        let tier = |(above, rate): (&u64, &Rate)| Tier { above_input_tokens: *above, rates: (*rate).into() };
        Price::flat(told.base.into()).with_tiers(told.tiers.iter().map(tier).collect())
    }
}

impl From<Rate> for Rates {
    fn from(rate: Rate) -> Self {
        let cache_write = rate.cache_write.unwrap_or(rate.input);
        Rates {
            input: rate.input,
            output: rate.output,
            cache_read: rate.cache_read.unwrap_or(rate.input),
            cache_write,
            cache_write_long: rate.cache_write_long.unwrap_or(cache_write),
        }
    }
}

/// Dollars as the library reads them: an amount that would have to be rounded is an error.
pub(super) fn nanos(dollars: &Number) -> Result<u64> {
    let price: Price = serde_json::from_value(json!({"input": dollars, "output": 0}))?;
    Ok(price.rates.input)
}
