//! e2e
fn main() {}
