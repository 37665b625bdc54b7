//! A journal that survives the process, and fails when it is told to.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use terret_agent::machine::Record;
use terret_agent::{Journal, JournalError, SessionId};

use crate::world::{Fault, Seen, World};

pub(crate) struct Records(pub(crate) Arc<World>);

impl Journal for Records {
    fn append<'a>(
        &'a self,
        session: &'a SessionId,
        expected: u64,
        records: &'a [Record],
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        Box::pin(async move {
            self.0.point("an append that is not stored").await;
            let failed = || JournalError::Storage("no space left".into());
            let fault = self.0.lock().journal_fault.take();
            if fault == Some(Fault::Refuse) {
                self.fail();
                return Err(failed());
            }
            let found = {
                let mut inner = self.0.lock();
                let found = inner.records.len() as u64;
                if found == expected {
                    inner.records.extend_from_slice(records);
                }
                found
            };
            if found != expected {
                return Err(JournalError::Behind { session: session.clone(), expected, found });
            }
            if fault == Some(Fault::StoreAndFail) {
                self.fail();
                return Err(failed());
            }
            self.0.point("an append that is stored").await;
            Ok(())
        })
    }

    fn load<'a>(&'a self, _session: &'a SessionId) -> BoxFuture<'a, Result<Vec<Record>, JournalError>> {
        Box::pin(async { Ok(self.0.lock().records.clone()) })
    }
}

impl Records {
    fn fail(&self) {
        self.0.see(Seen::JournalFailed);
        self.0.lock().journal_failed = true;
    }
}
