//! What the tokens of a model cost.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::money::Money;
use crate::transcript::Usage;

/// What the tokens of a model cost.
///
/// In JSON, rates are dollars per million tokens, as vendors publish them:
/// `{"input":3,"output":15,"cacheRead":0.3,"cacheWrite":3.75,"cacheWriteLong":6,"tiers":[{"above":200000,"input":6,…}]}`.
/// A rate has at most nine decimals, so that nothing is rounded. Where `cacheRead` or `cacheWrite` is missing, these
/// tokens cost what input costs, and long-lived writes cost what other writes cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
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

    /// The same with rates for requests with long inputs, in any order.
    #[must_use]
    pub fn with_tiers(mut self, mut tiers: Vec<Tier>) -> Self {
        tiers.sort_by_key(|tier| tier.above_input_tokens);
        self.tiers = tiers;
        self
    }

    /// What one model call costs, rounded to the nearest nano-dollar once, at the end.
    ///
    /// The highest tier whose threshold the input exceeds prices the whole request, output included. That is how
    /// Anthropic, OpenAI, Google and xAI bill long prompts.
    pub fn cost(&self, usage: &Usage) -> Money {
        let input = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
        let tier = self.tiers.iter().rfind(|tier| input > tier.above_input_tokens);
        let rates = tier.map_or(self.rates, |tier| tier.rates);
        let short_writes = usage.cache_write.saturating_sub(usage.cache_write_long);
        let long_writes = usage.cache_write - short_writes;
        let millionths = [
            (usage.input, rates.input),
            (usage.output, rates.output),
            (usage.cache_read, rates.cache_read),
            (short_writes, rates.cache_write),
            (long_writes, rates.cache_write_long),
        ]
        .into_iter()
        .fold(0_u128, |sum, (tokens, rate)| sum.saturating_add(u128::from(tokens) * u128::from(rate)));
        Money::from_nanos(i64::try_from(millionths.saturating_add(500_000) / 1_000_000).unwrap_or(i64::MAX))
    }
}

/// A price or one of its tiers, as it stands in JSON.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    #[serde(skip_serializing_if = "Option::is_none")]
    above: Option<u64>,
    input: Dollars,
    output: Dollars,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_read: Option<Dollars>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_write: Option<Dollars>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_write_long: Option<Dollars>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tiers: Vec<Written>,
}

impl Written {
    fn rates(&self) -> Rates {
        let or = |dollars: &Option<Dollars>, nanos: u64| dollars.as_ref().map_or(nanos, |dollars| dollars.0);
        let input = self.input.0;
        let cache_write = or(&self.cache_write, input);
        Rates {
            input,
            output: self.output.0,
            cache_read: or(&self.cache_read, input),
            cache_write,
            cache_write_long: or(&self.cache_write_long, cache_write),
        }
    }

    fn new(above: Option<u64>, rates: Rates) -> Self {
        let unless = |nanos: u64, usual: u64| Some(Dollars(nanos)).filter(|_| nanos != usual);
        Self {
            above,
            input: Dollars(rates.input),
            output: Dollars(rates.output),
            cache_read: unless(rates.cache_read, rates.input),
            cache_write: unless(rates.cache_write, rates.input),
            cache_write_long: unless(rates.cache_write_long, rates.cache_write),
            tiers: Vec::new(),
        }
    }
}

impl TryFrom<Written> for Price {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        if written.above.is_some() {
            return Err("`above` belongs in a tier");
        }
        let mut tiers: Vec<Tier> = Vec::with_capacity(written.tiers.len());
        for tier in &written.tiers {
            let above_input_tokens = tier.above.ok_or("a tier needs `above`, its threshold in input tokens")?;
            if !tier.tiers.is_empty() {
                return Err("a tier has no tiers");
            }
            if tiers.last().is_some_and(|last| last.above_input_tokens >= above_input_tokens) {
                return Err("tiers stand in rising order of `above`");
            }
            tiers.push(Tier { above_input_tokens, rates: tier.rates() });
        }
        Ok(Self { rates: written.rates(), tiers })
    }
}

impl From<Price> for Written {
    fn from(price: Price) -> Self {
        let tiers = price.tiers.iter().map(|tier| Written::new(Some(tier.above_input_tokens), tier.rates)).collect();
        Self { tiers, ..Written::new(None, price.rates) }
    }
}

/// An amount in nano-dollars that is written in dollars.
struct Dollars(u64);

const NANOS: u64 = 1_000_000_000;

impl Serialize for Dollars {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 % NANOS {
            0 => serializer.serialize_u64(self.0 / NANOS),
            // Exact for the reader: a decimal number of up to fifteen digits is the shortest text of its float.
            _ => serializer.serialize_f64(self.0 as f64 / NANOS as f64),
        }
    }
}

impl<'de> Deserialize<'de> for Dollars {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let dollars = f64::deserialize(deserializer)?;
        nanos(&dollars.to_string()).map(Dollars).ok_or_else(|| {
            de::Error::custom(format_args!("{dollars} is no amount in dollars with at most nine decimals"))
        })
    }
}

/// Reads a decimal number such as `0.25`, without an exponent and without rounding.
fn nanos(dollars: &str) -> Option<u64> {
    let (whole, decimals) = dollars.split_once('.').unwrap_or((dollars, ""));
    let decimals = format!("{decimals:0<9}");
    if decimals.len() > 9 {
        return None;
    }
    whole.parse::<u64>().ok()?.checked_mul(NANOS)?.checked_add(decimals.parse().ok()?)
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
        let tier = |above_input_tokens, times| Tier {
            above_input_tokens,
            rates: Rates { input: times * SONNET.input, output: times * SONNET.output, ..SONNET },
        };
        let price = Price::flat(SONNET).with_tiers(vec![tier(2000, 3), tier(1000, 2)]);
        let cost = |usage: Usage| price.cost(&Usage { output: 10, ..usage }).nanos();
        let input = |input| Usage { input, ..Usage::default() };
        assert_eq!(cost(input(1000)), 3_000_000 + 150_000);
        assert_eq!(cost(input(1001)), 6_006_000 + 300_000);
        assert_eq!(cost(input(2000)), 12_000_000 + 300_000);
        assert_eq!(cost(input(2001)), 18_009_000 + 450_000);
        // What the cache served and stored counts towards the threshold.
        let cached = Usage { input: 1, cache_read: 600, cache_write: 400, ..Usage::default() };
        assert_eq!(cost(cached), 6_000 + 600 * 300 + 400 * 3_750 + 300_000);
    }

    #[test]
    fn costs_are_rounded_once_and_never_overflow() {
        let price = |rates| Price::flat(rates);
        let usage = |input, output| Usage { input, output, ..Usage::default() };
        // 0.4 and 0.4 nano-dollars make one, not none.
        let tiny = Rates { input: 400_000, output: 400_000, ..Rates::default() };
        assert_eq!(price(tiny).cost(&usage(1, 1)).nanos(), 1);
        assert_eq!(price(tiny).cost(&usage(1, 0)).nanos(), 0);
        let vast = Rates { input: u64::MAX, output: u64::MAX, ..Rates::default() };
        assert_eq!(price(vast).cost(&usage(u64::MAX, u64::MAX)).nanos(), i64::MAX);
    }

    #[test]
    fn rates_are_read_and_written_in_dollars_without_rounding() {
        let text = r#"{"input":3,"output":15,"cacheRead":0.3,"cacheWrite":3.75,"cacheWriteLong":6}"#;
        assert_eq!(serde_json::from_str::<Price>(text).unwrap(), Price::flat(SONNET));
        assert_eq!(serde_json::to_string(&Price::flat(SONNET)).unwrap(), text);
        for (dollars, nanos) in [
            ("0", 0),
            ("0.1", 100_000_000),
            ("0.083333", 83_333_000),
            ("0.000000001", 1),
            ("1e-3", 1_000_000),
            ("999999.999999999", 999_999_999_999_999),
        ] {
            let price: Price = serde_json::from_str(&format!(r#"{{"input":{dollars},"output":1}}"#)).unwrap();
            assert_eq!(price.rates.input, nanos, "{dollars}");
            let written = serde_json::to_string(&price).unwrap();
            assert_eq!(serde_json::from_str::<Price>(&written).unwrap(), price, "{written}");
        }
        for dollars in ["-1", "0.0000000001", "0.30000000000000004", "1e300", "\"3\"", "null"] {
            let read = serde_json::from_str::<Price>(&format!(r#"{{"input":{dollars},"output":1}}"#));
            assert!(read.is_err(), "{dollars}");
        }
    }

    #[test]
    fn a_kind_of_token_without_a_rate_costs_what_it_is_a_kind_of() {
        let rates = |text| serde_json::from_str::<Price>(text).unwrap().rates;
        let plain = rates(r#"{"input":2,"output":8}"#);
        assert_eq!([plain.cache_read, plain.cache_write, plain.cache_write_long], [2_000_000_000; 3]);
        let writes = rates(r#"{"input":2,"output":8,"cacheWrite":2.5}"#);
        assert_eq!(writes.cache_write_long, 2_500_000_000);
    }

    #[test]
    fn tiers_stand_in_order_with_their_thresholds() {
        let price = |tiers| serde_json::from_str::<Price>(&format!(r#"{{"input":1,"output":1,"tiers":{tiers}}}"#));
        let tier = |above| format!(r#"{{"above":{above},"input":2,"output":2}}"#);
        let good = price(format!("[{},{}]", tier(10), tier(20))).unwrap();
        assert_eq!(good.tiers.iter().map(|tier| tier.above_input_tokens).collect::<Vec<_>>(), [10, 20]);
        for (tiers, complaint) in [
            (format!("[{},{}]", tier(20), tier(10)), "rising"),
            (format!("[{},{}]", tier(10), tier(10)), "rising"),
            (r#"[{"input":1,"output":1}]"#.to_owned(), "threshold"),
        ] {
            assert!(price(tiers).unwrap_err().to_string().contains(complaint), "{complaint}");
        }
    }
}
