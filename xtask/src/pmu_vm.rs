//! `cargo xtask pmu-vm`: tests hardware counters on a machine that has none. QEMU emulates an
//! AArch64 machine with a PMU. Debian's kernel runs there, with our guest program (`tests/pmu-vm`)
//! as its init.
//!
//! ```text
//!  debian     apt: QEMU, kernel and libraries for arm64 (unpacked, not installed)
//!  toolchain  rustup: std for AArch64 ──► guest program, static; libcounterpoint.so
//!  programs   zig's clang: C programs, one that counts with Debian's PAPI, one that the agent
//!             is preloaded into
//!  mutant     a copy of our sources with a fault, which the tests must find
//!  initramfs  all of it in one archive
//!  machine    boots it and passes on the serial line
//!  outcome    reads the guest's lines: it is an error if no test ran, the last line is missing,
//!             or a test failed
//! ```
//!
//! With `-icount shift=0`, the guest executes one instruction per tick of its clock, so its counts
//! are exact and the same in every run. With two processors, which share this clock, a count can
//! also contain instructions of the other processor. So a run of the tests (except with `--mutant`)
//! boots the machine twice: with one processor for exact counts, and with two for the tests that
//! need two. The PMU is emulated, so the tests cover the kernel's code and ours, but not the
//! hardware of any processor. There are no such tests for x86-64, because QEMU emulates no PMU
//! there.

mod debian;
mod initramfs;
mod machine;
mod mutant;
mod outcome;
mod programs;
mod toolchain;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::layout::Layout;
use crate::lock::Lock;
use crate::process::{say, timed};

pub use outcome::Outcome;

/// Runs the tests that need a PMU in an emulated AArch64 machine.
#[derive(clap::Args)]
pub struct Args {
    /// Only tests whose name contains this.
    filter: Option<String>,
    /// Seed of an earlier run, from its log, to use the same random numbers.
    #[arg(long)]
    seed: Option<u64>,
    /// Instead of running tests, print what reading counters costs there, in instructions, as
    /// lines `NAME VALUE UNIT` (`cargo xtask bench guest-reads` keeps a result).
    #[arg(long)]
    bench: bool,
    /// Run the tests on a copy whose user-space reads forget the sign of a counter, and fail
    /// unless they detect it.
    #[arg(long)]
    mutant: bool,
    /// Only run clippy on the guest's program.
    #[arg(long)]
    lint: bool,
}

#[derive(Default)]
pub struct Request<'a> {
    pub filter: Option<&'a str>,
    pub seed: Option<u64>,
    pub bench: bool,
    /// A checkout from which to build the guest, if it is not this one.
    pub sources: Option<PathBuf>,
}

/// The machine is killed after this time. A boot with its tests takes two and a half minutes of
/// processor time (measured). While the rest of `cargo xtask test` runs, such a boot can last more
/// than ten minutes.
const LONGEST: Duration = Duration::from_secs(3600);

pub fn main(layout: &Layout, args: &Args) -> Result<()> {
    if args.lint {
        if let Some(why) = toolchain::missing() {
            say(format_args!("clippy of the guest's program: skipped, {why}"));
            return Ok(());
        }
        return toolchain::lint(layout);
    }
    if let Some(why) = missing() {
        bail!("cannot run the emulated machine: {why}");
    }
    if args.mutant {
        return mutant::main(layout);
    }
    let filter = args.filter.as_deref();
    let outcome =
        run(layout, &Request { filter, seed: args.seed, bench: args.bench, sources: None })?;
    if args.bench {
        outcome.rows.iter().for_each(|(name, value)| println!("{name} {value} instructions"));
    } else {
        let Outcome { ran, failed, .. } = outcome;
        say(format_args!("{ran} tests in the emulated machine, {failed} failed"));
    }
    outcome.verdict()
}

/// Returns the reason why the machine cannot run here, if there is one.
pub fn missing() -> Option<String> {
    debian::missing().or_else(toolchain::missing)
}

pub fn run(layout: &Layout, request: &Request<'_>) -> Result<Outcome> {
    let home = home(layout);
    let _lock = Lock::take(&layout.target, "pmu-vm")?;
    let debian = timed("fetch the kernel and libraries", || debian::fetch(&home))?;
    let c = timed("build C programs for the guest", || programs::build(layout, &debian.root))?;
    let sources = request.sources.as_deref().unwrap_or(&layout.root);
    let guest = timed("build the guest", || toolchain::guest(layout, sources, &c.folder))?;
    let agent = timed("build libcounterpoint.so for the guest", || toolchain::agent(layout))?;
    let image = home.join("initramfs.cpio");
    let mut files = c.files;
    files.push((format!("{}/libcounterpoint.so", programs::LIBRARIES), agent));
    let mut files = programs::with_libraries(&debian.root, files)?;
    files.push(("init".into(), guest));
    files.push(c.data);
    initramfs::write(&image, &files)?;
    let mut line = format!("seed={}", request.seed.unwrap_or_else(random));
    if let Some(filter) = request.filter {
        line.push_str(&format!(" filter={filter}"));
    }
    if request.bench {
        line.push_str(" bench=1");
    }
    let mut all = Outcome::default();
    let one = request.bench || request.sources.is_some();
    let boots = if one { &[1][..] } else { &[1, 2] };
    for &cpus in boots {
        let log = timed(&format!("run the emulated machine, -smp {cpus}"), || {
            let qemu = debian::emulator(&home)?;
            machine::boot(qemu, &debian.kernel, &image, cpus, &line, LONGEST)
        })?;
        let outcome = Outcome::read(&log)?;
        if outcome.ran == 0 && request.filter.is_none() {
            bail!("no test ran in the emulated machine with {cpus} processors");
        }
        all.add(outcome);
    }
    Ok(all)
}

fn home(layout: &Layout) -> PathBuf {
    layout.target.join("pmu-vm")
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: the call writes at most as many bytes as the array has. A short read leaves zeros.
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    u64::from_le_bytes(bytes)
}
