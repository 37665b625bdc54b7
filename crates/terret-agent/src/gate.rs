//! Authorisation: what may start.

use futures_util::future::BoxFuture;
use serde_json::Value;
use terret_llm::ToolCall;

use crate::machine::Verdict;

/// Decides about each call, after its arguments were validated and before its tool starts.
pub trait Gate: Send + Sync {
    /// The verdict. Takes as long as it needs; a cancel drops the future.
    fn decide<'a>(&'a self, call: &'a ToolCall, arguments: &'a Value) -> BoxFuture<'a, Verdict>;
}

/// Lets every call pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllowAll;

impl Gate for AllowAll {
    fn decide<'a>(&'a self, _call: &'a ToolCall, _arguments: &'a Value) -> BoxFuture<'a, Verdict> {
        Box::pin(std::future::ready(Verdict::Allow))
    }
}

/// A function that decides at once.
impl<F: Fn(&ToolCall, &Value) -> Verdict + Send + Sync> Gate for F {
    fn decide<'a>(&'a self, call: &'a ToolCall, arguments: &'a Value) -> BoxFuture<'a, Verdict> {
        Box::pin(std::future::ready(self(call, arguments)))
    }
}
