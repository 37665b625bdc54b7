//! The journal of terret's agents on SQLite: sessions that survive everything.
//!
//! [`SqliteJournal`] keeps each session in a folder of its own:
//!
//! ```text
//! FOLDER/SESSION/journal.db    the records; any sqlite3 reads it
//!                owner         who may append: locked as long as somebody does
//!                head          how many records were acknowledged, and their checksum
//!                checkpoint    a state to resume from, bound to the records before it; made anew when it is missing
//!                blobs/HASH    long texts and pictures, named by their SHA-256
//! FOLDER/index.db               what a list shows; made anew when it is missing
//!        search.db              which messages may hold a text; made anew when it is missing
//! ```
//!
//! - An append is a transaction that is synced before it returns, and a record is never changed afterwards.
//! - A session has one owner. One that died is replaced by whoever asks next, and so is one that was silent for longer than
//!   its [lease](SqliteJournal::lease). Its number is checked inside every append, so that one that was replaced while it
//!   was stopped can't write.
//! - Each record carries a checksum over itself and the record before it, and the head says where the chain must end.
//!   What was changed, lost or cut off behind our back is found and named; it is never repaired silently. What SQLite can't
//!   find any more is looked for in each page by itself.
//! - Readers wait for nobody, and nobody waits for them.
//!
//! ```
//! use std::sync::Arc;
//!
//! use terret_agent::{Agent, SessionId};
//! use terret_llm::{ScriptedModel, ScriptedReply};
//! use terret_store::SqliteJournal;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! let agent = Agent::builder(ScriptedModel::new([ScriptedReply::text("Hello.")])).build()?;
//! let id = SessionId::new();
//!
//! let session = agent.open(Arc::new(SqliteJournal::new(folder)), id.clone()).await?;
//! session.prompt("Hi!").report().await;
//! drop(session);
//!
//! let later = agent.open(Arc::new(SqliteJournal::new(folder)), id).await?;
//! assert_eq!(later.transcript().await.len(), 2);
//! # Ok(())
//! # }
//! ```

mod blobs;
mod catalog;
mod chain;
mod checkpoint;
mod copied;
mod database;
mod error;
mod head;
mod html;
mod index;
mod info;
mod journal;
mod lock;
mod markdown;
mod numbering;
mod owned;
mod pi;
mod pi_import;
mod place;
mod reader;
mod salvage;
mod search;
mod setup;
mod time;
mod writers;

pub use catalog::Forked;
pub use error::{Damage, StoreError};
pub use info::{Origin, SessionInfo};
pub use journal::SqliteJournal;
pub use pi_import::Imported;
pub use reader::{Kept, Reader, Reading};
pub use search::Hit;
pub use setup::{GivenRules, Setup};
