//! `docs/catalog.md`.

use std::fmt::Write as _;

use terret_llm::{Money, Rates};

use super::Result;
use super::list::{List, Opinions};
use super::prices::{Rate, Told};
use super::sources::Source;

pub(super) fn report(list: &List, sources: &[Source], date: &str, size: usize) -> Result<String> {
    let mut page = include_str!("page.md").to_owned();
    let out = &mut page;
    writeln!(
        out,
        "## Where it comes from\n\nFetched on {date}; {} models in {} KB.\n",
        list.models.len(),
        size / 1024
    )?;
    writeln!(out, "| role | package | version | licence | sha256 |\n|---|---|---|---|---|")?;
    for Source { role, registry, package, version, sha256, licence } in sources {
        writeln!(out, "| {role} | {registry} `{package}` | {version} | {licence} | `{sha256}` |")?;
    }
    providers(out, list)?;
    rules(out, list)?;
    differences(out, list)?;
    Ok(page)
}

fn providers(out: &mut String, list: &List) -> Result<()> {
    writeln!(out, "\n| provider | models | with a price | with tiers | that reason |\n|---|---:|---:|---:|---:|")?;
    let provider = |name: &str| name.split_once('/').map_or("", |(provider, _)| provider).to_owned();
    let mut names: Vec<String> = list.models.keys().map(|name| provider(name)).collect();
    names.dedup();
    for name in names {
        let models = || list.models.iter().filter(|(model, _)| provider(model) == name).map(|(_, facts)| facts);
        let prices = || models().filter_map(|facts| facts.price.as_ref());
        let tiers = prices().filter(|price| !price.tiers.is_empty()).count();
        let reason = models().filter(|facts| facts.efforts.is_none_or(|efforts| efforts.reasons())).count();
        writeln!(out, "| {name} | {} | {} | {tiers} | {reason} |", models().count(), prices().count())?;
    }
    Ok(())
}

fn rules(out: &mut String, list: &List) -> Result<()> {
    writeln!(out, "\n## What is not as the base has it\n")?;
    for (rule, names) in &list.applied {
        writeln!(out, "- {} {}", rule.why(), shortened(names.iter().map(|name| format!("`{name}`"))))?;
    }
    Ok(())
}

/// Few names, or how many there are.
fn shortened(names: impl ExactSizeIterator<Item = String>) -> String {
    match names.len() {
        many @ 25.. => format!("({many} models)"),
        _ => format!("({})", names.collect::<Vec<_>>().join(", ")),
    }
}

/// Models that only the third opinion prices are counted, not told: most of them are a router's, whose prices move daily.
fn differences(out: &mut String, list: &List) -> Result<()> {
    let (both, third_only): (Vec<_>, Vec<_>) = list
        .opinions
        .iter()
        .partition(|(_, opinions)| opinions.second.is_some() || opinions.second_max_input.is_some());
    let differ = |models: &[(&String, &Opinions)]| {
        models.iter().filter(|(name, opinions)| !of_model(list, name, opinions).is_empty()).count()
    };
    let priced = third_only.iter().filter(|(_, opinions)| opinions.third.is_some()).count();
    writeln!(
        out,
        "\n## Where the sources differ\n\nThe second opinion knows {} of these models; {} of them differ in at least \
         one fact, and the table tells in which. Of {priced} more that only the third one prices, {} differ. Prices are \
         dollars per million tokens; an empty cell is a source that doesn't tell. In front of the rates of a tier \
         stands its threshold.\n",
        both.len(),
        differ(&both),
        differ(&third_only),
    )?;
    writeln!(out, "| model | fact | listed | second | third |\n|---|---|---:|---:|---:|")?;
    for [model, fact, listed, second, third] in both.iter().flat_map(|(name, opinions)| of_model(list, name, opinions))
    {
        writeln!(out, "| `{model}` | {fact} | {listed} | {second} | {third} |")?;
    }
    Ok(())
}

fn of_model(list: &List, name: &str, opinions: &Opinions) -> Vec<[String; 5]> {
    let Some(facts) = list.models.get(name) else { return Vec::new() };
    let Opinions { second, second_max_input, second_max_output, third } = opinions;
    let mut rows = Vec::new();
    let mut row = |fact: String, listed: Option<String>, second: Option<String>, third: Option<String>| {
        if [&second, &third].into_iter().any(|told| told.is_some() && *told != listed) {
            let [listed, second, third] = [listed, second, third].map(Option::unwrap_or_default);
            rows.push([name.to_owned(), fact, listed, second, third]);
        }
    };
    let tokens = |tokens: Option<u32>| tokens.map(|tokens| tokens.to_string());
    // It may mean either one.
    let window = second_max_input.filter(|told| Some(*told) != facts.max_input);
    row("context window".into(), tokens(facts.context_window), tokens(window), None);
    row("most output".into(), tokens(facts.max_output), tokens(*second_max_output), None);
    let Some(price) = &facts.price else { return rows };
    let thresholds = |all: Vec<u64>| match all.is_empty() {
        true => "none".to_owned(),
        false => all.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    };
    let listed = price.tiers.iter().map(|tier| tier.above_input_tokens).collect();
    let told = second.as_ref().map(|told| thresholds(told.tiers.keys().copied().collect()));
    row("tiers".into(), Some(thresholds(listed)), told, None);
    let mut rates = |tier: &str, listed: Rates, second: Option<&Rate>, third: Option<&Rate>| {
        let mut rate = |kind: &str, listed: u64, of: fn(&Rate) -> Option<u64>| {
            let dollars = |nanos: u64| Money::from_nanos(nanos as i64).to_string();
            let told = |rate: Option<&Rate>| rate.and_then(of).map(dollars);
            row(format!("{tier}{kind}"), Some(dollars(listed)), told(second), told(third));
        };
        rate("input", listed.input, |rate| Some(rate.input));
        rate("output", listed.output, |rate| Some(rate.output));
        rate("cache read", listed.cache_read, |rate| rate.cache_read);
        rate("cache write", listed.cache_write, |rate| rate.cache_write);
        rate("long-lived write", listed.cache_write_long, |rate| rate.cache_write_long);
    };
    rates("", price.rates, second.as_ref().map(|told| &told.base), third.as_ref().map(|told| &told.base));
    for tier in &price.tiers {
        let above = tier.above_input_tokens;
        let same = |told: &'_ Option<Told>| told.as_ref().and_then(|told| told.tiers.get(&above).copied());
        rates(&format!("{above} "), tier.rates, same(second).as_ref(), same(third).as_ref());
    }
    rows
}
