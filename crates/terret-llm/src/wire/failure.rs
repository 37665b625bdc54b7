//! Error answers of all providers, as one kind of data.
//!
//! The status and the provider's code decide; its text is read only where those say nothing more than "bad request".
//! The tables hold what providers document and what recorded answers of some forty hosts show.

use std::time::Duration;

use serde_json::Value;

use crate::error::{ErrorKind, ModelError};
use crate::transcript::replace_lone_surrogates;

/// The error that a response with a failure status means. `header` looks a header up by its lower-case name.
pub fn from_response(status: u16, header: impl Fn(&str) -> Option<String>, body: &[u8]) -> ModelError {
    let body = String::from_utf8_lossy(body);
    let json = serde_json::from_str::<Value>(&replace_lone_surrogates(&body)).ok();
    let mut error = match &json {
        Some(json) => from_json(json, Some(status)),
        None => {
            let kind = classify(Some(status), &[], &body);
            ModelError::new(kind, excerpt(&body, status))
        }
    };
    error.status = Some(status);
    error.request_id = request_id(&header).or(error.request_id);
    error.should_retry = header("x-should-retry").and_then(|value| value.trim().parse().ok());
    error.retry_after = retry_after(header).or(error.retry_after);
    error
}

/// The provider's id of a request, from the headers of the response.
pub(crate) fn request_id(header: impl Fn(&str) -> Option<String>) -> Option<String> {
    ["request-id", "x-request-id", "x-goog-request-id", "cf-ray"].into_iter().find_map(header)
}

/// The error that a JSON value means which a provider sent as one: a body, or an event in mid-stream.
///
/// Known shapes: `{"error":{…}}`, `{"error":"…"}`, `{"detail":…}`, the bare error object, and a list around any of them.
pub(crate) fn from_json(json: &Value, status: Option<u16>) -> ModelError {
    let outer = json.as_array().and_then(|list| list.first()).unwrap_or(json);
    let inner = outer.get("error").or_else(|| outer.get("detail")).unwrap_or(outer);
    // A JSON object under `error` may nest once more (`{"error":{"error":{…}}}` from gateways).
    let inner = inner.get("error").filter(|nested| nested.is_object()).unwrap_or(inner);
    let message = [inner.get("message"), outer.get("message"), inner.get("msg"), inner.get("details")]
        .into_iter()
        .flatten()
        .chain([inner])
        .find_map(|value| value.as_str())
        .map_or_else(|| inner.to_string(), str::to_owned);
    let message = match inner.pointer("/metadata/raw").and_then(Value::as_str) {
        Some(raw) => format!("{message}: {raw}"),
        None => message,
    };
    let fields = ["code", "type", "status", "reason"].map(|key| inner.get(key));
    let reasons =
        inner.get("details").and_then(Value::as_array).into_iter().flatten().map(|detail| detail.get("reason"));
    let codes: Vec<&str> = fields.into_iter().chain(reasons).flatten().filter_map(Value::as_str).collect();
    let number = ["code", "status_code", "status"]
        .into_iter()
        .find_map(|key| u16::try_from(inner.get(key)?.as_u64()?).ok())
        .filter(|number| (400..600).contains(number));
    let status = status.filter(|status| *status >= 400).or(number);
    let mut error = ModelError::new(classify(status, &codes, &message), message);
    error.status = status;
    error.code = codes.first().map(|code| (*code).to_owned());
    error.request_id = outer.get("request_id").and_then(Value::as_str).map(str::to_owned);
    error.retry_after = inner
        .get("details")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .find_map(|detail| detail.get("retryDelay")?.as_str()?.strip_suffix('s')?.parse().ok())
        .and_then(seconds);
    error
}

/// The error of a successful response whose body should be JSON and isn't: a proxy's page, say.
pub(crate) fn not_json(body: &str) -> ModelError {
    ModelError::new(ErrorKind::Protocol, excerpt(body, 200))
}

/// Codes that say by themselves what happened, lower-cased and without separators.
const CODES: &[(ErrorKind, &[&str])] = &[
    (
        ErrorKind::Quota,
        &[
            "insufficientquota",
            "billinghardlimitreached",
            "billingnotactive",
            "billingerror",
            "insufficientbalance",
            "insufficientcredits",
            "paymentrequired",
            "usagelimitreached",
            "quotaexceeded",
            "monthlyusagelimit",
        ],
    ),
    (
        ErrorKind::ContextOverflow,
        &[
            "contextlengthexceeded",
            "exceedcontextsizeerror",
            "toomanyprompttokens",
            "modelcontextwindowexceeded",
            "contextwindowexceeded",
            "requesttoolarge",
            "promptistoolong",
        ],
    ),
    (
        ErrorKind::Auth,
        &["authenticationerror", "invalidapikey", "unauthorized", "unauthenticated", "apikeyinvalid", "tokenexpired"],
    ),
    (ErrorKind::Permission, &["permissionerror", "permissiondenied", "forbidden", "accessdenied"]),
    (
        ErrorKind::RateLimited,
        &[
            "ratelimiterror",
            "ratelimitexceeded",
            "toomanyrequests",
            "resourceexhausted",
            "ratelimitreached",
            "throttlingexception",
            "throttling",
        ],
    ),
    (
        ErrorKind::Overloaded,
        &[
            "overloadederror",
            "overloaded",
            "unavailable",
            "serviceunavailable",
            "serverbusy",
            "engineoverloaded",
            "slowdown",
        ],
    ),
    (
        ErrorKind::NotFound,
        &["notfounderror", "modelnotfound", "notfound", "deploymentnotfound", "invalidmodel", "unknownmodel"],
    ),
    (
        ErrorKind::Refused,
        &[
            "contentfilter",
            "contentpolicyviolation",
            "responsibleaipolicyviolation",
            "imagecontentpolicyviolation",
            "biopolicy",
            "misalignmentpolicyviolation",
        ],
    ),
    (
        ErrorKind::InvalidRequest,
        &[
            "invalidprompt",
            "dataresidencymismatch",
            "invalidimage",
            "invalidimageformat",
            "invalidimagemode",
            "invalidimageurl",
            "invalidbase64image",
            "imagetoolarge",
            "imagetoosmall",
            "imagefiletoolarge",
            "imagefilenotfound",
            "imageparseerror",
            "emptyimagefile",
            "unsupportedimagemediatype",
            "failedtodownloadimage",
        ],
    ),
    (ErrorKind::Server, &["servererror", "apierror", "internalservererror", "internalerror", "internal"]),
];

fn classify(status: Option<u16>, codes: &[&str], message: &str) -> ErrorKind {
    let codes: Vec<String> = codes
        .iter()
        .map(|code| code.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase())
        .collect();
    let by_code = CODES.iter().find(|(_, known)| codes.iter().any(|code| known.contains(&code.as_str())));
    let by_code = by_code.map(|(kind, _)| *kind);
    let text = message.to_lowercase();
    // In a stream there is no status, but this type stands for one.
    let invalid = codes.iter().any(|code| code == "invalidrequesterror");
    let status = status.or(invalid.then_some(400));
    match status {
        Some(429) if by_code == Some(ErrorKind::Quota) => ErrorKind::Quota,
        Some(429) if says_quota(&text) => ErrorKind::Quota,
        Some(429) => by_code.filter(|kind| *kind == ErrorKind::Overloaded).unwrap_or(ErrorKind::RateLimited),
        Some(401) => ErrorKind::Auth,
        Some(402) => ErrorKind::Quota,
        Some(403) => {
            by_code.filter(|kind| matches!(kind, ErrorKind::Auth | ErrorKind::Quota)).unwrap_or(ErrorKind::Permission)
        }
        Some(404) => ErrorKind::NotFound,
        Some(413) => ErrorKind::ContextOverflow,
        Some(503 | 529) => by_code.filter(|kind| *kind == ErrorKind::Quota).unwrap_or(ErrorKind::Overloaded),
        Some(500..) => by_code.filter(|kind| *kind != ErrorKind::Refused).unwrap_or(ErrorKind::Server),
        Some(408 | 409 | 425) => ErrorKind::Server,
        Some(400 | 422) | None => by_code.unwrap_or_else(|| by_text(&text, status)),
        Some(_) => by_code.unwrap_or(ErrorKind::InvalidRequest),
    }
}

/// The last resort, for an answer that says no more than "bad request".
fn by_text(text: &str, status: Option<u16>) -> ErrorKind {
    if says_overflow(text) {
        ErrorKind::ContextOverflow
    } else if says_quota(text) {
        ErrorKind::Quota
    } else if has(text, &["api key not valid", "invalid api key", "incorrect api key"]) {
        ErrorKind::Auth
    } else if has(text, &["not a valid model", "invalid model", "supported api model names", "no such model"])
        || (text.contains("model") && has(text, &["does not exist", "not found"]))
    {
        ErrorKind::NotFound
    } else if status.is_none() && has(text, &["overloaded", "over capacity"]) {
        ErrorKind::Overloaded
    } else if status.is_none() && has(text, &["rate limit", "too many requests"]) {
        ErrorKind::RateLimited
    } else if status.is_none() {
        ErrorKind::Server
    } else {
        ErrorKind::InvalidRequest
    }
}

fn says_quota(text: &str) -> bool {
    has(
        text,
        &["exceeded your current quota", "insufficient balance", "credit balance", "insufficient credits", "billing"],
    )
}

fn says_overflow(text: &str) -> bool {
    let window = ["context length", "context window", "context size", "context limit"];
    let beyond = ["exceed", "maximum", "too long", "greater than", "longer than", "larger than", "too large", ">"];
    (has(text, &window) && has(text, &beyond))
        || has(
            text,
            &[
                "prompt is too long",
                "prompt too long",
                "prompt exceeds max length",
                "maximum prompt length",
                "input is too long",
                "length of all messages is too long",
                "reduce the length of the messages",
                "model token limit",
            ],
        )
        || (has(text, &["input token count", "input tokens", "prompt tokens", "input length"])
            && has(text, &["exceeds the maximum", "maximum allowed"]))
}

fn has(text: &str, phrases: &[&str]) -> bool {
    phrases.iter().any(|phrase| text.contains(phrase))
}

/// `retry-after-ms`, or `retry-after` in seconds or as an HTTP date, which counts from the server's own `date`.
fn retry_after(header: impl Fn(&str) -> Option<String>) -> Option<Duration> {
    if let Some(millis) = header("retry-after-ms").and_then(|value| value.trim().parse::<f64>().ok()) {
        return seconds(millis / 1000.0);
    }
    let value = header("retry-after")?;
    match value.trim().parse::<f64>() {
        Ok(number) => seconds(number),
        Err(_) => {
            let then = httpdate::parse_http_date(value.trim()).ok()?;
            let now = header("date").and_then(|date| httpdate::parse_http_date(date.trim()).ok());
            Some(then.duration_since(now.unwrap_or_else(std::time::SystemTime::now)).unwrap_or_default())
        }
    }
}

fn seconds(number: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(number).ok()
}

/// What to show of a body that isn't JSON.
fn excerpt(body: &str, status: u16) -> String {
    let start = body.trim_start().to_ascii_lowercase();
    let text = if start.starts_with('<') { strip_tags(body) } else { body.to_owned() };
    let words: Vec<&str> = text.split_whitespace().collect();
    let line: String = words.join(" ").chars().take(300).collect();
    match (line.is_empty(), start.starts_with('<')) {
        (true, _) => format!("HTTP status {status} with an empty body"),
        (false, true) => format!("HTTP status {status} with an HTML page instead of JSON: {line}"),
        (false, false) => line,
    }
}

fn strip_tags(html: &str) -> String {
    let mut text = String::new();
    for piece in html.split('<') {
        text.push_str(piece.split_once('>').map_or(piece, |(_, after)| after));
        text.push(' ');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(status: u16, body: &str) -> ErrorKind {
        from_response(status, |_| None, body.as_bytes()).kind
    }

    #[test]
    fn status_and_code_decide_before_text() {
        for (status, body, expected) in [
            (429, r#"{"error":{"message":"Your request exceeds the limit of 10 requests"}}"#, ErrorKind::RateLimited),
            (429, r#"{"error":{"message":"prompt is too long","type":"rate_limit_error"}}"#, ErrorKind::RateLimited),
            (429, r#"{"error":{"message":"…","code":"insufficient_quota"}}"#, ErrorKind::Quota),
            (529, "", ErrorKind::Overloaded),
            (400, r#"{"error":{"message":"invalid timeout parameter: must be integer"}}"#, ErrorKind::InvalidRequest),
            (400, r#"{"error":{"message":"File size exceeds the limit of 5242880 bytes"}}"#, ErrorKind::InvalidRequest),
            (400, r#"{"error":{"message":"Thinking token limit exceeded"}}"#, ErrorKind::InvalidRequest),
            (
                400,
                r#"{"error":{"message":"input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"}}"#,
                ErrorKind::ContextOverflow,
            ),
            (500, r#"{"error":{"message":"invalid api key","type":"server_error"}}"#, ErrorKind::Server),
            (401, "<html>nginx</html>", ErrorKind::Auth),
            (402, "{}", ErrorKind::Quota),
        ] {
            assert_eq!(kind(status, body), expected, "{status} {body}");
        }
    }

    #[test]
    fn the_wait_that_the_provider_asks_for_is_read_in_every_form() {
        let header = |name: &'static str, value: String| move |asked: &str| (asked == name).then(|| value.clone());
        let wait = |error: ModelError| error.retry_after.map(|wait| wait.as_secs_f64());
        assert_eq!(wait(from_response(429, header("retry-after", "7".into()), b"{}")), Some(7.0));
        assert_eq!(wait(from_response(429, header("retry-after-ms", "1500".into()), b"{}")), Some(1.5));
        let date = httpdate::fmt_http_date(std::time::SystemTime::now() + Duration::from_secs(60));
        let seconds = wait(from_response(429, header("retry-after", date), b"{}")).unwrap();
        assert!((50.0..=60.0).contains(&seconds), "{seconds}");
        let body = br#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.5s"}]}}"#;
        assert_eq!(wait(from_response(429, |_| None, body)), Some(34.5));
        assert_eq!(wait(from_response(429, header("retry-after", "soon".into()), b"{}")), None);
        let clock_of_the_server = |asked: &str| match asked {
            "date" => Some("Sun, 06 Nov 1994 08:49:07 GMT".to_owned()),
            "retry-after" => Some("Sun, 06 Nov 1994 08:49:37 GMT".to_owned()),
            _ => None,
        };
        assert_eq!(wait(from_response(429, clock_of_the_server, b"{}")), Some(30.0));
    }

    #[test]
    fn the_providers_own_word_on_retrying_counts() {
        let says = |word: &'static str| move |asked: &str| (asked == "x-should-retry").then(|| word.to_owned());
        assert!(!from_response(429, says("false"), b"{}").is_retryable());
        assert!(from_response(400, says("true"), b"{}").is_retryable());
        assert!(from_response(429, says("perhaps"), b"{}").is_retryable());
    }

    #[test]
    fn html_is_said_to_be_html() {
        let error = from_response(502, |_| None, b"<html><h1>502 Bad Gateway</h1></html>");
        assert_eq!(error.kind, ErrorKind::Server);
        assert_eq!(error.message, "HTTP status 502 with an HTML page instead of JSON: 502 Bad Gateway");
    }
}
