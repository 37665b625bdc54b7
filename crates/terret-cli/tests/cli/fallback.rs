//! Models to go on with when one fails.

use crate::command_line::complains;
use crate::server::{Answer, Server};
use crate::servers::chat_text;
use crate::terret::Terret;

#[test]
fn the_next_model_goes_on_where_one_fails() {
    let gone = Server::answering([Answer::new("404 Not Found", "application/json", "{}")]);
    let good = Server::answering([chat_text("Hi.")]);
    let run = || {
        let terret = Terret::new().args(["-p", "Hi!", "-m", "openai/m"]).env("OPENAI_API_KEY", "k");
        let terret = terret.env("GROQ_API_KEY", "k").env("OPENAI_BASE_URL", &gone.url);
        terret.env("GROQ_BASE_URL", &good.url)
    };
    for (n, fallback) in [
        run().args(["--fallback-model", "groq/a,groq/b"]),
        run().config("fallback-model = ['groq/a', 'groq/b']\n"),
        run().env("TERRET_FALLBACK_MODEL", "groq/a, groq/b"),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(fallback.run().exits(0).stdout, "Hi.\n");
        assert_eq!(good.requests()[n].body["model"], "a");
    }
    run().config("fallback-model = []\n").run().exits(7);
}

#[test]
fn one_that_can_not_be_asked_is_named_before_the_run() {
    let run = |fallback: &'static str| {
        move || Terret::scripted([serde_json::json!({"text": "x"})]).args(["--fallback-model", fallback])
    };
    complains(run("groq/m"), 3, "auth", &["--fallback-model: there is no key for groq"]);
    complains(run("m"), 2, "usage", &["--fallback-model: ", "provider/model"]);
    let with_effort = || run("groq/m:high")().env("GROQ_API_KEY", "k");
    complains(with_effort, 2, "usage", &["--fallback-model: groq/m:high: leave out :high"]);
    let priced = || run("groq/m")().env("GROQ_API_KEY", "k").args(["--max-cost", "1"]);
    complains(priced, 2, "usage", &["--max-cost: the price of "]);
}
