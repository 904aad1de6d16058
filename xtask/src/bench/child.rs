//! Runs one process of a benchmark, and reads its resource usage ([`Observe`]).

use std::fs::File;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::plan::{Case, Observe, Reading, Readings};
use crate::layout::Layout;
use crate::process::describe;

/// Runs the command of a case. Its output goes to files, because a pipe that xtask reads too slowly
/// could delay the program.
pub fn run(layout: &Layout, case: &Case) -> Result<Readings> {
    let folder = layout.bench()?;
    let out = folder.join("stdout.txt");
    let err = folder.join("stderr.txt");
    let create = |path| File::create(path).with_context(|| format!("create {}", folder.display()));
    let mut command = (case.command)();
    command.stdin(Stdio::null()).stdout(create(&out)?).stderr(create(&err)?);
    let (status, mut readings) = usage(&mut command, case.observe == Observe::PrivateMemory)?;
    if !status.success() {
        eprint!("\n{}", std::fs::read_to_string(&err).unwrap_or_default());
        bail!("{} {}", command.get_program().display(), describe(status));
    }
    let text = || std::fs::read_to_string(&out).with_context(|| format!("read {}", out.display()));
    match case.observe {
        Observe::Process | Observe::PrivateMemory => {}
        Observe::Lines => readings.extend(lines(&text()?)),
        Observe::GoogleBenchmark => readings.extend(google_benchmark(&text()?)?),
    }
    Ok(readings)
}

/// Runs a command, and reads its resource usage with `wait4`, because `getrusage(RUSAGE_CHILDREN)`
/// would add up all processes that xtask has started, and its maximum of memory never decreases.
fn usage(command: &mut Command, private_memory: bool) -> Result<(ExitStatus, Readings)> {
    let start = Instant::now();
    let child =
        command.spawn().with_context(|| format!("start {}", command.get_program().display()))?;
    let pid = child.id().cast_signed();
    let mut private = None;
    let mut status = 0;
    // SAFETY: `rusage` consists of plain integers, so all zeros is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        let options = if private_memory { libc::WNOHANG } else { 0 };
        // SAFETY: both pointers refer to local variables of the right type. The child is ours, and
        // nobody else waits for it, so its pid cannot be reused before this call.
        let waited = unsafe { libc::wait4(pid, &raw mut status, options, &raw mut usage) };
        match waited {
            0 => {
                private = private.max(private_kib(pid));
                std::thread::sleep(Duration::from_millis(5));
            }
            -1 => {
                let error = std::io::Error::last_os_error();
                if error.kind() != std::io::ErrorKind::Interrupted {
                    return Err(error).with_context(|| format!("wait for process {pid}"));
                }
            }
            _ => break,
        }
    }
    let wall = start.elapsed();
    let status = std::os::unix::process::ExitStatusExt::from_raw(status);
    let milliseconds = |time: libc::timeval| time.tv_sec as f64 * 1e3 + time.tv_usec as f64 / 1e3;
    let mut readings = Readings::new();
    let mut put = |name: &str, value: f64, unit: &str| {
        readings.insert(name.to_owned(), Reading { value, unit: unit.to_owned() });
    };
    put("wall", wall.as_secs_f64() * 1e3, "ms");
    put("user", milliseconds(usage.ru_utime), "ms");
    put("sys", milliseconds(usage.ru_stime), "ms");
    put("cpu-total", milliseconds(usage.ru_utime) + milliseconds(usage.ru_stime), "ms");
    put("max-rss", usage.ru_maxrss as f64, "KiB");
    if let Some(private) = private {
        put("private", private as f64, "KiB");
    }
    Ok((status, readings))
}

/// Returns the private memory of a process in KiB, or `None` if it cannot be read (for example,
/// because the process has ended).
fn private_kib(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let field = |name: &str| -> Option<u64> {
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    Some(field("Private_Clean:")? + field("Private_Dirty:")?)
}

/// Parses lines of the form `NAME VALUE UNIT`.
fn lines(text: &str) -> Readings {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (name, value, unit) = (words.next()?, words.next()?, words.next()?);
            let value: f64 = value.parse().ok()?;
            words
                .next()
                .is_none()
                .then(|| (name.to_owned(), Reading { value, unit: unit.to_owned() }))
        })
        .collect()
}

fn google_benchmark(text: &str) -> Result<Readings> {
    let json: Value = serde_json::from_str(text).context("parse Google Benchmark's JSON")?;
    let first = &json["benchmarks"][0];
    let scale = match first["time_unit"].as_str() {
        Some("ns") => 1.0,
        Some("us") => 1e3,
        Some("ms") => 1e6,
        Some("s") => 1e9,
        other => bail!("Google Benchmark's JSON: time_unit is {other:?}"),
    };
    let mut readings = Readings::new();
    for (ours, theirs) in [("real", "real_time"), ("cpu", "cpu_time")] {
        let value = first[theirs]
            .as_f64()
            .with_context(|| format!("Google Benchmark's JSON: no {theirs}"))?;
        readings.insert(ours.to_owned(), Reading { value: value * scale, unit: "ns".to_owned() });
    }
    Ok(readings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_lines() {
        let found = lines("ours.1 774 ns\nsome words\nfloor.1 700.5 ns\nfour words on it\n");
        assert_eq!(found.len(), 2);
        assert_eq!(found["floor.1"], Reading { value: 700.5, unit: "ns".to_owned() });
    }

    #[test]
    fn reads_google_benchmark() {
        let text = r#"{"benchmarks":[{"real_time":2.0,"cpu_time":1.5,"time_unit":"ms"}]}"#;
        let found = google_benchmark(text).unwrap();
        assert_eq!(found["real"].value, 2e6);
        assert_eq!(found["cpu"].value, 1.5e6);
    }

    #[test]
    fn waits_with_usage() {
        let (status, readings) = usage(&mut Command::new("true"), false).unwrap();
        assert!(status.success());
        assert!(readings["max-rss"].value > 0.0);
        let (status, _) = usage(&mut Command::new("false"), true).unwrap();
        assert_eq!(status.code(), Some(1));
    }
}
