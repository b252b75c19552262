//! What the benchmarks share: their arguments, the changes that they make, how these are timed, and the tables.
//!
//! A [`Subject`] is something that takes changes and says when they are in the kernel: the core with a backend in this thread, or a
//! whole agent fed by an API server. [`series::run`] puts every subject through the same changes, so that the two compare row by row.
//! [`report`] prints what came out beside the bars that this project sets itself.
//!
//! A benchmark never fails because something is slow. It fails when something is wrong: a change that does not reach the kernel, or an
//! end state that differs.

mod agent;
mod arguments;
pub mod bars;
mod churn;
mod error;
mod fleet;
mod process;
pub mod report;
pub mod series;
mod stats;
mod subject;
mod table;

pub use agent::{Agent, Feed, verify};
pub use arguments::{Arguments, Size};
pub use bars::Program;
pub use churn::Churn;
pub use error::Error;
pub use fleet::Fleet;
pub use process::Process;
pub use series::{Outcome, Row};
pub use stats::Samples;
pub use subject::{Change, Subject, Synced};
pub use table::Table;
