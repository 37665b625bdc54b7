//! The program from outside: what it prints, what it exits with, and what it leaves behind.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod command_line;
mod corpus;
mod crash;
mod demo;
mod output;
mod recorded;
mod resume;
mod runs;
#[cfg(target_os = "linux")]
mod sandbox;
mod schema;
mod server;
mod servers;
mod sessions;
mod signals;
mod terminal;
mod terret;
mod wire;
