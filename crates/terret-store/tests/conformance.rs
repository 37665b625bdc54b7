//! The journal on SQLite does what every journal must.

use std::sync::Arc;

use terret_agent::{Journal, conformance};
use terret_store::SqliteJournal;

#[tokio::test]
async fn the_journal_on_sqlite_conforms() {
    conformance::check(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        move || Arc::new(SqliteJournal::new(folder.path())) as Arc<dyn Journal>
    })
    .await;
}
