//! The renames that let others see a run's files.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use sha2::{Digest as _, Sha256};

use super::names::NUMBER_MAX;
use super::{Attempt, OutputError, OutputNames};
use crate::domain::{Digest, OutputRecord, RunId};

/// Waits until the disk knows the names in `folder`.
pub fn sync_folder(folder: &Path) -> Result<(), OutputError> {
    let opened = File::open(folder).and_then(|folder| folder.sync_all());
    opened.map_err(|source| OutputError::writing(folder, source))
}

/// Whether the temporary of `output` is in its folder.
pub fn is_waiting(names: &OutputNames, attempt: &Attempt, output: &OutputRecord) -> bool {
    temporary_of(names, attempt, output).symlink_metadata().is_ok()
}

/// Whether the temporary of `output` is there as it was sealed.
pub fn is_waiting_whole(names: &OutputNames, attempt: &Attempt, output: &OutputRecord) -> Result<bool, OutputError> {
    is_sealed(&temporary_of(names, attempt, output), output)
}

fn temporary_of(names: &OutputNames, attempt: &Attempt, output: &OutputRecord) -> PathBuf {
    attempt.temporary_of(&names.folder.join(&output.name))
}

/// Whether `output` stands under its name as it was sealed.
pub fn is_standing(names: &OutputNames, output: &OutputRecord) -> Result<bool, OutputError> {
    is_sealed(&names.folder.join(&output.name), output)
}

/// Gives `output` its name. May be repeated after a crash.
pub fn publish(names: &OutputNames, attempt: &Attempt, output: &OutputRecord) -> Result<(), OutputError> {
    let target = names.folder.join(&output.name);
    place(&attempt.temporary_of(&target), &target, output).map(|_| ())
}

/// Gives `temporary`, which holds `output`, the name `target`, unless `output` stands there; says whether it did.
fn place(temporary: &Path, target: &Path, output: &OutputRecord) -> Result<bool, OutputError> {
    match rename_without_replacing(temporary, target) {
        Ok(()) => Ok(false),
        // Left by an attempt that died behind its rename, or between its link and its unlink; or renamed just now by
        // another worker, which took this one for dead.
        Err(error) if is_done_already(&error, temporary) && is_sealed(target, output)? => {
            remove(temporary);
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

/// Whether a rename of `temporary` that failed with `error` may have been made before.
fn is_done_already(error: &OutputError, temporary: &Path) -> bool {
    let is_gone = || temporary.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    matches!(error, OutputError::Occupied { .. }) || is_gone()
}

/// Gives `output`, which is on its way to the first name for released records in `names`, the first one that no other
/// file has; says which, and whether the file stood there already.
pub fn publish_released(
    names: &OutputNames,
    attempt: &Attempt,
    output: &OutputRecord,
) -> Result<(PathBuf, bool), OutputError> {
    let temporary = attempt.temporary_of(&names.released(1));
    for number in 1..=NUMBER_MAX {
        let target = names.released(number);
        match place(&temporary, &target, output) {
            Ok(was_there) => {
                sync_folder(&names.folder)?;
                return Ok((target, was_there));
            }
            Err(OutputError::Occupied { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Err(OutputError::Occupied { path: names.released(1) })
}

/// Removes what an attempt left on its way to the released file of `names`.
pub fn remove_unreleased(names: &OutputNames, attempt: &Attempt) {
    remove(&attempt.temporary_of(&names.released(1)));
}

/// Whether `path` is a file that was sealed as `output`.
fn is_sealed(path: &Path, output: &OutputRecord) -> Result<bool, OutputError> {
    match digest_of(path) {
        Ok((bytes, digest)) => Ok(bytes == output.bytes && digest == output.sha256),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(OutputError::writing(path, source)),
    }
}

fn digest_of(path: &Path) -> io::Result<(u64, Digest)> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 256 * 1024];
    let mut bytes = 0;
    loop {
        let read = match file.read(&mut buffer) {
            // A read that a signal breaks off is made again.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if read == 0 {
            return Ok((bytes, Digest::from_bytes(hasher.finalize().into())));
        }
        hasher.update(&buffer[..read]);
        bytes += read as u64;
    }
}

fn rename_without_replacing(from: &Path, to: &Path) -> Result<(), OutputError> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::EXIST) => Err(OutputError::Occupied { path: to.to_owned() }),
        // A file system without the flag: a link never replaces either.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS | rustix::io::Errno::OPNOTSUPP) => {
            link_then_unlink(from, to)
        }
        Err(errno) => Err(OutputError::writing(to, errno.into())),
    }
}

fn link_then_unlink(from: &Path, to: &Path) -> Result<(), OutputError> {
    match std::fs::hard_link(from, to) {
        Ok(()) => std::fs::remove_file(from).map_err(|source| OutputError::writing(from, source)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(OutputError::Occupied { path: to.to_owned() })
        }
        Err(source) => Err(OutputError::writing(to, source)),
    }
}

/// Removes the temporaries of an attempt that gave up. Failures do not matter: they are found again by name.
pub fn remove_temporaries(names: &OutputNames, attempt: &Attempt) {
    names.all().iter().for_each(|target| remove(&attempt.temporary_of(target)));
}

/// Removes the temporaries of all attempts at `run` before `epoch`.
pub fn remove_earlier_temporaries(names: &OutputNames, run: &RunId, epoch: u32) {
    for epoch in 1..epoch {
        remove_temporaries(names, &Attempt { run: run.clone(), epoch });
    }
}

fn remove(temporary: &Path) {
    let _ = std::fs::remove_file(temporary);
}
