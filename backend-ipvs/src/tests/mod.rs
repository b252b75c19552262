//! The backend as a whole.

mod machine;
