//! Token counts, from as many reports as a host sends.

use super::frame;
use crate::transcript::Usage;

/// What has been told so far. A later report replaces the numbers that it has; none are added up.
#[derive(Default)]
pub(super) struct Counts {
    prompt: Option<u64>,
    completion: Option<u64>,
    total: Option<u64>,
    cached: Option<u64>,
    cache_write: Option<u64>,
    reasoning: Option<u64>,
}

impl Counts {
    pub(super) fn take(&mut self, report: &frame::Usage) {
        let prompt = &report.prompt_tokens_details;
        let cached = prompt.cached_tokens.or(report.prompt_cache_hit_tokens).or(report.cached_tokens);
        let reasoning = report.completion_tokens_details.reasoning_tokens.or(report.reasoning_tokens);
        self.prompt = report.prompt_tokens.or(self.prompt);
        self.completion = report.completion_tokens.or(self.completion);
        self.total = report.total_tokens.or(self.total);
        self.cached = cached.or(self.cached);
        self.cache_write = prompt.cache_write_tokens.or(self.cache_write);
        self.reasoning = reasoning.or(self.reasoning);
    }

    pub(super) fn write(&self, usage: &mut Usage) {
        let of = |count: Option<u64>| count.unwrap_or(0);
        let (prompt, completion, reasoning) = (of(self.prompt), of(self.completion), of(self.reasoning));
        // By the reference, reasoning is a part of the completion. xAI counts it besides, and its total tells.
        let besides = reasoning > completion
            || self.total.is_some_and(|total| total == prompt.saturating_add(completion).saturating_add(reasoning));
        usage.cache_read = of(self.cached);
        usage.cache_write = of(self.cache_write);
        usage.input = prompt.saturating_sub(usage.cache_read).saturating_sub(usage.cache_write);
        usage.output = if besides { completion.saturating_add(reasoning) } else { completion };
        usage.reasoning = reasoning;
    }
}
