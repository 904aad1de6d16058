//! Boots the emulated machine in QEMU, and reads its serial line.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::process::{describe, duration, pass_on};

/// Boots the machine with `command`, which starts QEMU. `line` is added to the kernel's command
/// line. Gives each line of output to `pass_on`, and returns all lines when the machine is off.
pub fn boot(
    mut command: Command,
    kernel: &Path,
    initramfs: &Path,
    cpus: u32,
    line: &str,
    longest: Duration,
) -> Result<String> {
    let (reader, writer) = std::io::pipe().context("make a pipe")?;
    // The processor `neoverse-n1` has a PMUv3 with six counters and a cycle counter. With QEMU's
    // processor `max`, booting would take 14 s instead of 3 s.
    command.args(["-M", "virt", "-cpu", "neoverse-n1", "-smp", &cpus.to_string(), "-m", "512"]);
    // `-icount` is required, because QEMU's PMU counts instructions only if the guest's time is
    // computed from executed instructions. With `sleep=off`, the clock of an idle guest jumps to
    // the guest's next timer.
    command.args(["-icount", "shift=0,sleep=off"]);
    command.args(["-nic", "none", "-nographic", "-no-reboot"]);
    command.arg("-kernel").arg(kernel).arg("-initrd").arg(initramfs);
    // After a panic, the kernel reboots at once, and -no-reboot makes QEMU exit then.
    command.arg("-append").arg(format!("console=ttyAMA0 quiet panic=-1 {line}"));
    command.stdin(Stdio::null()).stdout(writer.try_clone().context("copy the pipe")?);
    command.stderr(writer);
    let mut child = command.spawn().context("start qemu-system-aarch64")?;
    drop(command);

    // Reading blocks until the machine ends, so another thread enforces the time limit.
    let start = Instant::now();
    let over = Arc::new(AtomicBool::new(false));
    let pid = child.id() as libc::pid_t;
    let watch = std::thread::spawn({
        let over = Arc::clone(&over);
        move || {
            while !over.load(Ordering::Acquire) {
                if start.elapsed() > longest {
                    // SAFETY: kill takes numbers only. The child is reaped only after this thread
                    // has ended, so `pid` still is the child's.
                    unsafe { libc::kill(pid, libc::SIGKILL) };
                    return true;
                }
                std::thread::park_timeout(Duration::from_millis(500));
            }
            false
        }
    });
    let mut log = String::new();
    let mut read = Ok(());
    for bytes in BufReader::new(reader).split(b'\n') {
        match bytes {
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes);
                let text = text.trim_end_matches('\r');
                pass_on(&format!("  | {}", text.replace('\t', " ")));
                log.push_str(text);
                log.push('\n');
            }
            Err(error) => read = Err(error),
        }
    }
    over.store(true, Ordering::Release);
    watch.thread().unpark();
    let killed = watch.join().unwrap_or(false);
    let status = child.wait().context("wait for qemu-system-aarch64")?;
    read.context("read the serial line")?;
    if killed {
        bail!("the emulated machine was still on after {}", duration(longest));
    }
    if !status.success() {
        bail!("qemu-system-aarch64 {}", describe(status));
    }
    Ok(log)
}
