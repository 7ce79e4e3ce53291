//! What panics of this thread say while a program is run.
//!
//! A panic's place is told to the process's hook only. Ours is put in front of whatever hook there is, once,
//! and does nothing on threads that do not listen.

use std::cell::RefCell;
use std::panic::{PanicHookInfo, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static HEARD: RefCell<Option<Listening>> = const { RefCell::new(None) };
}

struct Listening {
    heard: Vec<String>,
    /// The hook that was there is not called.
    quietly: bool,
}

/// Runs `f`, and returns what each panic said meanwhile, caught or not. `quietly`: nobody else hears it.
pub(super) fn listen<R>(quietly: bool, f: impl FnOnce() -> R) -> (R, Vec<String>) {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            if !hear(info) {
                before(info);
            }
        }));
    });
    HEARD.set(Some(Listening { heard: Vec::new(), quietly }));
    let result = f();
    (result, HEARD.take().map(|listening| listening.heard).unwrap_or_default())
}

/// Whether that was all.
fn hear(info: &PanicHookInfo<'_>) -> bool {
    let listened = HEARD.try_with(|heard| {
        let mut heard = heard.try_borrow_mut().ok()?;
        let listening = heard.as_mut()?;
        let said = info.payload_as_str().unwrap_or("(no message)");
        listening.heard.push(match info.location() {
            Some(place) => format!("{said}\n    at {}:{}", place.file(), place.line()),
            None => said.to_owned(),
        });
        Some(listening.quietly)
    });
    listened.ok().flatten().unwrap_or(false)
}
