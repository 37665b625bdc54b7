//! Money, in integers.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

use crate::transcript::Usage;

/// An amount in nano-dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Money(i64);

impl Money {
    /// Nothing.
    pub const ZERO: Money = Money(0);

    /// An amount of nano-dollars.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// The amount in nano-dollars.
    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// The amount in dollars, for output that wants a number.
    pub fn dollars(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add for Money {
    type Output = Money;

    fn add(self, other: Money) -> Money {
        Money(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Money {
    fn add_assign(&mut self, other: Money) {
        *self = *self + other;
    }
}

impl Sum for Money {
    fn sum<I: Iterator<Item = Money>>(amounts: I) -> Money {
        amounts.fold(Money::ZERO, Add::add)
    }
}

/// Dollars, with as many decimals as the amount has and at least two.
impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:09}", self.0.unsigned_abs() % 1_000_000_000);
        let decimals = digits.trim_end_matches('0');
        let sign = if self.0 < 0 { "-" } else { "" };
        write!(f, "{sign}${}.{decimals:0<2}", self.0.unsigned_abs() / 1_000_000_000)
    }
}

/// What the tokens of a model cost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Price {
    /// The rates of an ordinary request.
    pub rates: Rates,
    /// Other rates for requests with long inputs, in rising order of their thresholds.
    pub tiers: Vec<Tier>,
}

/// Rates in nano-dollars per million tokens: $3 per million is `3_000_000_000`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Input that no cache served or stored.
    pub input: u64,
    /// Output, reasoning included.
    pub output: u64,
    /// Input that the prompt cache served.
    pub cache_read: u64,
    /// Input that was stored in the prompt cache.
    pub cache_write: u64,
    /// Input that was stored there for the long time.
    pub cache_write_long: u64,
}

/// Rates that price a whole request whose input is longer than the threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    /// The threshold in input tokens: not cached, cached and stored together.
    pub above_input_tokens: u64,
    /// The rates above it.
    pub rates: Rates,
}

impl Price {
    /// A price without tiers.
    pub fn flat(rates: Rates) -> Self {
        Self { rates, tiers: Vec::new() }
    }

    /// What one model call costs, rounded to the nearest nano-dollar once, at the end.
    pub fn cost(&self, usage: &Usage) -> Money {
        let input = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
        let tier = self.tiers.iter().rfind(|tier| input > tier.above_input_tokens);
        let rates = tier.map_or(self.rates, |tier| tier.rates);
        let short_writes = usage.cache_write.saturating_sub(usage.cache_write_long);
        let long_writes = usage.cache_write - short_writes;
        let millionths: u128 = [
            (usage.input, rates.input),
            (usage.output, rates.output),
            (usage.cache_read, rates.cache_read),
            (short_writes, rates.cache_write),
            (long_writes, rates.cache_write_long),
        ]
        .into_iter()
        .map(|(tokens, rate)| u128::from(tokens) * u128::from(rate))
        .sum();
        Money(i64::try_from((millionths + 500_000) / 1_000_000).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SONNET: Rates = Rates {
        input: 3_000_000_000,
        output: 15_000_000_000,
        cache_read: 300_000_000,
        cache_write: 3_750_000_000,
        cache_write_long: 6_000_000_000,
    };

    #[test]
    fn cost_counts_each_kind_of_token_at_its_rate() {
        let usage = Usage {
            input: 1000,
            output: 500,
            cache_read: 2000,
            cache_write: 400,
            cache_write_long: 100,
            ..Usage::default()
        };
        // 0.003 + 0.0075 + 0.0006 + 0.001125 + 0.0006
        assert_eq!(Price::flat(SONNET).cost(&usage).to_string(), "$0.012825");
    }

    #[test]
    fn the_highest_tier_that_is_exceeded_prices_everything() {
        let double = Rates { input: 6_000_000_000, ..SONNET };
        let price = Price { rates: SONNET, tiers: vec![Tier { above_input_tokens: 1000, rates: double }] };
        let cost = |input| price.cost(&Usage { input, ..Usage::default() }).nanos();
        assert_eq!(cost(1000), 3_000_000);
        assert_eq!(cost(1001), 6_006_000);
    }

    #[test]
    fn amounts_print_as_dollars() {
        for (nanos, text) in
            [(0, "$0.00"), (5, "$0.000000005"), (-1_500_000_000, "-$1.50"), (12_345_000_000, "$12.345")]
        {
            assert_eq!(Money::from_nanos(nanos).to_string(), text);
        }
    }
}
