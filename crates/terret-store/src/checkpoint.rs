//! A checkpoint: the state after some records, in a file beside them, so that a resume need not begin at the first.
//!
//! It is bound to the link of its last record, and so to all records before that one. It proves nothing: one that is
//! missing, of another version, damaged, or of other records is ignored, and everything is read instead.

use std::io::{self, BufWriter, Write as _};

use serde::{Deserialize, Serialize};
use terret_agent::machine::State;

use crate::chain::{hex, sha256};
use crate::error::StoreError;
use crate::place::Place;
use crate::reader::Reader;

/// Goes up when the same records fold to another state, or a state is written differently.
const FORMAT: &str = concat!("2/", env!("CARGO_PKG_VERSION"));

/// The first line of the file. The state follows.
#[derive(Serialize, Deserialize)]
struct Head<'a> {
    format: &'a str,
    records: u64,
    link: &'a str,
    sha256: &'a str,
}

/// Keeps a state that these records fold to. It needs no sync: after a power failure, the sum tells what is missing.
pub(crate) fn keep(place: &Place, records: u64, state: &State) -> Result<(), StoreError> {
    let Some(last) = records.checked_sub(1) else { return Ok(()) };
    let Some(link) = Reader::open_place(place)?.link_of(last)? else { return Ok(()) };
    let state = serde_json::to_vec(state)?;
    let head = Head { format: FORMAT, records, link: &hex(&link), sha256: &sha256(&state) };
    let (path, new) = (place.checkpoint(), place.checkpoint().with_extension("new"));
    let write = || -> io::Result<()> {
        let mut file = BufWriter::new(std::fs::File::create(&new)?);
        serde_json::to_writer(&mut file, &head)?;
        file.write_all(b"\n")?;
        file.write_all(&state)?;
        file.flush()?;
        std::fs::rename(&new, &path)
    };
    write().map_err(|error| {
        let _ = std::fs::remove_file(&new);
        StoreError::io(path, error)
    })
}

/// Goes on after the records of the checkpoint, if there is one of these very records. None: nothing was skipped.
pub(crate) fn begin_at(reader: &mut Reader) -> Result<Option<State>, StoreError> {
    let Ok(file) = std::fs::read(reader.place.checkpoint()) else { return Ok(None) };
    let Some((head, body)) = memchr::memchr(b'\n', &file).and_then(|end| file.split_at_checked(end + 1)) else {
        return Ok(None);
    };
    let Ok(head) = serde_json::from_slice::<Head<'_>>(head) else { return Ok(None) };
    let is_whole = head.format == FORMAT && head.sha256 == sha256(body);
    let Some(last) = head.records.checked_sub(1).filter(|_| is_whole) else { return Ok(None) };
    if !matches!(reader.link_of(last), Ok(Some(link)) if hex(&link) == head.link) {
        return Ok(None);
    }
    let Ok(state) = serde_json::from_slice(body) else { return Ok(None) };
    reader.skip_to(head.records)?;
    Ok(Some(state))
}
