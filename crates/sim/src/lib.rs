//! The simulator: whole volumes on the emulated device, their reference models, and the harness that cuts the power.
//!
//! A *subject* ([`explore::Subject`]) is a volume that runs a *scenario* on an emulated device. A reference model of
//! simple maps performs the same operations, and notes which of its states may be found after a loss of power at each
//! device command ([`history::History`]). [`explore`] then cuts at every command, under every plan of the device, and
//! recovers. It asks three questions. Is the volume consistent? Is the found state one of the allowed ones? And does
//! the same hold after the recovered volume continues and loses power again?
//!
//! There are three subjects: [`store`], the metadata store alone against one ordered map, [`files`], the whole file
//! system against [`model`], and [`made`], a volume during `mkfs`. [`planted`] builds Polder with one bug after the
//! other, including removed ordering rules, and shows which harness notices.
//!
//! [`whole`] puts everything together: several clients of one volume, background work, faults, cuts and kills, mount
//! after mount, all from one seed.
//!
//! The simulator does not know how Polder works inside. It knows the promises. Everything can be repeated from a
//! seed, and a failure prints the one command that repeats it ([`case::Case`]).
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
