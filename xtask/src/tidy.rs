//! `cargo xtask tidy`: checks the project's rules that a compiler cannot check.
//!
//! All checks run. At the end, the command fails if there are findings (violations of a rule). The
//! names, limits and exceptions that the rules need are in `tidy/rules.rs`.

mod arrows;
mod built;
mod circles;
mod links;
mod rooms;
mod rules;
mod sources;
mod stacks;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::files;
use crate::layout::Layout;
use crate::process::say;

/// Checks the rules of this repository (CONTRIBUTING.md).
#[derive(clap::Args)]
pub struct Args {
    /// Fail if dist/ has not been built, instead of skipping its checks.
    #[arg(long)]
    built: bool,
    /// Also check how much stack the functions of this built library use (dist/ is checked anyway).
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
}

#[derive(Default)]
pub struct Findings {
    lines: Vec<String>,
}

impl Findings {
    /// Adds a finding. `place` is a crate or a file, with a line number if there is one.
    pub fn add(&mut self, place: impl std::fmt::Display, what: impl std::fmt::Display) {
        self.lines.push(format!("{place}: {what}"));
    }
}

pub fn main(layout: &Layout, args: &Args) -> Result<()> {
    let mut findings = Findings::default();
    let files = files::of_repository(layout).context("tidy needs git")?;
    arrows::check(layout, &mut findings)?;
    rooms::check(layout, &files, &mut findings)?;
    circles::check(layout, &mut findings)?;
    built::check(layout, args.built, &mut findings)?;
    if let Some(library) = &args.library {
        stacks::check(&layout.show(library), library, &mut findings)?;
    }
    sources::check(layout, &files, &mut findings)?;
    links::check(layout, &files, &mut findings)?;
    for line in &findings.lines {
        eprintln!("{line}");
    }
    match findings.lines.len() {
        0 => say(format_args!("tidy: {} files, nothing to report", files.len())),
        1 => bail!("tidy: 1 finding"),
        count => bail!("tidy: {count} findings"),
    }
    Ok(())
}

pub fn built_only(layout: &Layout) -> Result<()> {
    let mut findings = Findings::default();
    built::check(layout, true, &mut findings)?;
    findings.lines.iter().for_each(|line| eprintln!("{line}"));
    match findings.lines.len() {
        0 => Ok(()),
        count => bail!("{count} findings about dist/"),
    }
}
