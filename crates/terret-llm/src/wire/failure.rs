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
            let kind = classify(Some(status), &[], &body, false);
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
/// Known shapes: `{"error":{…}}`, `{"error":"…"}`, `{"errors":[…]}`, `{"detail":…}`, MiniMax's `{"base_resp":{…}}`, the
/// bare error object, and a list around any of them.
pub(crate) fn from_json(json: &Value, status: Option<u16>) -> ModelError {
    let outer = first(json);
    let inner = ["error", "errors", "detail", "base_resp"]
        .into_iter()
        .find_map(|key| outer.get(key).filter(|inner| !inner.is_null()))
        .map_or(outer, first);
    // A JSON object under `error` may nest once more (`{"error":{"error":{…}}}` from gateways).
    let inner = inner.get("error").filter(|nested| nested.is_object()).unwrap_or(inner);
    let said = if inner.is_object() { said(inner).or_else(|| said(outer)) } else { said(outer) };
    let raw = inner.pointer("/metadata/raw").and_then(Value::as_str);
    // Gateways hand on what their provider said as a text, which is JSON again.
    let origin = [said.as_deref(), raw].into_iter().flatten().find_map(|text| quoted(text, status));
    let message = said.unwrap_or_else(|| inner.to_string());
    let message = match (&origin, raw) {
        (Some(origin), None) => origin.message.clone(),
        (Some(origin), Some(_)) => format!("{message}: {}", origin.message),
        (None, Some(raw)) => format!("{message}: {raw}"),
        (None, None) => message,
    };
    let holder = if inner.is_object() { inner } else { outer };
    let details = || holder.get("details").and_then(Value::as_array).into_iter().flatten();
    let fields = ["code", "type", "status", "reason"].map(|key| holder.get(key));
    let reasons = details().map(|detail| detail.get("reason"));
    let mut codes: Vec<&str> = fields.into_iter().chain(reasons).flatten().filter_map(Value::as_str).collect();
    let number = |key| holder.get(key).and_then(|value| value.as_u64().or_else(|| value.as_str()?.parse().ok()));
    let status_in_body = ["code", "status_code", "status"]
        .into_iter()
        .find_map(|key| u16::try_from(number(key)?).ok().filter(|number| (400..600).contains(number)));
    let status = status.filter(|status| *status >= 300).or(status_in_body);
    let retry_after = details()
        .find_map(|detail| detail.get("retryDelay")?.as_str()?.strip_suffix('s')?.parse().ok())
        .and_then(seconds)
        .or_else(|| wait_in_words(&message))
        .or_else(|| origin.as_ref()?.retry_after);
    codes.extend(origin.as_ref().and_then(|origin| origin.code.as_deref()));
    let by_number = number("status_code").filter(|_| outer.get("base_resp").is_some()).and_then(minimax);
    let kind = by_number.unwrap_or_else(|| classify(status, &codes, &message, retry_after.is_some()));
    let mut error = ModelError::new(kind, message);
    error.status = status;
    error.code = codes.first().map(|code| (*code).to_owned());
    error.request_id = outer.get("request_id").and_then(Value::as_str).map(str::to_owned);
    error.retry_after = retry_after;
    error
}

/// The error that a text quotes.
fn quoted(text: &str, status: Option<u16>) -> Option<ModelError> {
    let json: Value = text.trim_start().starts_with(['{', '[']).then(|| serde_json::from_str(text).ok())??;
    // It is shorter than what quotes it, so that this ends.
    Some(from_json(&json, status))
}

fn first(json: &Value) -> &Value {
    json.as_array().and_then(|list| list.first()).unwrap_or(json)
}

/// What an error says, wherever it says it. FastAPI tells for each field what is wrong with it.
fn said(json: &Value) -> Option<String> {
    match json {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Array(list) => {
            let parts: Vec<String> = list.iter().filter_map(said).collect();
            (!parts.is_empty()).then(|| parts.join("; "))
        }
        Value::Object(fields) => {
            let message = ["message", "msg", "status_msg", "detail", "details", "error", "errors"]
                .into_iter()
                .find_map(|key| said(fields.get(key)?))?;
            let place = fields.get("loc").and_then(Value::as_array).map(|place| {
                let steps = place.iter().map(|step| step.as_str().map_or_else(|| step.to_string(), str::to_owned));
                steps.collect::<Vec<_>>().join(".")
            });
            Some(place.map_or_else(|| message.clone(), |place| format!("{place}: {message}")))
        }
        _ => None,
    }
}

/// MiniMax's [codes](https://platform.minimax.io/docs/api-reference/errorcode) that say more than the text beside them.
fn minimax(code: u64) -> Option<ErrorKind> {
    match code {
        1002 => Some(ErrorKind::RateLimited),
        1004 | 2049 => Some(ErrorKind::Auth),
        1008 => Some(ErrorKind::Quota),
        1026 | 1027 => Some(ErrorKind::Refused),
        _ => None,
    }
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
            "exceededcurrentquotaerror",
            "insufficientfunds",
            "arrearage",
            "accountoverdueerror",
            "notenoughbalance",
            "billingbalancenotenough",
            "creditserror",
            "gousagelimiterror",
            "freeusagelimiterror",
            "allocationquotafreetieronly",
            "organizationusagelimitexceeded",
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
            "modelmaxprompttokensexceeded",
            "maxprompttokensexceeded",
            "tokenslimitreached",
            "tokenstoolong",
            "characterstoolong",
        ],
    ),
    (
        ErrorKind::Auth,
        &[
            "authenticationerror",
            "invalidapikey",
            "unauthorized",
            "unauthenticated",
            "apikeyinvalid",
            "tokenexpired",
            "invalidauthenticationerror",
            "incorrectapikeyerror",
            "failedtoauth",
            "expiredtokenexception",
            "unrecognizedclientexception",
        ],
    ),
    (ErrorKind::Permission, &["permissionerror", "permissiondenied", "forbidden", "accessdenied"]),
    (ErrorKind::RateLimited, &["toomanyrequests", "resourceexhausted"]),
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
            "engineoverloadederror",
            "serveroverloaded",
            "modeloverloaded",
            "overcapacity",
            "servicetiercapacityexceeded",
        ],
    ),
    (
        ErrorKind::NotFound,
        &[
            "notfounderror",
            "modelnotfound",
            "notfound",
            "deploymentnotfound",
            "invalidmodel",
            "unknownmodel",
            "modelnotsupported",
            "modelnotopen",
            "resourcenotfounderror",
        ],
    ),
    (
        ErrorKind::Refused,
        &[
            "contentfilter",
            "contentpolicyviolation",
            "responsibleaipolicyviolation",
            "datainspectionfailed",
            "sensitivecontentdetected",
            "inputtextsensitivecontentdetected",
            "outputtextsensitivecontentdetected",
            "safetycheckfailed",
            "invalidprompt",
            "imagecontentpolicyviolation",
            "biopolicy",
            "misalignmentpolicyviolation",
        ],
    ),
    (
        ErrorKind::InvalidRequest,
        &[
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

/// What a code says by itself. Of those for too many requests there are as many as there are hosts.
fn by_code(code: &str) -> Option<ErrorKind> {
    let code: String = code.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let known = CODES.iter().find(|(_, known)| known.contains(&code.as_str())).map(|(kind, _)| *kind);
    known.or_else(|| has_prefix(&code, &["ratelimit", "throttling"]).then_some(ErrorKind::RateLimited))
}

/// `waits`: the provider says how long to wait, so that it isn't about money.
fn classify(status: Option<u16>, codes: &[&str], message: &str, waits: bool) -> ErrorKind {
    use ErrorKind::*;
    // Of several codes, the one that is most telling.
    let kinds: Vec<ErrorKind> = codes.iter().filter_map(|code| by_code(code)).collect();
    let by_code = CODES.iter().map(|(kind, _)| *kind).find(|kind| kinds.contains(kind));
    let text = message.to_lowercase();
    // In a stream there is no status, but this type stands for one.
    let invalid = codes.contains(&"invalid_request_error");
    let status = status.or(invalid.then_some(400));
    match status {
        Some(429) if by_code == Some(Quota) || says_quota(&text) && !waits => Quota,
        Some(429) => by_code.filter(|kind| *kind == Overloaded).unwrap_or(RateLimited),
        Some(401) => by_code.filter(|kind| *kind == Quota).unwrap_or(Auth),
        Some(402) => Quota,
        Some(403) => match by_code {
            Some(kind @ (Auth | Quota | Refused)) => kind,
            _ if says_quota(&text) => Quota,
            _ if says_refused(&text) => Refused,
            _ => Permission,
        },
        Some(404) => NotFound,
        Some(413) => ContextOverflow,
        // Groq's 498: no capacity for the flexible service tier.
        Some(498 | 503 | 529) => by_code.filter(|kind| *kind == Quota).unwrap_or(Overloaded),
        Some(500) if says_overflow(&text) => ContextOverflow,
        Some(500..) => by_code.filter(|kind| *kind != Refused).unwrap_or(Server),
        Some(408 | 409 | 425) => Server,
        // A bad request is none of the server's failures, whatever Ollama calls it.
        Some(400 | 422) => by_code.filter(|kind| *kind != Server).unwrap_or_else(|| by_text(&text, status)),
        None => by_code.unwrap_or_else(|| by_text(&text, status)),
        Some(_) => by_code.unwrap_or(if says_quota(&text) { Quota } else { InvalidRequest }),
    }
}

/// The last resort, for an answer that says no more than "bad request".
fn by_text(text: &str, status: Option<u16>) -> ErrorKind {
    if says_overflow(text) {
        ErrorKind::ContextOverflow
    } else if says_quota(text) {
        ErrorKind::Quota
    } else if says_refused(text) {
        ErrorKind::Refused
    } else if has(text, &["api key not valid", "invalid api key", "incorrect api key"]) {
        ErrorKind::Auth
    } else if has(text, &["not a valid model", "invalid model", "supported api model names", "no such model"])
        || (text.contains("model") && has(text, &["not exist", "not found"]))
    {
        ErrorKind::NotFound
    } else if status.is_none() && has(text, &["overloaded", "over capacity", "over_capacity"]) {
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
        &[
            "exceeded your current quota",
            "insufficient balance",
            "balance is insufficient",
            "credit balance",
            "insufficient credits",
            "used all available credits",
            "doesn't have any credits",
            "spending limit",
            "usage limit for this billing",
            "free-models-per-day",
            "billing",
        ],
    )
}

fn says_refused(text: &str) -> bool {
    has(
        text,
        &[
            "flagged",
            "content management policy",
            "inappropriate content",
            // DeepSeek's whole message.
            "content exists risk",
        ],
    )
}

fn says_overflow(text: &str) -> bool {
    let window =
        ["context length", "context window", "context size", "context limit", "model length", "maximum input length"];
    let beyond =
        ["exceed", "maximum", "too long", "greater than", "longer than", "larger than", "too large", "not enough", ">"];
    (has(text, &window) && has(text, &beyond))
        || has(
            text,
            &[
                "prompt is too long",
                "prompt too long",
                "prompt tokens too long",
                "prompt exceeds max length",
                "maximum prompt length",
                "input is too long",
                "length of all messages is too long",
                "reduce the length of the messages",
                "model token limit",
                "exceed max message tokens",
                "max_seq_len",
                // Alibaba's.
                "range of input length should be",
                // Text Generation Inference's.
                "`inputs` tokens + `max_new_tokens` must be",
            ],
        )
        || (has(text, &["input token count", "input tokens", "prompt tokens", "prompt token count", "input length"])
            && has(text, &["exceeds the maximum", "maximum allowed", "exceeds the limit"]))
}

fn has(text: &str, phrases: &[&str]) -> bool {
    phrases.iter().any(|phrase| text.contains(phrase))
}

fn has_prefix(text: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| text.starts_with(prefix))
}

/// The wait that a message names, as in "Please try again in 1m2.5s" and "Please retry in 20ms".
fn wait_in_words(message: &str) -> Option<Duration> {
    let (_, text) = ["try again in ", "retry in "].iter().find_map(|words| message.split_once(words))?;
    let mut rest = text;
    let mut total = 0.0;
    while let Some(end) = rest.find(|c: char| !c.is_ascii_digit() && c != '.') {
        let (number, after) = rest.split_at(end);
        let Ok(number) = number.parse::<f64>() else { break };
        let unit = after.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
        total += number
            * match unit {
                "ms" => 0.001,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => break,
            };
        rest = after.get(unit.len()..).unwrap_or_default();
    }
    if total > 0.0 { seconds(total) } else { None }
}

/// `retry-after-ms`, or `retry-after` in seconds or as an HTTP date, which counts from the server's own `date`.
fn retry_after(header: impl Fn(&str) -> Option<String>) -> Option<Duration> {
    let millis = header("retry-after-ms").and_then(|value| value.trim().parse::<f64>().ok());
    if let Some(wait) = millis.and_then(|millis| seconds(millis / 1000.0)) {
        return Some(wait);
    }
    let value = header("retry-after")?;
    match value.trim().parse::<f64>() {
        Ok(number) => seconds(number),
        Err(_) => {
            let then = httpdate::parse_http_date(value.trim()).ok()?;
            let now = header("date").and_then(|date| httpdate::parse_http_date(date.trim()).ok());
            whole_millis(then.duration_since(now.unwrap_or_else(std::time::SystemTime::now)).unwrap_or_default())
        }
    }
}

/// A number that is negative, or none, says nothing; one that no clock holds is still a very long time.
fn seconds(number: f64) -> Option<Duration> {
    const CENTURY: f64 = 100.0 * 365.0 * 24.0 * 3600.0;
    (number >= 0.0).then(|| Duration::from_secs_f64(number.min(CENTURY))).and_then(whole_millis)
}

/// As JSON keeps it, and no less than what was asked for.
fn whole_millis(wait: Duration) -> Option<Duration> {
    u64::try_from(wait.as_nanos().div_ceil(1_000_000)).ok().map(Duration::from_millis)
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
    use serde_json::json;

    use super::*;

    fn kind(status: u16, body: &str) -> ErrorKind {
        from_response(status, |_| None, body.as_bytes()).kind
    }

    #[test]
    fn status_and_code_decide_before_text() {
        use ErrorKind::*;
        for (status, body, expected) in [
            (429, r#"{"error":{"message":"Your request exceeds the limit of 10 requests"}}"#, RateLimited),
            (429, r#"{"error":{"message":"prompt is too long","type":"rate_limit_error"}}"#, RateLimited),
            (429, r#"{"error":{"message":"…","code":"insufficient_quota"}}"#, Quota),
            (429, r#"{"code":"Throttling.AllocationQuota","message":"Allocated quota exceeded"}"#, RateLimited),
            (429, r#"{"error":{"message":"…","type":"exceeded_current_quota_error"}}"#, Quota),
            (429, r#"{"error":{"message":"…","type":"engine_overloaded_error"}}"#, Overloaded),
            (429, r#"{"error":{"code":"1113","message":"Insufficient balance or no resource package."}}"#, Quota),
            // Gemini tells of limits per minute in words of money, and how long to wait.
            (
                429,
                r#"[{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details. Please retry in 34.07s.","status":"RESOURCE_EXHAUSTED"}}]"#,
                RateLimited,
            ),
            (529, "", Overloaded),
            (498, r#"{"error":{"message":"Flex tier capacity exceeded"}}"#, Overloaded),
            (400, r#"{"error":{"message":"invalid timeout parameter: must be integer"}}"#, InvalidRequest),
            (400, r#"{"error":{"message":"File size exceeds the limit of 5242880 bytes"}}"#, InvalidRequest),
            (400, r#"{"error":{"message":"Thinking token limit exceeded"}}"#, InvalidRequest),
            (400, r#"{"error":{"message":"x does not support tools","type":"api_error"}}"#, InvalidRequest),
            (400, r#"{"error":{"message":"Model Not Exist","type":"invalid_request_error"}}"#, NotFound),
            (
                400,
                r#"{"code":"Client specified an invalid argument","error":"Incorrect API key provided: xa***."}"#,
                Auth,
            ),
            (400, r#"{"error":{"code":"Arrearage","message":"Access denied","type":"Arrearage"}}"#, Quota),
            (400, r#"{"error":{"code":"data_inspection_failed","message":"…"}}"#, Refused),
            (400, r#"{"error":{"message":"Content Exists Risk","type":"invalid_request_error"}}"#, Refused),
            (401, r#"{"type":"error","error":{"type":"CreditsError","message":"Insufficient balance."}}"#, Quota),
            (401, "<html>nginx</html>", Auth),
            (402, "{}", Quota),
            (403, r#"{"code":403,"reason":"NOT_ENOUGH_BALANCE","message":"not enough balance"}"#, Quota),
            (
                403,
                r#"{"error":{"code":403,"message":"Your chosen model requires moderation and your input was flagged"}}"#,
                Refused,
            ),
            (403, r#"{"error":{"code":"unsupported_country_region_territory","message":"…"}}"#, Permission),
            (
                412,
                r#"{"error":{"message":"Account is suspended, possibly due to reaching the monthly spending limit"}}"#,
                Quota,
            ),
            (500, r#"{"error":{"message":"invalid api key","type":"server_error"}}"#, Server),
            (300, "{}", InvalidRequest),
        ] {
            assert_eq!(kind(status, body), expected, "{status} {body}");
        }
    }

    #[test]
    fn every_host_has_its_own_words_for_a_context_overflow() {
        for message in [
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
            "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
            "Please reduce the length of the messages or completion. Current length is 42328 while limit is 40000",
            "The decoder prompt (length 9000) is longer than the maximum model length of 8192.",
            "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
            "Trying to keep the first 111490 tokens when context the overflows. However, the model is loaded with context length of only 32768 tokens, which is not enough.",
            "Requested input length 40000 exceeds maximum input length 32768",
            "Prompt contains 140000 tokens and 0 draft tokens, too large for model with 131072 maximum context length",
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 10000 `inputs` tokens and 512 `max_new_tokens`",
            "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 258048]",
            "Total tokens of image and text exceed max message tokens.",
            "prompt token count of 391491 exceeds the limit of 128000",
        ] {
            let body = serde_json::json!({"error": {"message": message}}).to_string();
            assert_eq!(kind(400, &body), ErrorKind::ContextOverflow, "{message}");
            assert_eq!(kind(429, &body), ErrorKind::RateLimited, "{message}");
        }
    }

    #[test]
    fn an_error_in_a_stream_has_no_status_but_often_a_code() {
        use ErrorKind::*;
        for (json, expected) in [
            (r#"{"error":{"code":502,"message":"Provider disconnected"}}"#, Server),
            (r#"{"error":{"code":"429","message":"slow down"}}"#, RateLimited),
            (r#"{"error":{"type":"overloaded_error","message":"Overloaded"}}"#, Overloaded),
            (
                r#"{"object":"error","message":"maximum context length is 10","type":"BadRequestError","code":400}"#,
                ContextOverflow,
            ),
            (r#"{"error":"over_capacity"}"#, Overloaded),
            (r#"{"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}"#, Quota),
            (r#"{"base_resp":{"status_code":1004,"status_msg":"login fail"}}"#, Auth),
            (r#"{"error":{"message":"something"}}"#, Server),
        ] {
            assert_eq!(from_json(&serde_json::from_str(json).unwrap(), None).kind, expected, "{json}");
        }
    }

    #[test]
    fn the_message_is_found_in_every_shape() {
        for (json, expected) in [
            (r#"{"error":{"message":"a"}}"#, "a"),
            (r#"{"error":"a"}"#, "a"),
            (r#"{"error":null,"message":"a"}"#, "a"),
            (r#"{"errors":[{"message":"a","code":5007}],"success":false}"#, "a"),
            (r#"{"detail":"a"}"#, "a"),
            (
                r#"{"object":"error","message":{"detail":[{"loc":["body","seed"],"msg":"Extra inputs are not permitted"}]}}"#,
                "body.seed: Extra inputs are not permitted",
            ),
            (r#"{"error":{"message":"Provider returned error","metadata":{"raw":"a"}}}"#, "Provider returned error: a"),
        ] {
            assert_eq!(from_json(&serde_json::from_str(json).unwrap(), Some(400)).message, expected, "{json}");
        }
    }

    /// Gateways put the answer of the provider behind them into a text.
    #[test]
    fn an_error_that_another_one_quotes_is_read_like_any_other() {
        let google = r#"{"error":{"code":429,"message":"Slow.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"31s"}]}}"#;
        let quota = r#"{"error":{"message":"Pay.","type":"insufficient_quota"}}"#;
        let overflow = r#"{"error":{"code":"context_length_exceeded","message":"Too much."}}"#;
        for (outer, status, kind, code, message, wait) in [
            (
                json!({"error": {"message": google}}),
                429,
                ErrorKind::RateLimited,
                "RESOURCE_EXHAUSTED",
                "Slow.",
                Some(31),
            ),
            (json!({"error": google}), 429, ErrorKind::RateLimited, "RESOURCE_EXHAUSTED", "Slow.", Some(31)),
            (
                json!({"error": {"message": "Provider returned error", "code": 429, "metadata": {"raw": google}}}),
                429,
                ErrorKind::RateLimited,
                "RESOURCE_EXHAUSTED",
                "Provider returned error: Slow.",
                Some(31),
            ),
            (json!({"message": quota}), 429, ErrorKind::Quota, "insufficient_quota", "Pay.", None),
            (
                json!({"error": {"type": "invalid_request_error", "message": overflow}}),
                400,
                ErrorKind::ContextOverflow,
                "invalid_request_error",
                "Too much.",
                None,
            ),
        ] {
            let error = from_response(status, |_| None, outer.to_string().as_bytes());
            let told = (error.kind, error.code.as_deref(), error.message.as_str());
            assert_eq!(told, (kind, Some(code), message), "{outer}");
            assert_eq!(error.retry_after, wait.map(Duration::from_secs), "{outer}");
        }
        let deep = (0..12).fold("deep".to_owned(), |inner, _| json!({"error": inner}).to_string());
        assert_eq!(from_response(400, |_| None, deep.as_bytes()).message, "deep");
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
        for says_nothing in ["soon", "-5", "nan", ""] {
            assert_eq!(
                wait(from_response(429, header("retry-after", says_nothing.into()), b"{}")),
                None,
                "{says_nothing}"
            );
        }
        // Far above every limit, so that the call fails at once.
        let wait_for_ever = wait(from_response(429, header("retry-after", "9".repeat(30)), b"{}"));
        assert!(wait_for_ever > Some(1e9), "{wait_for_ever:?}");
        let odd_and_usual = |asked: &str| match asked {
            "retry-after-ms" => Some("-1".to_owned()),
            "retry-after" => Some("2.5".to_owned()),
            _ => None,
        };
        assert_eq!(wait(from_response(429, odd_and_usual, b"{}")), Some(2.5));
        for (words, seconds) in [
            ("Rate limit reached. Please try again in 1.284s. Visit …", Some(1.284)),
            ("Please try again in 7m12s.", Some(432.0)),
            ("Please retry in 20ms.", Some(0.02)),
            // Whole milliseconds, never less than what was asked for.
            ("Please try again in 1.3824s.", Some(1.383)),
            ("Please try again in a moment.", None),
            ("Please try again in 5 minutes.", None),
        ] {
            let body = serde_json::json!({"error": {"message": words}}).to_string();
            assert_eq!(wait(from_response(429, |_| None, body.as_bytes())), seconds, "{words}");
        }
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
