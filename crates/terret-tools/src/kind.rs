//! What a file holds, by its first bytes.

/// What kind of content a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Empty,
    /// Text in an encoding that has ASCII in it, after so many bytes of byte order mark.
    Text {
        bom: usize,
    },
    /// A picture that models take, with its media type.
    Image(&'static str),
    /// Something else, in words.
    Binary(&'static str),
}

const SIGNATURES: &[(&[u8], Kind)] = &[
    (b"\x89PNG\r\n\x1a\n", Kind::Image("image/png")),
    (b"\xff\xd8\xff", Kind::Image("image/jpeg")),
    (b"GIF87a", Kind::Image("image/gif")),
    (b"GIF89a", Kind::Image("image/gif")),
    (b"%PDF-", Kind::Binary("a PDF document")),
    (b"PK\x03\x04", Kind::Binary("a ZIP archive or an office document")),
    (b"\x1f\x8b", Kind::Binary("gzip data")),
    (b"\x7fELF", Kind::Binary("an ELF binary")),
    (b"SQLite format 3\0", Kind::Binary("a SQLite database")),
    (b"\xff\xfe", Kind::Binary("UTF-16 text (convert it with iconv -f utf-16 -t utf-8)")),
    (b"\xfe\xff", Kind::Binary("UTF-16 text (convert it with iconv -f utf-16 -t utf-8)")),
];

/// How much of a file is looked at, in bytes.
const SAMPLE: usize = 8 * 1024;

impl Kind {
    /// Judges a file by its beginning.
    pub(crate) fn of(beginning: &[u8]) -> Self {
        if matches!(beginning, b"" | b"\xef\xbb\xbf") {
            return Kind::Empty;
        }
        if let Some((_, kind)) = SIGNATURES.iter().find(|(signature, _)| beginning.starts_with(signature)) {
            return *kind;
        }
        if beginning.starts_with(b"RIFF") && beginning.get(8..12) == Some(b"WEBP") {
            return Kind::Image("image/webp");
        }
        let sample = beginning.get(..SAMPLE).unwrap_or(beginning);
        let controls = sample.iter().filter(|byte| is_unlikely_in_text(**byte)).count();
        if memchr::memchr(0, sample).is_some() || controls * 10 > sample.len() {
            return Kind::Binary("binary data");
        }
        Kind::Text { bom: if beginning.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 } }
    }
}

fn is_unlikely_in_text(byte: u8) -> bool {
    matches!(byte, 0x01..=0x06 | 0x0e..=0x1a | 0x1c..=0x1f | 0x7f)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_told_by_its_first_bytes() {
        let text = Kind::Text { bom: 0 };
        let cases: &[(&[u8], Kind)] = &[
            (b"", Kind::Empty),
            (b"\xef\xbb\xbf", Kind::Empty),
            (b"fn main() {}\n", text),
            (b"\xef\xbb\xbftext", Kind::Text { bom: 3 }),
            (b"Stra\xdfe, caf\xe9\n", text),
            (b"\x1b[31mcoloured log\x1b[0m\n", text),
            (b"\x89PNG\r\n\x1a\n....", Kind::Image("image/png")),
            (b"\x89PNG, said the text", text),
            (b"\xff\xd8\xff\xe0..JFIF", Kind::Image("image/jpeg")),
            (b"GIF89a..", Kind::Image("image/gif")),
            (b"RIFF\x10\0\0\0WEBPVP8 ", Kind::Image("image/webp")),
            (b"RIFF\x10\0\0\0WAVEfmt ", Kind::Binary("binary data")),
            (b"ab\0cd", Kind::Binary("binary data")),
            (b"\x01\x02\x03abc", Kind::Binary("binary data")),
        ];
        for (bytes, kind) in cases {
            assert_eq!(Kind::of(bytes), *kind, "{:?}", bytes.escape_ascii().to_string());
        }
    }
}
