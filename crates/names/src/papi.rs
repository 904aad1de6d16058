//! Resolves names in the spelling of PAPI and libpfm4: `perf::CYCLES`, and the presets `PAPI_*`
//! that are one generic counter or one event of AMD's processors.
//!
//! Sources: `pfmlib_perf_event` of libpfm4 4.13 for names and attributes; `papiStdEventDefs.h` and
//! `papi_events.csv` of PAPI 7.0 for the meaning of presets. By default, PAPI counts only in user
//! mode. Here, a counter without modifiers counts in all modes.

use model::Unit;

use crate::amd;
use crate::cause::NameCause;
use crate::error::NameErrorKind;
use crate::generic::{self, Numbers};
use crate::source::{Entry, NameSource, Resolved, Trouble};
use crate::syntax::{Head, Modifiers, Term};
use machine::Machine;
use model::suggest;

/// Intel's counters of one floating-point precision, each with a weight: the number of elements in
/// its vectors. (Intel's SDM, volume 3, FP_ARITH_INST_RETIRED; a fused multiply-add counts twice.)
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

/// Presets of floating-point operations. Some of AMD's processors have an event for such a preset
/// ([`amd::papi`]). On other processors, the preset is an error with the cause in the second
/// column.
const FLOATING: &[(&str, NameCause)] = &[
    ("PAPI_FP_OPS", NameCause::Precisions(&["PAPI_SP_OPS", "PAPI_DP_OPS"])),
    ("PAPI_SP_OPS", intel!("single", 4, 8, 16)),
    ("PAPI_DP_OPS", intel!("double", 2, 4, 8)),
];
const SUM: &str = "a sum of several counters";
const DIFFERS: &str = "the nearest generic counter counts something else on some processors";
const VENDOR: &str = "no generic counter is similar";

/// Returns the rows of `papi.txt` that begin with this word: name, and the rest of the line.
fn rows(word: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    include_str!("papi.txt").lines().filter_map(move |line| {
        let row = line.strip_prefix(word)?.strip_prefix(' ')?;
        Some(row.split_once(' ').unwrap_or((row, "")))
    })
}

/// Returns the rest of the row with this name. The case of the name does not matter.
fn row(word: &str, name: &str) -> Option<&'static str> {
    rows(word).find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, rest)| rest)
}

/// Returns why a preset is not a single generic counter, and the nearest generic counters.
fn inexact(preset: &str) -> Option<(&'static str, &'static str)> {
    let words = [("sum", SUM), ("differs", DIFFERS), ("vendor", VENDOR)];
    let known = words.into_iter().find_map(|(word, why)| Some((why, row(word, preset)?)));
    known.or_else(|| row("other", preset)?.split_once(": ").map(|(near, why)| (why, near)))
}

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
        let presets = rows("exact").filter_map(|(preset, name)| {
            let unit = generic::numbers(name)?.unit;
            Some(Entry::new(preset, "PAPI", unit, format!("PAPI's name for {name}")))
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
        if let Some(name) = row("exact", word) {
            // tests/papi.rs checks that the names in the table are generic ones.
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
        let Some((why, near)) = inexact(word) else {
            let known = rows("exact").map(|(preset, _)| preset);
            let near = suggest::closest(word, known);
            let cause = match near.is_empty() {
                true => NameCause::NoSuchPreset,
                false => NameCause::Near(near.into_iter().map(str::to_owned).collect()),
            };
            return Err(Trouble::new(NameErrorKind::Unknown { name: word.into() }).because(cause));
        };
        let cause = match near {
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
            None => row("kernel", name)
                .and_then(|numbers| {
                    let (kind, config) = numbers.split_once(' ')?;
                    let name = generic::name_of(kind.parse().ok()?, config.parse().ok()?)?;
                    generic::numbers(name)
                })
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

    /// Returns perf's name of a cache event such as `PERF_COUNT_HW_CACHE_L1D:READ:MISS`, and
    /// removes the attributes that belong to that name from `left`.
    fn cache(&self, name: &str, left: &mut &[Term]) -> Option<String> {
        let cache = row("cache", name)?;
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

/// Returns the modifiers that attributes such as `:u:k=0` stand for. In libpfm4, an attribute can
/// also switch a mode off.
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
    // If modes are only switched off, the others are counted.
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
