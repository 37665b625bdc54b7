//! Paths that begin so.

use std::path::Path;

use crate::output::clean;
use crate::places;

/// What a path can become.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Completion {
    /// The path as far as all have it in common; with a space where it is a file.
    pub(crate) path: String,
    /// What may follow the last slash, if there are several.
    pub(crate) names: Vec<String>,
}

/// How many files of a folder are looked at.
const MOST: usize = 10_000;

/// Completes a path, seen from a folder. Hidden files have to be begun with their dot.
pub(crate) fn completed(folder: &Path, begin: &str) -> Option<Completion> {
    let (above, name) =
        begin.rsplit_once('/').map_or(("", begin), |(_, name)| begin.split_at(begin.len() - name.len()));
    let place = folder.join(places::typed(above));
    let of = |entry: std::fs::DirEntry| {
        let found = entry.file_name().into_string().ok()?;
        let hidden = found.starts_with('.') && !name.starts_with('.');
        let fits = found.starts_with(name) && !hidden && clean(&found) == found && !found.contains('\n');
        fits.then(|| found + if entry.path().is_dir() { "/" } else { "" })
    };
    let mut names: Vec<String> = std::fs::read_dir(place).ok()?.flatten().take(MOST).filter_map(of).collect();
    names.sort();
    let (first, last) = (names.first()?, names.last()?);
    // Of sorted names, what the first and the last share, all share.
    let shared: String = first.chars().zip(last.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect();
    let end = if names.len() == 1 && !shared.ends_with('/') { " " } else { "" };
    let path = format!("{above}{shared}{end}");
    if names.len() == 1 {
        names.clear();
    }
    Some(Completion { path, names })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_completed_as_far_as_it_is_clear() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("src")).unwrap();
        for file in ["src/main.rs", "src/map.rs", "README.md", ".hidden", "日本.txt"] {
            std::fs::write(folder.path().join(file), "").unwrap();
        }
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        for (begin, path, several) in [
            ("s", "src/", &[][..]),
            ("src/m", "src/ma", &["main.rs", "map.rs"]),
            ("src/mai", "src/main.rs ", &[]),
            ("R", "README.md ", &[]),
            (".h", ".hidden ", &[]),
            ("日", "日本.txt ", &[]),
        ] {
            let completion = Completion { path: path.into(), names: names(several) };
            assert_eq!(completed(folder.path(), begin), Some(completion), "{begin}");
        }
        assert_eq!(completed(folder.path(), "nothing"), None);
        assert_eq!(completed(folder.path(), "none/x"), None);
    }
}
