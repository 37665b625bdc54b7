//! How an input arrives: its first four bytes are the lengths of the pieces that the rest comes in, again and again.

/// The rest of an input, and how it is cut. Nothing if the input is too short for that.
pub(crate) fn split(data: &[u8]) -> Option<(Lengths, &[u8])> {
    let (lengths, rest) = data.split_first_chunk::<4>()?;
    Some((Lengths(*lengths), rest))
}

#[derive(Clone, Copy)]
pub(crate) struct Lengths([u8; 4]);

impl Lengths {
    /// The pieces; some may be empty.
    pub(crate) fn pieces(self, whole: &[u8]) -> Vec<&[u8]> {
        if self.0 == [0; 4] {
            return vec![whole];
        }
        let (mut rest, mut pieces) = (whole, Vec::new());
        for length in self.0.into_iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at(usize::from(length).min(rest.len()));
            pieces.push(piece);
            rest = after;
        }
        pieces
    }

    /// The pieces of a text, each cut moved to where a character begins.
    pub(crate) fn pieces_of_text(self, whole: &str) -> Vec<&str> {
        let (mut from, mut at, mut pieces) = (0, 0, Vec::new());
        for piece in self.pieces(whole.as_bytes()) {
            at += piece.len();
            if whole.is_char_boundary(at) {
                pieces.push(&whole[from..at]);
                from = at;
            }
        }
        pieces
    }

    /// A place in something that long, its end included.
    pub(crate) fn place(self, length: usize) -> usize {
        u32::from_le_bytes(self.0) as usize % (length + 1)
    }
}
