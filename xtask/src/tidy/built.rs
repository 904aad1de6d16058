//! Checks that the built release needs nothing unexpected from the machine to which it is copied.
//! Also checks which names `libcounterpoint.so` exports and how much stack its functions use.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};

use super::rules::{NEEDED, NEEDED_PREFIX};
use super::{Findings, stacks};
use crate::dist::{GLIBC_FLOOR, PLUGINS};
use crate::elf::{Elf, glibc_version};
use crate::layout::Layout;
use crate::process::say;

const EXPORTS: &str = "artifacts/libcounterpoint/exports.txt";

pub fn check(layout: &Layout, must_exist: bool, findings: &mut Findings) -> Result<()> {
    let dist = layout.dist();
    let plugins = PLUGINS.iter().map(|(name, _)| dist.plugin(name));
    for path in [dist.program(), dist.whole_program(), dist.library()].into_iter().chain(plugins) {
        let shown = layout.show(&path);
        if !path.exists() {
            if must_exist {
                findings.add(&shown, "not built: run cargo xtask dist");
            } else {
                say(format_args!("tidy: {shown} is not built, its checks are skipped"));
            }
            continue;
        }
        let elf = Elf::read(&path)?;
        check_needs(&shown, &elf, findings);
        if path == dist.library() {
            check_library(&shown, &elf, findings)?;
            stacks::check(&shown, &path, findings)?;
        }
    }
    Ok(())
}

fn check_needs(shown: &str, elf: &Elf, findings: &mut Findings) {
    let (major, minor) = GLIBC_FLOOR;
    for version in &elf.versions {
        match glibc_version(version) {
            Some(found) if found <= GLIBC_FLOOR => {}
            Some(_) => {
                findings.add(shown, format_args!("needs {version}, above GLIBC_{major}.{minor}"))
            }
            None => findings.add(shown, format_args!("needs symbol version {version}")),
        }
    }
    for library in &elf.needed {
        if !NEEDED.contains(&library.as_str()) && !library.starts_with(NEEDED_PREFIX) {
            findings.add(shown, format_args!("needs {library}; allowed are glibc's own libraries"));
        }
    }
    if elf.text_relocations {
        findings.add(shown, "has text relocations");
    }
    if elf.executable_stack {
        findings.add(shown, "asks for an executable stack");
    }
}

fn check_library(shown: &str, elf: &Elf, findings: &mut Findings) -> Result<()> {
    if !elf.bind_now {
        findings.add(shown, "is not linked with -z now");
    }
    if !elf.no_delete {
        findings.add(shown, "is not linked with -z nodelete");
    }
    let text =
        std::fs::read_to_string(Path::new(EXPORTS)).with_context(|| format!("read {EXPORTS}"))?;
    let listed: BTreeSet<String> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    for name in listed.difference(&elf.exports) {
        findings.add(shown, format_args!("does not export {name}, which {EXPORTS} lists"));
    }
    for name in elf.exports.difference(&listed) {
        findings.add(shown, format_args!("exports {name}, which {EXPORTS} does not list"));
    }
    Ok(())
}
