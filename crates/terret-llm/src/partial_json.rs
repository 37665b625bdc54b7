//! JSON that is still being written.

use std::mem;

use serde_json::{Map, Number, Value};

/// A view of JSON that arrives in fragments, for showing tool-call arguments while a model writes them.
///
/// The view only grows: a string appears when it begins and gets longer, a container appears when it opens and gets more
/// entries, and everything else (numbers, `true`, `null`, the names of fields) appears when it is complete. A name that
/// stands twice in an object is the exception: the second value takes the place of the first, as in `serde_json`.
///
/// It is for eyes only. What a tool is run with is the [`Arguments`](crate::Arguments) of a complete reply.
///
/// Feeding costs what the fragment holds. Looking costs what lies on the way to the value that is being written (the
/// depth and the names), never the size of what is there already.
///
/// ```
/// use terret_llm::PartialJson;
///
/// let mut arguments = PartialJson::new();
/// for (fragment, text) in [(r#"{"path":"a.rs","te"#, None), (r#"xt":"fn ma"#, Some("fn ma")), ("in()\\", Some("fn main()"))] {
///     arguments.push(fragment);
///     assert_eq!(arguments.value().unwrap()["path"], "a.rs");
///     assert_eq!(arguments.value().unwrap()["text"].as_str(), text);
/// }
/// ```
#[derive(Debug, Default)]
pub struct PartialJson {
    /// The containers that are open, outermost first.
    open: Vec<Container>,
    token: Token,
    next: Next,
    /// What is there, if somebody has looked since the last fragment; then the open containers and the string that is
    /// being written stand in it, and not in the fields above.
    view: Option<Value>,
    broken: bool,
}

/// Why a text is no JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PartialJsonError {
    /// It has an error, or says more than one value.
    #[error("this is not JSON")]
    Invalid,
    /// It ends before the value does.
    #[error("the JSON is cut off")]
    Incomplete,
}

/// As deep as `serde_json` goes.
const MAX_DEPTH: usize = 127;

impl PartialJson {
    /// Nothing so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next fragment. After an error in the text, nothing more is taken.
    pub fn push(&mut self, fragment: &str) {
        self.take_apart();
        let mut rest = fragment;
        while !self.broken && !rest.is_empty() {
            match self.step(rest) {
                Some(behind) => rest = behind,
                None => self.broken = true,
            }
        }
    }

    /// What is there so far; `None` before the first value has begun.
    pub fn value(&mut self) -> Option<&Value> {
        self.put_together();
        self.view.as_ref()
    }

    /// Whether the text has an error. What came before it stays in view.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// The text has ended: the value that it is. It is the one that `serde_json` reads, except that escapes of lone
    /// surrogates become U+FFFD.
    pub fn finish(mut self) -> Result<Value, PartialJsonError> {
        self.take_apart();
        if let Token::Number(number) = &self.token {
            let cut_off = serde_json::from_str::<Number>(number).is_err_and(|error| error.is_eof());
            self.broken |= !cut_off && self.end_number().is_none();
        }
        match (self.broken, self.next, self.view) {
            (true, ..) => Err(PartialJsonError::Invalid),
            (false, Next::Nothing, Some(value)) => Ok(value),
            (false, ..) => Err(PartialJsonError::Incomplete),
        }
    }

    /// Reads on, as far as one token; what is left. `None` at an error.
    fn step<'a>(&mut self, text: &'a str) -> Option<&'a str> {
        match &mut self.token {
            Token::None => self.begin(text),
            Token::Text(string) | Token::Name(string) => {
                let (rest, ended) = string.read(text)?;
                if ended {
                    self.end_string();
                }
                Some(rest)
            }
            Token::Number(number) => {
                let end = text.find(|c: char| !matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E'));
                let (digits, rest) = text.split_at(end.unwrap_or(text.len()));
                number.push_str(digits);
                if end.is_some() {
                    self.end_number()?;
                }
                Some(rest)
            }
            Token::Word { left, value } => {
                let common = left.bytes().zip(text.bytes()).take_while(|(a, b)| a == b).count();
                let (rest, value) = (text.get(common..)?, value.clone());
                *left = left.get(common..)?;
                if left.is_empty() {
                    self.token = Token::None;
                    self.put(value);
                } else if !rest.is_empty() {
                    return None;
                }
                Some(rest)
            }
        }
    }

    /// Reads on between tokens.
    fn begin<'a>(&mut self, text: &'a str) -> Option<&'a str> {
        let text = text.trim_start_matches([' ', '\t', '\n', '\r']);
        let Some(first) = text.chars().next() else { return Some(text) };
        let rest = text.get(first.len_utf8()..)?;
        match (first, self.next) {
            (']', Next::FirstItem | Next::Separator) => self.close(false)?,
            ('}', Next::FirstName | Next::Separator) => self.close(true)?,
            (',', Next::Separator) => {
                self.next = match self.open.last()? {
                    Container::Object { .. } => Next::Name,
                    Container::Array(_) => Next::Value,
                }
            }
            (':', Next::Colon) => self.next = Next::Value,
            ('"', Next::FirstName | Next::Name) => self.token = Token::Name(StringReader::default()),
            (_, Next::Value | Next::FirstItem) => match first {
                '{' => self.open(Container::Object { map: Map::new(), name: None }, Next::FirstName)?,
                '[' => self.open(Container::Array(Vec::new()), Next::FirstItem)?,
                '"' => self.token = Token::Text(StringReader::default()),
                't' => self.token = Token::Word { left: "rue", value: Value::Bool(true) },
                'f' => self.token = Token::Word { left: "alse", value: Value::Bool(false) },
                'n' => self.token = Token::Word { left: "ull", value: Value::Null },
                '-' | '0'..='9' => self.token = Token::Number(first.into()),
                _ => return None,
            },
            _ => return None,
        }
        Some(rest)
    }

    fn open(&mut self, container: Container, next: Next) -> Option<()> {
        if self.open.len() == MAX_DEPTH {
            return None;
        }
        self.open.push(container);
        self.next = next;
        Some(())
    }

    fn close(&mut self, object: bool) -> Option<()> {
        let container = self.open.pop_if(|container| matches!(container, Container::Object { .. }) == object)?;
        self.put(container.into_value());
        Some(())
    }

    fn end_string(&mut self) {
        match mem::take(&mut self.token) {
            Token::Text(string) => self.put(Value::String(string.text)),
            Token::Name(string) => {
                if let Some(Container::Object { name, .. }) = self.open.last_mut() {
                    *name = Some(string.text);
                }
                self.next = Next::Colon;
            }
            Token::None | Token::Number(_) | Token::Word { .. } => {}
        }
    }

    fn end_number(&mut self) -> Option<()> {
        let Token::Number(number) = mem::take(&mut self.token) else { return None };
        self.put(Value::Number(serde_json::from_str(&number).ok()?));
        Some(())
    }

    /// A value is complete.
    fn put(&mut self, value: Value) {
        match self.open.last_mut() {
            Some(container) => {
                container.put(value);
                self.next = Next::Separator;
            }
            None => {
                self.view = Some(value);
                self.next = Next::Nothing;
            }
        }
    }

    /// Puts what is open into the view.
    fn put_together(&mut self) {
        if self.view.is_some() {
            return;
        }
        let mut inner = match &mut self.token {
            Token::Text(string) => Some(Value::String(mem::take(&mut string.text))),
            Token::None | Token::Name(_) | Token::Number(_) | Token::Word { .. } => None,
        };
        for container in self.open.iter_mut().rev() {
            if let Some(value) = inner.take() {
                container.show(value);
            }
            inner = Some(container.take());
        }
        self.view = inner;
    }

    /// Takes what is open out of the view, to write on in it.
    fn take_apart(&mut self) {
        if self.next == Next::Nothing {
            return;
        }
        let Some(mut outer) = self.view.take() else { return };
        let mut open = self.open.iter_mut().peekable();
        while let Some(container) = open.next() {
            container.give_back(outer);
            if open.peek().is_none() && !matches!(self.token, Token::Text(_)) {
                return;
            }
            outer = container.unshow();
        }
        if let (Token::Text(string), Value::String(text)) = (&mut self.token, outer) {
            string.text = text;
        }
    }
}

/// What may come between tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Next {
    #[default]
    Value,
    /// A value, or the end of the array.
    FirstItem,
    /// A name, or the end of the object.
    FirstName,
    Name,
    Colon,
    /// A comma, or the end of the container.
    Separator,
    /// White space.
    Nothing,
}

/// What is being read.
#[derive(Debug, Default)]
enum Token {
    #[default]
    None,
    Text(StringReader),
    Name(StringReader),
    Number(String),
    Word {
        left: &'static str,
        value: Value,
    },
}

#[derive(Debug)]
enum Container {
    /// The name is that of the value that comes next, or is being written.
    Object {
        map: Map<String, Value>,
        name: Option<String>,
    },
    Array(Vec<Value>),
}

impl Container {
    fn into_value(self) -> Value {
        match self {
            Container::Object { map, .. } => Value::Object(map),
            Container::Array(list) => Value::Array(list),
        }
    }

    /// Adds a value that is complete.
    fn put(&mut self, value: Value) {
        match self {
            Container::Object { map, name } => {
                map.insert(name.take().unwrap_or_default(), value);
            }
            Container::Array(list) => list.push(value),
        }
    }

    /// Adds a value that is being written.
    fn show(&mut self, value: Value) {
        match self {
            Container::Object { map, name } => {
                map.insert(name.clone().unwrap_or_default(), value);
            }
            Container::Array(list) => list.push(value),
        }
    }

    /// The container as it is, which [`give_back`](Self::give_back) returns.
    fn take(&mut self) -> Value {
        match self {
            Container::Object { map, .. } => Value::Object(mem::take(map)),
            Container::Array(list) => Value::Array(mem::take(list)),
        }
    }

    fn give_back(&mut self, value: Value) {
        match (self, value) {
            (Container::Object { map, .. }, Value::Object(taken)) => *map = taken,
            (Container::Array(list), Value::Array(taken)) => *list = taken,
            _ => {}
        }
    }

    /// The value that [`show`](Self::show) has added.
    fn unshow(&mut self) -> Value {
        let shown = match self {
            Container::Object { map, name } => name.as_deref().and_then(|name| map.remove(name)),
            Container::Array(list) => list.pop(),
        };
        shown.unwrap_or_default()
    }
}

/// Reads a string behind its opening quote.
#[derive(Debug, Default)]
struct StringReader {
    text: String,
    escape: Escape,
    /// The first half of a surrogate pair whose second half may follow.
    half: Option<u16>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Escape {
    #[default]
    None,
    /// After the backslash.
    Begun,
    /// After the `u`.
    Unicode { digits: u8, unit: u16 },
}

impl StringReader {
    /// Reads on; what is left, and whether the string has ended. `None` at an error.
    fn read<'a>(&mut self, text: &'a str) -> Option<(&'a str, bool)> {
        let Escape::None = self.escape else {
            let first = text.chars().next()?;
            self.read_escape(first)?;
            return Some((text.get(first.len_utf8()..)?, false));
        };
        let end = text.bytes().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1F)).unwrap_or(text.len());
        let (plain, rest) = text.split_at(end);
        if !plain.is_empty() {
            self.flush_half();
            self.text.push_str(plain);
        }
        match rest.as_bytes().first() {
            None => Some((rest, false)),
            Some(b'"') => {
                self.flush_half();
                Some((rest.get(1..)?, true))
            }
            Some(b'\\') => {
                self.escape = Escape::Begun;
                Some((rest.get(1..)?, false))
            }
            Some(_) => None,
        }
    }

    fn read_escape(&mut self, c: char) -> Option<()> {
        let plain = match (self.escape, c) {
            (Escape::Unicode { digits, unit }, _) => {
                let unit = unit << 4 | u16::try_from(c.to_digit(16)?).ok()?;
                match digits {
                    3 => {
                        self.escape = Escape::None;
                        self.push_unit(unit);
                    }
                    _ => self.escape = Escape::Unicode { digits: digits + 1, unit },
                }
                return Some(());
            }
            (_, 'u') => {
                self.escape = Escape::Unicode { digits: 0, unit: 0 };
                return Some(());
            }
            (_, '"' | '\\' | '/') => c,
            (_, 'b') => '\u{8}',
            (_, 'f') => '\u{c}',
            (_, 'n') => '\n',
            (_, 'r') => '\r',
            (_, 't') => '\t',
            _ => return None,
        };
        self.escape = Escape::None;
        self.flush_half();
        self.text.push(plain);
        Some(())
    }

    fn push_unit(&mut self, unit: u16) {
        match (self.half, unit) {
            (Some(half), 0xDC00..=0xDFFF) => {
                self.half = None;
                let pair = char::decode_utf16([half, unit]);
                self.text.extend(pair.map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)));
            }
            (_, 0xD800..=0xDBFF) => {
                self.flush_half();
                self.half = Some(unit);
            }
            _ => {
                self.flush_half();
                self.text.push(char::from_u32(unit.into()).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
        }
    }

    /// No second half follows.
    fn flush_half(&mut self) {
        if self.half.take().is_some() {
            self.text.push(char::REPLACEMENT_CHARACTER);
        }
    }
}
