use serde::{Deserialize, Serialize};
use terret_agent::SessionId;
use terret_agent::machine::Record;
use terret_llm::{Message, Money, Usage};

use crate::reader::Kept;
use crate::setup::Setup;

/// What a list of sessions shows of one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SessionInfo {
    /// Its name.
    pub id: SessionId,
    /// What somebody called it.
    pub title: Option<String>,
    /// The start of what was first said, at most 200 characters.
    pub first_prompt: Option<String>,
    /// When it was made, in Unix milliseconds.
    pub created: i64,
    /// When it was last appended to, in Unix milliseconds.
    pub updated: i64,
    /// What it was set up with.
    #[serde(default)]
    pub setup: Setup,
    /// Who replied last, as `provider/model`.
    pub model: Option<String>,
    /// How many replies it has.
    pub turns: u64,
    /// How many messages its transcript has, and results that are not yet in it.
    #[serde(default)]
    pub messages: u64,
    /// How many records it has.
    pub records: u64,
    /// The tokens of all its model calls, also of failed ones.
    pub usage: Usage,
    /// What they cost, as far as the prices are known.
    pub cost: Money,
    /// Whether its last run hasn't ended: it goes on, or was interrupted.
    pub unfinished: bool,
    /// What it was forked from.
    pub origin: Option<Origin>,
    /// Why it can't be listed as it should.
    pub trouble: Option<String>,
}

/// What a session was forked from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// The other session.
    pub session: SessionId,
    /// How many of its records were copied.
    pub records: u64,
}

impl SessionInfo {
    pub(crate) fn new(id: SessionId) -> Self {
        Self {
            id,
            title: None,
            first_prompt: None,
            created: 0,
            updated: 0,
            setup: Setup::default(),
            model: None,
            turns: 0,
            messages: 0,
            records: 0,
            usage: Usage::default(),
            cost: Money::ZERO,
            unfinished: false,
            origin: None,
            trouble: None,
        }
    }

    /// Takes a further record in.
    pub(crate) fn take_in(&mut self, kept: &Kept) {
        (self.records, self.updated) = (kept.seq + 1, kept.at);
        match &kept.record {
            Record::RunStarted { prompt, .. } => {
                self.unfinished = true;
                if let Some(prompt) = prompt {
                    self.said(prompt);
                }
            }
            Record::Queued { message, .. } => self.said(message),
            Record::Delivered { ids } => self.messages += ids.len() as u64,
            Record::Objected { .. } | Record::CallClosed { .. } => self.messages += 1,
            Record::ReplyAccepted { message, cost } => {
                self.turns += 1;
                self.messages += 1;
                self.cost += *cost;
                if let Message::Assistant(reply) = &**message {
                    self.usage += reply.usage;
                    self.model = Some(format!("{}/{}", reply.provider, reply.model));
                }
            }
            Record::AttemptFailed { usage, cost, .. } | Record::Compacted { usage, cost, .. } => {
                self.usage += *usage;
                self.cost += *cost;
            }
            Record::RunEnded { .. } => self.unfinished = false,
            _ => {}
        }
    }

    fn said(&mut self, message: &Message) {
        if self.first_prompt.is_none()
            && let Message::User(user) = message
        {
            let text = user.content.iter().find_map(|content| content.as_text());
            self.first_prompt = text.map(|text| text.trim().chars().take(200).collect());
        }
    }
}
