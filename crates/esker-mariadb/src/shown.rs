// SPDX-License-Identifier: MIT OR Apache-2.0
//! How people see the values of columns, where keys are told.

use crate::boundary::{shared, slice, FromC, Unchecked};
use crate::status::{report, EsError, EsStatus, Failure};
use crate::table::EsTable;
use esker::{Shown, TimeForm};
use std::ffi::{c_char, CStr};

/// As what people see a column's values.
#[repr(i32)]
#[derive(Debug, Clone, Copy)]
pub enum EsShownAs {
    /// As the encoding in keys tells: numbers, texts, bytes.
    Plain = 0,
    /// Bytes that are no text.
    Binary = 1,
    /// A floating-point number with `decimals` digits behind the point.
    Rounded = 2,
    /// Bits, big-endian.
    Bits = 3,
    /// A byte, counted from 1900; 0 is the year 0. Of two `digits`, its last ones.
    Year = 4,
    /// Little-endian: 5 bits of day, 4 of month, 15 of year.
    Date = 5,
    /// Fields of bits, big-endian, with `decimals` of a second, as the next two.
    DateTime = 6,
    /// Seconds since 1970, big-endian.
    Timestamp = 7,
    /// May be negative or longer than a day.
    Time = 8,
    /// A number: its decimal digits, little-endian, or with `decimals` seconds, minutes and so on as remainders, big-endian.
    NumberDateTime = 9,
    /// Seconds since 1970, little-endian, or with `decimals` big-endian.
    NumberTimestamp = 10,
    /// As NumberDateTime.
    NumberTime = 11,
    /// `digits` decimal digits in all, `decimals` of them behind the point, nine in four bytes.
    Decimal = 12,
    /// The place of one of the names, from 1 on.
    Enum = 13,
    /// A bit for each name.
    Set = 14,
    /// Four bytes of an address.
    Inet4 = 15,
    /// Sixteen.
    Inet6 = 16,
    /// Sixteen bytes, which may stand in the order in which they are sorted.
    Uuid = 17,
}

// SAFETY: all members.
unsafe impl FromC for EsShownAs {
    const NAME: &'static str = "way to show a column";
    const ALL: &'static [EsShownAs] = &[
        EsShownAs::Plain,
        EsShownAs::Binary,
        EsShownAs::Rounded,
        EsShownAs::Bits,
        EsShownAs::Year,
        EsShownAs::Date,
        EsShownAs::DateTime,
        EsShownAs::Timestamp,
        EsShownAs::Time,
        EsShownAs::NumberDateTime,
        EsShownAs::NumberTimestamp,
        EsShownAs::NumberTime,
        EsShownAs::Decimal,
        EsShownAs::Enum,
        EsShownAs::Set,
        EsShownAs::Inet4,
        EsShownAs::Inet6,
        EsShownAs::Uuid,
    ];
}

/// How people see a column's values.
#[repr(C)]
pub struct EsShown {
    pub(crate) shown_as: Unchecked<EsShownAs>,
    pub(crate) name_count: u32,
    /// Of an enum or a set.
    pub(crate) names: *const *const c_char,
    pub(crate) digits: u8,
    pub(crate) decimals: u8,
    /// Zeros stand before a number up to so many characters; 0: none do.
    pub(crate) filled: u8,
}

/// # Safety
/// `c.names` are `name_count` names.
unsafe fn shown(c: &EsShown) -> Result<Shown, Failure> {
    use EsShownAs as As;
    let names = || {
        // SAFETY: the caller's promise.
        let names = unsafe { slice(c.names, c.name_count as usize) };
        // SAFETY: the same. What is no UTF-8, as names of a binary enum, is shown as well as it can be.
        let name = |name: &*const c_char| unsafe { CStr::from_ptr(shared(*name)) }.to_string_lossy().into_owned();
        names.iter().map(name).collect()
    };
    let (digits, decimals) = (c.digits, c.decimals);
    let shown = match c.shown_as.checked()? {
        As::Plain => Shown::Plain,
        As::Binary => Shown::Binary,
        As::Rounded => Shown::Rounded(decimals),
        As::Bits => Shown::Bits,
        As::Year => Shown::Year { digits },
        As::Date => Shown::Date,
        As::DateTime => Shown::DateTime(TimeForm::Bits, decimals),
        As::Timestamp => Shown::Timestamp(TimeForm::Bits, decimals),
        As::Time => Shown::Time(TimeForm::Bits, decimals),
        As::NumberDateTime => Shown::DateTime(TimeForm::Number, decimals),
        As::NumberTimestamp => Shown::Timestamp(TimeForm::Number, decimals),
        As::NumberTime => Shown::Time(TimeForm::Number, decimals),
        As::Decimal => Shown::Decimal { digits, decimals },
        As::Enum => Shown::Enum(names()),
        As::Set => Shown::Set(names()),
        As::Inet4 => Shown::Inet4,
        As::Inet6 => Shown::Inet6,
        As::Uuid => Shown::Uuid,
    };
    Ok(if c.filled == 0 { shown } else { Shown::Filled(Box::new(shown), c.filled) })
}

/// People are to see the table's columns, in the order of its layout, like this where a key of it is told: to all who have
/// it open, until somebody says otherwise, or the engine is closed.
///
/// # Safety
/// `columns` are `count` columns, each with `name_count` names.
#[no_mangle]
pub unsafe extern "C" fn es_table_show_as(
    table: *const EsTable,
    columns: *const EsShown,
    count: usize,
    error: *mut EsError,
) -> EsStatus {
    // SAFETY: the caller's promise.
    let (handle, columns) = unsafe { (shared(table), slice(columns, count)) };
    let result = handle.guard.run(|| {
        // SAFETY: the caller's promise.
        let columns = columns.iter().map(|c| unsafe { shown(c) }).collect::<Result<_, _>>()?;
        handle.table.show_as(columns);
        Ok(())
    });
    // SAFETY: the caller's promise.
    unsafe { report(result, error) }
}
