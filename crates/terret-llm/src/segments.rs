//! Request bodies in shared pieces.

use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use crate::transcript::Image;

/// The body of a request, in pieces that are shared: what one call's body has in common with the last one's is in
/// memory once, and so is an image, which is the transcript's own.
///
/// Cheap to clone. Equality is equality of the bytes, however they are cut.
#[derive(Clone, Default)]
pub struct Segments {
    list: Vec<Bytes>,
    len: usize,
}

impl Segments {
    /// How many bytes these are together.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a piece.
    pub fn push(&mut self, piece: impl Into<Bytes>) {
        let piece = piece.into();
        if !piece.is_empty() {
            self.len += piece.len();
            self.list.push(piece);
        }
    }

    /// The pieces in order; none is empty.
    pub fn iter(&self) -> std::slice::Iter<'_, Bytes> {
        self.list.iter()
    }

    /// All bytes in one piece. Copies them, unless they are in one piece already.
    pub fn to_bytes(&self) -> Bytes {
        match self.list.as_slice() {
            [all] => all.clone(),
            pieces => pieces.concat().into(),
        }
    }
}

impl<'a> IntoIterator for &'a Segments {
    type Item = &'a Bytes;
    type IntoIter = std::slice::Iter<'a, Bytes>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl IntoIterator for Segments {
    type Item = Bytes;
    type IntoIter = std::vec::IntoIter<Bytes>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}

impl<B: Into<Bytes>> From<B> for Segments {
    fn from(bytes: B) -> Self {
        let mut segments = Self::default();
        segments.push(bytes);
        segments
    }
}

impl PartialEq for Segments {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().flatten().eq(other.iter().flatten())
    }
}

impl Eq for Segments {}

impl fmt::Debug for Segments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len)
    }
}

/// Writes segments.
///
/// Cloning shares all pieces but the open one.
#[derive(Clone, Debug, Default)]
pub(crate) struct SegmentWriter {
    full: Segments,
    /// How many of the last pieces are small.
    small: usize,
    open: Vec<u8>,
    /// How many bytes are no image's.
    own: usize,
    images: Vec<Arc<str>>,
}

/// A small piece has about so many bytes: few enough to be copied by each call, as long as it is open.
const SMALL: usize = 16 * 1024;

/// So many small pieces become one, so that a long conversation isn't many pieces.
const SMALL_ONES: usize = 16;

/// Base64 of at least so many characters is shared. For less, a copy costs no more than a piece of its own.
const LARGE: usize = 8 * 1024;

impl SegmentWriter {
    /// Lets the writer know images that it may be handed next, so that it can share their data instead of copying it.
    pub(crate) fn expect<'a>(&mut self, images: impl Iterator<Item = &'a Image>) {
        self.images.clear();
        self.images.extend(images.map(Image::data).filter(|data| data.len() >= LARGE).cloned());
    }

    pub(crate) fn push_str(&mut self, text: &str) {
        self.open.extend_from_slice(text.as_bytes());
    }

    /// A good place to cut has come.
    pub(crate) fn breathe(&mut self) {
        if self.open.len() >= SMALL {
            self.cut();
            self.small += 1;
        }
        if self.small == SMALL_ONES {
            let rest = self.full.list.len().saturating_sub(SMALL_ONES);
            let joined = self.full.list.split_off(rest).concat();
            self.full.list.push(joined.into());
            self.small = 0;
        }
    }

    /// How many bytes are in memory because of this; those of images are the transcript's.
    pub(crate) fn own_len(&self) -> usize {
        self.own + self.open.len()
    }

    /// What is written, after this.
    pub(crate) fn behind(mut self, first: Bytes) -> Segments {
        self.cut();
        self.full.len += first.len();
        self.full.list.insert(0, first);
        self.full
    }

    fn cut(&mut self) {
        self.own += self.open.len();
        // Without the room for more that a vector has.
        self.full.push(std::mem::take(&mut self.open).into_boxed_slice());
    }
}

impl io::Write for SegmentWriter {
    /// Serializers hand over a string without escapes in one go, and base64 has none: an image is known by where its
    /// data stands in memory.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let image = || self.images.iter().find(|data| std::ptr::eq(data.as_bytes(), bytes));
        match Some(bytes).filter(|bytes| bytes.len() >= LARGE).and_then(|_| image()).cloned() {
            Some(data) => {
                self.cut();
                self.full.push(Bytes::from_owner(ImageData(data)));
                self.small = 0;
            }
            None => self.open.extend_from_slice(bytes),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct ImageData(Arc<str>);

impl AsRef<[u8]> for ImageData {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}
