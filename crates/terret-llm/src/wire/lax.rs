//! Reading JSON of which each value may be of another type than the vendor documents.
//!
//! With `#[serde(deserialize_with = "lax")]` a field whose value can't be read is as good as absent, and the fields
//! beside it are read all the same. Nothing is buffered: each value is read once, borrowing from the input.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Reads a field in whichever of its shapes it comes.
pub(super) fn lax<'de, T: Lax<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_any(AnyShape(PhantomData))
}

/// Reads a field as this type, which may hold strings that Rust's can't. A value of another shape is as good as absent.
/// Reads the value twice, which [`lax`] doesn't.
pub(super) fn if_it_fits<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let raw = Option::<&'de RawValue>::deserialize(deserializer)?;
    Ok(raw.and_then(|raw| serde_json::from_str(raw.get()).ok()))
}

/// A value and the shapes of JSON in which it may come. A shape that is not overridden means nothing.
pub(super) trait Lax<'de>: Default {
    fn text(_text: Cow<'de, str>) -> Self {
        Self::default()
    }

    fn number(_number: serde_json::Number) -> Self {
        Self::default()
    }

    fn boolean(_value: bool) -> Self {
        Self::default()
    }

    fn list<A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }

    fn object<A: MapAccess<'de>>(mut object: A) -> Result<Self, A::Error> {
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }
}

/// Text; a number counts as its digits.
impl<'de> Lax<'de> for Option<Cow<'de, str>> {
    fn text(text: Cow<'de, str>) -> Self {
        Some(text)
    }

    fn number(number: serde_json::Number) -> Self {
        Some(Cow::Owned(number.to_string()))
    }
}

/// A count: a negative number is zero, a fraction is cut.
impl<'de> Lax<'de> for Option<u64> {
    fn number(number: serde_json::Number) -> Self {
        Some(number.as_u64().unwrap_or_else(|| number.as_f64().unwrap_or_default() as u64))
    }

    fn text(text: Cow<'de, str>) -> Self {
        text.trim().parse().ok()
    }
}

/// Whether something stands here that says more than null, `false`, an empty text, list or object.
impl<'de> Lax<'de> for bool {
    fn text(text: Cow<'de, str>) -> Self {
        !text.is_empty()
    }

    fn number(number: serde_json::Number) -> Self {
        number.as_f64() != Some(0.0)
    }

    fn boolean(value: bool) -> Self {
        value
    }

    fn list<A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        let mut any = false;
        while list.next_element::<IgnoredAny>()?.is_some() {
            any = true;
        }
        Ok(any)
    }

    fn object<A: MapAccess<'de>>(mut object: A) -> Result<Self, A::Error> {
        let mut any = false;
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            any = true;
        }
        Ok(any)
    }
}

/// A list; a lone object counts as a list of one. An element of no use is there all the same: its place can tell.
impl<'de, T: Lax<'de>> Lax<'de> for Vec<T> {
    fn list<A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        // Most lists have one element, and elements are large.
        let mut elements = Vec::with_capacity(1);
        while let Some(Field(element)) = list.next_element()? {
            elements.push(element);
        }
        Ok(elements)
    }

    fn object<A: MapAccess<'de>>(object: A) -> Result<Self, A::Error> {
        Ok(vec![T::object(object)?])
    }
}

/// An object that is rare and large, so that the values around it stay small where it is missing.
impl<'de, T: Lax<'de>> Lax<'de> for Option<Box<T>> {
    fn object<A: MapAccess<'de>>(object: A) -> Result<Self, A::Error> {
        Ok(Some(Box::new(T::object(object)?)))
    }
}

/// A value inside a list or behind a key, read in whichever of its shapes it comes.
pub(super) struct Field<T>(pub(super) T);

impl<'de, T: Lax<'de>> Deserialize<'de> for Field<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        lax(deserializer).map(Field)
    }
}

struct AnyShape<T>(PhantomData<T>);

impl<'de, T: Lax<'de>> Visitor<'de> for AnyShape<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<T, E> {
        Ok(T::text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        Ok(T::text(Cow::Owned(text.to_owned())))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        Ok(T::number(number.into()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        Ok(T::number(number.into()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        Ok(serde_json::Number::from_f64(number).map(T::number).unwrap_or_default())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<T, E> {
        Ok(T::boolean(value))
    }

    fn visit_unit<E: Error>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<T, A::Error> {
        T::list(list)
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<T, A::Error> {
        T::object(object)
    }
}
