use super::{Call, CallStage, Effect, RunState, Stage, State};

/// What must be in flight in this state.
pub fn due(state: &State) -> Vec<Effect<'_>> {
    let Some(run) = state.run() else { return Vec::new() };
    let mut effects = match &run.stage {
        Stage::Stopping(_) => return vec![Effect::Stop],
        Stage::Failing(_) => Vec::new(),
        Stage::Calling => vec![Effect::CallModel { epoch: state.epoch() }],
        Stage::Acting => state
            .batch()
            .into_iter()
            .flat_map(|batch| &batch.calls)
            .filter_map(|call| of_call(state, run, call))
            .collect(),
    };
    effects.extend(run.deadline().map(|at| Effect::Deadline { at }));
    effects
}

fn of_call<'a>(state: &'a State, run: &RunState, it: &'a Call) -> Option<Effect<'a>> {
    let (epoch, call) = (state.epoch(), &*it.call);
    let key = || state.batch().map(|batch| batch.idempotency_key(it)).unwrap_or_default();
    match &it.stage {
        CallStage::Gating { approved } => {
            let approved = *approved || run.approved.contains(&call.name);
            Some(Effect::Gate { epoch, call, approved })
        }
        CallStage::Asked { question } => Some(Effect::Ask { call, question, digest: it.digest() }),
        CallStage::Open => Some(Effect::StartTool { epoch, call, key: key() }),
        CallStage::InDoubt => Some(Effect::Discover { epoch, call, key: key() }),
        CallStage::Allowed | CallStage::Interrupted | CallStage::Closed(_) => None,
    }
}
