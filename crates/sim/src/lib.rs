//! The simulator: whole volumes on the emulated device, their reference models, and the harness
//! that cuts the power.
//!
//! A *subject* ([`explore::Subject`]) is a volume that is run through a *scenario* on an emulated
//! device while a reference model, plain maps, is told the same. The model notes which of its
//! states may be found after a loss of power at each device command ([`history::History`]).
//! [`explore`] then cuts at every command, under every plan the device knows, recovers, and asks
//! three questions: is the volume clean, is what was found one of the states that may be found, and
//! does it still hold when the recovered volume goes on and the power is lost again.
//!
//! There are three subjects: [`store`], the metadata store alone against one ordered map, [`files`],
//! the whole file system against [`model`], and [`made`], a volume that is being made. [`planted`]
//! builds the first two with one bug after the other, ordering rules that were removed among them,
//! and shows which scenario notices.
//!
//! [`whole`] puts everything together: several clients of one volume, background work, faults, cuts and kills, mount
//! after mount, all from one seed.
//!
//! Nothing here knows how Polder works inside; it knows what was promised. Everything repeats from
//! a seed, and a failure prints the one command that repeats it ([`case::Case`]).
#![forbid(unsafe_code)]

pub mod allowed;
pub mod case;
pub mod catalogue;
pub mod caught;
pub mod crew;
pub mod digest;
pub mod explore;
pub mod faults;
pub mod files;
pub mod flips;
pub mod fuzz;
pub mod history;
pub mod long;
pub mod made;
pub mod model;
pub mod planted;
pub mod report;
pub mod shapes;
pub mod shows;
pub mod speed;
pub mod states;
pub mod store;
pub mod whole;
