//! Runs whose final reply is a value of a Rust type.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use terret_llm::{AssistantMessage, Expected};

use crate::event::{Event, Report};
use crate::hooks::Review;
use crate::run::{Run, RunHandle};
use crate::tool::{explained, violations};

/// A run whose final reply is a value of type `T`. Dropping it cancels the run.
#[derive(Debug)]
pub struct TypedRun<T> {
    run: Run,
    expected: Expected<T>,
}

/// A final reply as a value.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Typed<T> {
    /// The value.
    pub value: T,
    /// How the run ended, and what it took.
    pub report: Report,
}

impl<T: JsonSchema + DeserializeOwned> TypedRun<T> {
    pub(crate) fn new(run: Run, expected: Expected<T>) -> Self {
        Self { run, expected }
    }

    /// The next event; `None` after [`Event::Ended`]. Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        self.run.next().await
    }

    /// Steers and cancels the run from elsewhere.
    pub fn handle(&self) -> RunHandle {
        self.run.handle()
    }

    /// Waits for the value. A run that ended otherwise than by completing has none, and its report says why.
    pub async fn value(self) -> Result<Typed<T>, Box<Report>> {
        let report = self.run.report().await;
        match report.text.as_deref().map(|text| self.expected.read(text)) {
            Some(Ok(value)) => Ok(Typed { value, report }),
            // A run completes only with a reply that can be read.
            _ => Err(Box::new(report)),
        }
    }
}

/// What looks at a final reply before the hooks do.
#[derive(Clone, Default)]
pub(crate) struct Reviewer(Option<Arc<Look>>);

const WANTED: &str = "Your reply is not the JSON value that is wanted. Reply again, with nothing but a JSON value of the \
                      schema that you were given. What is wrong:";

type Look = dyn Fn(&AssistantMessage) -> Review + Send + Sync;

impl Reviewer {
    /// Accepts what is expected: what keeps to the schema that was sent, and is a `T`.
    pub(crate) fn of<T: JsonSchema + DeserializeOwned + 'static>(expected: Expected<T>) -> Self {
        // The schema of a type is always one that can be used.
        let schema =
            expected.schema().schema.to_value().ok().and_then(|schema| jsonschema::validator_for(&schema).ok());
        let problems = move |text: &str| match (expected.read_untyped(text), &schema) {
            (Err(error), _) => vec![format!("not JSON: {error}")],
            (Ok(value), Some(schema)) if !schema.is_valid(&value) => violations(schema, &value, "the value"),
            _ => expected.read(text).err().map(|error| error.to_string()).into_iter().collect(),
        };
        Self(Some(Arc::new(move |reply| match problems(&reply.text()) {
            problems if problems.is_empty() => Review::Accept,
            problems => Review::Object(explained(WANTED, &problems, &reply.text())),
        })))
    }

    /// Whether anything is expected.
    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn review(&self, reply: &AssistantMessage) -> Review {
        self.0.as_ref().map_or(Review::Accept, |review| review(reply))
    }
}
