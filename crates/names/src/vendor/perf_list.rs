//! Reads names from an installed perf: `perf list -j` (Linux 6.2 or later).
//!
//! If perf is missing, too old or broken, it provides no names. Only a perf that hangs is reported,
//! because the user has waited for it.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use model::{Scale, Unit};
use serde_json::Value;

use super::VendorEvent;
use crate::units::unit_and_scale;

const PATIENCE: Duration = Duration::from_secs(5);
const MOST_BYTES: u64 = 64 << 20;

/// Returns the events of the installed perf. An error may have a message for the user.
pub(super) fn read() -> Result<Vec<VendorEvent>, Option<String>> {
    parse(&run("perf", PATIENCE)?).map_err(|_| None)
}

fn run(program: &str, patience: Duration) -> Result<Vec<u8>, Option<String>> {
    let mut command = Command::new(program);
    command.args(["list", "-j"]).stdin(Stdio::null()).stderr(Stdio::null());
    // perf must not wait in a pager, and must not load the recorder (`LD_PRELOAD`).
    command.stdout(Stdio::piped()).env("PAGER", "cat").env_remove("LD_PRELOAD");
    let mut child = command.spawn().map_err(|_| None)?;
    let (sender, receiver) = mpsc::channel();
    let output = child.stdout.take();
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let read = output.map(|output| output.take(MOST_BYTES).read_to_end(&mut text));
        let _ = sender.send(read.is_some_and(|r| r.is_ok()).then_some(text));
    });
    let text = receiver.recv_timeout(patience);
    // A perf that did not answer is killed before the wait for its end, because it might run for
    // ever.
    if text.is_err() {
        let _ = child.kill();
    }
    let status = child.wait().map_err(|_| None)?;
    match text {
        Err(_) => {
            Err(Some(format!("`{program} list -j` did not answer within {} s", patience.as_secs())))
        }
        Ok(Some(text)) if status.success() => Ok(text),
        Ok(_) => Err(None),
    }
}

/// Returns the events that have an encoding: `"Encoding": "cpu/event=0xc0,umask=0x1/"`.
fn parse(text: &[u8]) -> Result<Vec<VendorEvent>, String> {
    let list: Vec<Value> = serde_json::from_slice(text).map_err(|e| e.to_string())?;
    let event = |value: &Value| {
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        let name = text("EventName").filter(|name| !name.contains([' ', '/']))?;
        let (pmu, terms) = text("Encoding")?.trim_end_matches('/').split_once('/')?;
        // perf record's sampling period is left out.
        let kept: Vec<&str> =
            terms.split(',').filter(|term| !term.starts_with("period=")).collect();
        let scale = text("ScaleUnit").and_then(unit_and_scale);
        let (unit, scale) = scale.unwrap_or((Unit::Count, Scale::ONE));
        Some(VendorEvent {
            name: name.to_owned(),
            pmu: pmu.to_owned(),
            terms: kept.join(","),
            unit,
            scale,
            description: text("BriefDescription").unwrap_or_default().to_owned(),
            deprecated: text("Deprecated") == Some("1"),
        })
    };
    Ok(list.iter().filter_map(event).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_perfs() {
        let text = br#"[
            {"Unit": "default_core", "Topic": "x", "EventName": "some.name",
             "EventType": "Kernel PMU event", "BriefDescription": "What it is",
             "Encoding": "cpu/event=0xc0,period=0x1e8483,umask=0x1/"},
            {"EventName": "cycles OR cpu/cycles/", "Encoding": "cpu/cycles/"},
            {"EventName": "no.encoding"},
            {"MetricName": "a metric"},
            {"EventName": "energy", "Deprecated": "1", "ScaleUnit": "2Joules", "Encoding": "power/event=2/"}
        ]"#;
        let events = parse(text).unwrap();
        let rows: Vec<_> = events
            .iter()
            .map(|e| {
                (e.name.as_str(), e.pmu.as_str(), e.terms.as_str(), e.scale.get(), e.deprecated)
            })
            .collect();
        assert_eq!(
            rows,
            [
                ("some.name", "cpu", "event=0xc0,umask=0x1", 1.0, false),
                ("energy", "power", "event=2", 2.0, true),
            ]
        );
        assert!(parse(b"Usage: perf list").is_err());
    }

    #[test]
    fn a_program_that_is_no_perf() {
        for program in ["/nonexistent/perf", "/bin/false"] {
            assert_eq!(run(program, PATIENCE).unwrap_err(), None);
        }
        // The program that hangs has no test of its own, because tests run in parallel. While this
        // test has its program open for writing, another test might fork, and the child would keep
        // the file open. A file that is open for writing cannot be executed.
        let name = format!("counterpoint-perf-{}", std::process::id());
        let program = std::env::temp_dir().join(name);
        std::fs::write(&program, "#!/bin/sh\nexec sleep 60\n").unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&program, executable).unwrap();
        let told = run(program.to_str().unwrap(), Duration::ZERO);
        std::fs::remove_file(&program).unwrap();
        let told = told.unwrap_err().unwrap();
        assert!(told.ends_with(" list -j` did not answer within 0 s"), "{told}");
    }
}
