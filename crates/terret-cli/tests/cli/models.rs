//! `terret models`, and files that change what is known of them.

use serde_json::{Value, json};

use crate::command_line::complains;
use crate::server::{Answer, Server};
use crate::terret::Terret;

fn models(args: &[&str]) -> Terret {
    Terret::new().args(["models"]).args(args)
}

fn parsed(terret: Terret) -> Vec<Value> {
    serde_json::from_str(&terret.run().exits(0).stdout).unwrap()
}

#[test]
fn it_searches_by_all_words_and_tells_limits_and_prices() {
    let terret = || models(&["--json", "OPENAI/", "gpt-4.1", "mini"]);
    // From OpenAI's pages on its models.
    let expected = |id: &str, usable: bool| {
        json!({"id": id, "usable": usable, "contextWindow": 1_047_576, "maxOutput": 32_768, "images": true,
               "efforts": ["off"], "price": {"input": 0.4, "output": 1.6, "cacheRead": 0.1}})
    };
    let openai = |terret: Terret| -> Vec<Value> {
        parsed(terret).into_iter().filter(|model| model["id"].as_str().unwrap().starts_with("openai/")).collect()
    };
    let ids = ["openai/gpt-4.1-mini", "openai/gpt-4.1-mini-2025-04-14"];
    assert_eq!(openai(terret()), ids.map(|id| expected(id, false)));
    assert_eq!(openai(terret().env("OPENAI_API_KEY", "k")), ids.map(|id| expected(id, true)));

    let shown = models(&["openai/gpt-4.1-mini-2025"]).env("OPENAI_API_KEY", "k").run().exits(0).stdout;
    let expected = "  MODEL                           CONTEXT   OUTPUT     $IN/M    $OUT/M  EFFORTS\n\
                    * openai/gpt-4.1-mini-2025-04-14    1.05M      32k      0.40      1.60  off\n";
    assert!(shown.starts_with(expected), "{shown}");
    let none = models(&["no-such-model"]).run().exits(0);
    assert_eq!(none.stdout, "");
    assert!(none.stderr.contains("can be asked all the same"), "{}", none.stderr);
}

#[test]
fn without_words_it_lists_what_can_be_asked() {
    let of = |terret: Terret| -> Vec<String> {
        let providers = parsed(terret).into_iter().map(|model| {
            assert_eq!(model["usable"], true, "{model}");
            model["id"].as_str().unwrap().split_once('/').unwrap().0.to_owned()
        });
        let mut providers: Vec<String> = providers.collect();
        providers.dedup();
        providers
    };
    assert_eq!(of(models(&["--json"])), [""; 0]);
    let keys = || models(&["--json"]).env("XAI_API_KEY", "k").env("DEEPSEEK_API_KEY", "k");
    assert_eq!(of(keys()), ["deepseek", "xai"]);
    // A key is not enough where each customer has an address.
    assert_eq!(of(models(&["--json"]).env("AZURE_OPENAI_API_KEY", "k")), [""; 0]);
    let azure = models(&["--json"]).env("AZURE_OPENAI_API_KEY", "k").env("AZURE_OPENAI_ENDPOINT", "https://me.example");
    assert_eq!(of(azure), ["azure"]);
    let config = "[providers.xai]\napi-key = '!touch ran'\n";
    let ran = models(&["--json"]).config(config).run().exits(0);
    assert!(ran.stdout.contains("xai/") && !ran.path("ran").exists());

    let nothing = models(&[]).run().exits(0);
    assert!(
        nothing.stderr.contains("no model can be asked yet") && nothing.stderr.contains("--all"),
        "{}",
        nothing.stderr
    );
    assert!(parsed(models(&["--all", "--json"])).len() > 1000);
}

#[test]
fn servers_on_this_machine_are_asked_what_they_have() {
    let tags = json!({"models": [{"name": "qwen3:8b"}]}).to_string();
    let server = Server::answering([Answer::new("200 OK", "application/json", tags)]);
    let listed = parsed(models(&["--json"]).env("OLLAMA_HOST", &server.url));
    assert_eq!(listed, [json!({"id": "ollama/qwen3:8b", "usable": true})]);
    assert_eq!(parsed(models(&["--json", "qwen3:8b", "gemma"]).env("OLLAMA_HOST", &server.url)), Vec::<Value>::new());
}

#[test]
fn files_change_what_is_known() {
    let mine = r#"{"models": {"custom/mine": {"contextWindow": 8192, "price": {"input": 1, "output": 2}}}}"#;
    let ours = r#"{"models": {"custom/mine": {"contextWindow": 4096}, "custom/ours": {}}}"#;
    let terret = |args: &[&str]| Terret::new().args(args).home_file(".config/terret/models.json", mine);
    let price = json!({"input": 1, "output": 2});
    let mine = |window: u32| json!({"id": "custom/mine", "usable": false, "contextWindow": window, "price": price});
    assert_eq!(parsed(terret(&["models", "custom/", "--json"])), [mine(8192)]);

    let ran = terret(&["models", "custom/", "--json"]).file(".terret/models.json", ours).run().exits(0);
    assert!(ran.stderr.contains(".terret/models.json, which nobody has trusted yet"), "{}", ran.stderr);
    assert!(!ran.stdout.contains("4096"), "{}", ran.stdout);
    ran.then().args(["trust", "--yes"]).run().exits(0);
    let both = parsed(ran.then().args(["models", "custom/", "--json"]));
    assert_eq!(both, [mine(4096), json!({"id": "custom/ours", "usable": false})]);

    // A price that is known can be limited.
    let run = terret(&["-p", "x", "-m", "custom/mine", "--base-url", "http://127.0.0.1:9", "--max-cost", "1"]);
    run.run().exits(7);
    let unknown =
        || Terret::new().args(["-p", "x", "-m", "custom/m", "--base-url", "http://127.0.0.1:9", "--max-cost", "1"]);
    complains(unknown, 2, "usage", &["--max-cost"]);

    for (damaged, part) in [
        ("{", "models.json: "),
        (r#"{"models": {"custom/m": {"window": 1}}}"#, "unknown field `window`"),
        (r#"{"models": {"m": {}}}"#, "models.json: m: "),
        ("\u{feff}{}", "models.json: "),
    ] {
        let run = || Terret::new().args(["-p", "x", "-m", "custom/m"]).home_file(".config/terret/models.json", damaged);
        complains(run, 4, "configuration", &[part]);
    }
}

#[test]
fn providers_are_asked_for_the_models_that_are_not_known_yet() {
    let list = json!({"data": [
        {"id": "new/model", "context_length": 64_000, "pricing": {"prompt": "0.000001", "completion": "0.000002"},
         "top_provider": {"max_completion_tokens": 8000}},
        {"id": "openai/gpt-5", "context_length": 1, "pricing": {"prompt": "1", "completion": "1"}},
    ]});
    let answer = || Answer::new("200 OK", "application/json", list.to_string());
    let refused = || Answer::new("401 Unauthorized", "application/json", r#"{"error":{"message":"no"}}"#);
    let (router, xai) = (Server::answering([answer()]), Server::answering([refused()]));
    let with_keys = |terret: Terret| {
        terret
            .env("OPENROUTER_API_KEY", "k")
            .env("OPENROUTER_BASE_URL", &router.url)
            .env("XAI_API_KEY", "k")
            .env("XAI_BASE_URL", &xai.url)
    };
    // One that refuses doesn't keep the others from being asked.
    let ran = with_keys(models(&["update"])).run().exits(3);
    assert!(ran.stderr.contains("asking openrouter, xai …"), "{}", ran.stderr);
    assert!(ran.stderr.contains("openrouter: 2 models, 1 of them new"), "{}", ran.stderr);
    assert!(ran.stderr.contains("terret: xai: authentication failed"), "{}", ran.stderr);
    assert!(ran.stdout.contains("openrouter/new/model"), "{}", ran.stdout);
    assert!(router.requests()[0].head.contains("authorization: bearer k"));

    // It is known from now on, and what was known before stays.
    let known = |terret: Terret, name: &str| parsed(with_keys(terret).args(["models", "--json", name])).remove(0);
    let new = json!({"id": "openrouter/new/model", "usable": true, "contextWindow": 64_000, "maxOutput": 8000,
                     "price": {"input": 1, "output": 2}});
    assert_eq!(known(ran.then(), "openrouter/new/model"), new);
    assert_ne!(known(ran.then(), "openrouter/openai/gpt-5")["contextWindow"], 1);
    let mine = ran.then().home_file(".config/terret/models.json", r#"{"models": {"openrouter/new/model": null}}"#);
    assert_eq!(parsed(mine.args(["models", "--json", "openrouter/new/model"])), [] as [Value; 0]);

    // A file that can't be used is said, and is no reason not to go on.
    let broken = ran.then().home_file(".cache/terret/listed-models.json", "{\"models\": ").args(["models", "-a"]);
    let broken = broken.run().exits(0);
    assert!(broken.stderr.contains("(terret models update writes it anew)"), "{}", broken.stderr);
    models(&["update"]).run().exits(3);
    models(&["update", "nobody"]).run().exits(2);
}
