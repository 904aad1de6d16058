//! Reads the guest's lines about its tests. `tests/pmu-vm/src/report.rs` describes the lines.

use anyhow::{Context, Result, bail};

/// The results from complete logs. A log is complete if the machine booted with a PMU and the guest
/// wrote its last line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    pub ran: u64,
    pub failed: u64,
    /// `NAME: WHY` of each failed test.
    pub failures: Vec<String>,
    /// The name and the value, in instructions, of each result of `--bench`.
    pub rows: Vec<(String, f64)>,
}

impl Outcome {
    /// Returns an error if the log is incomplete or inconsistent.
    pub fn read(log: &str) -> Result<Self> {
        let mut booted = false;
        let (mut ran, mut failures, mut rows) = (0, Vec::new(), Vec::new());
        let mut end = None;
        for line in log.lines() {
            // The guest's kernel may have written the beginning of the line.
            let Some((_, words)) = line.split_once("pmu-vm\t") else { continue };
            let words: Vec<&str> = words.split('\t').collect();
            match words[..] {
                ["boot", ..] => {
                    booted = true;
                    if words.contains(&"pmu=none") {
                        bail!("the emulated machine has no PMU: {}", words.join(" "));
                    }
                }
                ["test", _, "ok"] => ran += 1,
                ["test", name, "failed", why] => {
                    ran += 1;
                    failures.push(format!("{name}: {why}"));
                }
                ["bench", name, value] => {
                    let value = value.parse().with_context(|| format!("read {line}"))?;
                    rows.push((name.to_owned(), value));
                }
                ["end", said_ran, said_failed] => {
                    let number = |word: &str, name: &str| -> Option<u64> {
                        word.strip_prefix(name)?.strip_prefix('=')?.parse().ok()
                    };
                    end = number(said_ran, "ran").zip(number(said_failed, "failed"));
                }
                _ => bail!("the guest wrote an unknown line: {line}"),
            }
        }
        if !booted {
            bail!("the guest's init wrote nothing");
        }
        let (said_ran, failed) = end.context("the guest ended without its last line")?;
        if (said_ran, failed) != (ran, failures.len() as u64) {
            bail!(
                "the guest reports {said_ran} tests and {failed} failures, its lines {ran} and {}",
                failures.len()
            );
        }
        Ok(Self { ran, failed, failures, rows })
    }

    pub fn add(&mut self, other: Self) {
        self.ran += other.ran;
        self.failed += other.failed;
        self.failures.extend(other.failures);
        self.rows.extend(other.rows);
    }

    pub fn verdict(&self) -> Result<()> {
        match (self.ran, self.failures.as_slice()) {
            (0, _) => bail!("no test ran in the emulated machine"),
            (_, []) => Ok(()),
            (_, failures) => bail!("failed in the emulated machine:\n  {}", failures.join("\n  ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: &str = "pmu-vm\tboot\tkernel=6.1\tpmu=armv8_pmuv3_0\tcounters=7\tcpus=2\tseed=1\n";

    fn read(rest: &str) -> Result<Outcome> {
        Outcome::read(&format!("[    0.1] noise\n{BOOT}{rest}"))
    }

    #[test]
    fn a_good_log() {
        let outcome = read("pmu-vm\ttest\ta::b\tok\n  words\npmu-vm\tend\tran=1\tfailed=0\n");
        let outcome = outcome.expect("the log is complete");
        assert_eq!(outcome, Outcome { ran: 1, ..Outcome::default() });
        assert!(outcome.verdict().is_ok());
    }

    #[test]
    fn a_failure_and_its_reason() {
        let log = "[1.0] halpmu-vm\ttest\ta::b\tfailed\t3 is not 4\npmu-vm\tend\tran=1\tfailed=1\n";
        let outcome = read(log).expect("the log is complete");
        assert_eq!(outcome.failures, ["a::b: 3 is not 4"]);
        assert!(outcome.verdict().is_err());
    }

    #[test]
    fn rows_of_a_benchmark() {
        let log = "pmu-vm\tbench\tuser.1\t126.50\npmu-vm\tend\tran=0\tfailed=0\n";
        assert_eq!(read(log).expect("the log is complete").rows, [("user.1".to_owned(), 126.5)]);
        assert!(read(&log.replace("126.50", "much")).is_err());
    }

    #[test]
    fn an_incomplete_log_is_an_error() {
        assert!(Outcome::read("").is_err());
        assert!(Outcome::read("[    0.1] Kernel panic").is_err());
        assert!(read("").is_err());
        assert!(read("pmu-vm\ttest\ta::b\tok\n").is_err());
        assert!(read("pmu-vm\ttest\ta::b\tok\npmu-vm\tend\tran=2\tfailed=0\n").is_err());
        assert!(read("pmu-vm\ttest\ta::b\tmaybe\npmu-vm\tend\tran=1\tfailed=0\n").is_err());
        assert!(Outcome::read(&BOOT.replace("armv8_pmuv3_0", "none")).is_err());
        let nothing = read("pmu-vm\tend\tran=0\tfailed=0\n").expect("the log is complete");
        assert!(nothing.verdict().is_err());
    }
}
