//! A run that stands still somewhere, as one does whose machine sleeps.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::env::{Env, Ran};

/// No run takes longer until it stands still.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// Where a run stands still: the system call that it makes last, by its name, and which of these calls it is.
pub(crate) type Site<'a> = (&'a str, u32);

/// All claims are made, and nothing is sealed: the first file that the claiming thread has the disk take is an output.
const CLAIMED: Site<'_> = ("fsync", 1);

/// What `strace` writes down when the run stands still.
const STOPPED: &str = "--- stopped by SIGSTOP ---";

/// A stopped process, which is killed if nothing else becomes of it.
#[derive(Debug)]
pub(crate) struct StoppedRun<'a> {
    env: &'a Env,
    child: Option<Child>,
}

impl<'a> StoppedRun<'a> {
    /// Starts `command`, and waits until it stands still, all claims made and nothing sealed. Its state directory must
    /// know the store already.
    pub(crate) fn start(env: &'a Env, command: &Command) -> Self {
        Self::start_until(env, command, CLAIMED, &[])
    }

    /// Starts `command`, and waits until it stands still at a site; of the calls of that name only those about files in
    /// `paths` count, or all of them.
    pub(crate) fn start_until(env: &'a Env, command: &Command, (call, number): Site<'_>, paths: &[&str]) -> Self {
        let _ = std::fs::remove_file(env.trace_path());
        let (trace, inject) = (format!("trace={call}"), format!("inject={call}:signal=STOP:when={number}"));
        // The run is the child, and `strace` a process beside it.
        let mut options = vec!["-D", "-e", &trace, "-e", &inject];
        paths.iter().for_each(|path| options.extend(["-P", path]));
        let mut strace = env.under_strace(command, &options);
        strace.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = strace.spawn().unwrap_or_else(|error| panic!("`strace` does not start ({error}): install it"));
        let mut run = Self { env, child: Some(child) };
        let deadline = Instant::now() + STOP_TIMEOUT;
        while !std::fs::read_to_string(env.trace_path()).unwrap_or_default().contains(STOPPED) {
            if run.child.as_mut().is_some_and(|child| child.try_wait().unwrap().is_some()) {
                panic!("the run ended before it stood still: {:?}", run.end());
            }
            assert!(Instant::now() < deadline, "the run does not come to where it is to stand still");
            std::thread::yield_now();
        }
        run
    }

    /// The process of the run.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("it has not ended").id()
    }

    /// Kills it.
    pub(crate) fn kill(mut self) {
        self.signal(Signal::KILL);
        let status = self.child.take().expect("it has not ended").wait().unwrap();
        assert_eq!(status.signal(), Some(Signal::KILL.as_raw()), "it was killed where it stood");
    }

    /// Lets it go on, to its end.
    pub(crate) fn go_on(mut self) -> Ran {
        self.signal(Signal::CONT);
        self.end()
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("it has not ended");
        kill_process(Pid::from_child(child), signal).unwrap();
    }

    fn end(&mut self) -> Ran {
        let output = self.child.take().expect("it has not ended").wait_with_output().unwrap();
        let (stdout, stderr) = (self.env.told(&output.stdout), self.env.told(&output.stderr));
        Ran { code: output.status.code(), stdout, stderr }
    }
}

impl Drop for StoppedRun<'_> {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Errors say that it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
