//! Defines a tool, runs an agent and prints its events: `cargo run -p terret --example add -- PROVIDER/MODEL`.

#![allow(clippy::print_stdout, reason = "an example")]

use terret::prelude::*;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Add {
    a: i64,
    b: i64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let add = tool("add", "Adds two integers.", |add: Add, _| async move { Ok((add.a + add.b).to_string()) });
    let model = connect(&std::env::args().nth(1).unwrap_or("anthropic/claude-sonnet-4-5".into()))?;
    let agent = Agent::builder(model).tool(add).build()?;
    let mut run = agent.prompt("What is 1234 + 4321?");
    while let Some(event) = run.next().await {
        println!("{event:?}");
    }
    println!("{:?}", run.report().await.text);
    Ok(())
}
