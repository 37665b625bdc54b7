use sha2::{Digest as _, Sha256};
use terret_agent::SessionId;

/// A checksum over a record and all records before it.
pub(crate) type Link = [u8; 32];

/// What the first record is chained to: the session, so that records of different sessions can't be exchanged.
pub(crate) fn start(session: &SessionId) -> Link {
    Sha256::new().chain_update("terret session ").chain_update(session.as_str()).finalize().into()
}

/// A record as it stands in the database.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    pub(crate) seq: u64,
    pub(crate) at: i64,
    pub(crate) kind: &'a str,
    pub(crate) body: &'a str,
    /// What was cut out of the body, as JSON; empty for nothing.
    pub(crate) pieces: &'a str,
}

/// The link of a record that follows the one with the link `previous`.
pub(crate) fn next(previous: &Link, row: Row<'_>) -> Link {
    let mut hash = Sha256::new().chain_update(previous).chain_update(row.seq.to_le_bytes());
    hash.update(row.at.to_le_bytes());
    // Each with its length, so that no byte can move from one to the next.
    for text in [row.kind, row.body, row.pieces] {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    hash.finalize().into()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}
