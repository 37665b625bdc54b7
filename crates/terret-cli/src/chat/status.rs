//! The line at the bottom: who is asked, how full its window is, what it cost, and how long it takes.

use std::time::Duration;

use terret::llm::{Message, ModelSpec, Money, Price};

use super::look::{columns, fit};
use crate::output::{cost, line};

pub(crate) struct Status {
    model: String,
    window: Option<u32>,
    price: Option<Price>,
    /// The tokens of the last request and its reply.
    context: Option<u64>,
    /// Of the runs that have ended.
    settled: Money,
    /// Of the one that goes on, as far as its replies tell.
    running: Money,
    /// How long the last run took.
    pub(crate) took: Option<Duration>,
}

impl Status {
    pub(crate) fn new(spec: &ModelSpec, settled: Money) -> Self {
        let (model, window, price) = of(spec);
        Self { model, window, price, context: None, settled, running: Money::ZERO, took: None }
    }

    /// Another model is asked from now on.
    pub(crate) fn asks(&mut self, spec: &ModelSpec) {
        (self.model, self.window, self.price) = of(spec);
    }

    pub(crate) fn model(&self) -> &str {
        &self.model
    }

    /// A message of the conversation.
    pub(crate) fn see(&mut self, message: &Message) {
        if let Message::Assistant(reply) = message
            && reply.usage.total() > 0
        {
            self.context = Some(reply.usage.total());
        }
    }

    /// What a reply has cost.
    pub(crate) fn pay(&mut self, message: &Message) {
        if let (Message::Assistant(reply), Some(price)) = (message, &self.price) {
            self.running += price.cost(&reply.usage);
        }
    }

    /// A run goes on that has cost this already.
    pub(crate) fn goes_on_from(&mut self, cost: Money) {
        self.running = cost;
    }

    /// A run has ended, and has cost this.
    pub(crate) fn settle(&mut self, cost: Money) {
        self.settled += cost;
        self.running = Money::ZERO;
    }

    /// The conversation isn't what it was.
    pub(crate) fn forget_context(&mut self) {
        self.context = None;
    }

    pub(crate) fn cost(&self) -> Money {
        self.settled + self.running
    }

    /// As much of it as fits. `busy` is what goes on, and for how long.
    pub(crate) fn line(&self, busy: Option<(&str, Duration)>, queued: usize, width: usize) -> String {
        let mut parts = Vec::new();
        if let Some((what, time)) = busy {
            parts.push(what.to_owned());
            parts.push(seconds(time));
        }
        if queued > 0 {
            parts.push(format!("{queued} queued"));
        }
        if let Some(context) = self.context {
            parts.push(match self.window {
                Some(window) if window > 0 => {
                    format!("{}/{} ({}%)", count(context), count(window.into()), context * 100 / u64::from(window))
                }
                _ => format!("{} tokens", count(context)),
            });
        }
        if self.cost() > Money::ZERO {
            parts.push(cost(self.cost()));
        }
        if let (None, Some(took)) = (busy, self.took) {
            parts.push(seconds(took));
        }
        if busy.is_some() {
            parts.push("esc interrupts".into());
        }
        let rest = parts.join(" · ");
        let room = width.saturating_sub(columns(&rest) + 3);
        // A name of a few letters says nothing.
        match room {
            _ if rest.is_empty() => fit(&self.model, width).into_owned(),
            0..10 => fit(&rest, width).into_owned(),
            room => format!("{} · {rest}", fit(&self.model, room)),
        }
    }
}

fn of(spec: &ModelSpec) -> (String, Option<u32>, Option<Price>) {
    (line(&format!("{}/{}", spec.provider, spec.id)), spec.context_window, spec.price.clone())
}

fn seconds(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{}:{:02} min", seconds / 60, seconds % 60),
        seconds => format!("{}:{:02} h", seconds / 3600, seconds / 60 % 60),
    }
}

pub(crate) fn count(tokens: u64) -> String {
    match tokens {
        0..1000 => tokens.to_string(),
        1000..100_000 => format!("{:.1}k", tokens as f64 / 1e3),
        100_000..1_000_000 => format!("{}k", tokens / 1000),
        _ => format!("{:.1}M", tokens as f64 / 1e6),
    }
}
