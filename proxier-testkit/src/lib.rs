//! Test material that every backend shares.
//!
//! What it is: random clusters and packets ([`build`]), a corpus of cases with what each must mean ([`corpus`]), models of kernels that answer
//! where a packet goes ([`nft`], [`iptables`], [`ipset`], [`ipvs`], [`walk`]), the suite that a backend calls with its constructor ([`conformance`]), clusters of a given size
//! for benchmarks ([`scale`]), a runner that answers from a script ([`script`]), with the feature `bench` what these share, and, with the feature `apiserver`, a Kubernetes API server.
//!
//! What it is not: part of any release; nothing that ships depends on it.

#[cfg(feature = "apiserver")]
pub mod apiserver;
#[cfg(feature = "bench")]
pub mod bench;
pub mod build;
pub mod conformance;
pub mod corpus;
pub mod ipset;
pub mod iptables;
pub mod ipvs;
pub mod nft;
pub mod scale;
pub mod script;
pub mod walk;
