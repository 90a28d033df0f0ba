//! A file a command: each has `run`, which is handed its words, the settings, and the streams.

pub(super) mod completions;
pub(super) mod config;
pub(super) mod hash;
pub(super) mod ingest;
pub(super) mod resolve;
pub(super) mod revert;
pub(super) mod runs;
