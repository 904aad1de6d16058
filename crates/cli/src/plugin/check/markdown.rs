//! Writes a report that the author of a plugin can publish. With the report, a reader can repeat
//! the check.

use std::io::{self, Write};

use plugin_host::conformance::CLAUSES;

use super::{Report, Verdict, interface};
use crate::terminal::visible;
use crate::view::units::plural;

/// Escapes a cell of a table.
fn cell(text: &str) -> String {
    let mut cell = String::with_capacity(text.len());
    for c in visible(text).chars() {
        if matches!(c, '|' | '\\' | '`' | '*' | '_' | '<' | '>' | '[' | ']' | '&') {
            cell.push('\\');
        }
        cell.push(c);
    }
    cell
}

/// Formats a time in UTC. `unix_s` is in seconds since 1970. The calendar is the proleptic
/// Gregorian one.
fn utc(unix_s: u64) -> String {
    let (days, rest) = (unix_s / 86_400, unix_s % 86_400);
    // The days are counted from 0000-03-01, in eras of 400 years. The source is `civil_from_days`
    // in Howard Hinnant's chrono-Compatible Low-Level Date Algorithms.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year + era * 400 + carry;
    let (hour, minute) = (rest / 3_600, rest / 60 % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

pub fn write(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let name = report.file.file_name().unwrap_or_default().to_string_lossy();
    writeln!(out, "# Conformance of {} to {}\n", cell(&name), interface())?;
    let verdict = match report.verdict() {
        Verdict::Conforms => "**conforms**: no violation was found, and everything was asked",
        Verdict::Violates => "**violates the interface**",
        Verdict::Unknown => "**not certified**: not everything was asked",
    };
    let profilers = report.profilers.iter().map(|profiler| {
        let extension = if profiler.extension { ", with Counterpoint's extension" } else { "" };
        format!("{} ({}{extension})", cell(&profiler.name), cell(&profiler.kinds.join(", ")))
    });
    let program = format!(
        "`counterpoint plugin check`, version {}, on {} {}",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        std::env::consts::ARCH
    );
    for (key, value) in [
        ("", String::new()),
        ("---", "---".to_owned()),
        ("result", verdict.to_owned()),
        ("file", format!("{}, {}", cell(&name), plural(report.bytes.into(), "byte"))),
        ("SHA-256", format!("`{}`", report.sha256)),
        ("profilers", profilers.collect::<Vec<_>>().join("; ")),
        ("checked by", program),
        ("checked at", utc(report.checked_unix_s)),
    ] {
        writeln!(out, "| {key} | {value} |")?;
    }

    writeln!(out, "\n## Findings\n")?;
    if report.findings.is_empty() {
        writeln!(out, "None.")?;
    } else {
        writeln!(
            out,
            "A *violation* contradicts the interface. *fragile* and *style* are advice: the plugin is \
             valid.\n"
        )?;
        writeln!(out, "| level | what the plugin does | while | clause |\n|---|---|---|---|")?;
    }
    for finding in &report.findings {
        let (level, clause) = (finding.level.name(), finding.clause.id);
        let (what, probes) = (cell(&finding.what), finding.probes.join("; "));
        writeln!(out, "| {level} | {what} | {probes} | {clause} |")?;
    }

    writeln!(out, "\n## What was asked\n")?;
    writeln!(
        out,
        "Each question was asked in a new process. Some of them make calls that no host of the published \
         interface makes; what they find is advice.\n"
    )?;
    writeln!(
        out,
        "| question: what happens while | calls | clause | outcome |\n|---|---|---|---|"
    )?;
    for asked in &report.asked {
        let calls = if asked.probe.is_published { "published" } else { "beyond" };
        let (clause, outcome) = (asked.probe.clause.id, asked.outcome.name());
        writeln!(out, "| {} | {calls} | {clause} | {outcome} |", asked.probe.name)?;
    }

    writeln!(out, "\n## Clauses\n\n| clause | source | what it says |\n|---|---|---|")?;
    for clause in CLAUSES {
        writeln!(out, "| {} | {} | {} |", clause.id, clause.source, clause.text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{cell, utc};

    #[test]
    fn dates_as_date_prints_them() {
        // The expected texts are from `date -u -d @N '+%F %H:%M UTC'`.
        assert_eq!(utc(0), "1970-01-01 00:00 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(utc(1_735_689_599), "2024-12-31 23:59 UTC");
        assert_eq!(utc(4_107_542_399), "2100-02-28 23:59 UTC");
        assert_eq!(utc(4_107_542_400), "2100-03-01 00:00 UTC");
    }

    #[test]
    fn a_name_stays_in_its_cell() {
        assert_eq!(cell("a|b `c`\n<d>"), "a\\|b \\`c\\`\u{fffd}\\<d\\>");
    }
}
