use super::next::Turn;
use super::{Batch, Call, CallStage, Effect, RunState, Stage, State};

/// What must be in flight in this state.
pub fn due(state: &State) -> Vec<Effect<'_>> {
    let Some(run) = state.run() else { return Vec::new() };
    let (epoch, model) = (state.epoch(), run.model);
    let mut effects = match (&run.stage, state.batch()) {
        (Stage::Stopping(_), _) => return vec![Effect::Stop],
        (Stage::Failing(_) | Stage::Waiting { .. }, _) => Vec::new(),
        (Stage::Calling, _) => vec![Effect::CallModel { epoch, model }],
        (Stage::Compacting { cut }, _) => {
            vec![Effect::Compact { epoch, model, messages: state.transcript().get(..*cut).unwrap_or_default() }]
        }
        (Stage::Acting, Some(batch)) => batch.calls.iter().filter_map(|call| of_call(state, batch, call)).collect(),
        (Stage::Acting, None) => match state.progress.turn(run, None) {
            Turn::Review => vec![Effect::Review { epoch }],
            _ => Vec::new(),
        },
    };
    effects.extend(run.wakes_at().map(|at| Effect::Wake { at }));
    effects
}

fn of_call<'a>(state: &'a State, batch: &'a Batch, it: &'a Call) -> Option<Effect<'a>> {
    let (epoch, call) = (state.epoch(), &*it.call);
    let key = || batch.idempotency_key(it);
    match &it.stage {
        CallStage::Gating { approved } => Some(Effect::Gate { epoch, call, approved: *approved }),
        CallStage::Asked { question } => Some(Effect::Ask { call, question }),
        CallStage::Open => Some(Effect::StartTool { epoch, call, key: key() }),
        CallStage::InDoubt => Some(Effect::Discover { epoch, call, key: key() }),
        CallStage::Allowed | CallStage::Interrupted | CallStage::Closed(_) => None,
    }
}

impl RunState {
    /// When something happens by itself, in Unix milliseconds.
    fn wakes_at(&self) -> Option<i64> {
        let retry = if let Stage::Waiting { until } = self.stage { Some(until) } else { None };
        retry.into_iter().chain(self.deadline()).min()
    }
}
