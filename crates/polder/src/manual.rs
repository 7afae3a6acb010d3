//! The examples of the manual's page on the library, run as tests.

#[doc = include_str!("../../../docs/library.md")]
struct Library;
