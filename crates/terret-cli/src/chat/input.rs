//! What comes from the person and from the system: keys, lines, signals.

use std::io;

use crossterm::event::{Event, EventStream, KeyEvent, KeyEventKind};
use futures_util::StreamExt as _;
use futures_util::stream::{SelectAll, select_all};
use tokio::sync::mpsc;

use super::look::Look;

/// What is typed: keys, or whole lines where the terminal can do no more.
pub(crate) enum Input {
    Keys(SelectAll<EventStream>),
    /// Somebody else reads the keys for a while.
    Resting,
    Lines(mpsc::UnboundedReceiver<String>),
}

pub(crate) enum Typed {
    Key(KeyEvent),
    Pasted(String),
    Line(String),
    Resized,
    /// Nobody is there any more.
    End,
}

impl Input {
    /// As far as the terminal knows keys.
    pub(crate) fn of(look: Look) -> Self {
        if look.moves { Self::keys() } else { Self::lines() }
    }

    /// Leaves the keys to somebody else. What is read in lines is read on.
    pub(crate) fn rest(&mut self) {
        if let Input::Keys(_) = self {
            *self = Input::Resting;
        }
    }

    pub(crate) fn go_on(&mut self) {
        if let Input::Resting = self {
            *self = Self::keys();
        }
    }

    /// Alone in a selection, which asks for a key only when there may be one: to ask costs a moment's wait each time.
    fn keys() -> Self {
        Input::Keys(select_all([EventStream::default()]))
    }

    fn lines() -> Self {
        let (line, lines) = mpsc::unbounded_channel();
        // It waits in the system, and ends with the program.
        std::thread::spawn(move || {
            let mut read = io::stdin().lines();
            while let Some(Ok(typed)) = read.next() {
                if line.send(typed).is_err() {
                    break;
                }
            }
        });
        Input::Lines(lines)
    }

    /// Cancel safe.
    pub(crate) async fn next(&mut self) -> Typed {
        match self {
            Input::Resting => std::future::pending().await,
            Input::Lines(lines) => lines.recv().await.map_or(Typed::End, Typed::Line),
            Input::Keys(keys) => loop {
                match keys.next().await {
                    Some(Ok(Event::Key(key))) if key.kind != KeyEventKind::Release => return Typed::Key(key),
                    Some(Ok(Event::Paste(text))) => return Typed::Pasted(text),
                    Some(Ok(Event::Resize(..))) => return Typed::Resized,
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return Typed::End,
                }
            },
        }
    }
}

/// What the system says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Interrupt,
    Terminate,
    /// The terminal is gone. A shell and the system may both say so.
    HangUp,
    Suspend,
    /// The program was stopped and goes on.
    Continue,
}

/// The signals that a program on a terminal gets.
#[cfg(unix)]
pub(crate) struct Arrivals([(Told, tokio::signal::unix::Signal); 5]);

#[cfg(unix)]
impl Arrivals {
    pub(crate) fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let of = |kind: rustix::process::Signal| signal(SignalKind::from_raw(kind.as_raw()));
        Ok(Self([
            (Told::Interrupt, signal(SignalKind::interrupt())?),
            (Told::Terminate, signal(SignalKind::terminate())?),
            (Told::HangUp, signal(SignalKind::hangup())?),
            (Told::Suspend, of(rustix::process::Signal::TSTP)?),
            (Told::Continue, of(rustix::process::Signal::CONT)?),
        ]))
    }

    /// Cancel safe.
    pub(crate) async fn next(&mut self) -> Told {
        std::future::poll_fn(|cx| {
            let told = self.0.iter_mut().find_map(|(told, signal)| signal.poll_recv(cx).is_ready().then_some(*told));
            told.map_or(std::task::Poll::Pending, std::task::Poll::Ready)
        })
        .await
    }
}

impl Arrivals {
    /// Does something to its end, unless the program is told to do something else.
    pub(crate) async fn unless_told<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Told> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                told = self.next() => match told {
                    Told::Suspend => suspend(),
                    Told::Continue => {}
                    told => return Err(told),
                },
                done = &mut work => return Ok(done),
            }
        }
    }
}

/// Stops this program and those beside it, as Ctrl-Z does, until somebody lets it go on. Nothing happens where nobody could:
/// where it is the first program of its terminal.
#[cfg(unix)]
pub(crate) fn suspend() {
    use rustix::process::{Signal, getpid, getsid, kill_current_process_group};
    if getsid(None).is_ok_and(|session| session != getpid()) {
        // Whoever may not be stopped goes on.
        let _ = kill_current_process_group(Signal::STOP);
    }
}

/// Ctrl-C is a key, and nothing else is known here.
#[cfg(not(unix))]
pub(crate) struct Arrivals;

#[cfg(not(unix))]
impl Arrivals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    pub(crate) async fn next(&mut self) -> Told {
        std::future::pending().await
    }
}

#[cfg(not(unix))]
pub(crate) fn suspend() {}
