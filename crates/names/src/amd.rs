//! Resolves AMD's own names for the counters of Zen 4 cores. IREE's original call hook (an older
//! profiler, which Counterpoint replaces) also accepted these names.
//!
//! Source: AMD's "Processor Programming Reference for Family 19h Model 11h", section on core
//! performance monitor counters, with the spelling of perf's tables (Linux 6.12,
//! `tools/perf/pmu-events/arch/x86/amdzen4`). An event number has twelve bits, which are in two
//! places of the configuration: event[7:0] | umask << 8 | event[11:8] << 32. (The original hook
//! added umask · 256 to the event, which selects another counter if the event is above 0xff.)
//!
//! The original hook also had names that begin with `l3_`. Those names are left out, because their
//! counters belong to another PMU (`amd_l3/…/`). That PMU counts the cache of a whole core complex
//! and cannot count a single thread.
//!
//! Zen 3, of the same family, does not have all of these counters. On a processor without the
//! counter, its name is refused: the event number can have another meaning there, and the count
//! would only look right.

use std::sync::OnceLock;

use model::{PerfAttr, Source, Unit};

use crate::cause::NameCause;
use crate::error::NameErrorKind;
use crate::source::{Entry, NameSource, Resolved, Trouble};
use crate::syntax::Head;
use machine::Machine;

const TYPE_RAW: u32 = 4;
const FAMILY: &str = "25";
/// Events that Zen 3 does not have: the events in libpfm4 4.13's table `amd64_fam19h_zen4` that are
/// not in `amd64_fam19h_zen3`.
const NOT_ON_ZEN3: [u16; 13] =
    [0x02, 0x08, 0x0a, 0x0b, 0x0c, 0x0d, 0xd6, 0x120, 0x1a0, 0x1c1, 0x1c2, 0x1c8, 0x1c9];

struct Known {
    name: &'static str,
    event: u16,
    config: u64,
    unit: Unit,
    description: &'static str,
}

fn config(event: u16, mask: u8) -> u64 {
    let event = u64::from(event);
    event & 0xff | u64::from(mask) << 8 | (event >> 8) << 32
}

fn table() -> &'static [Known] {
    static TABLE: OnceLock<Vec<Known>> = OnceLock::new();
    // tests/amd.rs checks that no row is left out.
    TABLE.get_or_init(|| include_str!("amd.txt").lines().filter_map(row).collect())
}

fn row(line: &'static str) -> Option<Known> {
    let mut fields = line.splitn(5, ' ');
    let (name, event, mask) = (fields.next()?, fields.next()?, fields.next()?);
    let (event, mask) = (u16::from_str_radix(event, 16).ok()?, u8::from_str_radix(mask, 16).ok()?);
    let unit = if fields.next()? == "cycles" { Unit::Cycles } else { Unit::Count };
    Some(Known { name, event, config: config(event, mask), unit, description: fields.next()? })
}

/// Whether a model of family 19h is Zen 3 (perf's `mapfile.csv`).
fn is_zen3(model: &str) -> bool {
    model.parse::<u32>().is_ok_and(|model| matches!(model >> 4, 0 | 2 | 4 | 5))
}

/// Returns the event of a PAPI preset for floating-point operations on this processor. The event is
/// 0x03 on processors from Zen on, but the unit masks differ: the first generation has one for each
/// precision, later generations have one for each operation, and Zen 4 has one more, for bfloat16.
/// Kernels before 5.6 count the event wrongly. It can grow by more than 15 in a cycle. For such an
/// event, the kernel must combine two of the processor's counters, and these kernels do not.
///
/// Sources: `papi_events.csv` of PAPI for Zen 1 to 3 (RETIRED_SSE_AVX_OPERATIONS,
/// RETIRED_SSE_AVX_FLOPS:ANY), libpfm4 4.13 for Zen 4, `amdzen5/floating-point.json` of Linux 6.12
/// for Zen 5; models as in the kernel's `bsp_init_amd` (Linux 6.18).
pub(crate) fn papi(preset: &str, machine: &Machine) -> Option<Resolved> {
    let field = |key| machine.field("proc/cpuinfo", key);
    let number = |key| field(key)?.parse::<u32>().ok();
    let vendor = field("vendor_id")?;
    let (family, model) = (number("cpu family")?, number("model")?);
    let mask = match (vendor.as_str(), family, model, preset) {
        ("AuthenticAMD", 0x17, 0..=0x2f, _) | ("HygonGenuine", 0x18, _, _) => match preset {
            "PAPI_FP_OPS" => 0xff,
            "PAPI_SP_OPS" => 0x0f,
            "PAPI_DP_OPS" => 0xf0,
            _ => return None,
        },
        ("AuthenticAMD", 0x17, _, "PAPI_FP_OPS") => 0x0f,
        ("AuthenticAMD", 0x19, _, "PAPI_FP_OPS") if is_zen3(&model.to_string()) => 0x0f,
        ("AuthenticAMD", 0x19, _, "PAPI_FP_OPS") => 0x1f,
        ("AuthenticAMD", 0x1a, 0..=0x4f | 0x60..=0x7f, "PAPI_FP_OPS") => 0x0f,
        _ => return None,
    };
    let attr = PerfAttr { kind: TYPE_RAW, config: config(0x03, mask), ..PerfAttr::default() };
    Some(Resolved::new(Source::Perf(attr), Unit::Count))
}

pub(crate) struct Amd(pub Machine);

impl NameSource for Amd {
    fn resolve(&self, head: &Head) -> Option<Result<Vec<Resolved>, Trouble>> {
        let Head::Word(word) = head else { return None };
        let known = table().iter().find(|k| k.name == *word)?;
        let field = |key| self.0.field("proc/cpuinfo", key).unwrap_or_default();
        let (vendor, family) = (field("vendor_id"), field("cpu family"));
        let here = match (vendor.as_str(), family.as_str()) {
            ("AuthenticAMD", FAMILY) if !is_zen3(&field("model")) => Ok(()),
            ("AuthenticAMD", FAMILY) if !NOT_ON_ZEN3.contains(&known.event) => Ok(()),
            ("AuthenticAMD", FAMILY) => Err("Zen 3".to_owned()),
            ("", _) => Err("of an unknown vendor".to_owned()),
            _ => Err(format!("{vendor} family {family}")),
        };
        if let Err(here) = here {
            let problem = format!(
                "this is a counter of AMD's Zen 4 (family 19h), but this processor is {here}"
            );
            let trouble = Trouble::new(NameErrorKind::Value { text: word.clone(), problem });
            return Some(Err(trouble.because(NameCause::OtherProcessor)));
        }
        let attr = PerfAttr { kind: TYPE_RAW, config: known.config, ..PerfAttr::default() };
        Some(Ok(vec![Resolved::new(Source::Perf(attr), known.unit)]))
    }

    fn entries(&self) -> Vec<Entry> {
        let entry = |k: &Known| Entry::new(k.name, "AMD", k.unit, k.description);
        table().iter().map(entry).collect()
    }
}
