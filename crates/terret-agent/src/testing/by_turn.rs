use std::sync::Arc;

use terret_llm::wire::WireFormat;
use terret_llm::{
    ErrorKind, Message, Model, ModelError, ModelSpec, ReplyStream, Request, ScriptedModel, ScriptedReply,
};
use tokio_util::sync::CancellationToken;

/// A scripted model that goes by the transcript: its n-th reply is to a request that holds n - 1 replies.
///
/// So a call that is made again, after a crash or a failure, gets the same reply again. A [`ScriptedModel`] goes on to its
/// next one.
#[derive(Clone, Debug)]
pub struct ByTurn {
    spec: Arc<ModelSpec>,
    replies: Arc<[ScriptedReply]>,
}

impl ByTurn {
    /// A model that gives these replies.
    pub fn new(replies: impl IntoIterator<Item = ScriptedReply>) -> Self {
        let spec = ModelSpec::new("scripted", "by-turn", WireFormat::from("scripted"));
        Self { spec: Arc::new(spec), replies: replies.into_iter().collect() }
    }

    /// The same replies from another model: one with a price, a smaller context window …
    #[must_use]
    pub fn with_spec(mut self, spec: ModelSpec) -> Self {
        self.spec = Arc::new(spec);
        self
    }
}

impl Model for ByTurn {
    fn spec(&self) -> &Arc<ModelSpec> {
        &self.spec
    }

    fn stream(&self, request: Request, cancel: CancellationToken) -> ReplyStream {
        let turn = request.messages.iter().filter(|message| matches!(***message, Message::Assistant(_))).count();
        let reply = self.replies.get(turn).cloned().unwrap_or_else(|| {
            let message = format!("the script has {} replies, and this is turn {}", self.replies.len(), turn + 1);
            ScriptedReply::failure(ModelError::new(ErrorKind::InvalidRequest, message))
        });
        ScriptedModel::new([reply]).with_spec((*self.spec).clone()).stream(request, cancel)
    }
}
