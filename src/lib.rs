//! feeddedup finds which bank statement records were booked already, and proves it.
//!
//! # Map, in reading order
//!
//! | module | what stands there |
//! | --- | --- |
//! | [`domain`] | what a record is, when two are the same, what becomes of each; no I/O |
//! | [`input`] | feeds in, records with their exact bytes out |
//! | [`store`] | markers: who claimed which source hash; what is remembered of runs |
//! | [`output`] | what a run leaves behind: files of records, audit log, journal, summary |
//! | [`pipeline`] | the only threads and queues |
//! | [`run`] | the life of a run, from opening to publishing |
//! | [`cli`] | words in, settings out, failures told, exit code chosen |

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod cli;
pub mod domain;
pub mod input;
pub mod output;
pub mod pipeline;
pub mod run;
pub mod store;
