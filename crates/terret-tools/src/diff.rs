use std::time::Duration;

use similar::TextDiff;

/// Larger files aren't compared, in bytes.
const COMPARED: usize = 1024 * 1024;

/// A longer diff is cut, in bytes.
const SHOWN: usize = 64 * 1024;

/// What changed, as a unified diff, for people. `None` if the file is too large for it.
pub(crate) fn unified(path: &str, old: &[u8], new: &[u8]) -> Option<String> {
    if old.len().max(new.len()) > COMPARED {
        return None;
    }
    let (old, new) = (String::from_utf8_lossy(old), String::from_utf8_lossy(new));
    let diff = TextDiff::configure().timeout(Duration::from_millis(200)).diff_lines(&*old, &*new);
    let mut text = diff.unified_diff().context_radius(3).header(path, path).to_string();
    if text.len() > SHOWN {
        let end = (0..=SHOWN).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        text.push_str("\n[The diff goes on.]\n");
    }
    Some(text)
}
