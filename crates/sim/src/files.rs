//! The whole file system, against the model.
//!
//! A [`Scenario`] is a list of operations; a seeded scheduler puts background steps between them.
//! Everything runs in one thread, on a clock that moves only when told to; only where a range is taken
//! out or put in, another one syncs meanwhile, in turns that follow from the seed. Several clients at once
//! ([`crate::whole`]) are drivers in company: each below a directory of its own.

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
