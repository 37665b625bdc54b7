//! The program from outside: what it prints, what it exits with, and what it leaves behind.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod auth;
mod cassette;
mod chat;
mod command_line;
mod config;
mod context;
mod corpus;
mod crash;
mod default_model;
mod demo;
mod docs;
mod fallback;
mod generated;
mod help;
mod models;
mod output;
mod output_schema;
mod permissions;
mod prompt;
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
mod skills;
mod terminal;
mod terret;
mod trust;
mod wire;
