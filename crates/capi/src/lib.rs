//! The C interface: `libpolder.so` and `polder.h`.
//!
//! The documentation of the functions becomes the header, so it speaks to C programmers. Each function takes its
//! arguments apart, calls the library `polder`, and makes a number of the result. `docs/c.md` is the page for users.
//!
//! The functions are `unsafe` because pointers come from C. What they require is the same for all, and stated once at
//! the top of the header: a pointer is null, where the function says so, or valid for its purpose during the call.
#![allow(
    clippy::missing_safety_doc,
    non_camel_case_types,
    reason = "the documentation and the names are those of the C header"
)]

mod call;
mod handles;

// The order of the header.
mod volume;

mod names;

mod attributes;

mod directory;

mod file;

mod locks;

pub use attributes::*;
pub use directory::*;
pub use file::*;
pub use locks::*;
pub use names::*;
pub use volume::*;
