//! The whole file system, against the model.
//!
//! A [`Scenario`] is a list of operations. A seeded scheduler inserts background steps between them. Everything runs
//! in one thread, on a clock that only the test advances. Only where a range is collapsed or inserted does a second
//! thread sync meanwhile, in turns that follow from the seed. Several clients at once ([`crate::whole`]) use one
//! driver each, each below a directory of its own.

mod company;
mod driver;
mod observe;
mod scenarios;
mod script;
mod subject;
mod volume;

pub use company::{Spans, book};
pub use driver::{Driver, Failed};
pub(crate) use observe::caller;
pub use observe::{View, view};
pub use scenarios::{Plan, Scenario, all};
pub use subject::FilesSubject;
pub(crate) use subject::afterwards;
pub use volume::{Volume, among, clean, compare, findings, judge};

#[cfg(test)]
mod tests;
