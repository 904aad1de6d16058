//! Prints the result of `plugin check` for people.

use std::io::{self, Write};

use plugin_host::conformance::Level;

use super::{Outcome, Report, Verdict, interface};
use crate::plugin::shown;
use crate::terminal::visible;
use crate::view::units::plural;

pub fn write(report: &Report, out: &mut impl Write) -> io::Result<()> {
    for finding in &report.findings {
        let others = match finding.probes.len() {
            0 | 1 => String::new(),
            2 => ", and in 1 other question".to_owned(),
            all => format!(", and in {} other questions", all - 1),
        };
        let (what, probe) = (visible(&finding.what), finding.probes.first().unwrap_or(&""));
        writeln!(out, "{:9}  {what}, while {probe}{others}", finding.level.name())?;
        writeln!(out, "{:9}  [{}: {}]", "", finding.clause.source, finding.clause.id)?;
    }
    let left: Vec<_> = report.asked.iter().filter(|a| a.outcome == Outcome::NoTime).collect();
    for asked in &left {
        writeln!(out, "{:9}  what happens while {}", "not asked", asked.probe.name)?;
    }
    let counts = Level::ALL.map(|level| match (level, report.count(level)) {
        (Level::Violation, count) => plural(count as u128, "violation"),
        (level, count) => format!("{count} {}", level.name()),
    });
    let verdict = match report.verdict() {
        Verdict::Conforms => format!("conforms to {}", interface()),
        Verdict::Violates => format!("violates {}", interface()),
        Verdict::Unknown => format!(
            "is not certified: {} of {} questions were not asked, because the time was over \
             (--timeout)",
            left.len(),
            report.asked.len()
        ),
    };
    writeln!(out, "{}: {verdict}", shown(&report.file))?;
    writeln!(out, "{}: {}", plural(report.asked.len() as u128, "question"), counts.join(", "))
}
