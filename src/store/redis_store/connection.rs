//! Connections: one of our own for claims, one of the client library for everything else.
//!
//! A connection is used until its first failure, of whatever kind, and never again: after a lost reply the next one
//! would be taken for the answer to another claim, and `nil` reads as a new record.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion};

use super::failure::{Condition, Failure, LOGIN_REFUSED};
use super::wire::{Reply, ReplyReader, write_command};
use crate::store::record_wire::{Meta, decode_meta};
use crate::store::{StoreConfig, StoreError, StoreLocation};

/// Connecting takes several round trips and is rare: it is given at least this long.
const CONNECT_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// Bytes after which a batch is closed, whatever its number of claims.
///
/// A server answers while it still reads, but a proxy between may hold back; what is under way must fit its buffers.
const BATCH_BYTES_MAX: usize = 256 * 1024;

/// Where the server is and how to get in. Its `Debug` shows no password.
#[derive(Debug, Clone)]
pub(super) struct Place {
    info: ConnectionInfo,
    /// The server for people: without user and password.
    pub(super) address: String,
    pub(super) prefix: String,
    lock_timeout: Duration,
    /// What the store said of itself at opening, demanded of every later connection. None until it is known.
    pub(super) meta: Option<Meta>,
}

impl Place {
    pub(super) fn new(config: &StoreConfig) -> Result<Self, StoreError> {
        let address = config.location.address();
        let unfit = |cause: &str, hint: &str| StoreError::Unfit {
            address: address.clone(),
            cause: cause.to_owned(),
            hint: hint.to_owned(),
        };
        let StoreLocation::Redis { url, .. } = &config.location else {
            return Err(unfit("it is no server", "give an address that begins with `redis://`"));
        };
        // The library's message may quote the URL, and with it the password.
        let info = url.as_str().into_connection_info().map_err(|_| {
            unfit("the address cannot be read", "write it as `redis://HOST:PORT/DATABASE` or `redis+unix:///PATH`")
        })?;
        let mut login = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP2).set_skip_set_lib_name();
        if let Some(username) = &config.username {
            login = login.set_username(username);
        }
        if let Some(password) = &config.password {
            login = login.set_password(password.reveal());
        }
        Ok(Self {
            info: info.set_redis_settings(login),
            address,
            prefix: config.prefix.clone(),
            lock_timeout: config.lock_timeout,
            meta: None,
        })
    }

    /// The key `name` of this store.
    pub(super) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The longest wait without any progress.
    pub(super) fn lock_timeout(&self) -> Duration {
        self.lock_timeout
    }

    /// Another deadline for the connections to come.
    #[cfg(test)]
    pub(super) fn set_lock_timeout(&mut self, lock_timeout: Duration) {
        self.lock_timeout = lock_timeout;
    }

    /// What the caller is told of `failure`.
    pub(super) fn error(&self, failure: Failure) -> StoreError {
        failure.into_error(&self.address, &self.prefix)
    }

    fn connect_timeout(&self) -> Duration {
        self.lock_timeout.max(CONNECT_TIMEOUT_MIN)
    }

    /// A connection of the client library, logged in, whose every reply has a deadline.
    pub(super) fn control(&self) -> Result<redis::Connection, Failure> {
        let mut control = Client::open(self.info.clone())?.get_connection_with_timeout(self.connect_timeout())?;
        // The library takes its timeouts away again once it is connected.
        control.set_read_timeout(Some(self.lock_timeout))?;
        control.set_write_timeout(Some(self.lock_timeout))?;
        if self.meta.is_some() {
            let found: Option<Vec<u8>> = redis::cmd("GET").arg(self.key("meta")).query(&mut control)?;
            self.check_meta(found.as_deref())?;
        }
        Ok(control)
    }

    /// A connection of our own, logged in.
    pub(super) fn link(&self) -> Result<Link, Failure> {
        let stream = self.stream().map_err(|error| Failure::io(&error))?;
        let mut link = Link { stream, replies: ReplyReader::new(), commands: Vec::new() };
        let (login, words) = (self.info.redis_settings(), &mut link.commands);
        match (login.username(), login.password()) {
            (Some(user), Some(password)) => write_command(&[b"AUTH", user.as_bytes(), password.as_bytes()], words),
            (None, Some(password)) => write_command(&[b"AUTH", password.as_bytes()], words),
            (_, None) => {}
        }
        let database = login.db().to_string();
        write_command(&[b"SELECT", database.as_bytes()], words);
        write_command(&[b"GET", self.key("meta").as_bytes()], words);
        link.send()?;
        if login.password().is_some() {
            expect_ok(link.receive()?).map_err(hide_login)?;
        }
        expect_ok(link.receive()?).map_err(|failure| name_database(failure, &database))?;
        match link.receive()? {
            Reply::Nil => self.check_meta(None)?,
            Reply::Text(found) => self.check_meta(Some(found))?,
            Reply::Error(line) => return Err(Failure::server(line)),
            Reply::Status(_) | Reply::Integer(_) => return Err(unexpected()),
        }
        Ok(link)
    }

    /// Whether the store is still the one that was opened: between two connections it may have been emptied or replaced.
    fn check_meta(&self, found: Option<&[u8]>) -> Result<(), Failure> {
        let Some(expected) = &self.meta else {
            return Ok(());
        };
        let found = found.and_then(|json| std::str::from_utf8(json).ok()).and_then(|json| decode_meta(json).ok());
        if found.as_ref() == Some(expected) {
            return Ok(());
        }
        Err(Failure::Forgotten { cause: "it was emptied or replaced while it was in use".to_owned() })
    }

    fn stream(&self) -> io::Result<Stream> {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, port) => {
                let stream = connect_tcp(host, *port, self.connect_timeout())?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(self.lock_timeout))?;
                stream.set_write_timeout(Some(self.lock_timeout))?;
                Ok(Stream::Tcp(stream))
            }
            ConnectionAddr::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(self.lock_timeout))?;
                stream.set_write_timeout(Some(self.lock_timeout))?;
                Ok(Stream::Unix(stream))
            }
            ConnectionAddr::TcpTls { .. } | _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// Connects to the first address of `host` that lets us.
fn connect_tcp(host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// A login that the server does not understand, since it has no passwords, is refused like any other.
fn hide_login(failure: Failure) -> Failure {
    match failure {
        Failure::Server { condition: Condition::Unable, .. } => {
            Failure::Server { condition: Condition::Denied, cause: LOGIN_REFUSED.to_owned() }
        }
        failure @ (Failure::Server { .. }
        | Failure::Lost { .. }
        | Failure::Forgotten { .. }
        | Failure::BrokenOff
        | Failure::Interrupted { .. }) => failure,
    }
}

/// A server that knows no such database answers without a code of its own.
fn name_database(failure: Failure, database: &str) -> Failure {
    match failure {
        Failure::Server { condition: Condition::Unable, .. } => Failure::Server {
            condition: Condition::NoDatabase,
            cause: format!("the server has no database {database}"),
        },
        failure @ (Failure::Server { .. }
        | Failure::Lost { .. }
        | Failure::Forgotten { .. }
        | Failure::BrokenOff
        | Failure::Interrupted { .. }) => failure,
    }
}

fn expect_ok(reply: Reply<'_>) -> Result<(), Failure> {
    match reply {
        Reply::Status(_) => Ok(()),
        Reply::Error(line) => Err(Failure::server(line)),
        Reply::Nil | Reply::Text(_) | Reply::Integer(_) => Err(unexpected()),
    }
}

/// A reply that does not fit its command: replies and commands are out of step, or the server is none that we know.
fn unexpected() -> Failure {
    Failure::malformed("a reply does not fit what was asked")
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection for pipelines of commands.
///
/// Its sockets' timeouts are the deadline: each wait ends when any byte moves, and only then does the next begin.
#[derive(Debug)]
pub(super) struct Link {
    stream: Stream,
    replies: ReplyReader,
    /// Commands not sent yet.
    commands: Vec<u8>,
}

/// How many commands travel together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Most commands of a batch.
    pub(super) batch_size: usize,
    /// Most batches whose replies are owed at one time.
    pub(super) batches_in_flight: usize,
}

impl Link {
    /// Sends the commands that `write` spells for `answers.len()..count` and appends what `read` makes of each reply.
    ///
    /// After a failure `answers` holds what was answered before it.
    pub(super) fn exchange<T>(
        &mut self,
        count: usize,
        pace: Pace,
        write: &impl Fn(usize, &mut Vec<u8>),
        read: &mut impl FnMut(usize, Reply<'_>) -> Option<T>,
        answers: &mut Vec<T>,
    ) -> Result<(), Failure> {
        let mut sent = answers.len();
        let mut ends_in_flight = VecDeque::with_capacity(pace.batches_in_flight);
        while answers.len() < count {
            while sent < count && ends_in_flight.len() < pace.batches_in_flight {
                sent = self.send_batch(sent..count, pace.batch_size, write)?;
                ends_in_flight.push_back(sent);
            }
            let end = ends_in_flight.pop_front().expect("a command without answer is in flight");
            while answers.len() < end {
                let answer = match self.replies.next(&mut self.stream)? {
                    Reply::Error(line) => return Err(Failure::server(line)),
                    reply @ (Reply::Nil | Reply::Text(_) | Reply::Status(_) | Reply::Integer(_)) => {
                        read(answers.len(), reply)
                    }
                };
                answers.push(answer.ok_or_else(unexpected)?);
            }
        }
        // A reply too many belongs to no command: this connection must not answer another one.
        if self.replies.is_empty() { Ok(()) } else { Err(unexpected()) }
    }

    /// Sends commands from the start of `indices` until a batch is full; returns the first that was not sent.
    fn send_batch(
        &mut self,
        indices: std::ops::Range<usize>,
        batch_size: usize,
        write: &impl Fn(usize, &mut Vec<u8>),
    ) -> Result<usize, Failure> {
        let mut next = indices.start;
        while next < indices.end && next - indices.start < batch_size && self.commands.len() < BATCH_BYTES_MAX {
            write(next, &mut self.commands);
            next += 1;
        }
        self.send()?;
        Ok(next)
    }

    fn send(&mut self) -> Result<(), Failure> {
        self.stream.write_all(&self.commands).map_err(|error| Failure::io(&error))?;
        self.commands.clear();
        Ok(())
    }

    fn receive(&mut self) -> Result<Reply<'_>, Failure> {
        self.replies.next(&mut self.stream)
    }
}
