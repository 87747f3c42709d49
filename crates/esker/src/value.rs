//! Values of columns, for Rust programs: to and from Rust's types, checked against a table's schema.

use crate::catalog::table::Table;
use crate::{Error, Result};
use esker_format::row::Value as Stored;
use esker_format::{Schema, SchemaColumn, Type};

/// A column's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// NULL.
    Null,
    /// Of [`Type::I64`].
    I64(i64),
    /// Of [`Type::U64`].
    U64(u64),
    /// Of [`Type::F64`].
    F64(f64),
    /// Of [`Type::Text`].
    Text(&'a str),
    /// Of [`Type::Bytes`].
    Bytes(&'a [u8]),
}

impl Value<'_> {
    fn kind(&self) -> &'static str {
        match self {
            Value::Null => "NULL",
            Value::I64(_) => "a signed integer",
            Value::U64(_) => "an unsigned integer",
            Value::F64(_) => "a floating-point number",
            Value::Text(_) => "text",
            Value::Bytes(_) => "bytes",
        }
    }
}

/// By which a table's rows are values; fails for a table that was created without.
pub(crate) fn schema_of(table: &Table) -> Result<&Schema> {
    table.schema().ok_or_else(|| {
        let name = table.name();
        let why = format!("table '{name}' was not created with a schema: its columns have no names and types");
        Error::InvalidArgument(why)
    })
}

macro_rules! from {
    ($($type:ty => $variant:ident,)*) => {
        $(impl<'a> From<$type> for Value<'a> {
            fn from(value: $type) -> Self { Value::$variant(value.into()) }
        })*
    };
}

from! {
    i64 => I64, i32 => I64, i16 => I64, i8 => I64,
    u64 => U64, u32 => U64, u16 => U64, u8 => U64,
    f64 => F64, f32 => F64,
    &'a str => Text, &'a [u8] => Bytes,
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(value: &'a String) -> Self {
        Value::Text(value)
    }
}

impl<'a> From<&'a Vec<u8>> for Value<'a> {
    fn from(value: &'a Vec<u8>) -> Self {
        Value::Bytes(value)
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

/// A Rust type that a column's value can be taken as; `Option` of one where it may be NULL.
pub trait FromValue<'a>: Sized {
    /// What it is called in errors.
    const NAME: &'static str;

    /// The value, if it is of this type.
    fn from_value(value: Value<'a>) -> Option<Self>;
}

macro_rules! from_value {
    ($($type:ty, $name:literal, $variant:ident($v:ident) => $out:expr;)*) => {
        $(impl<'a> FromValue<'a> for $type {
            const NAME: &'static str = $name;
            fn from_value(value: Value<'a>) -> Option<Self> {
                match value {
                    Value::$variant($v) => Some($out),
                    _ => None,
                }
            }
        })*
    };
}

from_value! {
    i64, "a signed integer", I64(v) => v;
    u64, "an unsigned integer", U64(v) => v;
    f64, "a floating-point number", F64(v) => v;
    &'a str, "text", Text(v) => v;
    String, "text", Text(v) => v.to_owned();
    &'a [u8], "bytes", Bytes(v) => v;
    Vec<u8>, "bytes", Bytes(v) => v.to_vec();
}

impl<'a, T: FromValue<'a>> FromValue<'a> for Option<T> {
    const NAME: &'static str = T::NAME;

    fn from_value(value: Value<'a>) -> Option<Self> {
        match value {
            Value::Null => Some(None),
            value => T::from_value(value).map(Some),
        }
    }
}

/// Takes a value as a Rust type.
pub(crate) fn take<'a, T: FromValue<'a>>(column: &SchemaColumn, value: Value<'a>) -> Result<T> {
    let (name, kind) = (&column.name, value.kind());
    T::from_value(value)
        .ok_or_else(|| Error::InvalidArgument(format!("column '{name}' holds {kind} here, not {}", T::NAME)))
}

/// What is stored of numbers until the row is packed.
pub(crate) type Number = [u8; 8];

/// The bytes of a number; zero for anything else.
pub(crate) fn number(value: &Value<'_>) -> Number {
    match value {
        Value::I64(v) => v.to_le_bytes(),
        Value::U64(v) => v.to_le_bytes(),
        Value::F64(v) => v.to_le_bytes(),
        _ => [0; 8],
    }
}

/// A value as it is stored, `number` being its bytes if it is one. Fails where it is not the column's.
pub(crate) fn stored<'v>(column: &SchemaColumn, value: &Value<'v>, number: &'v Number) -> Result<Stored<'v>> {
    let refuse = |why: String| Err(Error::InvalidArgument(format!("column '{}': {why}", column.name)));
    let bytes = match (column.kind, value) {
        (_, Value::Null) if column.nullable => return Ok(Stored::Null),
        (_, Value::Null) => return refuse("it is never NULL".into()),
        (Type::I64, Value::I64(_)) | (Type::U64, Value::U64(_)) | (Type::F64, Value::F64(_)) => number.as_slice(),
        (Type::Text(_), Value::Text(text)) => text.as_bytes(),
        (Type::Bytes(_), Value::Bytes(bytes)) => bytes,
        (kind, value) => return refuse(format!("it holds {kind}, not {}", value.kind())),
    };
    match column.kind {
        Type::Text(max) | Type::Bytes(max) if bytes.len() > max as usize => {
            refuse(format!("{} bytes are too many, it holds {}", bytes.len(), column.kind))
        }
        _ => Ok(Stored::Bytes(bytes)),
    }
}

/// The value of a column from what is stored; `None` if that is not of the column's type.
pub(crate) fn loaded<'a>(column: &SchemaColumn, stored: Stored<'a>) -> Option<Value<'a>> {
    let Stored::Bytes(bytes) = stored else { return Some(Value::Null) };
    let number = || bytes.try_into().ok();
    match column.kind {
        Type::I64 => number().map(|b| Value::I64(i64::from_le_bytes(b))),
        Type::U64 => number().map(|b| Value::U64(u64::from_le_bytes(b))),
        Type::F64 => number().map(|b| Value::F64(f64::from_le_bytes(b))),
        Type::Text(_) => std::str::from_utf8(bytes).ok().map(Value::Text),
        Type::Bytes(_) => Some(Value::Bytes(bytes)),
    }
}
