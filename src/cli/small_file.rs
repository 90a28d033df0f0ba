//! Files of settings and secrets, which are small: one that is not is another file.

use std::fs;
use std::io;
use std::path::Path;

/// The text at `path`, which must have at most `len_max` bytes.
pub(super) fn read_text(path: &Path, len_max: u64) -> io::Result<String> {
    if fs::metadata(path)?.len() > len_max {
        return Err(io::Error::other(format!("it is larger than {len_max} bytes")));
    }
    fs::read_to_string(path)
}
