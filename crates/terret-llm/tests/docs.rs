//! The pages in `docs/` that say what the code is, against the code.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::path::PathBuf;

use terret_llm::{
    AuthScheme, CallIdRule, Compat, Host, Options, SchemaSupport, StopReason, ThinkingSwitch, Usage, hosts,
};

fn page(name: &str) -> (PathBuf, String) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    (path, text)
}

/// `UPDATE=1 cargo test -p terret-llm --test docs` writes it anew.
#[test]
fn the_page_of_hosts_has_every_host_as_it_is() {
    const BEGIN: &str = "<!-- the table is written by a test -->\n";
    let (path, text) = page("hosts.md");
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (old, after) = rest.split_once("<!-- end -->\n").unwrap();
    let table = table();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, format!("{before}{BEGIN}{table}<!-- end -->\n{after}")).unwrap();
    } else {
        assert_eq!(old, table, "docs/hosts.md is not up to date; UPDATE=1 writes it");
    }
}

fn table() -> String {
    let head = "| name | wire | address | key | quirks |\n|---|---|---|---|---|\n".to_owned();
    head + &hosts().iter().map(row).collect::<String>()
}

fn row(host: &Host) -> String {
    let names: Vec<String> = host.names().map(code).collect();
    let mut wires = vec![code(host.wire.as_str())];
    wires.extend(host.imitated_by.iter().map(|other| format!("elsewhere {}", code(other.as_str()))));
    wires.extend(host.other_wires.iter().map(|other| {
        let key = match other.scheme {
            None => String::new(),
            Some(AuthScheme::Bearer) => ", key as bearer".to_owned(),
            Some(AuthScheme::Header(header)) => format!(", key in {}", code(header)),
            Some(scheme) => panic!("say what {scheme:?} is"),
        };
        format!("{} at {}{key}", code(other.wire.as_str()), code(other.base_url))
    }));
    let wires = wires.join("; ");
    let mut address = vec![host.base_url.map_or("each customer's own".to_owned(), code)];
    address.extend(host.base_url_variables.iter().map(|name| code(name)));
    address.extend(host.path.map(|path| format!("path {}", code(path))));
    let key = |(name, scheme): &(&str, AuthScheme)| match scheme {
        AuthScheme::Bearer => code(name),
        AuthScheme::Header(header) => format!("{} in {}", code(name), code(header)),
        other => panic!("say what {other:?} is"),
    };
    let keys: Vec<String> = host.keys.iter().map(key).collect();
    let keys = format!("{}{}", keys.join(", "), if host.local { ", or none" } else { "" });
    let mut quirks = quirks(&host.compat, &Compat::default());
    for (prefix, compat) in &host.model_compat {
        let special = self::quirks(compat, &host.compat).join(", ");
        quirks.push(format!("models {}: {special}", code(&format!("{prefix}…"))));
    }
    format!("| {} | {wires} | {} | {keys} | {} |\n", names.join(", "), address.join(", "), quirks.join("; "))
}

/// What a host differs in from another one, in words. A new field needs words, too.
fn quirks(compat: &Compat, from: &Compat) -> Vec<String> {
    let mut plain = compat.clone();
    let mut quirks = Vec::new();
    macro_rules! say {
        ($($field:ident: $words:expr,)*) => {$(
            if compat.$field != from.$field {
                quirks.push($words.to_string());
            }
            plain.$field = Compat::default().$field;
        )*};
    }
    let either = |yes: bool, words: &str| if yes { words.to_owned() } else { format!("no {words}") };
    say! {
        max_completion_tokens: either(compat.max_completion_tokens, "`max_completion_tokens`"),
        developer_role: either(compat.developer_role, "role `developer`"),
        stream_usage: either(compat.stream_usage, "`stream_options`"),
        prompt_cache_key: either(compat.prompt_cache_key, "`prompt_cache_key`"),
        prompt_cache_retention: either(compat.prompt_cache_retention, "`prompt_cache_retention`"),
        affinity_header: format!("cache key in the header {}", code(compat.affinity_header.unwrap_or("none"))),
        cache_control: either(compat.cache_control, "Anthropic's cache marks"),
        cache_marks: either(compat.cache_marks, "cache marks"),
        reasoning_effort: either(compat.reasoning_effort, "`reasoning_effort`"),
        thinking_switch: match compat.thinking_switch {
            None => "no switch for reasoning".to_owned(),
            Some(ThinkingSwitch::Thinking) => "reasoning is switched by `thinking`".to_owned(),
            Some(ThinkingSwitch::EnableThinking) => "reasoning is switched by `enable_thinking`".to_owned(),
            Some(ThinkingSwitch::ChatTemplate) => "reasoning is switched by `chat_template_kwargs`".to_owned(),
            Some(ThinkingSwitch::Reasoning) => "reasoning is asked for in `reasoning`".to_owned(),
            Some(other) => panic!("say what {other:?} is"),
        },
        reasoning_field: format!("reasoning goes back in {}", code(compat.reasoning_field.unwrap_or("none"))),
        reasoning_field_always: "which stands in every reply, if need be empty",
        null_content: either(compat.null_content, "null as content"),
        tool_result_name: "tool results carry the tool's name",
        reply_after_tool_result: "a reply stands between tool results and the user",
        tools_with_history: "`tools` also if there are none",
        top_k: either(compat.top_k, "`top_k`"),
        seed_field: format!("the seed is {}", code(compat.seed_field)),
        output_schema: match compat.output_schema {
            SchemaSupport::None => "no output schema",
            SchemaSupport::Plain => "output schema without `strict`",
            SchemaSupport::Strict => "strict output schema",
            other => panic!("say what {other:?} is"),
        },
        encrypted_reasoning: either(compat.encrypted_reasoning, "encrypted reasoning"),
        call_id: match compat.call_id {
            CallIdRule::AtMost(most) => format!("call ids of at most {most}"),
            CallIdRule::Exactly(length) => format!("call ids of exactly {length}"),
            other => panic!("say what {other:?} is"),
        },
    }
    assert_eq!(plain, Compat::default(), "a field has no words here");
    quirks
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

#[test]
fn the_page_of_wires_says_of_each_wire_what_becomes_of_every_option_count_and_reason() {
    let (_, text) = page("wires.md");
    let mut sections = text.split("\n## ").skip(1);
    for wire in ["anthropic-messages", "openai-completions", "openai-responses", "google-generative-ai"] {
        let section = sections.next().unwrap();
        assert!(section.starts_with(&code(wire)), "{wire} has no section in its place");
        for option in fields(&Options::default()) {
            assert!(section.contains(&format!("\n| `{option}` |")), "{wire} says nothing of {option}");
        }
        for count in fields(&Usage::default()) {
            // The long-lived part of what is written stands with the whole.
            let count = count.trim_end_matches("_long");
            assert!(section.contains(&format!("\n| `{count}` |")), "{wire} says nothing of {count}");
        }
        for reason in [StopReason::Stop, StopReason::ToolUse, StopReason::Length, StopReason::Refusal] {
            let reason = serde_json::to_value(reason).unwrap();
            let reason = reason.as_str().unwrap();
            let begins = section.contains(&format!("\n| {reason}"));
            assert!(begins || section.contains(&format!(", {reason} |")), "{wire} says nothing of {reason}");
        }
    }
    let errors = sections.next().unwrap();
    assert!(errors.starts_with("Errors"));
}

/// The names of a type's fields.
fn fields(value: &impl std::fmt::Debug) -> Vec<String> {
    let lines = format!("{value:#?}");
    let fields = lines.lines().filter_map(|line| line.strip_prefix("    ")?.split_once(':'));
    fields.map(|(name, _)| name.to_owned()).filter(|name| !name.starts_with(' ')).collect()
}
