//! What the agent sets on the host besides rules.

pub mod conntrack;
