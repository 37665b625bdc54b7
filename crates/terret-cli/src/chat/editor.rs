//! The text that somebody is typing, which may have several lines.

use unicode_segmentation::UnicodeSegmentation as _;

use super::look::columns;
use crate::output::clean;

/// A text with a cursor in it, always between two characters as people see them.
#[derive(Default)]
pub(crate) struct Editor {
    text: String,
    /// In bytes.
    at: usize,
    killed: String,
}

/// The rows of a text, and where its cursor stands: the row and the column.
pub(crate) struct Laid {
    pub(crate) rows: Vec<String>,
    pub(crate) cursor: (usize, usize),
}

impl Editor {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Another text in place of this one, with the cursor at its end.
    pub(crate) fn set(&mut self, text: &str) {
        self.text = typed(text);
        self.at = self.text.len();
    }

    pub(crate) fn take(&mut self) -> String {
        self.at = 0;
        std::mem::take(&mut self.text)
    }

    /// Puts a text before what is there, on lines of its own.
    pub(crate) fn put_before(&mut self, text: &str) {
        let text = typed(text);
        let text = if self.text.is_empty() { text } else { text + "\n" };
        self.text.insert_str(0, &text);
        self.at += text.len();
    }

    /// What is typed or pasted, without what could steer a terminal.
    pub(crate) fn insert(&mut self, text: &str) {
        let text = typed(text);
        self.text.insert_str(self.at, &text);
        self.at += text.len();
    }

    /// The word before the cursor, up to it.
    pub(crate) fn word(&self) -> &str {
        let before = self.text.get(..self.at).unwrap_or_default();
        before.rsplit(char::is_whitespace).next().unwrap_or_default()
    }

    /// Another word in place of that one.
    pub(crate) fn replace_word(&mut self, word: &str) {
        let from = self.at - self.word().len();
        self.text.replace_range(from..self.at, "");
        self.at = from;
        self.insert(word);
    }

    pub(crate) fn left(&mut self) {
        self.at = self.before(self.at);
    }

    pub(crate) fn right(&mut self) {
        self.at = self.after(self.at);
    }

    pub(crate) fn word_left(&mut self) {
        self.at = self.word_before();
    }

    pub(crate) fn word_right(&mut self) {
        self.at = self.word_after();
    }

    /// To the begin of the line.
    pub(crate) fn home(&mut self) {
        self.at = self.line_start();
    }

    /// To the end of the line.
    pub(crate) fn end(&mut self) {
        self.at = self.line_end();
    }

    pub(crate) fn backspace(&mut self) {
        let from = self.before(self.at);
        self.text.replace_range(from..self.at, "");
        self.at = from;
    }

    pub(crate) fn delete(&mut self) {
        let to = self.after(self.at);
        self.text.replace_range(self.at..to, "");
    }

    pub(crate) fn kill_word(&mut self) {
        self.kill(self.word_before(), self.at);
    }

    pub(crate) fn kill_word_after(&mut self) {
        self.kill(self.at, self.word_after());
    }

    pub(crate) fn kill_to_start(&mut self) {
        self.kill(self.line_start(), self.at);
    }

    pub(crate) fn kill_to_end(&mut self) {
        // At the end of a line, its break.
        let end = if self.line_end() == self.at { self.after(self.at) } else { self.line_end() };
        self.kill(self.at, end);
    }

    /// Puts in again what was killed last.
    pub(crate) fn yank(&mut self) {
        let killed = self.killed.clone();
        self.insert(&killed);
    }

    /// A line up. False on the first one.
    pub(crate) fn up(&mut self) -> bool {
        let start = self.line_start();
        if start == 0 {
            return false;
        }
        let column = columns(self.text.get(start..self.at).unwrap_or_default());
        self.at = start - 1;
        self.at = self.line_start();
        self.go_to_column(column);
        true
    }

    /// A line down. False on the last one.
    pub(crate) fn down(&mut self) -> bool {
        let end = self.line_end();
        if end == self.text.len() {
            return false;
        }
        let column = columns(self.text.get(self.line_start()..self.at).unwrap_or_default());
        self.at = end + 1;
        self.go_to_column(column);
        true
    }

    /// The text in rows of at most so many columns.
    pub(crate) fn lay_out(&self, width: usize) -> Laid {
        let (mut rows, mut row, mut column) = (Vec::new(), String::new(), 0);
        let mut cursor = (0, 0);
        for (at, grapheme) in self.text.grapheme_indices(true) {
            let shown = if grapheme == "\t" { "    " } else { grapheme };
            let wide = if grapheme == "\n" { 0 } else { columns(shown) };
            if column + wide > width {
                rows.push(std::mem::take(&mut row));
                column = 0;
            }
            if at == self.at {
                cursor = (rows.len(), column);
            }
            if grapheme == "\n" {
                rows.push(std::mem::take(&mut row));
                column = 0;
            } else {
                row.push_str(shown);
                column += wide;
            }
        }
        if self.at == self.text.len() {
            if column >= width {
                rows.push(std::mem::take(&mut row));
                column = 0;
            }
            cursor = (rows.len(), column);
        }
        rows.push(row);
        Laid { rows, cursor }
    }

    fn kill(&mut self, from: usize, to: usize) {
        if let Some(killed) = self.text.get(from..to).filter(|killed| !killed.is_empty()) {
            self.killed = killed.to_owned();
            self.text.replace_range(from..to, "");
            self.at = from;
        }
    }

    fn before(&self, at: usize) -> usize {
        let before = self.text.get(..at).unwrap_or_default();
        before.grapheme_indices(true).next_back().map_or(0, |(at, _)| at)
    }

    fn after(&self, at: usize) -> usize {
        let after = self.text.get(at..).unwrap_or_default();
        at + after.graphemes(true).next().map_or(0, str::len)
    }

    fn word_before(&self) -> usize {
        let before = self.text.get(..self.at).unwrap_or_default().trim_end();
        before.rfind(char::is_whitespace).map_or(0, |at| self.after(at))
    }

    fn word_after(&self) -> usize {
        let after = self.text.get(self.at..).unwrap_or_default();
        let spaces = after.len() - after.trim_start().len();
        let word = after.trim_start().find(char::is_whitespace).unwrap_or(after.trim_start().len());
        self.at + spaces + word
    }

    fn line_start(&self) -> usize {
        self.text.get(..self.at).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1)
    }

    fn line_end(&self) -> usize {
        self.text.get(self.at..).and_then(|after| after.find('\n')).map_or(self.text.len(), |at| self.at + at)
    }

    fn go_to_column(&mut self, column: usize) {
        let end = self.line_end();
        let mut passed = 0;
        while self.at < end && passed < column {
            let next = self.after(self.at);
            passed += columns(self.text.get(self.at..next).unwrap_or_default());
            self.at = next;
        }
    }
}

fn typed(text: &str) -> String {
    clean(&text.replace("\r\n", "\n").replace('\r', "\n")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn editor(text: &str) -> Editor {
        let mut editor = Editor::default();
        editor.insert(text);
        editor
    }

    #[test]
    fn the_cursor_moves_by_what_people_see_as_characters() {
        let mut editor = editor("ae\u{301}日👩\u{200d}👧");
        for left in ["ae\u{301}日", "ae\u{301}", "a", "", ""] {
            editor.left();
            assert_eq!(editor.text.get(..editor.at), Some(left));
        }
        editor.right();
        editor.delete();
        assert_eq!(editor.text(), "a日👩\u{200d}👧");
    }

    #[test]
    fn words_and_lines_are_killed_and_come_back() {
        let mut editor = editor("one two  three");
        editor.kill_word();
        assert_eq!(editor.text(), "one two  ");
        editor.kill_word();
        assert_eq!(editor.text(), "one ");
        editor.yank();
        assert_eq!(editor.text(), "one two  ");
        editor.home();
        editor.word_right();
        editor.kill_to_end();
        assert_eq!(editor.text(), "one");
        editor.kill_to_start();
        assert_eq!(editor.text(), "");
    }

    #[test]
    fn up_and_down_keep_the_column() {
        let mut editor = editor("first\n日本\nlast");
        assert!(editor.up());
        assert_eq!(editor.at, "first\n日本".len());
        assert!(editor.up() && !editor.up());
        assert_eq!(editor.at, "firs".len());
        assert!(editor.down() && editor.down() && !editor.down());
    }

    #[test]
    fn rows_are_as_wide_as_they_are_seen() {
        for (text, width, rows, cursor) in [
            ("", 4, &[""][..], (0, 0)),
            ("abc", 4, &["abc"], (0, 3)),
            ("abcd", 4, &["abcd", ""], (1, 0)),
            ("日本語", 5, &["日本", "語"], (1, 2)),
            ("a\nb", 4, &["a", "b"], (1, 1)),
            ("e\u{301}e\u{301}", 4, &["e\u{301}e\u{301}"], (0, 2)),
        ] {
            let laid = editor(text).lay_out(width);
            assert_eq!(laid.rows, rows, "{text}");
            assert_eq!(laid.cursor, cursor, "{text}");
        }
    }

    #[test]
    fn what_is_pasted_can_t_steer_the_terminal() {
        assert_eq!(editor("a\r\nb\rc\u{1b}[2J\u{7f}").text(), "a\nb\nc[2J");
    }
}
