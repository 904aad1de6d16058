//! Writes the result as JSON with the schema `counterpoint.plugin-check/2` (docs/plugins.md).

use std::io::{self, Write};

use plugin_host::conformance::{CLAUSES, Level};
use serde_json::{Value, json};

use super::{Report, Verdict};
use crate::plugin::shown;

pub fn write(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let findings = report.findings.iter().map(|finding| {
        json!({
            "level": finding.level.name(),
            "clause": finding.clause.id,
            "what": finding.what,
            "probes": finding.probes,
        })
    });
    let probes = report.asked.iter().map(|asked| {
        json!({
            "name": asked.probe.name,
            "clause": asked.probe.clause.id,
            "published": asked.probe.is_published,
            "outcome": asked.outcome.name(),
        })
    });
    let clauses = CLAUSES.iter().map(|clause| {
        json!({ "id": clause.id, "source": clause.source.to_string(), "text": clause.text })
    });
    let profilers = report.profilers.iter().map(|profiler| {
        json!({
            "name": profiler.name,
            "kinds": profiler.kinds,
            "interface_bytes": profiler.interface_bytes,
            "extension": profiler.extension,
        })
    });
    let document = json!({
        "schema": "counterpoint.plugin-check/2",
        "verdict": match report.verdict() {
            Verdict::Conforms => "conforms",
            Verdict::Violates => "violates",
            Verdict::Unknown => "unknown",
        },
        "file": shown(&report.file),
        "file_bytes": report.bytes,
        "sha256": report.sha256,
        "profilers": profilers.collect::<Value>(),
        "interface": {
            "pull_request": abi::kineto::PULL_REQUEST,
            "state": abi::kineto::REVISION.commit,
        },
        "program_version": env!("CARGO_PKG_VERSION"),
        "checked_unix_s": report.checked_unix_s,
        "violations": report.count(Level::Violation),
        "findings": findings.collect::<Value>(),
        "probes": probes.collect::<Value>(),
        "clauses": clauses.collect::<Value>(),
    });
    serde_json::to_writer_pretty(&mut *out, &document).map_err(io::Error::from)?;
    writeln!(out)
}
