//! Reading what may never come: a pipe, a terminal. A wait for it ends when the run is interrupted.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

use crate::domain::Interrupt;

/// How long a wait goes on before it looks whether it is still wanted.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// A pipe, a terminal, or whatever else is not known to have its bytes ready.
#[derive(Debug)]
pub struct Pipe {
    file: File,
    interrupt: Interrupt,
}

impl Pipe {
    /// What stands at `path`, or else standard input; a named pipe need not have a writer yet.
    pub fn open(path: Option<&Path>, interrupt: &Interrupt) -> io::Result<Self> {
        let interrupt = interrupt.clone();
        let Some(path) = path else {
            return Ok(Self { file: io::stdin().as_fd().try_clone_to_owned()?.into(), interrupt });
        };
        let mut options = File::options();
        options.read(true);
        // Else the wait for a writer is one inside `open`. Linux alone is known to tell a pipe whose writer is still to
        // come from one whose writer has gone.
        if cfg!(target_os = "linux") {
            options.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        }
        Ok(Self { file: options.open(path)?, interrupt })
    }

    /// Waits until there is something to read, be it the end; false if it was interrupted.
    fn is_ready(&self) -> io::Result<bool> {
        while self.interrupt.asked().is_none() {
            match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&LOOK_EVERY)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }
}

impl Read for Pipe {
    /// Fails once it is interrupted: what was read is not all.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.is_ready()? {
                // Not the kind of that name, at which readers try again.
                return Err(io::Error::other("the wait was interrupted"));
            }
            match self.file.read(buffer) {
                // Somebody else who reads from it was faster.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }
}
