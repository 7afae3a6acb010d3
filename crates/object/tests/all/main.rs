//! The device against a store that does everything the contract of [`polder_object::Store`] allows.

mod crashes;
mod model;
mod owners;
mod simulated;
mod usual;
