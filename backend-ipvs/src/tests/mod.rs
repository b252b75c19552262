//! The backend as a whole.

mod host;
mod machine;
