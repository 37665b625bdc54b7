//! Finding files by name and by content, with ripgrep's crates.
//!
//! Both walk alike: `.gitignore` and `.ignore` files are respected (in a git repository or not), hidden files are
//! included, `.git` is not, symbolic links aren't followed, and names are sorted within each directory. Contents are
//! read through the [`Workspace`](crate::Workspace). Names are listed by path, so a directory that is swapped for a link
//! during the walk can show foreign names, but never a content.

mod find;
mod grep;
mod walk;

pub use find::find;
pub use grep::grep;
