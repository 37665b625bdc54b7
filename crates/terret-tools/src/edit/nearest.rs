use std::collections::HashSet;

/// How many lines are shown.
const SHOWN: usize = 8;

/// How much of a line is shown, in characters.
const WIDTH: usize = 200;

/// The lines of a file, numbered, that resemble a text most; none if nothing does. Linear in the file.
///
/// It is the stretch that holds most of the text's lines, indentation aside; failing that, the line that shares most
/// with the text's longest line at its beginning and its end.
pub(super) fn nearest_lines(original: &[u8], text: &str) -> Vec<(usize, String)> {
    let lines: Vec<&[u8]> = original.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).collect();
    let wanted: Vec<&[u8]> = text.lines().map(|line| line.as_bytes().trim_ascii()).collect();
    let Some(first) = best_stretch(&lines, &wanted).or_else(|| best_line(&lines, &wanted)) else { return vec![] };
    let count = wanted.len().min(SHOWN);
    original
        .split(|byte| *byte == b'\n')
        .enumerate()
        .skip(first)
        .take(count)
        .map(|(index, line)| {
            let line = String::from_utf8_lossy(line.get(..line.len().min(4 * WIDTH)).unwrap_or_default());
            (index + 1, line.trim_end().chars().take(WIDTH).collect())
        })
        .collect()
}

/// The index of the first line of the stretch, as long as the text, that holds most of its lines.
fn best_stretch(lines: &[&[u8]], wanted: &[&[u8]]) -> Option<usize> {
    /// A brace or a keyword alone is no resemblance.
    const TELLING: usize = 4;

    let known: HashSet<&[u8]> = wanted.iter().copied().filter(|line| line.len() >= TELLING).collect();
    let held: Vec<bool> = lines.iter().map(|line| known.contains(line)).collect();
    let length = wanted.len().min(lines.len());
    let mut count = held.iter().take(length).filter(|held| **held).count();
    let mut best = (count, 0);
    for (index, (leaving, entering)) in held.iter().zip(held.iter().skip(length)).enumerate() {
        count = count + usize::from(*entering) - usize::from(*leaving);
        // Of equals, one that begins with such a line is better aligned.
        let begins = held.get(index + 1) == Some(&true);
        if count > best.0 || (count == best.0 && begins) {
            best = (count, index + 1);
        }
    }
    (best.0 > 0).then_some(best.1)
}

/// The index of the line that shares most with the text's longest line, and at least half of that.
fn best_line(lines: &[&[u8]], wanted: &[&[u8]]) -> Option<usize> {
    let wanted = wanted.iter().copied().max_by_key(|line| line.len()).filter(|line| !line.is_empty())?;
    let shared = |line: &[u8]| {
        let prefix = line.iter().zip(wanted).take_while(|(a, b)| a == b).count();
        let rest = line.len().min(wanted.len()) - prefix;
        let suffix = line.iter().rev().zip(wanted.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
        prefix + suffix
    };
    let (most, index) =
        lines.iter().enumerate().map(|(index, line)| (shared(line), index)).max_by_key(|(most, _)| *most)?;
    (most * 2 >= wanted.len()).then_some(index)
}
