//! What the catalog knows, how files change it, and what becomes of it in a model that can be asked.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::HashMap;

use serde_json::Value;
use terret_llm::Effort::{High, Low, Max, Medium, Minimal, Off, XHigh};
use terret_llm::wire::{EncodeError, WireFormat};
use terret_llm::{
    Catalog, Effort, Efforts, Host, Message, ModelFacts, ModelSpec, Options, Overrides, Request, Resolved, Usage,
    UserMessage, resolve,
};

fn known(name: &str) -> ModelFacts {
    let (provider, model) = name.split_once('/').unwrap();
    Catalog::default().get(provider, model).unwrap_or_else(|| panic!("{name} is not listed"))
}

/// The model at its host's own address, with any key.
fn asked(name: &str, overrides: &Overrides) -> Resolved {
    let env = |variable: &str| match variable {
        "AZURE_OPENAI_ENDPOINT" => Some("https://me.openai.azure.com".into()),
        _ => (variable.ends_with("_KEY") || variable.ends_with("_TOKEN")).then(|| "k".into()),
    };
    resolve(&name.parse().unwrap(), overrides, env).unwrap()
}

fn at_home(name: &str) -> ModelSpec {
    asked(name, &Overrides::default()).spec
}

#[test]
fn prices_are_those_that_the_vendors_publish() {
    // Dollars for a million tokens of input, output, cache reads, cache writes and long-lived writes; from Anthropic's
    // "Pricing", OpenAI's pages of the models, "Gemini Developer API pricing", DeepSeek's and xAI's lists.
    for (model, published) in [
        ("anthropic/claude-haiku-4-5", ["1", "5", "0.1", "1.25", "2"]),
        ("anthropic/claude-sonnet-4-5", ["3", "15", "0.3", "3.75", "6"]),
        ("anthropic/claude-opus-4-5", ["5", "25", "0.5", "6.25", "10"]),
        ("anthropic/claude-sonnet-5-5", ["2", "10", "0.1", "2.5", "4"]),
        ("openai/gpt-4o", ["2.5", "10", "1.25", "2.5", "2.5"]),
        ("openai/gpt-4o-mini", ["0.15", "0.6", "0.075", "0.15", "0.15"]),
        ("openai/gpt-5", ["1.25", "10", "0.125", "1.25", "1.25"]),
        ("openai/gpt-5.4", ["2.5", "15", "0.25", "2.5", "2.5"]),
        ("openai/o3", ["2", "8", "0.5", "2", "2"]),
        ("google/gemini-2.5-pro", ["1.25", "10", "0.125", "1.25", "1.25"]),
        ("google/gemini-2.5-flash", ["0.3", "2.5", "0.03", "0.3", "0.3"]),
    ] {
        let kinds: [fn(&mut Usage); 5] = [
            |usage| usage.input = 1,
            |usage| usage.output = 1,
            |usage| usage.cache_read = 1,
            |usage| usage.cache_write = 1,
            |usage| (usage.cache_write, usage.cache_write_long) = (1, 1),
        ];
        let price = known(model).price.unwrap();
        for (kind, dollars) in kinds.into_iter().zip(published) {
            let mut usage = Usage::default();
            kind(&mut usage);
            // A thousand tokens stay below every tier.
            let thousand = [usage; 1000].into_iter().sum();
            let nanos = (dollars.parse::<f64>().unwrap() * 1e9).round() as i64;
            assert_eq!(price.cost(&thousand).nanos() * 1000, nanos, "{model}: {dollars} for {usage:?}");
        }
    }
}

#[test]
fn long_prompts_cost_what_the_vendors_publish() {
    let usage = |input, output| {
        let mut usage = Usage::default();
        (usage.input, usage.output) = (input, output);
        usage
    };
    for (model, usage, dollars) in [
        // ">272K input tokens are priced at 2x input and 1.5x output" (OpenAI's page of GPT-5.4)
        ("openai/gpt-5.4", usage(272_000, 1000), 0.68 + 0.015),
        ("openai/gpt-5.4", usage(272_001, 1000), 1.360_005 + 0.0225),
        // $2.50 and $15 for prompts of more than 200k tokens (Gemini Developer API pricing)
        ("google/gemini-2.5-pro", usage(200_000, 1000), 0.25 + 0.01),
        ("google/gemini-2.5-pro", usage(200_001, 1000), 0.500_002_5 + 0.015),
        // Five times the price above 100,000 tokens (Anthropic's "Long context pricing")
        ("anthropic/claude-haiku-5-5", usage(100_000, 1000), 0.01 + 0.000_5),
        ("anthropic/claude-haiku-5-5", usage(100_001, 1000), 0.050_000_5 + 0.002_5),
    ] {
        let cost = known(model).price.unwrap().cost(&usage);
        assert_eq!(cost.nanos(), f64::round(dollars * 1e9) as i64, "{model}: {usage:?}");
    }
}

#[test]
fn limits_are_those_that_the_vendors_publish() {
    for (model, window, input, output) in [
        ("openai/gpt-5", 400_000, Some(272_000), 128_000),
        ("openai/gpt-5-2025-08-07", 400_000, Some(272_000), 128_000),
        ("openai/gpt-5.4", 1_050_000, Some(922_000), 128_000),
        ("openai/gpt-4o", 128_000, None, 16_384),
        ("anthropic/claude-haiku-4-5", 200_000, None, 64_000),
        ("anthropic/claude-sonnet-5-5", 1_000_000, None, 128_000),
        ("google/gemini-2.5-pro", 1_048_576, None, 65_536),
    ] {
        let ModelFacts { context_window, max_input, max_output, images, .. } = known(model);
        assert_eq!((context_window, max_input, max_output), (Some(window), input, Some(output)), "{model}");
        assert_eq!(images, Some(true), "{model}");
    }
    assert_eq!(known("openai/o3-mini").images, Some(false));
}

#[test]
fn every_model_is_a_hosts_and_makes_sense() {
    let catalog = Catalog::default();
    let mut count = 0;
    for (name, facts) in catalog.iter() {
        count += 1;
        assert!(Host::find(&name.provider).is_some_and(|host| host.id == name.provider), "{name}");
        let window = facts.context_window.unwrap();
        assert!(facts.max_output.is_some_and(|output| 0 < output && output <= window), "{name}");
        assert!(facts.max_input.is_none_or(|input| 0 < input && input < window), "{name}");
        let Some(price) = facts.price else { continue };
        let rates = std::iter::once(&price.rates).chain(price.tiers.iter().map(|tier| &tier.rates));
        for rates in rates.clone() {
            // No vendor takes more than $1,000 for a million tokens, and none less for writing to a cache than for
            // reading from it.
            assert!(rates.input.max(rates.output).max(rates.cache_write_long) <= 1_000_000_000_000, "{name}");
            assert!(rates.cache_read <= rates.cache_write.max(rates.input + rates.input / 10), "{name}");
        }
        assert!(rates.clone().zip(rates.skip(1)).all(|(low, high)| low.input <= high.input), "{name}");
        let thresholds: Vec<u64> = price.tiers.iter().map(|tier| tier.above_input_tokens).collect();
        assert!(thresholds.is_sorted_by(|low, high| low < high), "{name}");
        assert!(thresholds.iter().all(|threshold| *threshold < u64::from(window)), "{name}");
    }
    assert!(count > 500, "{count}");
}

#[test]
fn a_resolved_model_has_what_the_catalog_knows() {
    let Resolved { spec, listed, .. } = asked("gemini/gemini-2.5-pro", &Overrides::default());
    let facts = known("google/gemini-2.5-pro");
    assert!(listed);
    assert_eq!((spec.context_window, spec.max_output), (facts.context_window, facts.max_output));
    assert_eq!((spec.efforts, spec.price), (facts.efforts, facts.price));
    assert!(!at_home("openai/o3-mini").images);
}

#[test]
fn an_unknown_model_of_a_known_host_can_be_asked() {
    let Resolved { spec, listed, .. } = asked("openai/gpt-99:high", &Overrides::default());
    assert!(!listed);
    let mut plain = ModelSpec::new("openai", "gpt-99", WireFormat::OpenaiResponses);
    plain.compat = Host::find("openai").unwrap().compat.clone();
    assert_eq!(spec, plain);
}

#[test]
fn a_list_price_holds_at_the_hosts_own_address_only() {
    let with = |base_url: &str, file: &str| Overrides {
        base_url: Some(base_url.into()),
        catalog: Catalog::default().with_changes("models.json", &format!(r#"{{"models":{{{file}}}}}"#)).unwrap(),
        ..Overrides::default()
    };
    for (model, overrides, priced) in [
        ("openai/gpt-5", with("https://api.openai.com/v1/", ""), true),
        ("openai/gpt-5", with("https://gateway.example", ""), false),
        ("openai/gpt-5", with("https://gateway.example", r#""openai/gpt-5":{"maxOutput":1}"#), false),
        ("openai/gpt-5", with("https://gateway.example", r#""openai/gpt-5":{"price":{"input":1,"output":2}}"#), true),
        ("azure/gpt-5", with("https://me.openai.azure.com", ""), false),
        ("azure/mine", with("https://me.openai.azure.com", r#""azure/mine":{"like":"openai/gpt-5"}"#), true),
    ] {
        let spec = asked(model, &overrides).spec;
        assert_eq!(spec.price.is_some(), priced, "{model} {overrides:?}");
        assert_eq!(spec.context_window, Some(400_000), "{model} {overrides:?}");
    }
}

#[test]
fn files_add_change_and_remove() {
    let user = r#"{"models": {
        "openai/gpt-5": {"maxOutput": 1000, "price": null},
        "openai/mine": {"contextWindow": 5000, "efforts": ["low"], "price": {"input": 1, "output": 2}},
        "gemini/gemini-2.5-pro": null,
        "azure/deployed": {"like": "openai/gpt-5", "images": false}
    }}"#;
    let project = r#"{"models": {
        "openai/mine": {"contextWindow": 6000},
        "openai/gpt-5-mini": {"like": "openai/gpt-5"}
    }}"#;
    let catalog = Catalog::default().with_changes("user", user).unwrap().with_changes("project", project).unwrap();
    let plain = known("openai/gpt-5");

    let gpt_5 = catalog.get("openai", "gpt-5").unwrap();
    assert_eq!((gpt_5.max_output, &gpt_5.price), (Some(1000), &None));
    assert_eq!((gpt_5.context_window, gpt_5.efforts), (plain.context_window, plain.efforts));

    let mine = catalog.get("openai", "mine").unwrap();
    assert_eq!((mine.context_window, mine.efforts), (Some(6000), Some(Efforts::from_iter([Low]))));
    assert_eq!(mine.price.unwrap().rates.output, 2_000_000_000);

    assert_eq!(catalog.get("google", "gemini-2.5-pro"), None);
    // `like` means the model as it was before the file.
    let deployed = catalog.get("azure", "deployed").unwrap();
    assert_eq!((deployed.max_output, deployed.images), (plain.max_output, Some(false)));
    assert_eq!(catalog.get("openai", "gpt-5-mini").unwrap(), gpt_5);

    let names: Vec<String> = catalog.iter().map(|(name, _)| name.to_string()).collect();
    assert!(names.is_sorted());
    assert!(names.contains(&"azure/deployed".into()) && !names.contains(&"google/gemini-2.5-pro".into()));
    assert_eq!(names.len(), Catalog::default().iter().count() + 2 - 1);
}

#[test]
fn a_wire_that_a_file_gives_is_spoken() {
    let file = r#"{"models": {"custom/m": {"wire": "anthropic-messages"}}}"#;
    let mut overrides = Overrides {
        base_url: Some("http://127.0.0.1:1".into()),
        catalog: Catalog::default().with_changes("models.json", file).unwrap(),
        ..Overrides::default()
    };
    assert_eq!(asked("custom/m", &overrides).spec.wire, WireFormat::AnthropicMessages);
    overrides.wire = Some(WireFormat::OpenaiResponses);
    assert_eq!(asked("custom/m", &overrides).spec.wire, WireFormat::OpenaiResponses);
}

#[test]
fn what_is_wrong_in_a_file_is_named() {
    for (text, complaints) in [
        ("{", &["line 1"][..]),
        (r#"{"modells": {}}"#, &["modells", "line 1"]),
        (r#"{"models": {"openai/m": 5}}"#, &["line 1"]),
        (r#"{"models": {"gpt-5": {}}}"#, &["gpt-5", "provider/model"]),
        (r#"{"models": {"opnai/gpt-5": {}}}"#, &["opnai/gpt-5", "no provider"]),
        (r#"{"models": {"openai/m": {"window": 5}}}"#, &["openai/m", "window", "contextWindow"]),
        (r#"{"models": {"openai/m": {"contextWindow": 0}}}"#, &["openai/m", "contextWindow", "0"]),
        (r#"{"models": {"openai/m": {"contextWindow": -1}}}"#, &["openai/m", "-1"]),
        (r#"{"models": {"openai/m": {"contextWindow": 9, "maxOutput": 10}}}"#, &["openai/m", "maxOutput", "10", "9"]),
        (r#"{"models": {"openai/m": {"efforts": ["more"]}}}"#, &["openai/m", "more", "xhigh"]),
        (r#"{"models": {"openai/m": {"wire": "soap"}}}"#, &["openai/m", "soap"]),
        (r#"{"models": {"openai/m": {"price": {"input": 1}}}}"#, &["openai/m", "output"]),
        (r#"{"models": {"openai/m": {"price": {"input": 1, "output": -1}}}}"#, &["openai/m", "-1"]),
        (r#"{"models": {"openai/m": {"like": "openai/unheard-of"}}}"#, &["openai/m", "openai/unheard-of"]),
        (r#"{"models": {"openai/m": {"like": 5}}}"#, &["openai/m", "5"]),
        (r#"{"models": {"openai/m": {}, "openai/m": {}}}"#, &["openai/m", "twice"]),
        (r#"{"models": {"google/m": {}, "gemini/m": null}}"#, &["gemini/m", "twice"]),
    ] {
        let error = Catalog::default().with_changes("models.json", text).unwrap_err().to_string();
        assert!(error.starts_with("models.json: "), "{error}");
        assert!(complaints.iter().all(|complaint| error.contains(complaint)), "{text}: {error}");
    }
    let missing = Catalog::default().with_file("no/such/models.json".as_ref()).unwrap_err().to_string();
    assert!(missing.starts_with("no/such/models.json: "), "{missing}");
}

#[test]
fn models_are_found_by_words() {
    let catalog = Catalog::default();
    let found: Vec<String> = catalog.search("SONNET anthropic/ 4-5").map(|(name, _)| name.to_string()).collect();
    assert_eq!(found, ["anthropic/claude-sonnet-4-5", "anthropic/claude-sonnet-4-5-20250929"]);
    assert_eq!(catalog.search("no such model").count(), 0);
}

/// What a model is sent for an effort.
fn body(spec: &ModelSpec, effort: Option<Effort>) -> Result<Value, EncodeError> {
    let messages = [Message::from(UserMessage::text("Hi.", 0))].into_iter().collect();
    let mut options = Options::default();
    options.effort = effort;
    let request = Request { messages, options, ..Request::default() };
    let encoded = spec.wire.wire().unwrap().encode(spec, &request)?;
    Ok(serde_json::from_slice(&encoded.body.to_bytes()).unwrap())
}

#[test]
fn levels_are_those_that_the_vendors_document() {
    for (model, levels) in [
        // OpenAI's pages of the models
        ("openai/gpt-5", &[Minimal, Low, Medium, High][..]),
        ("openai/gpt-5.4", &[Off, Low, Medium, High, XHigh]),
        ("openai/gpt-4o", &[Off]),
        // Anthropic's "Effort"; a budget takes any number
        ("anthropic/claude-opus-4-6", &[Off, Low, Medium, High, Max]),
        ("anthropic/claude-opus-5-5", &[Low, Medium, High, XHigh, Max]),
        ("anthropic/claude-sonnet-5-5", &[Off, Low, Medium, High, XHigh, Max]),
        ("anthropic/claude-sonnet-4-5", &[Off, Minimal, Low, Medium, High, XHigh]),
        // Google's "Thinking": a budget for 2.5, which Pro can't have at 0
        ("google/gemini-2.5-pro", &[Minimal, Low, Medium, High]),
        ("google/gemini-2.5-flash", &[Off, Minimal, Low, Medium, High]),
        ("google/gemini-3.1-pro-preview", &[Low, Medium, High]),
    ] {
        assert_eq!(at_home(model).efforts, Some(levels.iter().copied().collect()), "{model}");
    }
}

#[test]
fn the_effective_effort_is_what_is_sent() {
    for (model, wanted, effective, field, sent) in [
        ("openai/gpt-5", Off, Minimal, "/reasoning/effort", "minimal"),
        ("openai/gpt-5", Max, High, "/reasoning/effort", "high"),
        ("openai/gpt-5.4", Minimal, Low, "/reasoning/effort", "low"),
        ("openai/gpt-5.4", Off, Off, "/reasoning/effort", "none"),
        ("anthropic/claude-opus-4-6", XHigh, Max, "/output_config/effort", "max"),
        ("anthropic/claude-opus-5-5", Off, Low, "/output_config/effort", "low"),
        ("google/gemini-3.1-pro-preview", Max, High, "/generationConfig/thinkingConfig/thinkingLevel", "HIGH"),
        ("google/gemini-4-neon", Max, XHigh, "/generationConfig/thinkingConfig/thinkingLevel", "XHIGH"),
        ("deepseek/deepseek-v4-pro", Low, High, "/reasoning_effort", "high"),
        ("deepseek/deepseek-v4-pro", Off, Off, "/thinking/type", "disabled"),
        ("openrouter/openai/gpt-5", XHigh, High, "/reasoning/effort", "high"),
    ] {
        let spec = at_home(model);
        assert_eq!(spec.effective_effort(wanted), Some(effective), "{model}: {wanted}");
        let body = body(&spec, Some(wanted)).unwrap();
        assert_eq!(body.pointer(field).and_then(Value::as_str), Some(sent), "{model}: {wanted}: {body}");
    }
}

#[test]
fn no_two_levels_of_a_model_are_sent_alike() {
    for (name, _) in Catalog::default().iter() {
        let name = name.to_string();
        let spec = at_home(&name);
        let mut sent: HashMap<String, Effort> = HashMap::new();
        for wanted in Effort::ALL {
            let effective = spec.effective_effort(wanted);
            let Ok(body) = body(&spec, Some(wanted)) else {
                assert_eq!(effective, None, "{name}: {wanted}");
                continue;
            };
            assert_eq!(Ok(&body), self::body(&spec, effective).as_ref(), "{name}: {wanted}");
            let same = sent.insert(body.to_string(), effective.unwrap());
            assert!(same.is_none_or(|same| Some(same) == effective), "{name}: {same:?} and {effective:?}");
        }
    }
}

#[test]
fn a_model_without_reasoning_is_not_asked_for_it() {
    let spec = at_home("openai/gpt-4o");
    let refused = body(&spec, Some(High)).unwrap_err().to_string();
    assert!(refused.contains("effort") && refused.contains("can't reason"), "{refused}");
    let plain = body(&spec, None).unwrap();
    assert_eq!(body(&spec, Some(Off)).unwrap(), plain);
    // OpenAI refuses to be asked for encrypted reasoning that there isn't.
    assert_eq!(plain.get("include"), None);
    assert!(body(&at_home("openai/gpt-5"), None).unwrap().get("include").is_some());
    let uncontrolled = at_home("nvidia/nvidia/nemotron-3-ultra-550b-a55b");
    assert!(Effort::ALL.into_iter().all(|effort| body(&uncontrolled, Some(effort)).is_err()));
}
