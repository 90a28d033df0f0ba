//! The run protocol under attack: the engine that the program runs, in a world that does its worst.
//!
//! `replay` lets the engine, which is plain code that calls a store and files, be stopped before each call and carried
//! on later. `world` is what the calls act on. `model` looks at everything that can happen to two runs on one record;
//! `simulator` throws dice in larger worlds.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a call or an answer is looked at where it matters, among many kinds"
)]

mod flaw;
mod model;
mod replay;
mod search;
mod simulator;
mod table;
mod world;
