//! Long texts and pictures of records: cut out of the record's JSON, and kept once, in files named by their hash.

use std::borrow::Cow;
use std::fs::File;
use std::io::Write as _;
use std::ops::Range;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::chain::sha256;
use crate::error::{Damage, StoreError};
use crate::place::sync_folder;

/// A longer string is cut out of its record: 64 KiB.
const LONG: usize = 64 * 1024;
/// A shorter picture stays in its record.
const PICTURE: usize = 1024;

/// What was cut out of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Piece {
    /// Where it belongs: an offset into what was left.
    at: usize,
    /// The name of its file.
    sha256: String,
    /// The length of its file.
    bytes: u64,
    /// Whether the file holds the bytes themselves, and the record their base64. If not, it holds the string as it
    /// stands in the JSON.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    base64: bool,
}

/// Where blobs are kept.
#[derive(Clone, Copy)]
pub(crate) struct Blobs<'a> {
    pub(crate) folder: &'a Path,
    /// Where another session may have the same ones. A blob is never changed, and lives as long as some session names it:
    /// each has a name of its own for it.
    pub(crate) shared: Option<&'a Path>,
}

/// Cuts what is long out of a record, and makes it durable.
pub(crate) fn cut<'a>(body: &'a str, blobs: Blobs<'_>) -> Result<(Cow<'a, str>, Vec<Piece>), StoreError> {
    if body.len() <= PICTURE {
        return Ok((Cow::Borrowed(body), Vec::new()));
    }
    let (mut left, mut pieces, mut copied) = (String::new(), Vec::new(), 0);
    for Range { start, end } in strings(body) {
        let (Some(string), Some(before)) = (body.get(start..end), body.get(..start)) else { continue };
        let picture = string.len() >= PICTURE && before.ends_with("\"data\":\"");
        if !picture && string.len() <= LONG {
            continue;
        }
        // What decodes at all encodes to the same text: other spellings are refused.
        let bytes = if picture { STANDARD.decode(string).ok() } else { None };
        let base64 = bytes.is_some();
        if !base64 && string.len() <= LONG {
            continue;
        }
        let bytes = bytes.as_deref().unwrap_or(string.as_bytes());
        let sha256 = sha256(bytes);
        keep(&sha256, bytes, blobs)?;
        left.push_str(body.get(copied..start).unwrap_or_default());
        pieces.push(Piece { at: left.len(), sha256, bytes: bytes.len() as u64, base64 });
        copied = end;
    }
    if pieces.is_empty() {
        return Ok((Cow::Borrowed(body), pieces));
    }
    left.push_str(body.get(copied..).unwrap_or_default());
    // Also for a file that was there: whoever made it may have died before its name was durable.
    sync_folder(blobs.folder)?;
    Ok((Cow::Owned(left), pieces))
}

/// Puts the pieces back, and tells of those that can't be. In their place stands, for a text, that it is lost.
pub(crate) fn splice(left: &str, pieces: &[Piece], folder: &Path, record: u64) -> (String, Vec<Damage>) {
    let (mut body, mut damage, mut copied) = (String::new(), Vec::new(), 0);
    for piece in pieces {
        body.push_str(left.get(copied..piece.at).unwrap_or_default());
        copied = piece.at;
        let path = folder.join(&piece.sha256);
        let lost = match std::fs::read(&path) {
            Ok(bytes) if sha256(&bytes) != piece.sha256 => Damage::BlobChanged { record, path },
            Ok(bytes) if piece.base64 => {
                STANDARD.encode_string(&bytes, &mut body);
                continue;
            }
            Ok(bytes) => {
                body.push_str(&String::from_utf8_lossy(&bytes));
                continue;
            }
            Err(_) => Damage::BlobMissing { record, path, bytes: piece.bytes },
        };
        damage.push(lost);
        if !piece.base64 {
            body.push_str(&format!("[{} bytes are lost here: {}]", piece.bytes, piece.sha256));
        }
    }
    body.push_str(left.get(copied..).unwrap_or_default());
    (body, damage)
}

/// Writes a file under its final name only when it is whole and durable.
fn keep(name: &str, bytes: &[u8], Blobs { folder, shared }: Blobs<'_>) -> Result<(), StoreError> {
    let path = folder.join(name);
    let is_there = |path: &Path| path.metadata().is_ok_and(|there| there.len() == bytes.len() as u64);
    if is_there(&path) {
        return Ok(());
    }
    if !folder.is_dir() {
        std::fs::create_dir(folder).map_err(|error| StoreError::io(folder, error))?;
        sync_folder(folder.parent().unwrap_or(folder))?;
    }
    let other = shared.map(|shared| shared.join(name)).filter(|other| is_there(other));
    if other.is_some_and(|other| std::fs::hard_link(other, &path).is_ok()) {
        return Ok(());
    }
    let part = path.with_extension("part");
    let write = || {
        let mut file = File::create(&part)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&part, &path)
    };
    write().map_err(|error| {
        // Half a file is of no use to anybody, and there may be no room for it.
        let _ = std::fs::remove_file(&part);
        StoreError::io(path, error)
    })
}

/// Where the strings of a JSON text are, without their quotes.
fn strings(json: &str) -> impl Iterator<Item = Range<usize>> {
    let bytes = json.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + memchr::memchr(b'"', bytes.get(at..)?)? + 1;
        let mut end = start;
        loop {
            end += memchr::memchr2(b'"', b'\\', bytes.get(end..)?)?;
            if bytes.get(end) == Some(&b'"') {
                break;
            }
            end += 2;
        }
        at = end + 1;
        Some(start..end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alone(folder: &Path) -> Blobs<'_> {
        Blobs { folder, shared: None }
    }

    #[test]
    fn strings_are_found_with_their_escapes() {
        let json = r#"{"a":["x\"y","\\"],"":1,"b":"ü"}"#;
        let found: Vec<_> = strings(json).map(|range| &json[range]).collect();
        assert_eq!(found, ["a", r#"x\"y"#, r"\\", "", "b", "ü"]);
        assert_eq!(strings(r#"{"a":"x\""#).count(), 1, "an open string is none");
    }

    #[test]
    fn what_is_cut_out_can_be_put_back() {
        let folder = tempfile::tempdir().unwrap();
        let long = "\\n\\\"ü".repeat(LONG);
        let picture = STANDARD.encode(vec![0xfe; 5000]);
        let not_base64 = "@".repeat(PICTURE);
        let body = format!(r#"{{"a":"{long}","data":"{picture}","b":[{{"data":"{not_base64}"}},"{long}"]}}"#);
        let (left, pieces) = cut(&body, alone(&folder.path().join("blobs"))).unwrap();
        assert_eq!(left, format!(r#"{{"a":"","data":"","b":[{{"data":"{not_base64}"}},""]}}"#));
        assert_eq!(pieces.iter().map(|piece| piece.base64).collect::<Vec<_>>(), [false, true, false]);
        let files = std::fs::read_dir(folder.path().join("blobs")).unwrap().count();
        assert_eq!(files, 2, "the same text is kept once");
        let (back, damage) = splice(&left, &pieces, &folder.path().join("blobs"), 0);
        assert!(back == body && damage.is_empty());
    }

    #[test]
    fn a_picture_is_kept_as_the_file_that_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..3000u32).map(|at| at.to_le_bytes()[0]).collect();
        let body = format!(r#"{{"data":"{}"}}"#, STANDARD.encode(&bytes));
        let (_, pieces) = cut(&body, alone(folder.path())).unwrap();
        assert_eq!(std::fs::read(folder.path().join(&pieces[0].sha256)).unwrap(), bytes);
    }
}
