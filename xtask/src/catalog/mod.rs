//! `xtask catalog`: public data in, `catalog.json` and `docs/catalog.md` out. Never touches the network.

mod base;
mod list;
mod prices;
mod report;
mod rules;
mod second;
mod sources;
mod third;

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use list::List;
use serde_json::json;
use sources::{Archive, Source};

/// Fetch the inputs first, into any folder:
///
///   npm pack @earendil-works/pi-ai
///   pip download --no-deps litellm
///
/// `genai-prices`, the third opinion, is a crate and comes with this one.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The tarball of `npm pack @earendil-works/pi-ai`: the base
    #[arg(long, value_name = "TGZ")]
    base: PathBuf,
    /// The wheel of `pip download --no-deps litellm`: the second opinion
    #[arg(long, value_name = "WHL")]
    second: PathBuf,
    /// The day on which they were fetched
    #[arg(long, value_name = "YYYY-MM-DD")]
    date: String,
}

type Result<T> = std::result::Result<T, Box<dyn Error>>;

pub(crate) fn run(args: &Args) -> Result<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let base = Archive::open(&args.base)?;
    let second = Archive::open(&args.second)?;
    let sources = [
        Source::new("base", "npm", "@earendil-works/pi-ai", base::version(&base)?, base.sha256()),
        Source::new("second opinion", "PyPI", "litellm", second::version(&second)?, second.sha256()),
        sources::locked_crate(&root.join("Cargo.lock"), "third opinion", "genai-prices")?,
    ];
    let list = list::list(&base, &second::Prices::read(&second)?, &args.date)?;
    let catalog = write(&list, &sources, &args.date)?;
    fs::write(root.join("crates/terret-llm/src/catalog/catalog.json"), &catalog)?;
    let page = report::report(&list, &sources, &args.date, catalog.len())?;
    fs::write(root.join("docs/catalog.md"), page)?;
    Ok(format!("{} models in {} KB", list.models.len(), catalog.len() / 1024))
}

/// One model on a line, in the order of their names: what is looked up is found by a binary search over the lines.
fn write(list: &List, sources: &[Source], date: &str) -> Result<String> {
    let about = json!({
        "generator": "cargo run -p xtask -- catalog",
        "date": date,
        "sources": sources,
    });
    let mut text = format!("{{\"about\":{about},\"models\":{{\n");
    for (at, (name, facts)) in list.models.iter().enumerate() {
        if serde_json::to_string(name)? != format!("\"{name}\"") {
            return Err(format!("{name:?} can't be looked up: JSON escapes it").into());
        }
        let comma = if at + 1 < list.models.len() { "," } else { "" };
        writeln!(text, "\"{name}\":{}{comma}", serde_json::to_string(facts)?)?;
    }
    text.push_str("}}\n");
    Ok(text)
}
