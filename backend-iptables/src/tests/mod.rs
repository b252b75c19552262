//! Tests of the backend as a whole.

mod kernel;
