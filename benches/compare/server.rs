//! A Redis server of the runner's own: a free port, no persistence, gone at the end.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// How long a server may take to answer its first call.
const START_TIME_MAX: Duration = Duration::from_secs(10);

pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
    connection: redis::Connection,
}

impl Server {
    /// Starts a server that keeps its log in `dir`.
    pub(crate) fn start(dir: &Path) -> anyhow::Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let port_text = port.to_string();
        let settings = ["--port", &port_text, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
        let mut child = Command::new("redis-server")
            .args(settings)
            .args(["--logfile", "redis.log", "--dir"])
            .arg(dir)
            .stdout(Stdio::null())
            .spawn()
            .context("could not start `redis-server`, which Debian's package redis-server brings")?;
        match first_answer(port) {
            Ok(connection) => Ok(Self { child, port, connection }),
            Err(error) => {
                child.kill()?;
                child.wait()?;
                Err(error)
            }
        }
    }

    /// The store's address, for the program.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// Empties the server, and returns only when the memory is free: freeing must not run into the next timing.
    pub(crate) fn flush(&mut self) -> anyhow::Result<()> {
        redis::cmd("FLUSHALL").arg("SYNC").exec(&mut self.connection).context("could not empty the server")
    }

    /// How many keys there are.
    pub(crate) fn key_count(&mut self) -> anyhow::Result<u64> {
        redis::cmd("DBSIZE").query(&mut self.connection).context("could not count the keys")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nothing it holds is wanted any more, and there is nobody to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn first_answer(port: u16) -> anyhow::Result<redis::Connection> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/0"))?;
    let start = Instant::now();
    loop {
        match client.get_connection_with_timeout(Duration::from_secs(5)) {
            Ok(connection) => return Ok(connection),
            Err(error) if start.elapsed() > START_TIME_MAX => bail!("no answer from `redis-server`: {error}"),
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}
