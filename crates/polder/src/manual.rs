//! The examples of the book's pages on the library, run as tests.

#[doc = include_str!("../../../docs/library.md")]
struct Library;

#[doc = include_str!("../../../docs/start/program.md")]
struct FirstProgram;
