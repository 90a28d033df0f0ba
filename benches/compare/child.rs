//! One child process, timed: wall time, processor time, peak memory.

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

/// How often memory is looked at.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);

/// The unit of processor times in `/proc`: `USER_HZ`, which Linux promises to be 100 on x86 and Arm.
const TICK: Duration = Duration::from_millis(10);

/// What a child took.
#[derive(Debug, Clone)]
pub(crate) struct Cost {
    pub(crate) wall: Duration,
    /// User and system time of all its threads.
    pub(crate) processor: Duration,
    /// The highest `RssAnon` seen, in KiB: pages of mapped files are the kernel's cache and no cost of the process.
    pub(crate) rss_anon_max_kib: u64,
    /// What it wrote to standard output, unless that went to a file.
    pub(crate) stdout: String,
}

/// Runs `command` to its end, its standard output into `stdout` where given; a child that fails is an error.
pub(crate) fn time(command: &mut Command, stdout: Option<File>) -> anyhow::Result<Cost> {
    // Files and not pipes: nobody has to read them while the clock runs.
    let (mut captured_out, mut captured_err) = (tempfile::tempfile()?, tempfile::tempfile()?);
    command.stdout(match stdout {
        Some(file) => Stdio::from(file),
        None => Stdio::from(captured_out.try_clone()?),
    });
    command.stderr(Stdio::from(captured_err.try_clone()?));
    // What earlier runs left in the page cache must not be written at the cost of this one.
    rustix::fs::sync();

    let name = command.get_program().to_string_lossy().into_owned();
    let start = Instant::now();
    let mut child = command.spawn().with_context(|| format!("could not start `{name}`"))?;
    let (wall, rss_anon_max_kib) = watch_until_exit(&child, start)?;
    // Still a zombie: its times are final, and readable until it is reaped.
    let processor = processor_time(child.id())?;
    let status = child.wait()?;
    if !status.success() {
        bail!("`{name}` ended with {status}: {}", read_back(&mut captured_err)?.trim_end());
    }
    Ok(Cost { wall, processor, rss_anon_max_kib, stdout: read_back(&mut captured_out)? })
}

/// Blocks until `child` has ended, without reaping it; the time since `start`, and the highest `RssAnon` on the way.
fn watch_until_exit(child: &Child, start: Instant) -> anyhow::Result<(Duration, u64)> {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut highest = 0;
            while !ended.load(Ordering::Relaxed) {
                highest = highest.max(rss_anon_kib(child.id()).unwrap_or(0));
                thread::sleep(SAMPLE_INTERVAL);
            }
            highest
        });
        let waited = waitid(WaitId::Pid(Pid::from_child(child)), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        // Taken before the sampler is waited for, which may be asleep.
        let wall = start.elapsed();
        ended.store(true, Ordering::Relaxed);
        let highest = sampler.join().expect("the sampler does not panic");
        waited.context("could not wait for the child")?;
        Ok((wall, highest))
    })
}

/// `None` once the process has no memory any more.
fn rss_anon_kib(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let value = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    value.trim().strip_suffix(" kB")?.parse().ok()
}

fn processor_time(pid: u32) -> anyhow::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name may hold anything, blanks and parentheses too; counting starts behind it, with field 3.
    let fields = stat.rsplit_once(") ").context("`/proc` has another layout")?.1;
    let mut times = fields.split(' ').skip(11).map(str::parse::<u32>);
    let (Some(Ok(user)), Some(Ok(system))) = (times.next(), times.next()) else {
        bail!("`/proc/{pid}/stat` has no processor times");
    };
    Ok(TICK * (user + system))
}

fn read_back(file: &mut File) -> anyhow::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text)
}
