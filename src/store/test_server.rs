//! A Redis server for a test, of its own, that ends with it. Refers to nothing of the crate, so that integration tests
//! include this file as it is.

#![allow(dead_code, reason = "each test binary that includes this file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot have its server has failed")]

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long a server may take to answer after its start.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// How often another free port is looked for: between finding one and using it, somebody else may take it.
const PORT_ATTEMPTS_MAX: u32 = 5;

/// The options of a server that keeps its data when it is started anew.
pub(crate) const DURABLE: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];

/// A running server, by itself without persistence, in a folder of its own.
#[derive(Debug)]
pub(crate) struct TestServer {
    child: Child,
    port: u16,
    folder: tempfile::TempDir,
    options: Vec<String>,
}

impl TestServer {
    /// Starts a server with further `options`, such as `["--requirepass", "secret"]`.
    pub(crate) fn start(options: &[&str]) -> Self {
        for _ in 0..PORT_ATTEMPTS_MAX {
            let folder = tempfile::tempdir().unwrap();
            let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
            let options: Vec<_> = options.iter().map(|option| (*option).to_owned()).collect();
            let child = spawn(port, folder.path(), &options);
            let mut server = Self { child, port, folder, options };
            if server.is_ready() {
                return server;
            }
        }
        panic!("`redis-server` found no free port in {PORT_ATTEMPTS_MAX} attempts");
    }

    /// A server that follows this one, and has all that this one has.
    pub(crate) fn start_replica(&self) -> Self {
        // Otherwise the first copy waits five seconds for further replicas that could share it.
        self.ask("CONFIG SET repl-diskless-sync-delay 0");
        let (host, port) = self.socket_address();
        let replica = Self::start(&["--replicaof", host, &port.to_string()]);
        let deadline = Instant::now() + START_TIMEOUT;
        let is_linked = || {
            replica.ask("INFO replication").contains("master_link_status:up")
                && self.ask("INFO replication").contains("state=online")
        };
        while !is_linked() {
            assert!(Instant::now() < deadline, "the replica does not follow:\n{}", replica.log());
            std::thread::yield_now();
        }
        replica
    }

    /// Asks the server for `command`; returns its reply as it came.
    pub(crate) fn ask(&self, command: &str) -> String {
        let mut stream = TcpStream::connect(self.socket_address()).unwrap();
        stream.set_read_timeout(Some(START_TIMEOUT)).unwrap();
        stream.write_all(format!("{command}\r\nQUIT\r\n").as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    }

    /// Kills the server and starts it anew, with the data that it kept.
    pub(crate) fn restart(&mut self) {
        self.end();
        self.child = spawn(self.port, self.folder.path(), &self.options);
        assert!(self.is_ready(), "somebody else took the port");
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

    /// A killed process ends even while it is stopped; errors say that it has ended already.
    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
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
        self.end();
    }
}

fn spawn(port: u16, folder: &Path, options: &[String]) -> Child {
    let log = File::options().create(true).append(true).open(folder.join("log")).unwrap();
    Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .args(["--dir", folder.to_str().unwrap(), "--unixsocket", "socket"])
        .args(options)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap_or_else(|error| panic!("`redis-server` does not start ({error}): install package redis-server"))
}
