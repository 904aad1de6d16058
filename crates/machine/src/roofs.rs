//! Measures the roofs of this machine (its largest rates): how many floating-point operations its
//! cores can do in a second, and how many bytes its caches and its memory can deliver in a second.
//!
//! ```text
//!  cpus: which cores we may use, their caches ─┐
//!  compute: 12 independent chains of one       ├─► team: pinned threads, which start together and
//!           instruction, in assembly           │         work for some milliseconds ─► rate
//!  memory: read, copy, triad over a block      │
//!           of a size for each level           ┘
//! ```
//!
//! **Rounds.** One round measures each roof for some milliseconds; the roofs of main memory are
//! measured only in every third round. So the repetitions of one roof are spread over all of the
//! measurement, and a program that disturbs some of them does not disturb all. The best repetition
//! is the roof, because other programs can only make a machine slower. The median and the slowest
//! repetition show how quiet the machine was.
//!
//! **Assembly.** The loops are written in assembly, so that the measured instructions do not depend
//! on the compiler. A compiler may combine several scalar chains into one of vectors, and may turn
//! a loop that copies into a call of `memcpy`.

mod compute;
mod cpus;
mod memory;
mod team;

use std::time::{Duration, Instant};

pub use cpus::{Cache, Core, Cpus};

use crate::Machine;

#[derive(Clone, Debug, PartialEq)]
pub struct Roofs {
    /// Operations per second, from slow to fast instructions, with one core and with all cores.
    pub compute: Vec<Compute>,
    /// Bytes per second, from the nearest level of memory to the farthest.
    pub memory: Vec<Memory>,
}

/// A rate of floating-point operations.
#[derive(Clone, Debug, PartialEq)]
pub struct Compute {
    /// Bits of one operand: 32 to 512.
    pub bits: u32,
    /// Whether the operand is a single number, not a vector.
    pub scalar: bool,
    /// Bits of one number: 32 or 64.
    pub number: u32,
    /// Whether the instruction multiplies and adds at once. Otherwise, as many multiplications as
    /// additions were measured.
    pub fused: bool,
    /// Number of cores that worked.
    pub cores: u32,
    /// Operations per second; an instruction that multiplies and adds counts as two operations for
    /// each number.
    pub rate: Rate,
}

/// A rate at which bytes were moved.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// The level of the cache (1, 2, 3, …), or `None` for main memory.
    pub level: Option<u32>,
    /// The loop that moved the bytes.
    pub kernel: Kernel,
    /// Number of cores that worked.
    pub cores: u32,
    /// Bytes of each core's block of memory.
    pub block: u64,
    /// Bytes per second as STREAM counts them: the bytes that instructions read and wrote.
    pub rate: Rate,
}

model::named! {
    pub enum Kernel {
        /// The loop reads a block.
        Read = "read",
        /// The loop copies one half of a block to the other: `a[i] = b[i]`.
        Copy = "copy",
        /// The loop computes `a[i] = b[i] + s * c[i]`, where each array is a third of the block.
        Triad = "triad",
    }
}

impl Kernel {
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kernel| kernel.name() == name)
    }
}

/// The fastest, the median and the slowest rate of all repetitions, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// The fastest repetition.
    pub best: f64,
    pub median: f64,
    /// The slowest repetition.
    pub worst: f64,
}

impl Rate {
    fn of(mut found: Vec<f64>) -> Option<Self> {
        found.sort_by(f64::total_cmp);
        let median = *found.get(found.len() / 2)?;
        Some(Self { best: *found.last()?, median, worst: *found.first()? })
    }
}

/// The reason why the roofs could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum RoofError {
    /// The loops are not written for this processor.
    #[error("roofs are measured on x86-64 and AArch64 only")]
    Architecture,
    /// The memory for the blocks could not be mapped.
    #[error("{0} bytes of memory: {1}")]
    Memory(u64, std::io::Error),
    /// A thread could not be started.
    #[error("start a thread: {0}")]
    Thread(String),
}

enum Part {
    Compute(compute::Loop),
    Memory(Option<u32>, Kernel),
}

/// The smallest number of rounds.
const FEWEST: u32 = 5;
/// Main memory is measured once in this many rounds, because a measurement of it takes five times
/// as long as the others.
const MEMORY_EACH: u32 = 3;

/// Measures all roofs for about as long as `time`, but for at least five rounds. The measuring
/// threads are pinned to the first usable processor of each core of `cpus`; other threads of this
/// process continue to run.
///
/// # Errors
/// See [`RoofError`].
pub fn measure(machine: &Machine, cpus: &Cpus, time: Duration) -> Result<Roofs, RoofError> {
    let loops = compute::loops();
    if loops.is_empty() {
        return Err(RoofError::Architecture);
    }
    let all = cpus.cores.len() as u32;
    let teams: &[u32] = if all > 1 { &[1, all] } else { &[1] };
    let blocks = memory::Blocks::new(machine, cpus, teams)?;
    let mut parts: Vec<(Part, u32, Vec<f64>)> = Vec::new();
    for one in loops {
        parts.extend(teams.iter().map(|team| (Part::Compute(one), *team, Vec::new())));
    }
    for level in blocks.levels() {
        for kernel in Kernel::ALL {
            let part = |team: &u32| (Part::Memory(level, kernel), *team, Vec::new());
            parts.extend(teams.iter().map(part));
        }
    }
    let start = Instant::now();
    let mut round = 0;
    while round < FEWEST || start.elapsed() < time {
        for (part, cores, found) in &mut parts {
            if matches!(part, Part::Memory(None, _)) && round % MEMORY_EACH != 0 {
                continue;
            }
            let cores = &cpus.cores[..*cores as usize];
            let rate = match part {
                Part::Compute(one) => team::rate(cores, team::SHORT, |_| one.run())?,
                Part::Memory(level, kernel) => blocks.rate(*level, *kernel, cores)?,
            };
            found.push(rate);
        }
        round += 1;
    }
    let mut roofs = Roofs { compute: Vec::new(), memory: Vec::new() };
    for (part, cores, found) in parts {
        let Some(rate) = Rate::of(found) else { continue };
        match part {
            Part::Compute(one) => roofs.compute.push(Compute {
                bits: one.bits,
                scalar: one.scalar,
                number: one.number,
                fused: one.fused,
                cores,
                rate,
            }),
            Part::Memory(level, kernel) => {
                let block = blocks.block(level, cores);
                roofs.memory.push(Memory { level, kernel, cores, block, rate });
            }
        }
    }
    Ok(roofs)
}
