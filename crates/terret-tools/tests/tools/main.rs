//! The tools as an agent calls them: arguments in JSON, checked against the schema, in a project of its own.

// What clippy.toml allows in tests, it doesn't allow in what they share.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod bash;
mod edit;
mod find;
mod grep;
mod ls;
mod paths;
mod project;
mod read;
#[cfg(target_os = "linux")]
mod sandbox;
mod toolset;
mod write;
