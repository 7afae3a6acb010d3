//! The examples of the manual's page on semantics, run as tests.

#[doc = include_str!("../../../docs/semantics.md")]
struct Semantics;
