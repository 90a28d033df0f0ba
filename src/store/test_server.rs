//! A Redis server for a test, of its own, that ends with it. Refers to nothing of the crate, so that integration tests
//! include this file as it is.

#![allow(dead_code, reason = "each test binary that includes this file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot have its server has failed")]

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long a server may take to answer after its start.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// How often another free port is looked for: between finding one and using it, somebody else may take it.
const PORT_ATTEMPTS_MAX: u32 = 5;

/// A running server without persistence, in a folder of its own.
#[derive(Debug)]
pub(crate) struct TestServer {
    child: Child,
    port: u16,
    folder: tempfile::TempDir,
}

impl TestServer {
    /// Starts a server with further `options`, such as `["--requirepass", "secret"]`.
    pub(crate) fn start(options: &[&str]) -> Self {
        for _ in 0..PORT_ATTEMPTS_MAX {
            let folder = tempfile::tempdir().unwrap();
            let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
            let log = File::create(folder.path().join("log")).unwrap();
            let child = Command::new("redis-server")
                .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
                .args(["--dir", folder.path().to_str().unwrap(), "--unixsocket", "socket"])
                .args(options)
                .stdin(Stdio::null())
                .stdout(log.try_clone().unwrap())
                .stderr(log)
                .spawn()
                .unwrap_or_else(|error| {
                    panic!("`redis-server` does not start ({error}): install package redis-server")
                });
            let mut server = Self { child, port, folder };
            if server.is_ready() {
                return server;
            }
        }
        panic!("`redis-server` found no free port in {PORT_ATTEMPTS_MAX} attempts");
    }

    /// Where the server is, for clients.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// The server's address, as a socket takes it.
    pub(crate) fn socket_address(&self) -> (&'static str, u16) {
        ("127.0.0.1", self.port)
    }

    /// The same server by its Unix socket.
    pub(crate) fn unix_url(&self) -> String {
        format!("redis+unix://{}", self.socket_path().display())
    }

    fn socket_path(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// Stops the server's process: connections are made, and nothing is answered.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets the server's process go on.
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until the server answers; false if it ended because its port was taken.
    fn is_ready(&mut self) -> bool {
        let deadline = Instant::now() + START_TIMEOUT;
        while Instant::now() < deadline {
            if self.child.try_wait().unwrap().is_some() {
                let log = self.log();
                assert!(log.contains("Address already in use"), "`redis-server` ended:\n{log}");
                return false;
            }
            // The reply to a ping, or that a password is needed first.
            if matches!(self.ping(), Ok(b'+' | b'-')) {
                return true;
            }
            std::thread::yield_now();
        }
        panic!("`redis-server` does not answer:\n{}", self.log());
    }

    fn ping(&self) -> std::io::Result<u8> {
        let mut stream = TcpStream::connect(self.socket_address())?;
        stream.set_read_timeout(Some(START_TIMEOUT))?;
        stream.write_all(b"PING\r\n")?;
        let mut first = [0];
        stream.read_exact(&mut first)?;
        Ok(first[0])
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        // A killed process ends even while it is stopped; errors say that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
