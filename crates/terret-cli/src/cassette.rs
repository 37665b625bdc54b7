//! `--record` and `--replay`: a file with what providers answered, written once and answered from later.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use terret::llm::transport::Transport;
use terret::llm::transport::cassette::{CassetteError, Recorder, Replayer};
use terret::llm::{HttpTransport, Limits};

use crate::cli::RunArgs;
use crate::exit::{Exit, Problem};
use crate::output::complain;

/// What stands between the models of a run and the network.
#[derive(Clone, Debug, Default)]
pub(crate) enum Cassette {
    #[default]
    None,
    /// The file is begun when the first model can be asked, so that a mistake doesn't cost an older recording.
    Record(PathBuf, Arc<OnceLock<Arc<Recorder>>>),
    Replay(Arc<Replayer>),
}

impl Cassette {
    pub(crate) fn of(args: &RunArgs) -> Result<Self, Problem> {
        match (&args.record, &args.replay) {
            (Some(path), _) => Ok(Self::Record(path.clone(), Arc::default())),
            (None, Some(path)) => Ok(Self::Replay(Arc::new(Replayer::open(path).map_err(unusable)?))),
            (None, None) => Ok(Self::None),
        }
    }

    /// Whether a key is needed, and an address where there is one already.
    pub(crate) fn is_replay(&self) -> bool {
        matches!(self, Self::Replay(_))
    }

    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    pub(crate) fn transport(&self, limits: &Limits) -> Result<Arc<dyn Transport>, Problem> {
        let http = || Arc::new(HttpTransport::with_limits(limits));
        match self {
            Self::None => Ok(http()),
            Self::Replay(replayer) => Ok(replayer.clone()),
            Self::Record(path, recorder) => match recorder.get() {
                Some(recorder) => Ok(recorder.clone()),
                None => {
                    let created = Arc::new(Recorder::create(path, http()).map_err(unusable)?);
                    Ok(recorder.get_or_init(|| created).clone())
                }
            },
        }
    }

    /// Says whether something could not be recorded.
    pub(crate) fn check(&self) {
        if let Self::Record(_, recorder) = self
            && let Some(Err(error)) = recorder.get().map(|recorder| recorder.check())
        {
            complain(&format!("--record: {error}"));
        }
    }
}

fn unusable(error: CassetteError) -> Problem {
    let flag = if matches!(error, CassetteError::Unwritable { .. }) { "--record" } else { "--replay" };
    Problem::new(Exit::Usage, format!("{flag}: {error}"))
}
