//! What tests ask a thread: how often it came to a place.

/// A module of this name, whose `count` is called there and whose `take` tells a test how often since its last call.
macro_rules! tally {
    ($(#[$what:meta])* $name:ident) => {
        $(#[$what])*
        #[cfg(test)]
        pub(crate) mod $name {
            thread_local! {
                static TIMES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
            }

            pub(crate) fn count() {
                TIMES.set(TIMES.get() + 1);
            }

            /// How often since the last call.
            pub(crate) fn take() -> usize {
                TIMES.replace(0)
            }
        }
    };
}

pub(crate) use tally;
