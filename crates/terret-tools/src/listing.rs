//! Results that are lists of lines, with their limits.

/// At most this much text of one result reaches the model, in bytes.
pub(crate) const MAX_BYTES: usize = 50 * 1024;

/// Lines for the model, up to a number of entries and to [`MAX_BYTES`].
#[derive(Debug)]
pub(crate) struct Listing {
    text: String,
    entries: usize,
    limit: usize,
    full: Option<Full>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    Entries,
    Bytes,
}

impl Listing {
    pub(crate) fn new(limit: usize) -> Self {
        Self { text: String::new(), entries: 0, limit, full: None }
    }

    /// Adds a line that counts as an entry. Returns whether it still fitted.
    pub(crate) fn entry(&mut self, line: &str) -> bool {
        if self.entries >= self.limit {
            self.full.get_or_insert(Full::Entries);
            return false;
        }
        let fits = self.line(line);
        self.entries += usize::from(fits);
        fits
    }

    /// Adds a line that doesn't count. Returns whether it still fitted.
    pub(crate) fn line(&mut self, line: &str) -> bool {
        if self.full.is_some() || self.text.len() + line.len() + 1 > MAX_BYTES {
            self.full.get_or_insert(Full::Bytes);
            return false;
        }
        self.text.push_str(line);
        self.text.push('\n');
        true
    }

    pub(crate) fn is_full(&self) -> bool {
        self.full.is_some()
    }

    /// How many entries were taken.
    pub(crate) fn entries(&self) -> usize {
        self.entries
    }

    /// The text, with a word about what was cut; `entries` names what the limit counts.
    pub(crate) fn finish(mut self, entries: &str, advice: &str) -> String {
        match self.full {
            None => {}
            Some(Full::Entries) => {
                self.text.push_str(&format!("\n[Only the first {} {entries} are shown. {advice}]", self.limit));
            }
            Some(Full::Bytes) => {
                let kilobytes = MAX_BYTES / 1024;
                self.text.push_str(&format!("\n[Only the first {kilobytes} KB are shown. {advice}]"));
            }
        }
        self.text.truncate(self.text.trim_end_matches('\n').len());
        self.text
    }
}
