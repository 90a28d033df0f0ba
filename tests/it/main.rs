//! The program as its users meet it: the real binary, in folders of its own, told by its files, messages and exit codes.

mod crash;
mod env;
mod errors;
mod golden;
mod oracle;
mod replay;
// One server for the store's own tests and for these.
#[path = "../../src/store/test_server.rs"]
mod test_server;
