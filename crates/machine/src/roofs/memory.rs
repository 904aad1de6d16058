//! Contains the loops that move bytes, and the blocks of memory that these loops read and write.
//!
//! Each core has a block of its own, to which a thread on that core writes first, so that the
//! kernel places the block's memory near the core. For a cache, the block is half of the core's
//! share of the cache. For memory, all blocks together are four times as large as the caches of the
//! last level together, as the rules of STREAM demand (but within [`LEAST`] and [`MOST`], and at
//! most a quarter of the free memory).
//!
//! Stores go through the caches. Bytes are counted as STREAM does: a cache line that the processor
//! reads only because it is about to be written does not count.

use std::ptr::NonNull;
use std::time::Duration;

use super::{Cache, Core, Cpus, Kernel, RoofError, team};
use crate::Machine;

/// The time for which threads work if their blocks are in main memory. Going over a block once
/// takes milliseconds.
const LONG: Duration = Duration::from_millis(10);
/// The least total size of the blocks for main memory, unless a quarter of the free memory is less.
/// The blocks also have this total size if the machine reports no caches.
const LEAST: u64 = 64 << 20;
/// The largest total size of the blocks for main memory.
const MOST: u64 = 4 << 30;
/// The least number of bytes in a step, so that reading the clock takes no noticeable part of the
/// step's time.
const STEP: u64 = 1 << 20;
/// The size of a block is a multiple of this. A block has up to three arrays, and the size of each
/// array is a multiple of 512 bytes.
const GRAIN: u64 = 3 * 512;
/// The distance from the end of an array to the next array. Without it, stores would have the same
/// low address bits as the loads after them, and some processors wait in that case.
const APART: u64 = 1024 + 64;

/// The blocks of all cores; `sizes` gives the bytes of one core's block for each level and number
/// of working cores.
pub struct Blocks {
    sizes: Vec<(Option<u32>, u32, u64)>,
    memory: Vec<Mapping>,
}

impl Blocks {
    pub fn new(machine: &Machine, cpus: &Cpus, teams: &[u32]) -> Result<Self, RoofError> {
        let mut sizes = Vec::new();
        for cache in &cpus.caches {
            sizes.extend(teams.iter().filter_map(|team| {
                Some((Some(cache.level), *team, of_cache(&cpus.caches, cache, *team)?))
            }));
        }
        // A level is left out unless it can be measured with every number of cores. If only its
        // rate with one core were reported, the level would look slow for all cores together.
        let whole = |level| sizes.iter().filter(|(of, ..)| *of == level).count() == teams.len();
        let sizes: Vec<_> = sizes.iter().copied().filter(|(level, ..)| whole(*level)).collect();
        let last = cpus.caches.last().map_or(0, |c| c.bytes * u64::from(c.instances));
        let free = available(machine).unwrap_or(u64::MAX);
        let of_memory = (4 * last).clamp(LEAST, MOST).min(free / 4);
        let mut all = sizes;
        all.extend(teams.iter().map(|team| (None, *team, grains(of_memory / u64::from(*team)))));
        let cores = &cpus.cores[..teams.iter().copied().max().unwrap_or(1) as usize];
        let memory = cores.iter().enumerate().map(|(at, core)| {
            // The first core also works alone, and its block can then be larger.
            let most = all.iter().filter(|(_, team, _)| at == 0 || *team > 1);
            let bytes = most.map(|(.., bytes)| *bytes).max().unwrap_or(GRAIN) + 4 * APART;
            let mapping = Mapping::new(bytes)?;
            team::on(*core, || mapping.write())?;
            Ok(mapping)
        });
        let memory = memory.collect::<Result<_, RoofError>>()?;
        Ok(Self { sizes: all, memory })
    }

    /// Returns the levels, the nearest first.
    pub fn levels(&self) -> Vec<Option<u32>> {
        let mut levels: Vec<_> = self.sizes.iter().map(|(level, ..)| *level).collect();
        levels.dedup();
        levels
    }

    /// Returns the size of each core's block if this many cores work.
    pub fn block(&self, level: Option<u32>, cores: u32) -> u64 {
        let found = self.sizes.iter().find(|(of, team, _)| *of == level && *team == cores);
        found.map_or(0, |(.., bytes)| *bytes)
    }

    pub fn rate(
        &self,
        level: Option<u32>,
        kernel: Kernel,
        cores: &[Core],
    ) -> Result<f64, RoofError> {
        let block = self.block(level, cores.len() as u32);
        let time = if level.is_some() { team::SHORT } else { LONG };
        let times = (STEP / block.max(1)).max(1);
        team::rate(cores, time, |at| {
            self.memory[at].go_over(kernel, block, times);
            (times * block) as f64
        })
    }
}

/// Returns the size of each core's block for a cache, or `None` if the block would fit into the
/// core's share of the next smaller cache.
fn of_cache(caches: &[Cache], cache: &Cache, team: u32) -> Option<u64> {
    let sharing = u64::from(team.min(cache.shared_by).max(1));
    let block = grains(cache.bytes / 2 / sharing);
    let before = caches.iter().rev().find(|other| other.level < cache.level);
    let fits =
        |before: &Cache| block <= before.bytes / u64::from(team.min(before.shared_by).max(1));
    (block > 0 && !before.is_some_and(fits)).then_some(block)
}

fn grains(bytes: u64) -> u64 {
    bytes / GRAIN * GRAIN
}

fn available(machine: &Machine) -> Option<u64> {
    let text = machine.field("proc/meminfo", "MemAvailable")?;
    text.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory is only reached through `write` and `go_over`, and each mapping is used by one
// thread at a time: `Blocks` has one for each core.
unsafe impl Send for Mapping {}
// SAFETY: each mapping is used by one thread at a time, so a shared reference never meets a write.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(bytes: u64) -> Result<Self, RoofError> {
        let failed = || RoofError::Memory(bytes, std::io::Error::last_os_error());
        let size = usize::try_from(bytes).map_err(|_| failed())?;
        // SAFETY: the address is null, so the kernel chooses a free one.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        let start = (start != libc::MAP_FAILED).then_some(start).ok_or_else(failed)?;
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(failed)?;
        // Asks for huge pages, because translating addresses with small pages would take a part of
        // the measured time.
        // SAFETY: the range is the mapping that was just made.
        unsafe { libc::madvise(start.as_ptr().cast(), size, libc::MADV_HUGEPAGE) };
        Ok(Self { start, bytes: size })
    }

    /// Makes every page present. Writes 1.0 everywhere, so that the loops do not compute with
    /// subnormal numbers, which can be slow.
    fn write(&self) {
        let count = self.bytes / size_of::<f64>();
        let start = self.start.as_ptr().cast::<f64>();
        for at in 0..count {
            // SAFETY: `at` is inside of the mapping, which is aligned to a page and used by this
            // thread alone.
            unsafe { start.add(at).write(1.0) };
        }
    }

    /// Runs the loop over a block `times` times. `block` is a multiple of [`GRAIN`].
    fn go_over(&self, kernel: Kernel, block: u64, times: u64) {
        let arrays: u64 = match kernel {
            Kernel::Read => 1,
            Kernel::Copy => 2,
            Kernel::Triad => 3,
        };
        let each = block / arrays / 512 * 512;
        let end = arrays * (each + APART);
        if each == 0 || times == 0 || end > self.bytes as u64 {
            return;
        }
        let at = |array: u64| {
            // SAFETY: the array ends before `end`, which is inside of the mapping.
            unsafe { self.start.as_ptr().add((array * (each + APART)) as usize) }
        };
        match kernel {
            Kernel::Read => arch::read(at(0), each, times),
            Kernel::Copy => arch::copy(at(0), at(1), each, times),
            Kernel::Triad => arch::triad(at(0), at(1), at(2), each, times),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and nothing refers to it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(target_arch = "x86_64")]
mod arch {
    use std::arch::asm;
    use std::sync::LazyLock;

    /// The size in bytes of the widest vectors that this processor can use.
    static WIDEST: LazyLock<u32> = LazyLock::new(|| match () {
        () if is_x86_feature_detected!("avx512f") => 64,
        () if is_x86_feature_detected!("avx") && is_x86_feature_detected!("fma") => 32,
        () => 16,
    });

    static SCALE: [f64; 8] = [0.5; 8];

    /// `$r` begins the names of registers of `$w` bytes, and `$mov` loads and stores them. `bytes`
    /// is a multiple of 512; `{at}` counts from `-bytes` to 0, `times` times.
    macro_rules! moves {
        ($read:ident, $copy:ident, $triad:ident, $mov:literal, $r:literal, $w:literal, $scaled:ident, $end:literal) => {
            fn $read(from: *const u8, bytes: u64, times: u64) {
                // SAFETY: the loop reads `bytes` bytes from `from`, which `go_over` has found to be
                // inside of the mapping, and names every register that it changes.
                unsafe {
                    asm!(
                        "3:",
                        "mov {at}, {begin}",
                        "2:",
                        concat!($mov, " ", $r, "0, [{from} + {at}]"),
                        concat!($mov, " ", $r, "1, [{from} + {at} + ", $w, "]"),
                        concat!($mov, " ", $r, "2, [{from} + {at} + 2*", $w, "]"),
                        concat!($mov, " ", $r, "3, [{from} + {at} + 3*", $w, "]"),
                        concat!($mov, " ", $r, "4, [{from} + {at} + 4*", $w, "]"),
                        concat!($mov, " ", $r, "5, [{from} + {at} + 5*", $w, "]"),
                        concat!($mov, " ", $r, "6, [{from} + {at} + 6*", $w, "]"),
                        concat!($mov, " ", $r, "7, [{from} + {at} + 7*", $w, "]"),
                        concat!("add {at}, 8*", $w),
                        "jnz 2b",
                        "dec {times}",
                        "jnz 3b",
                        $end,
                        from = in(reg) from.add(bytes as usize),
                        begin = in(reg) (bytes as i64).wrapping_neg(),
                        times = inout(reg) times => _,
                        at = out(reg) _,
                        out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                        out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                        options(nostack, readonly),
                    );
                }
            }

            fn $copy(to: *mut u8, from: *const u8, bytes: u64, times: u64) {
                // SAFETY: the loop reads `bytes` bytes from `from` and writes as many to `to`.
                // `go_over` has found both to be inside of the mapping. The loop names every
                // register that it changes.
                unsafe {
                    asm!(
                        "3:",
                        "mov {at}, {begin}",
                        "2:",
                        concat!($mov, " ", $r, "0, [{from} + {at}]"),
                        concat!($mov, " ", $r, "1, [{from} + {at} + ", $w, "]"),
                        concat!($mov, " ", $r, "2, [{from} + {at} + 2*", $w, "]"),
                        concat!($mov, " ", $r, "3, [{from} + {at} + 3*", $w, "]"),
                        concat!($mov, " [{to} + {at}], ", $r, "0"),
                        concat!($mov, " [{to} + {at} + ", $w, "], ", $r, "1"),
                        concat!($mov, " [{to} + {at} + 2*", $w, "], ", $r, "2"),
                        concat!($mov, " [{to} + {at} + 3*", $w, "], ", $r, "3"),
                        concat!("add {at}, 4*", $w),
                        "jnz 2b",
                        "dec {times}",
                        "jnz 3b",
                        $end,
                        from = in(reg) from.add(bytes as usize),
                        to = in(reg) to.add(bytes as usize),
                        begin = in(reg) (bytes as i64).wrapping_neg(),
                        times = inout(reg) times => _,
                        at = out(reg) _,
                        out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                        options(nostack),
                    );
                }
            }

            fn $triad(to: *mut u8, b: *const u8, c: *const u8, bytes: u64, times: u64) {
                // SAFETY: the loop reads `bytes` bytes each from `b` and `c` and writes as many to
                // `to`. `go_over` has found all to be inside of the mapping. The loop names every
                // register that it changes.
                unsafe {
                    asm!(
                        concat!($mov, " ", $r, "15, [{scale}]"),
                        "3:",
                        "mov {at}, {begin}",
                        "2:",
                        moves!($scaled $mov, $r, "0", "0"),
                        moves!($scaled $mov, $r, "1", $w),
                        moves!($scaled $mov, $r, "2", $w, "*2"),
                        moves!($scaled $mov, $r, "3", $w, "*3"),
                        concat!($mov, " [{to} + {at}], ", $r, "0"),
                        concat!($mov, " [{to} + {at} + ", $w, "], ", $r, "1"),
                        concat!($mov, " [{to} + {at} + 2*", $w, "], ", $r, "2"),
                        concat!($mov, " [{to} + {at} + 3*", $w, "], ", $r, "3"),
                        concat!("add {at}, 4*", $w),
                        "jnz 2b",
                        "dec {times}",
                        "jnz 3b",
                        $end,
                        scale = in(reg) &SCALE,
                        b = in(reg) b.add(bytes as usize),
                        c = in(reg) c.add(bytes as usize),
                        to = in(reg) to.add(bytes as usize),
                        begin = in(reg) (bytes as i64).wrapping_neg(),
                        times = inout(reg) times => _,
                        at = out(reg) _,
                        out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                        out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                        out("xmm15") _,
                        options(nostack),
                    );
                }
            }
        };
        // Computes c * s + b.
        (fused $mov:literal, $r:literal, $n:literal, $($off:literal),+) => {
            concat!(
                $mov, " ", $r, $n, ", [{c} + {at} + ", $($off,)+ "]\n",
                "vfmadd213pd ", $r, $n, ", ", $r, "15, [{b} + {at} + ", $($off,)+ "]"
            )
        };
        // `mulpd` and `addpd` need aligned operands in memory, so every operand is loaded into a
        // register first.
        (two $mov:literal, $r:literal, $n:literal, $($off:literal),+) => {
            concat!(
                $mov, " ", $r, $n, ", [{c} + {at} + ", $($off,)+ "]\n",
                "mulpd ", $r, $n, ", ", $r, "15\n",
                $mov, " ", $r, "4, [{b} + {at} + ", $($off,)+ "]\n",
                "addpd ", $r, $n, ", ", $r, "4"
            )
        };
    }

    moves!(read_16, copy_16, triad_16, "movupd", "xmm", "16", two, "");
    moves!(read_32, copy_32, triad_32, "vmovupd", "ymm", "32", fused, "vzeroupper");
    moves!(read_64, copy_64, triad_64, "vmovupd", "zmm", "64", fused, "vzeroupper");

    pub fn read(from: *const u8, bytes: u64, times: u64) {
        match *WIDEST {
            64 => read_64(from, bytes, times),
            32 => read_32(from, bytes, times),
            _ => read_16(from, bytes, times),
        }
    }

    pub fn copy(to: *mut u8, from: *const u8, bytes: u64, times: u64) {
        match *WIDEST {
            64 => copy_64(to, from, bytes, times),
            32 => copy_32(to, from, bytes, times),
            _ => copy_16(to, from, bytes, times),
        }
    }

    pub fn triad(to: *mut u8, b: *const u8, c: *const u8, bytes: u64, times: u64) {
        match *WIDEST {
            64 => triad_64(to, b, c, bytes, times),
            32 => triad_32(to, b, c, bytes, times),
            _ => triad_16(to, b, c, bytes, times),
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod arch {
    use std::arch::asm;

    pub fn read(from: *const u8, bytes: u64, times: u64) {
        // SAFETY: the loop reads `bytes` bytes, a multiple of 512, from `from`, which `go_over` has
        // found to be inside of the mapping, and names every register that it changes.
        unsafe {
            asm!(
                "3:",
                "mov {from}, {begin}",
                "mov {left}, {bytes}",
                "2:",
                "ldp q0, q1, [{from}]",
                "ldp q2, q3, [{from}, #32]",
                "ldp q4, q5, [{from}, #64]",
                "ldp q6, q7, [{from}, #96]",
                "add {from}, {from}, #128",
                "subs {left}, {left}, #128",
                "b.ne 2b",
                "subs {times}, {times}, #1",
                "b.ne 3b",
                begin = in(reg) from,
                from = out(reg) _,
                bytes = in(reg) bytes,
                left = out(reg) _,
                times = inout(reg) times => _,
                out("v0") _, out("v1") _, out("v2") _, out("v3") _,
                out("v4") _, out("v5") _, out("v6") _, out("v7") _,
                options(nostack, readonly),
            );
        }
    }

    pub fn copy(to: *mut u8, from: *const u8, bytes: u64, times: u64) {
        // SAFETY: the loop reads `bytes` bytes from `from` and writes as many to `to`. `go_over`
        // has found both to be inside of the mapping. The loop names every register that it
        // changes.
        unsafe {
            asm!(
                "3:",
                "mov {from}, {begin}",
                "mov {to}, {target}",
                "mov {left}, {bytes}",
                "2:",
                "ldp q0, q1, [{from}], #32",
                "ldp q2, q3, [{from}], #32",
                "stp q0, q1, [{to}], #32",
                "stp q2, q3, [{to}], #32",
                "subs {left}, {left}, #64",
                "b.ne 2b",
                "subs {times}, {times}, #1",
                "b.ne 3b",
                begin = in(reg) from,
                from = out(reg) _,
                target = in(reg) to,
                to = out(reg) _,
                bytes = in(reg) bytes,
                left = out(reg) _,
                times = inout(reg) times => _,
                out("v0") _, out("v1") _, out("v2") _, out("v3") _,
                options(nostack),
            );
        }
    }

    pub fn triad(to: *mut u8, b: *const u8, c: *const u8, bytes: u64, times: u64) {
        // SAFETY: the loop reads `bytes` bytes each from `b` and `c` and writes as many to `to`.
        // `go_over` has found all to be inside of the mapping. The loop names every register that
        // it changes.
        unsafe {
            asm!(
                "fmov v15.2d, #0.5",
                "3:",
                "mov {b}, {begin_b}",
                "mov {c}, {begin_c}",
                "mov {to}, {target}",
                "mov {left}, {bytes}",
                "2:",
                "ldp q0, q1, [{b}], #32",
                "ldp q2, q3, [{c}], #32",
                "fmla v0.2d, v2.2d, v15.2d",
                "fmla v1.2d, v3.2d, v15.2d",
                "stp q0, q1, [{to}], #32",
                "subs {left}, {left}, #32",
                "b.ne 2b",
                "subs {times}, {times}, #1",
                "b.ne 3b",
                begin_b = in(reg) b,
                begin_c = in(reg) c,
                b = out(reg) _,
                c = out(reg) _,
                target = in(reg) to,
                to = out(reg) _,
                bytes = in(reg) bytes,
                left = out(reg) _,
                times = inout(reg) times => _,
                out("v0") _, out("v1") _, out("v2") _, out("v3") _, out("v15") _,
                options(nostack),
            );
        }
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod arch {
    pub fn read(_: *const u8, _: u64, _: u64) {}
    pub fn copy(_: *mut u8, _: *const u8, _: u64, _: u64) {}
    pub fn triad(_: *mut u8, _: *const u8, _: *const u8, _: u64, _: u64) {}
}
