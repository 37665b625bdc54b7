//! From the sources to the list.

use std::collections::{BTreeMap, BTreeSet};

use terret_llm::wire::WireFormat;
use terret_llm::{Host, ModelFacts};

use super::Result;
use super::base::{self, Cost, Model};
use super::prices::{Rate, Told, nanos};
use super::rules::{self, Rule};
use super::second::{Entry, Prices};
use super::sources::Archive;
use super::third;

/// The list, and what the page about it tells.
#[derive(Default)]
pub(super) struct List {
    /// By name, `provider/model`.
    pub(super) models: BTreeMap<String, ModelFacts>,
    /// The same facts as the other sources tell them.
    pub(super) opinions: BTreeMap<String, Opinions>,
    /// What was not taken over as it stands in the base.
    pub(super) applied: BTreeMap<Rule, BTreeSet<String>>,
}

/// What the other sources tell about a model.
pub(super) struct Opinions {
    pub(super) second: Option<Told>,
    pub(super) second_max_input: Option<u32>,
    pub(super) second_max_output: Option<u32>,
    pub(super) third: Option<Told>,
}

impl Opinions {
    fn new(host: &str, id: &str, base: &Told, entry: Option<&Entry>, date: &str) -> Self {
        let mut second = entry.and_then(|entry| entry.told.clone());
        if let Some(told) = &mut second {
            rules::lowers_thresholds(host, told);
        }
        Self {
            second,
            second_max_input: entry.and_then(|entry| entry.max_input),
            second_max_output: entry.and_then(|entry| entry.max_output),
            third: third::told(host, id, base.tiers.keys().copied(), date),
        }
    }
}

pub(super) fn list(base: &Archive, second: &Prices, date: &str) -> Result<List> {
    let mut list = List::default();
    let azure = base::models(base, "azure")?;
    let windows: BTreeMap<&str, Option<u32>> =
        azure.iter().map(|model| (model.id.as_str(), model.context_window)).collect();
    for (provider, host) in base::PROVIDERS {
        let models = base::models(base, provider)?;
        let wires: BTreeSet<&str> = models.iter().map(|model| model.api.as_str()).collect();
        for model in &models {
            let name = format!("{host}/{}", model.id);
            if rules::is_left_out(host, &model.id) {
                list.apply(Rule::LeftOut, &name);
                continue;
            }
            let mut told = told(&model.cost).map_err(|error| format!("{name}: {error}"))?;
            if rules::lowers_thresholds(host, &mut told) {
                list.apply(Rule::Inclusive, &name);
            }
            let opinions = Opinions::new(host, &model.id, &told, second.get(host, &model.id), date);
            let wire = if wires.len() > 1 { list.wire(host, &name, model)? } else { None };
            let mut facts = list.facts(host, &name, model, wire, &opinions, &windows);
            let price = list.price(host, &name, model, told, &opinions);
            facts.price =
                price.map(|price| list.reachable(&name, price, facts.context_window)).as_ref().map(Into::into);
            list.opinions.insert(name.clone(), opinions);
            if list.models.insert(name.clone(), facts).is_some() {
                return Err(format!("{name} stands twice in the base").into());
            }
        }
    }
    list.snapshots(second, date);
    Ok(list)
}

impl List {
    fn apply(&mut self, rule: Rule, name: &str) {
        self.applied.entry(rule).or_default().insert(name.to_owned());
    }

    /// The wire of a model of a host that has several, if it isn't the host's usual one.
    fn wire(&mut self, host: &str, name: &str, model: &Model) -> Result<Option<WireFormat>> {
        let wire = rules::wire(&model.api).ok_or_else(|| format!("{name}: which wire is {}?", model.api))?;
        if Host::find(host).is_some_and(|host| host.wire == wire) {
            return Ok(None);
        }
        let (rule, wire) = match rules::keeps_to_one_wire(host) {
            true => (Rule::OneWire, None),
            false => (Rule::OwnWire, Some(wire)),
        };
        self.apply(rule, name);
        Ok(wire)
    }

    fn facts(
        &mut self,
        host: &'static str,
        name: &str,
        model: &Model,
        wire: Option<WireFormat>,
        opinions: &Opinions,
        windows: &BTreeMap<&str, Option<u32>>,
    ) -> ModelFacts {
        let mut facts = ModelFacts::default();
        facts.images = Some(model.input.iter().any(|kind| kind == "image"));
        facts.max_output = model.max_tokens;
        facts.context_window = model.context_window;
        let cheap = model.cost.tiers.iter().filter_map(|tier| tier.input_tokens_above).min();
        let whole = windows.get(model.id.as_str()).copied().flatten();
        let is_cut = cheap.is_some() && cheap == model.context_window.map(u64::from);
        if is_cut && (host == "openai" || host == "opencode" && whole.is_some()) {
            self.apply(Rule::CutWindow, name);
            facts.context_window = whole;
        }
        let room = facts.context_window.zip(facts.max_output).map(|(window, output)| window - output.min(window));
        let cut = self.applied.get(&Rule::CutWindow).is_some_and(|names| names.contains(name));
        if let Some(room) = room.filter(|room| cut || opinions.second_max_input == Some(*room)) {
            self.apply(Rule::SharedWindow, name);
            facts.max_input = Some(room);
        }
        let (efforts, rule) = rules::efforts(host, model, wire.as_ref());
        facts.efforts = efforts;
        facts.wire = wire;
        if let Some(rule) = rule {
            self.apply(rule, name);
        }
        facts
    }

    fn price(&mut self, host: &str, name: &str, model: &Model, mut told: Told, opinions: &Opinions) -> Option<Told> {
        let second = opinions.second.as_ref();
        if told.is_free() {
            if name.ends_with(":free") || second.is_some_and(Told::is_free) {
                return Some(told);
            }
            self.apply(Rule::NoPrice, name);
            return None;
        }
        if rules::adds_storage(host, &model.id, &mut told) {
            self.apply(Rule::StorageOnly, name);
        }
        if let (Some(second), Some(third)) = (second, &opinions.third)
            && second.agrees(third)
            && !second.agrees(&told)
        {
            self.apply(Rule::Outvoted, name);
            told = second.clone();
        }
        let before = told.clone();
        if let Some(second) = second.filter(|second| told.agrees(second)) {
            told.complete(second);
        }
        if told != before {
            self.apply(Rule::Completed, name);
        }
        if rules::adds_long_writes(&model.id, &mut told) {
            self.apply(Rule::LongWrites, name);
        }
        Some(told)
    }

    /// The price without tiers that no request gets to.
    fn reachable(&mut self, name: &str, mut price: Told, window: Option<u32>) -> Told {
        let all = price.tiers.len();
        price.tiers.retain(|above, _| window.is_none_or(|window| *above < u64::from(window)));
        if price.tiers.len() < all {
            self.apply(Rule::Unreachable, name);
        }
        price
    }

    /// Dated names of models that are listed without a date.
    fn snapshots(&mut self, second: &Prices, date: &str) {
        for host in ["anthropic", "openai"] {
            for (id, entry) in second.of_host(host) {
                let name = format!("{host}/{id}");
                let gone = entry.ends.as_deref().is_some_and(|ends| ends <= date);
                let undated = rules::undated(id).map(|id| format!("{host}/{id}"));
                let model = undated.and_then(|undated| Some((self.models.get(&undated)?.clone(), undated)));
                let Some((facts, undated)) = model else { continue };
                if gone || !entry.takes_tools || self.models.contains_key(&name) {
                    continue;
                }
                // An undated name moves on to newer models; an older one may have cost something else.
                let listed = facts.price.as_ref().map(|price| (price.rates.input, price.rates.output));
                let told = entry.told.as_ref().map(|told| (told.base.input, told.base.output));
                if listed == told && facts.max_output == entry.max_output {
                    self.apply(Rule::Snapshot, &name);
                    self.models.insert(name, facts);
                } else {
                    self.apply(Rule::OtherSnapshot, &format!("{name} ({undated})"));
                }
            }
        }
    }
}

fn told(cost: &Cost) -> Result<Told> {
    let mut told = Told { base: rate(cost)?, tiers: BTreeMap::new() };
    for tier in &cost.tiers {
        let above = tier.input_tokens_above.ok_or("a tier without a threshold")?;
        if told.tiers.insert(above, rate(tier)?).is_some() {
            return Err("two tiers with one threshold".into());
        }
    }
    Ok(told)
}

/// The base writes zero where there is no cache, or no price for it: tokens of these kinds then cost what input costs.
fn rate(cost: &Cost) -> Result<Rate> {
    let known = |dollars| Ok::<_, Box<dyn std::error::Error>>(Some(nanos(dollars)?).filter(|nanos| *nanos > 0));
    Ok(Rate {
        input: nanos(&cost.input)?,
        output: nanos(&cost.output)?,
        cache_read: known(&cost.cache_read)?,
        cache_write: known(&cost.cache_write)?,
        cache_write_long: None,
    })
}
