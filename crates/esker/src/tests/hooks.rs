//! Places in the engine where a unit test steps in: what it has set there is done once, by the thread that comes by.

use std::cell::RefCell;

type Act = Box<dyn FnOnce()>;

thread_local! {
    static ACTS: RefCell<Vec<(&'static str, Act)>> = const { RefCell::new(Vec::new()) };
}

/// When this thread comes by `place`, `act` is done.
pub(crate) fn at(place: &'static str, act: impl FnOnce() + 'static) {
    ACTS.with(|a| a.borrow_mut().push((place, Box::new(act))));
}

/// Has everything that was set been done?
pub(crate) fn all_done() -> bool {
    ACTS.with(|a| a.borrow().is_empty())
}

pub(crate) fn reached(place: &str) {
    let act = ACTS.with(|a| {
        let mut acts = a.borrow_mut();
        acts.iter().position(|(p, _)| *p == place).map(|i| acts.remove(i).1)
    });
    if let Some(act) = act {
        act();
    }
}
