//! Resolves perf's own names: software and hardware counters, cache triples, and `rNNNN`.
//!
//! The numbers are from include/uapi/linux/perf_event.h, and the spellings from perf's parse-events
//! and evsel tables (Linux 6.1 to 6.12). perf ignores the case of some names. Here the case is
//! ignored, except for the `r` of `rNNNN`.
//!
//! On a machine with several kinds of cores (`cpu_core` and `cpu_atom`, big and LITTLE) each kind
//! has a PMU, and a hardware name stands for one counter of each PMU. The upper half of `config` is
//! then the PMU's type (`PERF_PMU_TYPE_SHIFT`), except for `rNNNN`, where `type` is the PMU's type.
//! Only the PMU of the core on which a thread runs counts the thread.

use model::{PerfAttr, Source, Unit};

use crate::error::NameErrorKind;
use crate::source::{Called, Entry, NameSource, Resolved, Trouble};
use crate::syntax::Head;
use machine::Machine;

const TYPE_HARDWARE: u32 = 0;
const TYPE_SOFTWARE: u32 = 1;
const TYPE_CACHE: u32 = 3;
const TYPE_RAW: u32 = 4;

struct Known {
    kind: u32,
    config: u64,
    unit: Unit,
    /// The name that Counterpoint shows, then the others that perf accepts.
    names: &'static [&'static str],
    description: &'static str,
}

#[rustfmt::skip]
const KNOWN: &[Known] = {
    use Unit::{Count, Cycles, Nanoseconds};
    const fn sw(config: u64, unit: Unit, names: &'static [&'static str], description: &'static str) -> Known {
        Known { kind: TYPE_SOFTWARE, config, unit, names, description }
    }
    const fn hw(config: u64, unit: Unit, names: &'static [&'static str], description: &'static str) -> Known {
        Known { kind: TYPE_HARDWARE, config, unit, names, description }
    }
    &[
        sw(1, Nanoseconds, &["task-clock"], "time the thread ran on a processor"),
        sw(0, Nanoseconds, &["cpu-clock"], "time on the processor, by its high-resolution timer"),
        sw(2, Count, &["page-faults", "faults"], "page faults, minor and major"),
        sw(5, Count, &["minor-faults"], "page faults served without reading a disk"),
        sw(6, Count, &["major-faults"], "page faults that had to read a disk"),
        sw(3, Count, &["context-switches", "cs"], "times the thread left a processor; always 0 with :u"),
        sw(4, Count, &["cpu-migrations", "migrations"], "times the thread moved to another processor; always 0 with :u"),
        sw(7, Count, &["alignment-faults"], "unaligned accesses that the kernel had to mend; 0 on x86"),
        sw(8, Count, &["emulation-faults"], "instructions that the kernel had to emulate"),
        sw(11, Count, &["cgroup-switches"], "switches to a task of another control group; always 0 with :u"),
        sw(9, Count, &["dummy"], "counts nothing; for measuring the price of counting"),
        sw(10, Count, &["bpf-output"], "written by BPF programs; counts nothing by itself"),
        hw(0, Cycles, &["cycles", "cpu-cycles"], "processor cycles, at whatever frequency it runs"),
        hw(1, Count, &["instructions"], "instructions retired"),
        hw(2, Count, &["cache-references"], "accesses to the last-level cache, as the processor defines them"),
        hw(3, Count, &["cache-misses"], "misses of the last-level cache, as the processor defines them"),
        hw(4, Count, &["branches", "branch-instructions"], "branch instructions retired"),
        hw(5, Count, &["branch-misses"], "branches predicted wrongly"),
        hw(6, Cycles, &["bus-cycles"], "cycles of the bus"),
        hw(7, Cycles, &["stalled-cycles-frontend", "idle-cycles-frontend"], "cycles in which no instruction could be issued for want of instructions"),
        hw(8, Cycles, &["stalled-cycles-backend", "idle-cycles-backend"], "cycles in which no instruction could be issued for want of data or units"),
        hw(9, Cycles, &["ref-cycles"], "cycles at a constant frequency, whatever the processor's"),
    ]
};

/// Spellings of one part of a cache triple (cache, operation, result).
type Spellings = &'static [&'static str];

/// The caches: spellings, operations (bit 0 read, 1 write, 2 prefetch), and a description.
const CACHES: &[(Spellings, u8, &str)] = &[
    (&["L1-dcache", "l1-d", "l1d", "L1-data"], 0b111, "level 1 data cache"),
    (&["L1-icache", "l1-i", "l1i", "L1-instruction"], 0b101, "level 1 instruction cache"),
    (&["LLC", "L2"], 0b111, "last-level cache"),
    (&["dTLB", "d-tlb", "Data-TLB"], 0b111, "address translations for data"),
    (&["iTLB", "i-tlb", "Instruction-TLB"], 0b001, "address translations for instructions"),
    (&["branch", "branches", "bpu", "btb", "bpc"], 0b001, "branch predictor"),
    (&["node"], 0b111, "memory of the processor's node"),
];
const OPERATIONS: &[Spellings] = &[
    &["load", "loads", "read"],
    &["store", "stores", "write"],
    &["prefetch", "prefetches", "speculative-read", "speculative-load"],
];
const RESULTS: &[Spellings] = &[&["refs", "reference", "ops", "access"], &["misses", "miss"]];

/// The `type` and `config` in `perf_event_attr` for a generic name, and the unit of its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) kind: u32,
    pub(crate) config: u64,
    pub(crate) unit: Unit,
}

impl Numbers {
    /// Whether the processor and not the kernel counts the event.
    pub(crate) fn is_hardware(self) -> bool {
        self.kind != TYPE_SOFTWARE
    }

    /// Returns the counter of one PMU, for a machine with several kinds of cores.
    pub(crate) fn of_pmu(self, pmu_type: u32) -> PerfAttr {
        let (kind, config) = match self.kind {
            TYPE_RAW => (pmu_type, self.config),
            kind => (kind, self.config | u64::from(pmu_type) << 32),
        };
        PerfAttr { kind, config, ..PerfAttr::default() }
    }

    /// Returns one counter, or, for a hardware event on a machine with several kinds of cores, one
    /// for each kind.
    pub(crate) fn everywhere(self, typed: &str, machine: &Machine) -> Vec<Resolved> {
        let attr = PerfAttr { kind: self.kind, config: self.config, ..PerfAttr::default() };
        let cores = machine.core_types();
        if !self.is_hardware() || cores.len() < 2 {
            return vec![Resolved::new(Source::Perf(attr), self.unit)];
        }
        cores
            .into_iter()
            .map(|(pmu, pmu_type)| Resolved {
                name: Called::Instead(format!("{pmu}/{typed}/")),
                pmu: Some(pmu),
                ..Resolved::new(Source::Perf(self.of_pmu(pmu_type)), self.unit)
            })
            .collect()
    }
}

pub(crate) fn numbers(word: &str) -> Option<Numbers> {
    let same = |k: &&Known| k.names.iter().any(|n| n.eq_ignore_ascii_case(word));
    let known = KNOWN.iter().find(same);
    known.map(|k| Numbers { kind: k.kind, config: k.config, unit: k.unit }).or_else(|| {
        let config = cache(word)?;
        Some(Numbers { kind: TYPE_CACHE, config, unit: Unit::Count })
    })
}

/// Returns the first of the names in `KNOWN` for these numbers.
pub(crate) fn name_of(kind: u32, config: u64) -> Option<&'static str> {
    KNOWN.iter().find(|k| k.kind == kind && k.config == config).map(|k| k.names[0])
}

/// Returns the names and aliases in `KNOWN`, and one name for each cache triple that `list` shows.
pub(crate) fn names() -> Vec<String> {
    let known = KNOWN.iter().flat_map(|k| k.names).map(|&name| name.to_owned());
    known.chain(cache_entries().map(|entry| entry.name)).collect()
}

pub(crate) struct Generic(pub Machine);

impl NameSource for Generic {
    fn resolve(&self, head: &Head) -> Option<Result<Vec<Resolved>, Trouble>> {
        let Head::Word(word) = head else { return None };
        if let Some(numbers) = numbers(word) {
            return Some(Ok(numbers.everywhere(word, &self.0)));
        }
        Some(raw(word)?.map(|config| {
            Numbers { kind: TYPE_RAW, config, unit: Unit::Count }.everywhere(word, &self.0)
        }))
    }

    fn entries(&self) -> Vec<Entry> {
        let known = KNOWN.iter().map(|k| Entry {
            aliases: k.names[1..].iter().map(|&n| n.into()).collect(),
            ..Entry::new(
                k.names[0],
                if k.kind == TYPE_SOFTWARE { "software" } else { "hardware" },
                k.unit,
                k.description,
            )
        });
        let what = "a hardware counter by its number in hexadecimal (event and umask)";
        let raw = Entry::pattern("rNNNN", "raw", what);
        known.chain(cache_entries()).chain([raw]).collect()
    }
}

/// Returns the `config` of `cache[-operation][-result]`. The default operation is a read, and the
/// default result is an access.
fn cache(word: &str) -> Option<u64> {
    let lower = word.to_ascii_lowercase();
    for (cache, (names, operations, _)) in CACHES.iter().enumerate() {
        for rest in names.iter().filter_map(|n| lower.strip_prefix(&n.to_ascii_lowercase())) {
            let found = operation_and_result(rest);
            if let Some((operation, result)) = found.filter(|(op, _)| operations >> op & 1 == 1) {
                return Some(cache as u64 | operation << 8 | result << 16);
            }
        }
    }
    None
}

/// Reads the rest of a cache name, such as `-load-misses`.
fn operation_and_result(rest: &str) -> Option<(u64, u64)> {
    if rest.is_empty() {
        return Some((0, 0));
    }
    let rest = rest.strip_prefix('-')?;
    let index = |of: &[Spellings], word: &str| {
        of.iter().position(|names| names.contains(&word)).map(|i| i as u64)
    };
    if let Some(operation) = index(OPERATIONS, rest) {
        return Some((operation, 0));
    }
    if let Some(result) = index(RESULTS, rest) {
        return Some((0, result));
    }
    // perf accepts both orders: load-misses and misses-load.
    let both = |operation, result| Some((index(OPERATIONS, operation)?, index(RESULTS, result)?));
    let forwards = rest.rsplit_once('-').and_then(|(operation, result)| both(operation, result));
    forwards
        .or_else(|| rest.split_once('-').and_then(|(result, operation)| both(operation, result)))
}

fn cache_entries() -> impl Iterator<Item = Entry> {
    let triples = CACHES.iter().flat_map(|cache| {
        (0..OPERATIONS.len()).flat_map(move |op| [(cache, op, false), (cache, op, true)])
    });
    triples.filter(|((_, operations, _), op, _)| operations >> op & 1 == 1).map(
        |(&(names, _, what), op, misses)| {
            let verb = OPERATIONS[op];
            let name = match misses {
                true => format!("{}-{}-misses", names[0], verb[0]),
                false => format!("{}-{}", names[0], verb[1]),
            };
            let description = match misses {
                true => format!("{what}: {} that missed", verb[1]),
                false => format!("{what}: {}", verb[1]),
            };
            Entry::new(name, "cache", Unit::Count, description)
        },
    )
}

/// Returns the hexadecimal number in a name such as `r01c2`, or `None` for other words.
pub(crate) fn raw(word: &str) -> Option<Result<u64, Trouble>> {
    let digits = word.strip_prefix('r')?;
    if digits.is_empty() || !digits.chars().all(|c| c.is_ascii_hexdigit()) {
        return None;
    }
    Some(u64::from_str_radix(digits, 16).map_err(|_| {
        let problem = "a raw counter has at most 16 hexadecimal digits".into();
        Trouble::new(NameErrorKind::Value { text: word.into(), problem })
    }))
}
