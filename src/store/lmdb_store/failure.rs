//! What the library fails with, in the words of stores.

use std::path::Path;

use super::display;
use super::opening::TABLES_MAX;
use crate::store::StoreError;

/// A disk with less room than this, in bytes, is full: the pages of a small transaction do not fit.
const ROOM_MIN: u64 = 64 * 1024;

/// The number of the system's input/output error.
const EIO: i32 = rustix::io::Errno::IO.raw_os_error();

/// Whether the disk under the store has less room than a transaction needs at the least.
fn is_disk_full(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|about| about.f_bavail.saturating_mul(about.f_frsize) < ROOM_MIN)
}

/// An error of the library in the words of stores.
pub(super) fn told(path: &Path, error: heed::Error) -> StoreError {
    let address = format!("file:{}", path.display());
    match error {
        // LMDB calls a write that was cut short an input/output error.
        heed::Error::Io(source) if source.raw_os_error() == Some(EIO) && is_disk_full(path) => {
            StoreError::Io { path: display(path), source: std::io::ErrorKind::StorageFull.into() }
        }
        heed::Error::Io(source) => StoreError::Io { path: display(path), source },
        heed::Error::Mdb(heed::MdbError::MapFull) => {
            StoreError::Io { path: display(path), source: std::io::ErrorKind::StorageFull.into() }
        }
        heed::Error::Mdb(heed::MdbError::ReadersFull) => {
            StoreError::Busy { address, cause: "too many processes are reading it".to_owned() }
        }
        heed::Error::Mdb(heed::MdbError::DbsFull) => StoreError::Unfit {
            address,
            cause: format!("it holds {} key prefixes, which is its limit", TABLES_MAX / 2),
            hint: "give the further prefixes a store of their own".to_owned(),
        },
        heed::Error::Mdb(heed::MdbError::MapResized) => StoreError::Unfit {
            address,
            cause: "it has outgrown the address space that this process may reserve".to_owned(),
            hint: "raise the limit of virtual memory (`ulimit -v`)".to_owned(),
        },
        other @ (heed::Error::Mdb(_)
        | heed::Error::Encoding(_)
        | heed::Error::Decoding(_)
        | heed::Error::EnvAlreadyOpened) => StoreError::Corrupt { address, cause: other.to_string() },
    }
}
