//! An agent harness: everything around a language model that makes it behave like an agent.
//!
//! This crate is the one to depend on. It holds no logic; each room is a crate of its own:
//!
//! - [`llm`]: many LLM APIs behind one set of transcript types and one streaming call. Useful alone.
//! - [`agent`]: the loop above it, a pure state machine whose every transition is durable before its effect starts.
//! - [`store`]: sessions on disk, one SQLite file each.
//! - [`tools`]: tools that work with files and commands.
//!
//! Its three central types are [`agent::Agent`] (a model with tools, rules and limits), [`agent::Run`] (one prompt in
//! progress, a stream of events) and [`llm::Message`] (what the conversation is made of).
//!
//! ```
//! use terret::prelude::*;
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Add {
//!     a: i64,
//!     b: i64,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let add = tool("add", "Adds two integers.", |add: Add, _context| async move { Ok((add.a + add.b).to_string()) });
//! // A scripted model needs neither key nor network; `connect("anthropic/claude-sonnet-4-5")?` asks a real one.
//! let model = ScriptedModel::new([
//!     ScriptedReply::calls([ToolCall::new("1", "add", r#"{"a":2,"b":3}"#)]),
//!     ScriptedReply::text("2 + 3 is 5."),
//! ]);
//! let agent = Agent::builder(model).system("You are a calculator.").tool(add).build()?;
//! let mut run = agent.prompt("What is 2 + 3?");
//! while let Some(event) = run.next().await {
//!     println!("{event:?}");
//! }
//! assert_eq!(run.report().await.text.as_deref(), Some("2 + 3 is 5."));
//! # Ok(())
//! # }
//! ```

pub use terret_agent as agent;
#[cfg(feature = "testing")]
pub use terret_agent::testing;
pub use terret_llm as llm;
#[cfg(feature = "store")]
pub use terret_store as store;
#[cfg(feature = "tools")]
pub use terret_tools as tools;

/// The README's examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// And so are those of the page about testing.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../../../docs/testing.md")]
struct Testing;

/// And those of the book about the library.
#[cfg(all(doctest, feature = "testing", feature = "store"))]
#[doc = include_str!("../../../docs/library.md")]
struct Library;

/// What most programs need.
pub mod prelude {
    pub use terret_agent::machine::{Limits, Outcome};
    pub use terret_agent::{
        Agent, EffectClass, Event, Report, Run, Session, Tool, ToolContext, ToolError, ToolOutput, tool,
    };
    #[cfg(feature = "http")]
    pub use terret_llm::connect;
    pub use terret_llm::{
        Block, Content, Message, Model, ModelError, Options, Request, ScriptedModel, ScriptedReply, StreamEvent,
        ToolCall, UserMessage,
    };
}
