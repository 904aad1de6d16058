//! Finds the cores that this process may use, and their caches, from sysfs.

use crate::Machine;
use crate::files::parse_cpus;

/// The processor's model, the cores that this process may use, and their caches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpus {
    /// The name that the kernel gives to the processor's model; empty if it gives none.
    pub model: String,
    /// The version of the microcode; empty if it is not known.
    pub microcode: String,
    /// The logical processors that this process may use, sorted.
    pub allowed: Vec<u32>,
    /// The cores of the processors in `allowed`.
    pub cores: Vec<Core>,
    /// The levels of data caches, from the nearest to the farthest.
    pub caches: Vec<Cache>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Core {
    /// The first of the core's logical processors that this process may use.
    pub cpu: u32,
}

/// A level of caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Number of the level: 1 is nearest to the core.
    pub level: u32,
    pub bytes: u64,
    /// Number of usable cores that share one cache of this level.
    pub shared_by: u32,
    /// Number of caches of this level that usable cores have.
    pub instances: u32,
}

const CPU: &str = "sys/devices/system/cpu";

impl Cpus {
    pub fn of(machine: &Machine) -> Self {
        let allowed = match machine.is_here() {
            true => affinity().unwrap_or_else(|| machine.online_cpus()),
            false => machine.online_cpus(),
        };
        let mut cores: Vec<Core> = Vec::new();
        let mut seen: Vec<u32> = Vec::new();
        for cpu in &allowed {
            if seen.contains(cpu) {
                continue;
            }
            let list =
                machine.read_trimmed(&format!("{CPU}/cpu{cpu}/topology/thread_siblings_list"));
            seen.extend(list.and_then(|list| parse_cpus(&list)).unwrap_or_else(|| vec![*cpu]));
            cores.push(Core { cpu: *cpu });
        }
        let field = |names: &[&str]| {
            let found = names.iter().find_map(|name| machine.field("proc/cpuinfo", name));
            found.unwrap_or_default()
        };
        Self {
            model: field(&["model name", "Model", "CPU part"]),
            microcode: field(&["microcode", "CPU revision"]),
            caches: caches(machine, &cores),
            allowed,
            cores,
        }
    }
}

/// Returns the caches of the first core. The other cores are assumed to have the same.
fn caches(machine: &Machine, cores: &[Core]) -> Vec<Cache> {
    let Some(first) = cores.first() else { return Vec::new() };
    let folder = format!("{CPU}/cpu{}/cache", first.cpu);
    let mut found: Vec<Cache> = Vec::new();
    for index in machine.list(&folder).iter().filter(|name| name.starts_with("index")) {
        let read = |file: &str| machine.read_trimmed(&format!("{folder}/{index}/{file}"));
        let holds_data = read("type").is_some_and(|kind| kind == "Data" || kind == "Unified");
        let level = read("level").and_then(|level| level.parse().ok());
        let bytes = read("size").and_then(|size| bytes(&size));
        let (true, Some(level), Some(bytes)) = (holds_data, level, bytes) else { continue };
        let sharing = read("shared_cpu_list").and_then(|list| parse_cpus(&list));
        let shares = |core: &&Core| match &sharing {
            Some(cpus) => cpus.contains(&core.cpu),
            None => core.cpu == first.cpu,
        };
        let shared_by = cores.iter().filter(shares).count().max(1) as u32;
        let instances = (cores.len() as u32).div_ceil(shared_by);
        found.push(Cache { level, bytes, shared_by, instances });
    }
    found.sort_by_key(|cache| cache.level);
    found.dedup_by_key(|cache| cache.level);
    found
}

/// Parses a size such as `32K`, `1024K` or `32M`.
fn bytes(text: &str) -> Option<u64> {
    let (digits, factor) = match text.strip_suffix('K') {
        Some(digits) => (digits, 1 << 10),
        None => match text.strip_suffix('M') {
            Some(digits) => (digits, 1 << 20),
            None => (text, 1),
        },
    };
    digits.parse::<u64>().ok()?.checked_mul(factor).filter(|bytes| *bytes >= 4096)
}

fn affinity() -> Option<Vec<u32>> {
    // The kernel refuses a set that has fewer bits than its own sets. The 1,024 bits of `cpu_set_t`
    // can be too few.
    let mut set = [0u64; 1024];
    // SAFETY: the kernel writes at most `size_of_val(&set)` bytes into `set`.
    let bytes = unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&set), set.as_mut_ptr())
    };
    let words = usize::try_from(bytes).ok()?.div_ceil(8).min(set.len());
    let of_word = |(at, word): (usize, &u64)| {
        let word = *word;
        (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at as u32 * 64 + bit)
    };
    let cpus: Vec<u32> = set[..words].iter().enumerate().flat_map(of_word).collect();
    (!cpus.is_empty()).then_some(cpus)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests, which may panic")]
mod tests {
    use std::fs;

    use super::*;

    /// The machine has two cores with two threads each, a second-level cache for each core, and a
    /// third-level cache for both.
    #[test]
    fn threads_of_a_core_are_one_core() {
        let dir = testkit::Scratch::new();
        let write = |path: String, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(format!("{CPU}/online"), "0-3\n");
        write("proc/cpuinfo".into(), "model name\t: Paper 9\nmicrocode\t: 0x2a\n");
        for cpu in 0..4 {
            let siblings = if cpu % 2 == 0 { "0,2\n" } else { "1,3\n" };
            write(format!("{CPU}/cpu{cpu}/topology/thread_siblings_list"), siblings);
        }
        let kinds = [("1", "Instruction", "32K", "0,2"), ("1", "Data", "48K", "0,2")];
        let more = [("3", "Unified", "16M", "0-3"), ("2", "Unified", "2048K", "0,2")];
        for (index, (level, kind, size, cpus)) in kinds.into_iter().chain(more).enumerate() {
            let folder = format!("{CPU}/cpu0/cache/index{index}");
            write(format!("{folder}/level"), level);
            write(format!("{folder}/type"), kind);
            write(format!("{folder}/size"), size);
            write(format!("{folder}/shared_cpu_list"), cpus);
        }
        let found = Cpus::of(&Machine::at(dir.path()));
        assert_eq!((found.model.as_str(), found.microcode.as_str()), ("Paper 9", "0x2a"));
        assert_eq!(found.cores, [Core { cpu: 0 }, Core { cpu: 1 }]);
        let cache =
            |level, bytes, shared_by, instances| Cache { level, bytes, shared_by, instances };
        let expected =
            [cache(1, 48 << 10, 1, 2), cache(2, 2 << 20, 1, 2), cache(3, 16 << 20, 2, 1)];
        assert_eq!(found.caches, expected);
    }

    #[test]
    fn sizes_of_caches() {
        assert_eq!(bytes("32K"), Some(32 << 10));
        assert_eq!(bytes("36608K"), Some(36_608 << 10));
        assert_eq!(bytes("32M"), Some(32 << 20));
        assert_eq!(bytes("0K"), None);
        assert_eq!(bytes("K"), None);
    }
}
