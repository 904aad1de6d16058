//! Tests names in the spelling of PAPI and libpfm4. oracle.rs compares them with libpfm4 itself.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use machine::Machine;
use model::{PerfAttr, Source};
use names::{NameCause, Resolver};

fn bare() -> Resolver {
    Resolver::new(&Machine::at("/nonexistent"))
}

fn attr(text: &str) -> PerfAttr {
    match bare().resolve(text).unwrap_or_else(|e| panic!("{text}: {e}")).remove(0).source {
        Source::Perf(attr) => attr,
        Source::Sim(_) => panic!("{text} is simulated"),
    }
}

#[test]
fn the_same_as_perfs() {
    for (papi, perf) in [
        ("perf::CYCLES", "cycles"),
        ("perf::cpu-cycles", "cycles"),
        ("PERF::INSTRUCTIONS", "instructions"),
        ("perf::STALLED-CYCLES-FRONTEND", "stalled-cycles-frontend"),
        ("perf::STALLED-CYCLES-BACKEND", "stalled-cycles-backend"),
        ("perf::CACHE-MISSES", "cache-misses"),
        ("perf::L1-DCACHE-LOAD-MISSES", "L1-dcache-load-misses"),
        ("perf::DTLB-STORES", "dTLB-stores"),
        ("perf::PAGE-FAULTS", "page-faults"),
        ("perf::PERF_COUNT_HW_CPU_CYCLES", "cycles"),
        ("perf::PERF_COUNT_SW_PAGE_FAULTS_MIN", "minor-faults"),
        ("perf::PERF_COUNT_HW_CACHE_L1D:READ:MISS", "L1-dcache-load-misses"),
        ("perf::PERF_COUNT_HW_CACHE_DTLB:WRITE:ACCESS", "dTLB-stores"),
        ("perf::PERF_COUNT_HW_CACHE_LL:PREFETCH:MISS:u", "LLC-prefetch-misses:u"),
        ("perf::CYCLES:u", "cycles:u"),
        ("perf::CYCLES:u=1:k=1", "cycles:uk"),
        ("perf::CYCLES:u:k:h", "cycles:ukh"),
        ("perf::CYCLES:k=0", "cycles:uh"),
        ("perf::CYCLES:u=0:k=1", "cycles:k"),
        ("perf::CYCLES:u:mh", "cycles:uH"),
        ("perf::CYCLES:pinned", "cycles:D"),
        ("perf::CYCLES:pinned=0", "cycles"),
        ("PAPI_TOT_CYC", "cycles"),
        ("papi_tot_ins:u", "instructions:u"),
        ("PAPI_BR_MSP", "branch-misses"),
        ("PAPI_L1_DCM", "L1-dcache-load-misses"),
        ("PAPI_TLB_IM", "iTLB-load-misses"),
    ] {
        assert_eq!(attr(papi), attr(perf), "{papi}");
        assert_eq!(bare().resolve(papi).unwrap()[0].name, papi);
    }
}

#[test]
fn groups_and_the_unit() {
    let counters = bare().resolve("{perf::CYCLES:u,PAPI_TOT_INS}:k,perf::TASK-CLOCK").unwrap();
    let rows: Vec<_> = counters.iter().map(|c| (c.name.as_str(), c.unit.name(), c.group)).collect();
    assert_eq!(
        rows,
        [
            ("perf::CYCLES:u:k", "cycles", 0),
            ("PAPI_TOT_INS:k", "count", 0),
            ("perf::TASK-CLOCK", "ns", 1)
        ]
    );
    let Source::Perf(attr) = &counters[0].source else { panic!("simulated") };
    assert!(!attr.exclude_user && !attr.exclude_kernel && attr.exclude_hv);
}

#[test]
fn what_is_refused() {
    #[rustfmt::skip]
    let golden: &[(&str, usize, &str, &str)] = &[
        ("PAPI_L1_TCM", 0, "\"PAPI_L1_TCM\": the PAPI preset has no single generic counter: a sum of several counters",
         "NearestPreset(\"L1-dcache-load-misses and L1-icache-load-misses\")"),
        ("cs,PAPI_L3_TCM", 3, "\"PAPI_L3_TCM\": the PAPI preset has no single generic counter: the nearest generic counter counts something else on some processors",
         "NearestPreset(\"cache-misses\")"),
        ("PAPI_FP_OPS", 0, "\"PAPI_FP_OPS\": this processor has no single counter for the PAPI preset",
         "Precisions([\"PAPI_SP_OPS\", \"PAPI_DP_OPS\"])"),
        ("PAPI_FP_INS", 0, "\"PAPI_FP_INS\": the PAPI preset has no single generic counter: no generic counter is similar",
         "VendorOnly"),
        ("PAPI_TOT_ISN", 0, "unknown counter \"PAPI_TOT_ISN\"", "Near([\"PAPI_TOT_INS\", \"PAPI_TOT_CYC\", \"PAPI_BR_INS\"])"),
        ("PAPI_ZZZZZZ_ZZZZZZ", 0, "unknown counter \"PAPI_ZZZZZZ_ZZZZZZ\"", "NoSuchPreset"),
        ("perf::CYCELS", 0, "unknown counter \"perf::CYCELS\"", "Near([\"perf::CYCLES\"])"),
        ("perf::CYCLES:x", 13, "perf:: has no event or term \"x\"", "PerfAttribute"),
        ("perf::CYCLES:u=2", 13, "\"u=2\": an attribute is 0 or 1", ""),
        ("perf::CYCLES:u=0:k=0:h=0", 0, "\"u=0:k=0:h=0\": nothing is left to count", ""),
        ("perf::CYCLES:period=7", 13, "\"period=7\": an attribute is 0 or 1", ""),
        ("perf::CYCLES:precise", 13, "\"precise\": an attribute of sampling means nothing when counting", ""),
        ("spr::INST_RETIRED:ANY", 0, "\"spr::INST_RETIRED\": libpfm4's names for single processors are not supported",
         "VendorSpelling"),
        ("quark:::strange", 0, "unknown counter \"quark:::strange\"", "Components([\"cuda\", \"rocm\", \"opencl\", \"vulkan\", \"metal\", \"intel_gpu\"])"),
        ("perf_event:::CYCLES", 0, "unknown counter \"perf_event:::CYCLES\"", "NoComponent"),
    ];
    for &(text, at, message, cause) in golden {
        let error = bare().resolve(text).err().unwrap_or_else(|| panic!("{text:?} is accepted"));
        let found = error.cause.as_ref().map_or_else(String::new, |cause| format!("{cause:?}"));
        let expected = format!("counter list, byte {at}: {message}");
        assert_eq!(
            (error.at, error.to_string(), found.as_str()),
            (at, expected, cause),
            "{text:?}"
        );
    }
}

#[test]
fn every_preset_resolves() {
    let entries = bare().catalogue();
    let presets: Vec<_> = entries.iter().filter(|e| e.name.starts_with("PAPI_")).collect();
    assert!(presets.len() >= 14);
    for entry in presets {
        let counters = bare().resolve(&entry.name).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((counters.len(), counters[0].unit), (1, entry.unit), "{}", entry.name);
    }
}

/// The numbers for Zen 5 are from the kernel's `amdzen5/floating-point.json`. The others are from
/// libpfm4 4.13, for the presets that PAPI's `papi_events.csv` defines (oracle.rs compares them
/// again).
#[test]
fn floating_point_operations() {
    let tree = testkit::counting::Tree::new("papi-flops");
    for (vendor, family, model, preset, config) in [
        ("AuthenticAMD", 0x17, 0x01, "PAPI_FP_OPS", Some(0xff03)),
        ("AuthenticAMD", 0x17, 0x01, "PAPI_SP_OPS", Some(0x0f03)),
        ("AuthenticAMD", 0x17, 0x18, "papi_dp_ops", Some(0xf003)),
        ("AuthenticAMD", 0x17, 0x31, "PAPI_FP_OPS", Some(0x0f03)),
        ("AuthenticAMD", 0x17, 0x31, "PAPI_SP_OPS", None),
        ("AuthenticAMD", 0x19, 0x01, "PAPI_FP_OPS", Some(0x0f03)),
        ("AuthenticAMD", 0x19, 0x61, "PAPI_FP_OPS", Some(0x1f03)),
        ("AuthenticAMD", 0x1a, 0x02, "PAPI_FP_OPS", Some(0x0f03)),
        // The next row is not Zen 5, and the row after it is of a later family.
        ("AuthenticAMD", 0x1a, 0x50, "PAPI_FP_OPS", None),
        ("AuthenticAMD", 0x1b, 0x02, "PAPI_FP_OPS", None),
        ("GenuineIntel", 0x06, 0x8f, "PAPI_FP_OPS", None),
    ] {
        tree.file(
            "proc/cpuinfo",
            &format!("vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n"),
        );
        let resolver = Resolver::new(&Machine::at(&tree.root));
        let found = resolver.resolve(preset).map(|mut c| c.remove(0));
        let listed = resolver.catalogue().iter().any(|e| e.name.eq_ignore_ascii_case(preset));
        assert_eq!(listed, config.is_some(), "{family:#x} {model:#x} {preset}");
        match (found, config) {
            (Ok(counter), Some(config)) => {
                let expected = PerfAttr { kind: 4, config, ..PerfAttr::default() };
                assert_eq!(counter.source, Source::Perf(expected), "{family:#x} {model:#x}");
                assert_eq!(counter.name, preset);
            }
            (Err(error), None) => assert!(error.cause.is_some(), "{error}"),
            (found, _) => panic!("{family:#x} {model:#x} {preset}: {found:?}"),
        }
    }
}

/// On Intel, each of these presets is a weighted sum of four counters. A counter's weight is the
/// number of elements in the vectors that it counts.
#[test]
fn the_sum_for_intel() {
    for (preset, precision, bits) in [("PAPI_SP_OPS", "single", 32), ("PAPI_DP_OPS", "double", 64)]
    {
        let cause = bare().resolve(preset).unwrap_err().cause;
        let Some(NameCause::WeightedSum(parts)) = cause else { panic!("{cause:?}") };
        let widths = ["scalar", "128b_packed", "256b_packed", "512b_packed"];
        let expected = widths
            .iter()
            .zip([bits, 128, 256, 512])
            .map(|(width, of)| (of / bits, format!("fp_arith_inst_retired.{width}_{precision}")));
        let found = parts.iter().map(|(weight, name)| (*weight, (*name).to_owned()));
        assert_eq!(found.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }
}
