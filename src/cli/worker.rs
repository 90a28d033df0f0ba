//! Who does the work, as journals and records name it.

use super::environment::Environment;
use crate::pipeline::Worker;

/// This process.
pub(super) fn worker(environment: &Environment) -> Worker {
    let user = ["USER", "LOGNAME"].iter().find_map(|name| environment.variable(name));
    let uid = || format!("uid {}", rustix::process::getuid().as_raw());
    Worker {
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        user: user.map_or_else(uid, |user| user.to_string_lossy().into_owned()),
        pid: std::process::id(),
    }
}
