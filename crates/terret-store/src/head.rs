//! The head: how many records were acknowledged, and the link of the last one, in a file beside the database.
//!
//! SQLite drops everything after a damaged frame of its write-ahead log without a word, and so the database alone can't
//! tell that it was shortened. The head is written after each commit and before its acknowledgement, but not synced: it
//! survives the process, and after a power failure it may lag behind. So it says what must at least be there.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::path::Path;

use crate::chain::{Link, hex, sha256};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) records: u64,
    pub(crate) link: Link,
}

impl Head {
    /// The head in a file; none if there is no file. The inner error is a file that makes no sense.
    pub(crate) fn read(path: &Path) -> io::Result<Option<Result<Self, Torn>>> {
        match std::fs::read_to_string(path) {
            // It was made, and its first head not yet written.
            Ok(text) if text.is_empty() => Ok(None),
            Ok(text) => Ok(Some(Self::parse(&text).ok_or(Torn))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(Some(Err(Torn))),
            Err(error) => Err(error),
        }
    }

    /// Replaces the head in a file. One write of always the same length.
    pub(crate) fn write(self, file: &mut File) -> io::Result<()> {
        let line = format!("{:020} {}", self.records, hex(&self.link));
        file.rewind()?;
        file.write_all(format!("{line} {}\n", check(&line)).as_bytes())
    }

    fn parse(text: &str) -> Option<Self> {
        let (line, checked) = text.strip_suffix('\n')?.rsplit_once(' ')?;
        if check(line) != checked {
            return None;
        }
        let (records, link) = line.split_once(' ')?;
        let byte = |at: usize| u8::from_str_radix(link.get(at..at + 2)?, 16).ok();
        let bytes: Option<Vec<u8>> = (0..link.len()).step_by(2).map(byte).collect();
        Some(Self { records: records.parse().ok()?, link: bytes?.try_into().ok()? })
    }
}

/// A head that was half written, or changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Torn;

fn check(line: &str) -> String {
    let mut sum = sha256(line.as_bytes());
    sum.truncate(8);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_comes_back_and_a_changed_one_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("head");
        assert_eq!(Head::read(&path).unwrap(), None);
        let mut file = File::create(&path).unwrap();
        for records in [7, 12_345_678_901] {
            let head = Head { records, link: [0xab; 32] };
            head.write(&mut file).unwrap();
            assert_eq!(Head::read(&path).unwrap(), Some(Ok(head)));
        }
        let whole = std::fs::read(&path).unwrap();
        for at in 1..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            std::fs::write(&path, flipped).unwrap();
            assert_eq!(Head::read(&path).unwrap(), Some(Err(Torn)), "byte {at}");
            std::fs::write(&path, &whole[..at]).unwrap();
            assert_eq!(Head::read(&path).unwrap(), Some(Err(Torn)), "cut at {at}");
        }
    }
}
