//! What panics of this thread say while a program is run.
//!
//! A panic's place is told to the process's hook only. Ours is put in front of whatever hook there
//! is, once, and does nothing on threads that do not listen.

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

/// Runs `f`, and returns what each panic said meanwhile, caught or not. `quietly`: nobody else
/// hears it.
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
    let listens = Listens::begin(quietly);
    let result = f();
    (result, listens.end())
}

/// What was heard, and what of the panics that came through was not: `resume_unwind` calls no hook, and
/// whoever replaces the hook takes ours out.
pub(super) fn with_unheard(mut heard: Vec<String>, payloads: Vec<String>) -> Vec<String> {
    for payload in payloads {
        if !heard.iter().any(|heard| heard.starts_with(&payload)) {
            heard.push(payload);
        }
    }
    heard
}

/// While it lives, the thread listens. Whoever listened before, does so again after it.
struct Listens {
    outer: Option<Listening>,
}

impl Listens {
    fn begin(quietly: bool) -> Self {
        Listens { outer: HEARD.replace(Some(Listening { heard: Vec::new(), quietly })) }
    }

    fn end(self) -> Vec<String> {
        HEARD.take().map(|listening| listening.heard).unwrap_or_default()
    }
}

impl Drop for Listens {
    fn drop(&mut self) {
        HEARD.set(self.outer.take());
    }
}

/// What to do about a panic of tokio's that a run on its own runtime makes.
fn advice(said: &str) -> Option<&'static str> {
    if said.contains("timers are disabled") {
        return Some(
            "timers do not run under `explore`: see \"Timeouts\" in the guide, headwater::testing",
        );
    }
    let of_io = said.contains("IO is disabled");
    of_io.then_some("sockets do not work under `explore`: have the test use a channel instead")
}

/// Whether that was all.
fn hear(info: &PanicHookInfo<'_>) -> bool {
    let listened = HEARD.try_with(|heard| {
        let mut heard = heard.try_borrow_mut().ok()?;
        let listening = heard.as_mut()?;
        let said = info.payload_as_str().unwrap_or("(no message)");
        let mut message = said.to_owned();
        if let Some(place) = info.location() {
            message += &format!("\n    at {}:{}", place.file(), place.line());
        }
        if let Some(advice) = advice(said) {
            message += &format!("\n    {advice}");
        }
        listening.heard.push(message);
        Some(listening.quietly)
    });
    listened.ok().flatten().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn panics(message: &'static str) {
        assert!(catch_unwind(AssertUnwindSafe(|| std::panic::panic_any(message))).is_err());
    }

    #[test]
    fn who_listens_inside_hears_its_own_and_leaves_the_outer_one_the_rest() {
        let (inner, outer) = listen(true, || {
            panics("before");
            let ((), inner) = listen(true, || panics("inside"));
            panics("after");
            inner
        });
        assert!(matches!(&inner[..], [inside] if inside.starts_with("inside")), "{inner:?}");
        let [before, after] = &outer[..] else { panic!("{outer:?}") };
        assert!(before.starts_with("before") && after.starts_with("after"), "{outer:?}");
    }

    #[test]
    fn the_outer_one_listens_again_after_a_panic_inside() {
        let ((), outer) = listen(true, || {
            let inside = || listen(true, || std::panic::panic_any("through"));
            assert!(catch_unwind(AssertUnwindSafe(inside)).is_err());
            panics("after");
        });
        assert!(matches!(&outer[..], [after] if after.starts_with("after")), "{outer:?}");
    }
}
