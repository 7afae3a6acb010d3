//! Runs a part of the system under test so that a panic in it becomes an error with the panic's message.

use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::Once;

/// A failure as text: one line, perhaps with a list below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong(pub String);

impl Wrong {
    /// Something went wrong while `doing`.
    pub fn at(doing: &str, error: impl fmt::Display) -> Self {
        Wrong(format!("{doing}: {error}"))
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Wrong {}

/// The state of a watched thread: what it runs, and the messages of its panics.
#[derive(Default)]
struct Watched {
    what: Option<String>,
    messages: Vec<String>,
}

thread_local! {
    static WATCHED: RefCell<Watched> = RefCell::default();
}

/// Runs `work` and turns its panic into an error. A panic during the unwinding of the first one ends the process, and
/// `what` is printed.
pub fn caught<T>(what: impl fmt::Display, work: impl FnOnce() -> Result<T, Wrong>) -> Result<T, Wrong> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !note(info) {
                usual(info);
            }
        }));
    });
    WATCHED
        .with_borrow_mut(|watched| *watched = Watched { what: Some(what.to_string()), messages: Vec::new() });
    let done = catch_unwind(AssertUnwindSafe(work));
    let watched = WATCHED.take();
    done.unwrap_or_else(|_| Err(Wrong(watched.messages.join("\n  then "))))
}

/// Keeps the message of a panic, if this thread is watched.
fn note(info: &PanicHookInfo<'_>) -> bool {
    WATCHED.with_borrow_mut(|watched| {
        let Some(what) = &watched.what else { return false };
        let place = info.location().map_or_else(String::new, |at| format!(" ({}:{})", at.file(), at.line()));
        let words = info.payload_as_str().unwrap_or("no words");
        watched.messages.push(format!("panic: {words}{place}"));
        if watched.messages.len() > 1 {
            eprintln!("a panic during a panic, in\n  {what}\n  {}", watched.messages.join("\n  "));
        }
        true
    })
}
