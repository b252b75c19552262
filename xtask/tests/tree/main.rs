//! What must hold for the repository as a whole: which crate may use which, what dependencies may be, how large files and
//! functions may grow, what a committed file must not name.
#![allow(clippy::unwrap_used, reason = "helpers of tests, which fail by panicking")]

mod arrows;
mod backends;
mod deny;
mod files;
mod licence;
mod sizes;
mod workspace;
