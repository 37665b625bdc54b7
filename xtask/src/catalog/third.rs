//! The third opinion: the crate `genai-prices`, asked for the cost of requests.

use std::time::{Duration, UNIX_EPOCH};

use genai_prices::{Calculator, PriceRequest, UsageKey};
use terret_llm::Usage;

use super::prices::{Rate, Told};

/// Its names for our hosts, where they differ; hosts that it doesn't know have none.
fn provider(host: &str) -> Option<&str> {
    match host {
        "xai" => Some("x-ai"),
        "moonshot" => Some("moonshotai"),
        "huggingface" | "nvidia" | "vercel" => None,
        host => Some(host),
    }
}

/// What a request costs on this day, in nano-dollars. Some hosts have other prices by night; this is at two in the
/// morning, UTC.
pub(crate) fn cost(host: &str, id: &str, usage: &Usage, date: &str) -> Option<f64> {
    let provider = provider(host)?;
    let told = genai_prices::Usage::from([
        (UsageKey::INPUT_TOKENS, (usage.input + usage.cache_read + usage.cache_write) as f64),
        (UsageKey::OUTPUT_TOKENS, usage.output as f64),
        (UsageKey::CACHE_READ_TOKENS, usage.cache_read as f64),
        (UsageKey::CACHE_WRITE_TOKENS, usage.cache_write as f64),
        (UsageKey::CACHE_WRITE_1H_TOKENS, usage.cache_write_long as f64),
    ]);
    let time = UNIX_EPOCH + Duration::from_secs(days(date)? * 86_400 + 2 * 3_600);
    let request = PriceRequest::new(id, &told).with_provider_id(provider).with_timestamp(time);
    let priced = Calculator::bundled().calculate(&request).ok()?;
    (priced.provider_id == provider).then_some(priced.total_price * 1e9)
}

/// The same as rates, with tiers where they are looked for.
pub(super) fn told(host: &str, id: &str, thresholds: impl Iterator<Item = u64>, date: &str) -> Option<Told> {
    let base = rate(host, id, 0, date)?;
    let tiers = thresholds.map(|above| Some((above, rate(host, id, above + 1, date)?))).collect::<Option<_>>()?;
    Some(Told { base, tiers })
}

/// What a thousand tokens of each kind cost in a request with so much other input.
fn rate(host: &str, id: &str, input: u64, date: &str) -> Option<Rate> {
    let with = |change: fn(&mut Usage)| {
        let mut usage = Usage::default();
        usage.input = input;
        let before = cost(host, id, &usage, date)?;
        change(&mut usage);
        Some((cost(host, id, &usage, date)? - before).round() as u64 * 1000)
    };
    let plain = with(|usage| usage.input += 1000)?;
    // What has no price of its own is priced as input.
    let own = |nanos: Option<u64>| nanos.filter(|nanos| *nanos != plain);
    Some(Rate {
        input: plain,
        output: with(|usage| usage.output += 1000)?,
        cache_read: own(with(|usage| usage.cache_read += 1000)),
        cache_write: own(with(|usage| usage.cache_write += 1000)),
        cache_write_long: None,
    })
}

/// Days since 1970-01-01 of a date `YYYY-MM-DD`.
fn days(date: &str) -> Option<u64> {
    let mut parts = date.splitn(3, '-').map(str::parse::<u64>);
    let (Some(Ok(year)), Some(Ok(month)), Some(Ok(day))) = (parts.next(), parts.next(), parts.next()) else {
        return None;
    };
    // Months are counted from March, so that the leap day is a year's last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    (year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day).checked_sub(719_469)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use terret_llm::Catalog;

    use super::*;

    /// The day on which the catalog's data was fetched.
    fn date() -> String {
        let catalog: Value =
            serde_json::from_str(include_str!("../../../crates/terret-llm/src/catalog/catalog.json")).unwrap();
        catalog["about"]["date"].as_str().unwrap().to_owned()
    }

    fn usage(input: u64, output: u64, cache_read: u64, cache_write: u64, cache_write_long: u64) -> Usage {
        let mut usage = Usage::default();
        (usage.input, usage.output) = (input, output);
        (usage.cache_read, usage.cache_write, usage.cache_write_long) = (cache_read, cache_write, cache_write_long);
        usage
    }

    #[test]
    fn requests_cost_what_an_independent_calculator_says() {
        let date = date();
        let mut compared = 0;
        for (name, facts) in Catalog::default().iter() {
            let (host, id) = (name.provider.as_str(), name.model.as_str());
            if !["anthropic", "openai", "google", "xai", "groq", "cerebras", "moonshot", "minimax"].contains(&host) {
                continue;
            }
            let Some(price) = facts.price else { continue };
            let edges = price.tiers.iter().flat_map(|tier| [tier.above_input_tokens, tier.above_input_tokens + 1]);
            let mut usages = vec![usage(1234, 567, 0, 0, 0), usage(1, 0, 89_012, 0, 0), usage(0, 3, 7, 0, 0)];
            for input in edges {
                usages.extend([usage(input, 99, 0, 0, 0), usage(input - 1000, 99, 1000, 0, 0)]);
            }
            // Only Anthropic tells how much was written, and for how long.
            if host == "anthropic" {
                usages.extend([usage(10, 20, 30, 4000, 0), usage(10, 20, 30, 4000, 1000), usage(0, 0, 0, 500, 500)]);
            }
            for usage in usages {
                let Some(expected) = cost(host, id, &usage, &date) else { continue };
                compared += 1;
                let nanos = price.cost(&usage).nanos();
                assert!((nanos as f64 - expected).abs() <= 1.0, "{name}: {nanos} instead of {expected} for {usage:?}");
            }
        }
        assert!(compared > 300, "{compared}");
    }

    #[test]
    fn days_are_counted_from_1970() {
        for (date, expected) in [
            ("1970-01-01", Some(0)),
            ("1970-03-01", Some(59)),
            ("2000-02-29", Some(11_016)),
            ("2000-03-01", Some(11_017)),
            ("2026-11-30", Some(20_787)),
            ("1969-12-31", None),
            ("tomorrow", None),
        ] {
            assert_eq!(days(date), expected, "{date}");
        }
    }
}
