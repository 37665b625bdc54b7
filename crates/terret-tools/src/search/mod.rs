//! Finding files by name and by content, with ripgrep's crates.
//!
//! Both walk alike, in several threads: `.gitignore` and `.ignore` files are respected (in a git repository or not),
//! hidden files are included, `.git` is not, and symbolic links aren't followed. Answers are in the order of paths, as a
//! walk by sorted names would give them, and what is behind the last line that is shown isn't searched.
//!
//! Contents are read through the [`Workspace`](crate::Workspace). Names are listed by path, so a directory that is
//! swapped for a link during the walk can show foreign names, but never a content.

mod answer;
mod find;
mod found;
mod grep;
mod walk;

pub use find::find;
pub use grep::grep;
