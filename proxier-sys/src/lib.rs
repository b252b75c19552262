//! proxier-sys
