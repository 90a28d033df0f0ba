//! What goes wrong between the program and its server, and what is done about it.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::domain::{Interrupt, InterruptSignal};
use crate::store::StoreError;

/// The first wait after a failure; every further one is twice as long.
pub(super) const BACKOFF_FIRST: Duration = Duration::from_millis(100);

/// The longest wait after a failure.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// The longest text of a server that is passed on.
const SERVER_TEXT_LEN_MAX: usize = 200;

/// What is said of a refused login: never the server's own words, which may repeat what it was sent.
pub(super) const LOGIN_REFUSED: &str = "the server does not take user and password";

/// Why an attempt came to nothing. After each of them the connection is gone, and with it every answer still owed.
#[derive(Debug)]
pub(super) enum Failure {
    /// No connection, a lost one, no answer in time, or one that nobody can read. What was asked may have been done.
    Lost { cause: String, in_time: bool },
    /// The server says no.
    Server { condition: Condition, cause: String },
    /// The server no longer holds what it held.
    Forgotten { cause: String },
    /// A signal arrived during the call, which ended it; the server did nothing wrong.
    BrokenOff,
    /// Somebody asked for an early end after a failure.
    Interrupted { cause: String, signal: InterruptSignal },
}

/// What a server's error means for what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    /// Passes by itself, soon.
    Passing,
    /// Somebody has to do something before claims can be taken.
    Lasting,
    /// We are not let in.
    Denied,
    /// A key of another program stands under our prefix.
    ForeignKey,
    /// The server is one of a cluster.
    Cluster,
    /// The database of the address does not exist.
    NoDatabase,
    /// The server does not understand what is needed.
    Unable,
}

/// Every error code that is known, and what it says of the server.
const CODES: [(&str, Condition, &str); 14] = [
    ("LOADING", Condition::Passing, "the server is loading its data"),
    ("BUSY", Condition::Passing, "the server is busy with a script"),
    ("TRYAGAIN", Condition::Passing, "the server is moving keys to another node"),
    ("CLUSTERDOWN", Condition::Passing, "the server's cluster is down"),
    ("MASTERDOWN", Condition::Passing, "the server is a replica without its primary"),
    ("READONLY", Condition::Passing, "the server is a read-only replica"),
    ("OOM", Condition::Lasting, "the server's memory is full (`maxmemory`)"),
    ("MISCONF", Condition::Lasting, "the server cannot save its data and stopped taking writes"),
    ("NOREPLICAS", Condition::Lasting, "too few replicas are in reach of the server (`min-replicas-to-write`)"),
    ("NOAUTH", Condition::Denied, "the server demands a password"),
    ("WRONGPASS", Condition::Denied, "user or password is wrong"),
    ("NOPERM", Condition::Denied, "the user may not do what is needed"),
    ("WRONGTYPE", Condition::ForeignKey, "a key under the prefix holds another kind of value"),
    ("MOVED", Condition::Cluster, "the server is a node of a cluster"),
];

impl Failure {
    /// The connection is of no more use.
    pub(super) fn lost(cause: &str) -> Self {
        Self::Lost { cause: cause.to_owned(), in_time: true }
    }

    /// What came is no reply: from here on no reply can be told from another.
    pub(super) fn malformed(cause: &str) -> Self {
        Self::lost(cause)
    }

    /// Reading, writing or connecting failed.
    pub(super) fn io(error: &io::Error) -> Self {
        // A socket's own timeout is reported as `WouldBlock`, which tells nobody anything.
        if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) {
            return Self::Lost { cause: "the server did not answer in time".to_owned(), in_time: false };
        }
        Self::Lost { cause: error.to_string(), in_time: true }
    }

    /// The server answered with the error line `line`.
    pub(super) fn server(line: &[u8]) -> Self {
        let text = String::from_utf8_lossy(line);
        let code = text.split(' ').next().unwrap_or_default();
        // The one error that has no code of its own; it must not be taken for a server that is too old.
        if text.starts_with("ERR max number of clients") {
            let cause = "the server has as many clients as it takes (`maxclients`)".to_owned();
            return Self::Server { condition: Condition::Passing, cause };
        }
        Self::coded(code).unwrap_or_else(|| {
            let shown: String = text.chars().filter(|c| !c.is_control()).take(SERVER_TEXT_LEN_MAX).collect();
            Self::Server { condition: Condition::Unable, cause: format!("the server answered `{shown}`") }
        })
    }

    /// The failure behind a known error code.
    pub(super) fn coded(code: &str) -> Option<Self> {
        // Both say that the key is another node's, for good or for now.
        let code = if matches!(code, "ASK" | "CROSSSLOT") { "MOVED" } else { code };
        let (code, condition, meaning) = CODES.iter().find(|(known, ..)| *known == code)?;
        Some(Self::Server { condition: *condition, cause: format!("{meaning}: {code}") })
    }

    /// The failure at which an early end was asked for.
    fn interrupted(self, asked: Option<InterruptSignal>) -> Self {
        match (self, asked) {
            (Self::Lost { cause, .. } | Self::Server { cause, .. }, Some(signal)) => {
                Self::Interrupted { cause, signal }
            }
            (failure, _) => failure,
        }
    }

    /// Whether the failure is an answer, be it that nobody is there, and not a silence.
    pub(super) fn is_in_time(&self) -> bool {
        match self {
            Self::Lost { in_time, .. } => *in_time,
            Self::Server { .. } | Self::Forgotten { .. } => true,
            Self::BrokenOff | Self::Interrupted { .. } => false,
        }
    }

    /// Whether asking again can help.
    fn can_pass(&self) -> bool {
        match self {
            Self::Lost { .. } | Self::BrokenOff => true,
            Self::Forgotten { .. } | Self::Interrupted { .. } => false,
            Self::Server { condition, .. } => match condition {
                Condition::Passing => true,
                Condition::Lasting
                | Condition::Denied
                | Condition::ForeignKey
                | Condition::Cluster
                | Condition::NoDatabase
                | Condition::Unable => false,
            },
        }
    }

    /// The error for the caller of the store at `address` with keys under `prefix`.
    pub(super) fn into_error(self, address: &str, prefix: &str) -> StoreError {
        let address = address.to_owned();
        let (condition, cause) = match self {
            Self::Lost { cause, .. } => return StoreError::Unreachable { address, cause },
            Self::Forgotten { cause } => return StoreError::Forgotten { address, cause },
            Self::BrokenOff => unreachable!("a call that was broken off is made again"),
            Self::Interrupted { cause, signal } => return StoreError::Interrupted { address, cause, signal },
            Self::Server { condition, cause } => (condition, cause),
        };
        let hint = match condition {
            Condition::Passing | Condition::Lasting => return StoreError::Busy { address, cause },
            Condition::Denied => return StoreError::Denied { address, cause },
            Condition::ForeignKey => {
                format!(
                    "another program made a key that begins with `{prefix}`: find it and remove it; another \
                     `key_prefix` is only for a store that holds no claims yet"
                )
            }
            Condition::Cluster => "give the address of a server that is no cluster".to_owned(),
            Condition::NoDatabase => "end the address in the number of a database that the server has".to_owned(),
            Condition::Unable => "Redis 7.0, Valkey 7.2 or a later version of either is needed".to_owned(),
        };
        StoreError::Unfit { address, cause, hint }
    }
}

impl From<redis::RedisError> for Failure {
    fn from(error: redis::RedisError) -> Self {
        if let Some(failure) = error.code().and_then(Self::coded) {
            return failure;
        }
        let kind = error.kind();
        // Never the text of these two: it may come from the login.
        if matches!(kind, redis::ErrorKind::AuthenticationFailed | redis::ErrorKind::InvalidClientConfig) {
            return Self::Server { condition: Condition::Denied, cause: LOGIN_REFUSED.to_owned() };
        }
        if error.is_timeout() {
            return Self::io(&io::ErrorKind::TimedOut.into());
        }
        if is_broken_off(&error) {
            return Self::BrokenOff;
        }
        if matches!(kind, redis::ErrorKind::Io | redis::ErrorKind::Parse) {
            return Self::lost(&error.to_string());
        }
        let text = format!("{} {}", error.code().unwrap_or(error.category()), error.detail().unwrap_or_default());
        Self::server(text.trim_end().as_bytes())
    }
}

/// Whether a signal ended a call: neither the library makes it again nor, because of the socket's deadline, the system.
fn is_broken_off(error: &redis::RedisError) -> bool {
    type Shared = Arc<dyn Error + Send + Sync>;
    let io = error.source().and_then(|source| source.downcast_ref::<Shared>()?.downcast_ref::<io::Error>());
    io.is_some_and(|io| io.kind() == io::ErrorKind::Interrupted)
}

/// How often a call is tried again, and how long it waits before.
#[derive(Debug)]
pub(super) struct Patience {
    failures: u32,
    failures_max: u32,
    backoff_first: Duration,
    interrupt: Interrupt,
}

impl Patience {
    pub(super) fn new(failures_max: u32, backoff_first: Duration, interrupt: Interrupt) -> Self {
        Self { failures: 0, failures_max, backoff_first, interrupt }
    }

    /// Whether the last attempt failed without any progress.
    pub(super) fn is_tried(&self) -> bool {
        self.failures > 0
    }

    /// Something was answered: failures before it are no row any more.
    pub(super) fn restore(&mut self) {
        self.failures = 0;
    }

    /// Waits after `failure`, or hands it back if there is no use in another attempt, or none is wanted.
    pub(super) fn wait_after(&mut self, failure: Failure) -> Result<(), Failure> {
        if matches!(failure, Failure::BrokenOff) {
            return Ok(());
        }
        self.failures += 1;
        if !failure.can_pass() || self.failures >= self.failures_max {
            return Err(failure);
        }
        let doubled = 2_u32.saturating_pow(self.failures - 1);
        let wait = self.backoff_first.saturating_mul(doubled).min(BACKOFF_MAX);
        if !self.interrupt.wait(wait + jitter(wait)) {
            return Ok(());
        }
        Err(failure.interrupted(self.interrupt.asked()))
    }
}

/// Up to a fifth of `wait`, so that the clients of a server that comes back do not arrive all at once.
fn jitter(wait: Duration) -> Duration {
    let mut random = [0];
    // Without randomness there is no jitter, which harms nobody.
    let _ = getrandom::fill(&mut random);
    wait / 5 * u32::from(random[0]) / 255
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(line: &str) -> &'static str {
        match Failure::server(line.as_bytes()).into_error("redis://db1", "dedup:") {
            StoreError::Busy { .. } => "busy",
            StoreError::Denied { .. } => "denied",
            StoreError::Unfit { .. } => "unfit",
            StoreError::Unreachable { .. }
            | StoreError::Interrupted { .. }
            | StoreError::Missing { .. }
            | StoreError::Forgotten { .. }
            | StoreError::OtherVersion { .. }
            | StoreError::Corrupt { .. }
            | StoreError::Io { .. } => "another",
        }
    }

    #[test]
    fn every_error_of_a_server_says_what_the_operator_has_to_do() {
        for (line, expected) in [
            ("OOM command not allowed when used memory > 'maxmemory'.", "busy"),
            ("LOADING Redis is loading the dataset in memory", "busy"),
            ("BUSY Redis is busy running a script", "busy"),
            ("MISCONF Redis is configured to save RDB snapshots", "busy"),
            ("NOREPLICAS Not enough good replicas to write.", "busy"),
            ("READONLY You can't write against a read only replica.", "busy"),
            ("MASTERDOWN Link with MASTER is down", "busy"),
            ("CLUSTERDOWN The cluster is down", "busy"),
            ("TRYAGAIN Multiple keys request during rehashing of slot", "busy"),
            ("ERR max number of clients reached", "busy"),
            ("NOAUTH Authentication required.", "denied"),
            ("WRONGPASS invalid username-password pair or user is disabled.", "denied"),
            ("NOPERM this user has no permissions", "denied"),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", "unfit"),
            ("MOVED 3999 127.0.0.1:6381", "unfit"),
            ("ASK 3999 127.0.0.1:6381", "unfit"),
            ("ERR syntax error", "unfit"),
            ("", "unfit"),
        ] {
            assert_eq!(kind(line), expected, "{line}");
        }
    }

    #[test]
    fn patience_ends_at_its_limit_and_at_once_where_waiting_is_no_use() {
        let patience = || Patience::new(3, Duration::ZERO, Interrupt::default());
        let mut patience_of_three = patience();
        assert!(patience_of_three.wait_after(Failure::lost("x")).is_ok());
        assert!(patience_of_three.wait_after(Failure::server(b"LOADING x")).is_ok());
        assert!(patience_of_three.wait_after(Failure::lost("x")).is_err());
        patience_of_three.restore();
        assert!(patience_of_three.wait_after(Failure::lost("x")).is_ok());
        assert!(patience().wait_after(Failure::server(b"OOM x")).is_err());
    }

    #[test]
    fn patience_ends_when_it_is_interrupted_and_a_call_that_the_signal_broke_off_is_made_again() {
        let interrupt = Interrupt::default();
        let mut patience = Patience::new(3, BACKOFF_MAX, interrupt.clone());
        interrupt.ask(InterruptSignal::Terminated);
        let broken_off = Failure::from(redis::RedisError::from(io::Error::from(io::ErrorKind::Interrupted)));
        assert!(patience.wait_after(broken_off).is_ok());
        let given_up = patience.wait_after(Failure::lost("gone")).unwrap_err().into_error("redis://db1", "dedup:");
        let told = "interrupted by SIGTERM while waiting for the store at `redis://db1`";
        assert_eq!((given_up.to_string().as_str(), given_up.cause().as_deref()), (told, Some("gone")));
    }

    #[test]
    fn no_wait_is_longer_than_its_limit() {
        assert!(jitter(BACKOFF_MAX) <= BACKOFF_MAX / 5);
        assert_eq!(BACKOFF_FIRST.saturating_mul(2_u32.saturating_pow(40)).min(BACKOFF_MAX), BACKOFF_MAX);
    }
}
