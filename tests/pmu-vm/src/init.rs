//! Process 1: sets up the machine, runs the tests one by one, and switches the machine off.

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::machine;
use crate::report::{Test, tell};

/// How long a test may print nothing, in the guest's time. Virtual time skips ahead while the guest
/// sleeps, so a test that waits in vain reaches this limit almost at once in real time. The host
/// has its own limit.
const LONGEST: Duration = Duration::from_secs(60);

const OURSELVES: &str = "/proc/self/exe";

pub fn main(tests: &[(usize, &[Test])]) -> ExitCode {
    machine::mount_all();
    machine::describe();
    // Unknown words of the kernel's command line, such as `filter=…`, are in our environment.
    let filter = std::env::var("filter").unwrap_or_default();
    if std::env::var("bench").is_ok() {
        measure();
    }
    let (mut ran, mut failed) = (0, 0);
    let here = tests.iter().filter(|(cpus, _)| *cpus == machine::cpus());
    for test in here.flat_map(|(_, tests)| *tests).filter(|test| test.name.contains(&filter)) {
        ran += 1;
        match run(test.name) {
            Ok(()) => tell(&["test", test.name, "ok"]),
            Err(why) => {
                failed += 1;
                tell(&["test", test.name, "failed", &why]);
            }
        }
    }
    tell(&["end", &format!("ran={ran}"), &format!("failed={failed}")]);
    machine::power_off()
}

/// Runs the benchmarks in a child process, which reports the results itself.
fn measure() -> ! {
    let worked = Command::new(OURSELVES).arg("bench").status().is_ok_and(|s| s.success());
    match worked {
        true => tell(&["test", "bench", "ok"]),
        false => tell(&["test", "bench", "failed", "see above"]),
    }
    tell(&["end", "ran=1", if worked { "failed=0" } else { "failed=1" }]);
    machine::power_off()
}

/// Runs a test in a child process, and prints the child's output.
fn run(name: &str) -> Result<(), String> {
    machine::reset().map_err(|e| format!("set sysctls: {e}"))?;
    let (reader, writer) = std::io::pipe().map_err(|e| format!("make a pipe: {e}"))?;
    let copy = writer.try_clone().map_err(|e| format!("copy the pipe: {e}"))?;
    let mut command = Command::new(OURSELVES);
    command.args(["test", name]).stdin(Stdio::null()).stdout(copy).stderr(writer);
    let mut child = command.spawn().map_err(|e| format!("start: {e}"))?;
    drop(command); // Closes our last write end, so that the pipe ends with the child.
    let (send, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(reader).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                return;
            }
        }
    });
    let mut why = None;
    let mut panicked = false;
    loop {
        match lines.recv_timeout(LONGEST) {
            Ok(line) => {
                println!("    {line}");
                // A panic's message is on the line after `thread … panicked at FILE:LINE:COLUMN:`.
                if panicked && why.is_none() {
                    why = Some(line.clone());
                }
                panicked |= line.contains("' panicked at ") || line.contains(") panicked at ");
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                why = Some(format!("silent for {} s", LONGEST.as_secs()));
                let _ = child.kill();
                break;
            }
        }
    }
    let status = child.wait().map_err(|e| format!("wait: {e}"))?;
    match why {
        None if status.success() => Ok(()),
        None => Err(format!("{status}")),
        Some(why) => Err(why),
    }
}
