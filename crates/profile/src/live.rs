//! Checks whether a process that recorded is still alive.

use std::fs::File;
use std::io::Read;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// Identifies a process within one boot of the machine. The kernel uses process ids again, but not
/// with the same start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId {
    pub pid: u32,
    /// Start time in clock ticks since boot (`/proc/PID/stat`, field 22).
    pub start_time: u64,
}

impl ProcessId {
    /// Returns the process whose process id is currently `pid`.
    pub fn of(pid: u32) -> Option<Self> {
        Some(Self { pid, start_time: Stat::read(pid)?.start_time })
    }

    /// Returns the calling process.
    pub fn current() -> Option<Self> {
        Self::of(std::process::id())
    }

    /// Whether the process still exists and is not a zombie. A zombie is not alive, because it does
    /// not write any more. A process that is not visible in the caller's PID namespace counts as
    /// not alive.
    pub fn is_alive(self) -> bool {
        Stat::read(self.pid).is_some_and(|s| s.start_time == self.start_time && !s.zombie)
    }
}

/// What is needed of `/proc/PID/stat`.
pub(crate) struct Stat {
    pub start_time: u64,
    zombie: bool,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(&read_small(&format!("/proc/{pid}/stat"))?)
    }

    /// Parses the line of `/proc/PID/stat` (proc_pid_stat(5)) without allocating. The second field
    /// is a name in parentheses that may contain any characters.
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        let name_ends = line.iter().rposition(|byte| *byte == b')')?;
        let mut fields = str::from_utf8(&line[name_ends + 1..]).ok()?.split_ascii_whitespace();
        let state = fields.next()?;
        // Field 20 is the number of threads, 22 the start time, and `state` is field 3.
        let threads: u64 = fields.nth(16)?.parse().ok()?;
        let start_time = fields.nth(1)?.parse().ok()?;
        // The main thread can be a zombie while the process's other threads are alive.
        let zombie = matches!(state, "Z" | "X" | "x") && threads <= 1;
        Some(Self { start_time, zombie })
    }
}

/// Returns the kernel's id of the current boot; empty if unknown.
pub fn boot_id() -> String {
    static KNOWN: OnceLock<String> = OnceLock::new();
    let look = || {
        let id = read_small("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        String::from_utf8_lossy(&id).trim().to_owned()
    };
    KNOWN.get_or_init(look).clone()
}

/// Reads a small file below `/proc`. The kernel states no size for such files.
fn read_small(path: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(1024);
    File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_contain_spaces_and_parentheses() {
        let line = "42 (a) b (c) S 1 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 3 0 9876 1 2";
        let stat = Stat::parse(line.as_bytes()).unwrap();
        assert_eq!((stat.start_time, stat.zombie), (9876, false));
        assert!(Stat::parse(b"42 (x) Z 1 2 3").is_none());
        let dead = "42 (x) Z 1 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 9876 1 2";
        assert!(Stat::parse(dead.as_bytes()).unwrap().zombie);
        let company = dead.replace(" 20 0 1 0 ", " 20 0 2 0 ");
        assert!(!Stat::parse(company.as_bytes()).unwrap().zombie);
    }

    #[test]
    fn this_process_lives_and_its_predecessor_does_not() {
        let me = ProcessId::current().unwrap();
        assert!(me.is_alive());
        assert!(!ProcessId { start_time: me.start_time + 1, ..me }.is_alive());
    }

    #[test]
    fn a_zombie_is_not_alive() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().expect("start sleep");
        let id = ProcessId::of(child.id()).unwrap();
        assert!(id.is_alive());
        child.kill().unwrap();
        while id.is_alive() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(!id.is_alive());
    }
}
