//! The program as its users meet it: the real binary, in folders of its own, told by its files, messages and exit codes.

mod conflicts;
mod crash;
mod env;
mod errors;
mod formats;
mod golden;
mod interleave;
mod interrupts;
mod kill_matrix;
mod man;
mod oracle;
mod protocol;
mod publishing;
mod replay;
mod rounds;
mod runs;
mod stopped;
mod takeover;
mod taking_back;
mod terminal;
mod tidy;
mod workers;

// One server for the store's own tests and for these.
#[path = "../../src/store/test_server.rs"]
mod test_server;
