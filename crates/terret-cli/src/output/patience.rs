//! What takes its time says so, on a terminal: from the first second on, on a line that goes away again.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Nobody wonders before.
const SILENCE: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_millis(200);

/// Whether the cursor stands behind a line of this module. There is one standard error for all.
static DRAWN: Mutex<bool> = Mutex::new(false);

/// As long as this is there, something takes its time.
pub(crate) struct Patience {
    done: Arc<AtomicUsize>,
    /// None where nobody looks.
    drawing: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Patience {
    /// Says this, with the time that has passed, such as `searching the sessions … 3 s`.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self::start(what.into(), None)
    }

    /// The same with how many of these are done: `checking sessions … 7 of 20, 3 s`.
    pub(crate) fn counting(what: impl Into<String>, of: usize) -> Self {
        Self::start(what.into(), Some(of))
    }

    fn start(what: String, of: Option<usize>) -> Self {
        let done = Arc::new(AtomicUsize::new(0));
        let drawing = io::stderr().is_terminal().then(|| {
            let (finish, finished) = channel();
            let line = Line { what, done: done.clone(), of, since: Instant::now() };
            (finish, std::thread::spawn(move || line.draw_until(&finished)))
        });
        Self { done, drawing }
    }

    /// One more is done.
    pub(crate) fn step(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        if let Some((finish, drawing)) = self.drawing.take() {
            drop(finish);
            // It has nothing to fail at.
            let _ = drawing.join();
            over(|| ());
        }
    }
}

/// Does what takes its time.
pub(crate) fn patiently<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let _patience = Patience::new(what);
    work()
}

/// Prints something else, in the place of the line, which comes again behind it.
pub(crate) fn over<T>(print: impl FnOnce() -> T) -> T {
    let mut drawn = drawn();
    if std::mem::take(&mut *drawn) {
        // Nothing can be told when even printing fails.
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
    print()
}

fn drawn() -> MutexGuard<'static, bool> {
    DRAWN.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Line {
    what: String,
    done: Arc<AtomicUsize>,
    of: Option<usize>,
    since: Instant,
}

impl Line {
    fn draw_until(&self, finished: &Receiver<()>) {
        let moves = std::env::var_os("TERM").is_some_and(|term| term != "dumb");
        let mut wait = SILENCE;
        while finished.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
            let mut drawn = drawn();
            if !moves {
                let _ = writeln!(io::stderr(), "{} …", self.what);
                break;
            }
            let style = anstyle::Style::new().dimmed();
            let text = super::cut(&self.text(), super::width().unwrap_or(80).saturating_sub(1));
            let _ = write!(anstream::stderr(), "\r{style}{text}{style:#}\x1b[K");
            *drawn = true;
            wait = EVERY;
        }
    }

    fn text(&self) -> String {
        let seconds = self.since.elapsed().as_secs();
        match self.of {
            None => format!("{} … {seconds} s", self.what),
            Some(of) => format!("{} … {} of {of}, {seconds} s", self.what, self.done.load(Ordering::Relaxed)),
        }
    }
}
