//! Another try for a model call that failed before anything of its reply arrived.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use tokio_util::sync::CancellationToken;

use crate::draft::Draft;
use crate::error::{ErrorKind, ModelError};
use crate::model::{Model, ModelSpec};
use crate::request::Request;
use crate::stream::{Failed, ReplyStream, StreamEvent};

/// When to try again, and how long to wait before it.
///
/// A wait that the provider asks for (`retry-after-ms`, `retry-after`, Google's `retryDelay`) is kept to the full, and
/// one that is longer than [`max_wait`](Self::max_wait) fails the call at once. Where the provider names none, the waits
/// double from [`base`](Self::base) to [`max_backoff`](Self::max_backoff), each shortened by up to a quarter at random,
/// so that many callers don't come back at the same moment. The numbers of the default are those of the OpenAI and
/// Anthropic SDKs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Tries after the first one. Default: 2.
    pub retries: u32,
    /// The first wait. Default: 500 ms.
    pub base: Duration,
    /// The longest wait of our own choice. Default: 8 s.
    pub max_backoff: Duration,
    /// The longest wait that a provider may ask for. Default: 60 s.
    pub max_wait: Duration,
}

impl RetryPolicy {
    /// One try only.
    pub fn never() -> Self {
        Self { retries: 0, ..Self::default() }
    }

    /// How long to wait after the try with this number (counted from 0) failed with `error`; `None` to give up.
    /// `random` is in `0.0..1.0`.
    pub fn wait(&self, attempt: u32, error: &ModelError, random: f64) -> Option<Duration> {
        if attempt >= self.retries || !error.is_retryable() {
            return None;
        }
        match error.retry_after.filter(|asked| !asked.is_zero()) {
            Some(asked) => (asked <= self.max_wait).then_some(asked),
            None => {
                let doubled = self.base.saturating_mul(2_u32.saturating_pow(attempt)).min(self.max_backoff);
                Some(doubled.mul_f64(1.0 - 0.25 * random.clamp(0.0, 1.0)))
            }
        }
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            retries: 2,
            base: Duration::from_millis(500),
            max_backoff: Duration::from_secs(8),
            max_wait: Duration::from_secs(60),
        }
    }
}

/// A model whose calls are tried again when they fail before the first block of the reply.
///
/// From then on a failure is reported like any other: readers have seen a part of the reply, and only the caller knows
/// what became of it. [`StreamEvent::Start`] is held back until it is known which try it belongs to.
#[derive(Clone)]
pub struct Retry<M> {
    model: M,
    policy: RetryPolicy,
    random: Arc<dyn Fn() -> f64 + Send + Sync>,
}

impl<M> Retry<M> {
    /// This model with this policy.
    pub fn new(model: M, policy: RetryPolicy) -> Self {
        Self { model, policy, random: Arc::new(random) }
    }

    /// The same with another source of numbers in `0.0..1.0`, for tests.
    #[must_use]
    pub fn with_random(mut self, random: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        self.random = Arc::new(random);
        self
    }

    /// The model without retries.
    pub fn into_inner(self) -> M {
        self.model
    }
}

impl<M: Model + Clone + 'static> Model for Retry<M> {
    fn spec(&self) -> &Arc<ModelSpec> {
        self.model.spec()
    }

    fn stream(&self, request: Request, cancel: CancellationToken) -> ReplyStream {
        let this = self.clone();
        ReplyStream::new(stream::once(this.begin(request, cancel)).flatten())
    }
}

impl<M: Model> Retry<M> {
    /// Tries until a reply has begun or there are no more tries.
    async fn begin(self, request: Request, cancel: CancellationToken) -> impl Stream<Item = StreamEvent> {
        let Self { model, policy, random } = self;
        let mut attempt = 0;
        loop {
            let mut events = model.stream(request.clone(), cancel.clone());
            let mut start = None;
            let failed = loop {
                match events.next().await {
                    Some(event @ StreamEvent::Start { .. }) => start = Some(event),
                    Some(StreamEvent::Failed(failed)) => break failed,
                    first => return stream::iter(start.into_iter().chain(first)).chain(events),
                }
            };
            let ended = |start: Option<StreamEvent>, failed| {
                let events = start.into_iter().chain(Some(StreamEvent::Failed(failed)));
                stream::iter(events).chain(ReplyStream::new(stream::empty()))
            };
            drop(events);
            let Some(wait) = policy.wait(attempt, &failed.error, random()) else {
                return ended(start, policy.explain(attempt, failed));
            };
            tracing::info!(error = %failed.error, ?wait, attempt, "the model call failed before its first event; trying again");
            if cancel.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
                let aborted = ModelError::new(ErrorKind::Aborted, "the call was cancelled");
                return ended(None, Draft::new(model.spec()).into_failed(aborted));
            }
            attempt += 1;
        }
    }
}

impl<M: std::fmt::Debug> std::fmt::Debug for Retry<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Retry").field("model", &self.model).field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl RetryPolicy {
    /// Says why a failure that looks like a passing one ends the call.
    fn explain(&self, attempt: u32, mut failed: Failed) -> Failed {
        let error = &mut failed.error;
        if attempt > 0 {
            error.tries = attempt + 1;
        }
        let asked = error.retry_after.filter(|asked| *asked > self.max_wait);
        let why = match asked {
            Some(asked) if error.is_retryable() => {
                format!("the provider asks to wait {asked:?}, longer than the limit of {:?}", self.max_wait)
            }
            _ if attempt > 0 => format!("{} tries failed", attempt + 1),
            _ => return failed,
        };
        error.message = format!("{} ({why})", error.message);
        failed.partial.error = Some(Box::new(error.clone()));
        failed
    }
}

/// Uniform in `0.0..1.0`, from the keys that the standard library draws for each hash map.
fn random() -> f64 {
    let bits = RandomState::new().hash_one(0_u8) >> 11;
    bits as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use tokio::time::Instant;

    use super::*;
    use crate::draft::Stop;
    use crate::stream::{BlockKind, Reply};
    use crate::transcript::StopReason;
    use crate::wire::{WireFormat, from_response};

    /// What one try does: streams a text or nothing, and then fails or not.
    #[derive(Clone)]
    struct Try(&'static str, Option<ModelError>);

    /// A model that does what it is told, and notes when it was asked.
    #[derive(Clone)]
    struct Told {
        spec: Arc<ModelSpec>,
        tries: Arc<Mutex<VecDeque<Try>>>,
        asked: Arc<Mutex<Vec<Instant>>>,
    }

    impl Told {
        fn to(tries: impl IntoIterator<Item = Try>) -> Self {
            Self {
                spec: Arc::new(ModelSpec::new("p", "m", WireFormat::default())),
                tries: Arc::new(Mutex::new(tries.into_iter().collect())),
                asked: Arc::default(),
            }
        }

        /// The seconds between the tries.
        fn waits(&self) -> Vec<f64> {
            let asked = self.asked.lock().unwrap();
            asked.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect()
        }
    }

    impl Model for Told {
        fn spec(&self) -> &Arc<ModelSpec> {
            &self.spec
        }

        fn stream(&self, _: Request, _: CancellationToken) -> ReplyStream {
            self.asked.lock().unwrap().push(Instant::now());
            let Try(text, error) = self.tries.lock().unwrap().pop_front().expect("no further try");
            let mut draft = Draft::new(&self.spec);
            draft.start();
            if !text.is_empty() {
                let block = draft.open(BlockKind::Text);
                draft.append(block, text);
            }
            let events = match error {
                Some(error) => draft.fail(error),
                None => draft.done(Stop { reason: StopReason::Stop, raw: None }),
            };
            ReplyStream::new(futures_util::stream::iter(events))
        }
    }

    fn overloaded() -> ModelError {
        from_response(529, |_| None, b"")
    }

    fn limited(header: &'static str, value: &'static str) -> ModelError {
        let headers = move |asked: &str| match asked {
            "date" => Some("Sun, 06 Nov 1994 08:49:07 GMT".to_owned()),
            _ => (asked == header).then(|| value.to_owned()),
        };
        from_response(429, headers, br#"{"error":{"message":"slow down"}}"#)
    }

    async fn call(model: &Told, policy: RetryPolicy) -> Result<Reply, Failed> {
        let retry = Retry::new(model.clone(), policy).with_random(|| 0.0);
        retry.stream(Request::default(), CancellationToken::new()).finish().await
    }

    #[tokio::test(start_paused = true)]
    async fn a_passing_failure_is_tried_again_after_growing_waits() {
        let model = Told::to([Try("", Some(overloaded())), Try("", Some(overloaded())), Try("hi", None)]);
        let reply = call(&model, RetryPolicy::default()).await.unwrap();
        assert_eq!(reply.message().text(), "hi");
        assert_eq!(model.waits(), [0.5, 1.0]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_try_fails_the_call_and_says_how_many_there_were() {
        let model = Told::to(vec![Try("", Some(overloaded())); 3]);
        let failed = call(&model, RetryPolicy::default()).await.unwrap_err();
        assert_eq!(failed.error.kind, ErrorKind::Overloaded);
        assert!(failed.error.message.contains("3 tries"), "{failed}");
        assert_eq!(failed.partial.error.as_deref(), Some(&failed.error));
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_that_the_provider_asks_for_is_kept_in_every_form() {
        for (header, value, seconds) in [
            ("retry-after", "7", 7.0),
            ("retry-after", "1.5", 1.5),
            ("retry-after-ms", "2500", 2.5),
            ("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT", 30.0),
            ("retry-after", "60", 60.0),
            // Not a wait: the usual one.
            ("retry-after", "0", 0.5),
            ("retry-after", "soon", 0.5),
        ] {
            let model = Told::to([Try("", Some(limited(header, value))), Try("hi", None)]);
            call(&model, RetryPolicy::default()).await.unwrap();
            assert_eq!(model.waits(), [seconds], "{header}: {value}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_beyond_the_limit_fails_at_once_and_is_told() {
        let model = Told::to([Try("", Some(limited("retry-after", "3600")))]);
        let began = Instant::now();
        let failed = call(&model, RetryPolicy::default()).await.unwrap_err();
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert_eq!(failed.error.kind, ErrorKind::RateLimited);
        assert_eq!(failed.error.retry_after, Some(Duration::from_secs(3600)));
        assert!(failed.error.message.contains("3600s"), "{failed}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_retry_cannot_mend_is_not_tried_again() {
        use ErrorKind::*;
        let kinds = [Auth, Permission, Quota, ContextOverflow, InvalidRequest, NotFound, Refused, Protocol, Aborted];
        let mut errors: Vec<ModelError> = kinds.map(|kind| ModelError::new(kind, "no")).into();
        errors.push(limited("x-should-retry", "false"));
        for error in errors {
            let model = Told::to([Try("", Some(error.clone()))]);
            assert_eq!(call(&model, RetryPolicy::default()).await.unwrap_err().error, error);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_after_the_first_block_is_reported_with_what_arrived() {
        let model = Told::to([Try("he", Some(overloaded()))]);
        let failed = call(&model, RetryPolicy::default()).await.unwrap_err();
        assert_eq!(failed.error, overloaded());
        assert_eq!(failed.partial.text(), "he");
    }

    #[tokio::test(start_paused = true)]
    async fn there_is_one_start_although_a_try_that_began_was_given_up() {
        let model = Told::to([Try("", Some(overloaded())), Try("hi", None)]);
        let mut stream = Retry::new(model, RetryPolicy::default()).stream(Request::default(), CancellationToken::new());
        let mut starts = 0;
        while let Some(event) = stream.next().await {
            starts += usize::from(matches!(event, StreamEvent::Start { .. }));
        }
        assert_eq!(starts, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancel_ends_the_wait() {
        let model = Told::to([Try("", Some(limited("retry-after", "50")))]);
        let cancel = CancellationToken::new();
        let stream = Retry::new(model, RetryPolicy::default()).stream(Request::default(), cancel.clone());
        let began = Instant::now();
        let (end, ()) = tokio::join!(stream.finish(), async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            cancel.cancel();
        });
        let failed = end.unwrap_err();
        assert_eq!((failed.error.kind, failed.partial.stop_reason), (ErrorKind::Aborted, StopReason::Aborted));
        assert_eq!(began.elapsed(), Duration::from_secs(2));
    }

    #[test]
    fn waits_double_to_the_cap_and_are_shortened_by_at_most_a_quarter() {
        let policy = RetryPolicy { retries: 10, ..RetryPolicy::default() };
        let wait = |attempt, random| policy.wait(attempt, &overloaded(), random).unwrap().as_millis();
        let full: Vec<u128> = (0..6).map(|attempt| wait(attempt, 0.0)).collect();
        assert_eq!(full, [500, 1000, 2000, 4000, 8000, 8000]);
        assert_eq!(wait(0, 1.0), 375);
        assert_eq!(policy.wait(10, &overloaded(), 0.0), None);
    }

    #[test]
    fn the_random_numbers_are_spread_over_their_range() {
        let numbers: Vec<f64> = (0..1000).map(|_| random()).collect();
        assert!(numbers.iter().all(|number| (0.0..1.0).contains(number)));
        let mean = numbers.iter().sum::<f64>() / 1000.0;
        assert!((0.4..0.6).contains(&mean), "{mean}");
    }
}
