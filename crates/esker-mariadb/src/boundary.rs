// SPDX-License-Identifier: MIT OR Apache-2.0
//! What comes from C: pointers, and numbers of enums.
//!
//! A null where none is allowed is a bug of the caller's that leaves nothing to go on with, not even a handle whose
//! engine could be poisoned: the assertion fails outside of any guard, and a panic that would leave an `extern "C"`
//! function ends the process. So every function turns its pointers into references before it enters a guard.

use crate::status::Failure;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

const NULL: &str = "a pointer that came through the C boundary is null";

/// What the pointer points to, for reading.
///
/// # Safety
/// Null, or valid and not written by anybody for `'a`.
#[track_caller]
#[inline]
pub(crate) unsafe fn shared<'a, T>(pointer: *const T) -> &'a T {
    assert!(!pointer.is_null(), "{NULL}");
    // SAFETY: not null, and the caller's promise.
    unsafe { &*pointer }
}

/// What the pointer points to, for this call alone.
///
/// # Safety
/// Null, or valid and used by nobody else for `'a`.
#[track_caller]
#[inline]
pub(crate) unsafe fn exclusive<'a, T>(pointer: *mut T) -> &'a mut T {
    assert!(!pointer.is_null(), "{NULL}");
    // SAFETY: not null, and the caller's promise.
    unsafe { &mut *pointer }
}

/// Where an answer goes.
///
/// # Safety
/// Null, or room for a `T` that nobody else uses for `'a`.
#[track_caller]
#[inline]
pub(crate) unsafe fn out<'a, T>(pointer: *mut T) -> &'a mut MaybeUninit<T> {
    // SAFETY: a MaybeUninit needs no value; the caller's promise.
    unsafe { exclusive(pointer.cast()) }
}

/// Where answers go; nowhere, if there is no room for any.
///
/// # Safety
/// Null, or room for so many `T` that nobody else uses for `'a`.
#[track_caller]
pub(crate) unsafe fn out_slice<'a, T>(pointer: *mut T, count: usize) -> &'a mut [MaybeUninit<T>] {
    if count == 0 {
        return &mut [];
    }
    assert!(!pointer.is_null(), "{NULL}");
    // SAFETY: not null, and the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(pointer.cast(), count) }
}

/// So many values; none, if there are none.
///
/// # Safety
/// Null, or so many values that nobody writes for `'a`.
#[track_caller]
pub(crate) unsafe fn slice<'a, T>(pointer: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    assert!(!pointer.is_null(), "{NULL}");
    // SAFETY: not null, and the caller's promise.
    unsafe { std::slice::from_raw_parts(pointer, count) }
}

/// The handle that C gives back to be freed; none for null.
///
/// # Safety
/// Null, or made by `Box::into_raw` and not used again.
pub(crate) unsafe fn take<T>(handle: *mut T) -> Option<Box<T>> {
    // SAFETY: the caller's promise.
    NonNull::new(handle).map(|handle| unsafe { Box::from_raw(handle.as_ptr()) })
}

/// A callback that must be there.
#[track_caller]
pub(crate) fn needed<F>(callback: Option<F>) -> F {
    let Some(callback) = callback else { panic!("{NULL}") };
    callback
}

/// An enum whose values come from C.
///
/// # Safety
/// `repr(i32)` without fields, and `ALL` holds all members.
pub unsafe trait FromC: Copy + 'static {
    const NAME: &'static str;
    const ALL: &'static [Self];
}

/// A number from C that should be a member of an enum; in C++ it is the enum.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Unchecked<E: Copy>(MaybeUninit<E>);

impl<E: Copy> Unchecked<E> {
    pub(crate) fn new(value: E) -> Unchecked<E> {
        Unchecked(MaybeUninit::new(value))
    }
}

impl<E: FromC> Unchecked<E> {
    /// The member that it is, or `Invalid`.
    pub(crate) fn checked(self) -> Result<E, Failure> {
        const { assert!(size_of::<E>() == size_of::<i32>()) };
        // SAFETY: an i32 by FromC's contract; C gave it some value.
        let number = unsafe { self.0.as_ptr().cast::<i32>().read() };
        // SAFETY: members are i32 by FromC's contract.
        let known = E::ALL.iter().find(|member| unsafe { std::ptr::from_ref(*member).cast::<i32>().read() } == number);
        known.copied().ok_or_else(|| Failure::invalid(format!("{} {number}", E::NAME)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transaction::EsIsolation;

    fn isolation(number: i32) -> Unchecked<EsIsolation> {
        let mut given = MaybeUninit::<EsIsolation>::uninit();
        // SAFETY: room for an i32.
        unsafe { given.as_mut_ptr().cast::<i32>().write(number) };
        Unchecked(given)
    }

    #[test]
    fn a_number_is_a_member_or_refused() {
        assert!(matches!(isolation(0).checked(), Ok(EsIsolation::ReadCommitted)));
        assert!(matches!(isolation(1).checked(), Ok(EsIsolation::RepeatableRead)));
        assert_eq!(isolation(2).checked().err().map(|f| f.text), Some("isolation level 2".to_owned()));
        assert!(isolation(-1).checked().is_err());
    }

    #[test]
    #[should_panic(expected = "is null")]
    fn a_null_is_refused() {
        // SAFETY: null is allowed.
        unsafe { exclusive(std::ptr::null_mut::<u64>()) };
    }

    #[test]
    fn null_stands_for_nothing_where_it_may() {
        // SAFETY: null is allowed.
        unsafe {
            assert!(slice(std::ptr::null::<u64>(), 0).is_empty());
            assert!(out_slice(std::ptr::null_mut::<u64>(), 0).is_empty());
            assert!(take(std::ptr::null_mut::<u64>()).is_none());
        }
    }
}
