//! proxier-testkit
