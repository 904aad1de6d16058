//! Names as PAPI and libpfm4 write them: `perf::CYCLES`, and those presets `PAPI_*` that are one
//! generic counter.
//!
//! Sources: `pfmlib_perf_event` of libpfm4 4.13 for names and attributes; `papiStdEventDefs.h` and
//! `papi_events.csv` of PAPI 7.0 for the meaning of presets. By default PAPI counts only in user
//! mode. Here a counter without `:u` or `:k` counts in all modes, as with perf's own names.

use model::Unit;

use crate::amd;
use crate::cause::NameCause;
use crate::error::NameErrorKind;
use crate::generic::{self, Numbers};
use crate::source::{Entry, NameSource, Resolved, Trouble};
use crate::syntax::{Head, Modifiers, Term};
use machine::Machine;
use model::suggest;

/// Intel's counters of one precision, and how many operations each of them stands for: as many as
/// its vectors have elements (Intel's SDM, volume 3, FP_ARITH_INST_RETIRED; a fused multiply-add
/// counts twice).
macro_rules! intel {
    ($precision:literal, $two:literal, $four:literal, $eight:literal) => {
        NameCause::WeightedSum(&[
            (1, concat!("fp_arith_inst_retired.scalar_", $precision)),
            ($two, concat!("fp_arith_inst_retired.128b_packed_", $precision)),
            ($four, concat!("fp_arith_inst_retired.256b_packed_", $precision)),
            ($eight, concat!("fp_arith_inst_retired.512b_packed_", $precision)),
        ])
    };
}

/// Presets that are the same as a generic counter, and that counter.
pub(crate) const EXACT: &[(&str, &str)] = &[
    ("PAPI_TOT_CYC", "cycles"),
    ("PAPI_REF_CYC", "ref-cycles"),
    ("PAPI_TOT_INS", "instructions"),
    ("PAPI_BR_INS", "branches"),
    ("PAPI_BR_MSP", "branch-misses"),
    ("PAPI_L1_DCM", "L1-dcache-load-misses"),
    ("PAPI_L1_LDM", "L1-dcache-load-misses"),
    ("PAPI_L1_STM", "L1-dcache-store-misses"),
    ("PAPI_L1_DCR", "L1-dcache-loads"),
    ("PAPI_L1_DCW", "L1-dcache-stores"),
    ("PAPI_L1_ICM", "L1-icache-load-misses"),
    ("PAPI_L1_ICA", "L1-icache-loads"),
    ("PAPI_L1_ICR", "L1-icache-loads"),
    ("PAPI_TLB_IM", "iTLB-load-misses"),
];

/// Presets that are not a single generic counter: the reason, and the nearest generic counters if
/// there are any.
const INEXACT: &[(&str, &str, &str)] = &[
    ("PAPI_L1_TCM", SUM, "L1-dcache-load-misses and L1-icache-load-misses"),
    ("PAPI_L1_TCA", SUM, "L1-dcache-loads, L1-dcache-stores and L1-icache-loads"),
    ("PAPI_L1_DCA", SUM, "L1-dcache-loads and L1-dcache-stores"),
    ("PAPI_TLB_DM", SUM, "dTLB-load-misses and dTLB-store-misses"),
    ("PAPI_TLB_TL", SUM, "dTLB-load-misses, dTLB-store-misses and iTLB-load-misses"),
    ("PAPI_LST_INS", SUM, "L1-dcache-loads and L1-dcache-stores"),
    ("PAPI_BR_PRC", "branches less branch-misses", "branches and branch-misses"),
    ("PAPI_L3_TCM", DIFFERS, "cache-misses"),
    ("PAPI_L3_TCA", DIFFERS, "cache-references"),
    ("PAPI_L3_DCM", DIFFERS, "LLC-load-misses"),
    ("PAPI_L3_DCA", DIFFERS, "LLC-loads"),
    ("PAPI_L3_LDM", DIFFERS, "LLC-load-misses"),
    ("PAPI_LD_INS", "instructions that load, not accesses of the cache", "L1-dcache-loads"),
    ("PAPI_SR_INS", "instructions that store, not accesses of the cache", "L1-dcache-stores"),
    ("PAPI_STL_ICY", DIFFERS, "stalled-cycles-frontend"),
    ("PAPI_RES_STL", DIFFERS, "stalled-cycles-backend"),
    ("PAPI_L2_TCM", VENDOR, ""),
    ("PAPI_L2_TCA", VENDOR, ""),
    ("PAPI_L2_DCM", VENDOR, ""),
    ("PAPI_L2_DCA", VENDOR, ""),
    ("PAPI_L2_ICM", VENDOR, ""),
    ("PAPI_FP_INS", VENDOR, ""),
    ("PAPI_VEC_SP", VENDOR, ""),
    ("PAPI_VEC_DP", VENDOR, ""),
    ("PAPI_BR_CN", VENDOR, ""),
    ("PAPI_BR_UCN", VENDOR, ""),
    ("PAPI_BR_TKN", VENDOR, ""),
    ("PAPI_BR_NTK", VENDOR, ""),
];

/// Presets of floating-point operations. Some processors of AMD's have one event for them
/// ([`amd::papi`]); the second column is for all others.
const FLOATING: &[(&str, NameCause)] = &[
    ("PAPI_FP_OPS", NameCause::Precisions(&["PAPI_SP_OPS", "PAPI_DP_OPS"])),
    ("PAPI_SP_OPS", intel!("single", 4, 8, 16)),
    ("PAPI_DP_OPS", intel!("double", 2, 4, 8)),
];
const SUM: &str = "a sum of several counters";
const DIFFERS: &str = "the nearest generic counter counts something else on some processors";
const VENDOR: &str = "no generic counter is similar";

/// The kernel's names of its generic counters, with type and config. libpfm4 accepts them, too.
const KERNELS: &[(&str, u32, u64)] = &[
    ("PERF_COUNT_HW_CPU_CYCLES", 0, 0),
    ("PERF_COUNT_HW_INSTRUCTIONS", 0, 1),
    ("PERF_COUNT_HW_CACHE_REFERENCES", 0, 2),
    ("PERF_COUNT_HW_CACHE_MISSES", 0, 3),
    ("PERF_COUNT_HW_BRANCH_INSTRUCTIONS", 0, 4),
    ("PERF_COUNT_HW_BRANCH_MISSES", 0, 5),
    ("PERF_COUNT_HW_BUS_CYCLES", 0, 6),
    ("PERF_COUNT_HW_STALLED_CYCLES_FRONTEND", 0, 7),
    ("PERF_COUNT_HW_STALLED_CYCLES_BACKEND", 0, 8),
    ("PERF_COUNT_HW_REF_CPU_CYCLES", 0, 9),
    ("PERF_COUNT_SW_CPU_CLOCK", 1, 0),
    ("PERF_COUNT_SW_TASK_CLOCK", 1, 1),
    ("PERF_COUNT_SW_PAGE_FAULTS", 1, 2),
    ("PERF_COUNT_SW_CONTEXT_SWITCHES", 1, 3),
    ("PERF_COUNT_SW_CPU_MIGRATIONS", 1, 4),
    ("PERF_COUNT_SW_PAGE_FAULTS_MIN", 1, 5),
    ("PERF_COUNT_SW_PAGE_FAULTS_MAJ", 1, 6),
    ("PERF_COUNT_SW_CGROUP_SWITCHES", 1, 11),
];

/// The kernel's names of caches, and perf's words for them.
const CACHES: &[(&str, &str)] = &[
    ("PERF_COUNT_HW_CACHE_L1D", "L1-dcache"),
    ("PERF_COUNT_HW_CACHE_L1I", "L1-icache"),
    ("PERF_COUNT_HW_CACHE_LL", "LLC"),
    ("PERF_COUNT_HW_CACHE_DTLB", "dTLB"),
    ("PERF_COUNT_HW_CACHE_ITLB", "iTLB"),
    ("PERF_COUNT_HW_CACHE_BPU", "branch"),
    ("PERF_COUNT_HW_CACHE_NODE", "node"),
];

/// [`NameSource`] of PAPI's spellings.
pub(crate) struct Papi(pub Machine);

impl NameSource for Papi {
    fn resolve(&self, head: &Head) -> Option<Result<Vec<Resolved>, Trouble>> {
        match head {
            Head::Word(word) if word.get(..5)?.eq_ignore_ascii_case("PAPI_") => {
                Some(self.preset(word))
            }
            Head::Papi { pmu, name, attributes } => Some(self.perf(pmu, name, attributes)),
            _ => None,
        }
    }

    fn entries(&self) -> Vec<Entry> {
        let presets = EXACT.iter().filter_map(|(preset, name)| {
            let unit = generic::numbers(name)?.unit;
            Some(Entry::new(*preset, "PAPI", unit, format!("PAPI's name for {name}")))
        });
        let what = "libpfm4's spelling of perf's names, as in perf::CYCLES:u";
        let floating = FLOATING.iter().filter(|(preset, _)| amd::papi(preset, &self.0).is_some());
        let floating = floating.map(|(preset, _)| {
            let what = "retired SSE and AVX floating-point operations, a multiply-add as two";
            Entry::new(*preset, "PAPI", Unit::Count, what)
        });
        presets.chain(floating).chain([Entry::pattern("perf::NAME[:u=1]", "PAPI", what)]).collect()
    }
}

impl Papi {
    fn preset(&self, word: &str) -> Result<Vec<Resolved>, Trouble> {
        let same = |preset: &&str| preset.eq_ignore_ascii_case(word);
        if let Some((_, name)) = EXACT.iter().find(|(preset, _)| same(preset)) {
            // tests/papi.rs checks that every name of the table is a generic one.
            let numbers = generic::numbers(name).into_iter();
            return Ok(numbers.flat_map(|n| n.everywhere(name, &self.0)).collect());
        }
        if let Some((preset, cause)) = FLOATING.iter().find(|(preset, _)| same(preset)) {
            if let Some(resolved) = amd::papi(preset, &self.0) {
                return Ok(vec![resolved]);
            }
            let problem = "this processor has no single counter for the PAPI preset".to_owned();
            let trouble = Trouble::new(NameErrorKind::Value { text: word.into(), problem });
            return Err(trouble.because(cause.clone()));
        }
        let Some((_, why, near)) = INEXACT.iter().find(|(preset, ..)| same(preset)) else {
            let known = EXACT.iter().map(|(preset, _)| *preset);
            let near = suggest::closest(word, known);
            let cause = match near.is_empty() {
                true => NameCause::NoSuchPreset,
                false => NameCause::Near(near.into_iter().map(str::to_owned).collect()),
            };
            return Err(Trouble::new(NameErrorKind::Unknown { name: word.into() }).because(cause));
        };
        let cause = match *near {
            "" => NameCause::VendorOnly,
            near => NameCause::NearestPreset(near),
        };
        let problem = format!("the PAPI preset has no single generic counter: {why}");
        Err(Trouble::new(NameErrorKind::Value { text: word.into(), problem }).because(cause))
    }

    fn perf(&self, pmu: &str, name: &str, attributes: &[Term]) -> Result<Vec<Resolved>, Trouble> {
        if !pmu.eq_ignore_ascii_case("perf") {
            let problem = "libpfm4's names for single processors are not supported".into();
            let text = format!("{pmu}::{name}");
            let kind = NameErrorKind::Value { text, problem };
            return Err(Trouble::new(kind).because(NameCause::VendorSpelling));
        }
        let mut left = attributes;
        let numbers = match self.cache(name, &mut left) {
            Some(spelled) => generic::numbers(&spelled),
            None => KERNELS
                .iter()
                .find(|(known, ..)| known.eq_ignore_ascii_case(name))
                .and_then(|&(_, kind, config)| generic::numbers(generic::name_of(kind, config)?))
                .or_else(|| generic::numbers(name)),
        };
        let Some(numbers) = numbers else {
            let entries = generic::names();
            let near = suggest::closest(name, entries.iter().map(String::as_str));
            let near: Vec<String> =
                near.iter().map(|n| format!("perf::{}", n.to_ascii_uppercase())).collect();
            let cause = match near.is_empty() {
                true => NameCause::NoSuchPerfName,
                false => NameCause::Near(near),
            };
            let name = format!("{pmu}::{name}");
            return Err(Trouble::new(NameErrorKind::Unknown { name }).because(cause));
        };
        let modifiers = modifiers(left)?;
        Ok(self.everywhere(numbers, name, modifiers))
    }

    fn everywhere(&self, numbers: Numbers, name: &str, modifiers: Modifiers) -> Vec<Resolved> {
        let spelled = generic::name_of(numbers.kind, numbers.config).unwrap_or(name);
        let found = numbers.everywhere(spelled, &self.0).into_iter();
        found.map(|resolved| Resolved { modifiers, ..resolved }).collect()
    }

    /// perf's name of `PERF_COUNT_HW_CACHE_L1D:READ:MISS`. Removes the attributes that it used from
    /// `left`.
    fn cache(&self, name: &str, left: &mut &[Term]) -> Option<String> {
        let (_, cache) = CACHES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name))?;
        let (mut operation, mut result) = ("loads", "refs");
        while let [Term { name, value: None, .. }, rest @ ..] = *left {
            match name.to_ascii_uppercase().as_str() {
                "READ" => operation = "load",
                "WRITE" => operation = "store",
                "PREFETCH" => operation = "prefetch",
                "ACCESS" => result = "refs",
                "MISS" => result = "misses",
                _ => break,
            }
            *left = rest;
        }
        Some(format!("{cache}-{operation}-{result}"))
    }
}

/// The modifiers that attributes such as `:u:k=0` stand for. In libpfm4 an attribute can switch a
/// mode off, too.
fn modifiers(attributes: &[Term]) -> Result<Modifiers, Trouble> {
    let mut m = Modifiers::default();
    let (mut on, mut off) = ([false; 3], [false; 3]);
    for term in attributes {
        let wrong = |problem: &str| {
            let kind = NameErrorKind::Value { text: term.to_string(), problem: problem.to_owned() };
            Trouble::new(kind).at(term.at)
        };
        let set = match term.value.as_deref().unwrap_or("1").to_ascii_lowercase().as_str() {
            "1" | "y" | "t" => true,
            "0" | "n" | "f" => false,
            _ => return Err(wrong("an attribute is 0 or 1")),
        };
        let mode = |i: usize, on: &mut [bool; 3], off: &mut [bool; 3]| {
            on[i] = set;
            off[i] = !set;
        };
        match term.name.to_ascii_lowercase().as_str() {
            "u" => mode(0, &mut on, &mut off),
            "k" => mode(1, &mut on, &mut off),
            "h" => mode(2, &mut on, &mut off),
            "mg" => m.guest = set,
            "mh" => m.host = set,
            "pinned" => m.pinned = set,
            "excl" => m.exclusive = set,
            "period" | "freq" | "precise" | "hw_smpl" => {
                return Err(wrong("an attribute of sampling means nothing when counting"));
            }
            "cpu" => return Err(wrong("threads are counted, wherever they run")),
            _ => {
                let (pmu, term_name) = ("perf::".into(), term.name.clone());
                let kind = NameErrorKind::UnknownTerm { pmu, term: term_name };
                return Err(Trouble::new(kind).at(term.at).because(NameCause::PerfAttribute));
            }
        }
    }
    // If modes are only switched off, all other modes count.
    if !on.contains(&true) && off.contains(&true) {
        on = off.map(|off| !off);
        if !on.contains(&true) {
            let problem = "nothing is left to count".into();
            let text = attributes.iter().map(Term::to_string).collect::<Vec<_>>().join(":");
            return Err(Trouble::new(NameErrorKind::Value { text, problem }));
        }
    }
    [m.user, m.kernel, m.hypervisor] = on;
    Ok(m)
}
