use super::{CallStage, Effect, Stage, State};

/// What must be in flight in this state.
pub fn due(state: &State) -> Vec<Effect<'_>> {
    let epoch = state.epoch();
    let progress = &state.progress;
    match (progress.run.as_ref().map(|run| &run.stage), &progress.batch) {
        (None, _) => Vec::new(),
        (Some(Stage::Stopping { .. }), _) => vec![Effect::Stop],
        (Some(Stage::Calling), _) => vec![Effect::CallModel { epoch }],
        (Some(Stage::Failing(_)), _) | (Some(Stage::Acting), None) => Vec::new(),
        (Some(Stage::Acting), Some(batch)) => batch
            .calls
            .iter()
            .filter_map(|it| {
                let call = &*it.call;
                match it.stage {
                    CallStage::Gating => Some(Effect::Gate { epoch, call }),
                    CallStage::Open => Some(Effect::StartTool { epoch, call, key: batch.idempotency_key(it) }),
                    CallStage::InDoubt => Some(Effect::Discover { epoch, call, key: batch.idempotency_key(it) }),
                    CallStage::Allowed | CallStage::Interrupted | CallStage::Closed(_) => None,
                }
            })
            .collect(),
    }
}
