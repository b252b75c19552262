//! Tests of the codec as a whole: `roundtrip` and `damage` without a kernel, `kernel` with one.

mod damage;
mod kernel;
mod roundtrip;
mod samples;
