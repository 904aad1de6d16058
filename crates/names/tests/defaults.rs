//! Tests the counters of a recording without `-e`.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use machine::Machine;
use model::{SimReading, SimScript, Source, Unit};
use names::defaults::{Defaults, VariableError, VariableProblem, asked, of_devices};
use names::devices::{DeviceKind, DeviceSource, Devices, KINDS, Missing};
use names::{Called, Entry, NameCause, NameErrorKind, Resolved, Resolver, Trouble};
use testkit::counting::*;

fn of(
    kinds: &[&str],
    variables: &[(&str, &str)],
    devices: Devices,
) -> Result<Defaults, VariableError> {
    let machine = Machine::here();
    let kinds: Vec<_> = kinds.iter().map(|name| DeviceKind::named(name).unwrap()).collect();
    let variable = |name: &str| {
        variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
    };
    let resolver = Resolver::new(&machine).with(Box::new(test_devices()));
    of_devices(&kinds, &variable, &resolver, &devices, &machine)
}

fn names(set: &Defaults) -> Vec<(&str, u16)> {
    set.counters.iter().map(|c| (c.name.as_str(), c.group)).collect()
}

/// An accelerator whose counter has scripted values.
struct Toy;

impl DeviceSource for Toy {
    fn component(&self) -> &str {
        "toy"
    }

    fn available(&self) -> Result<(), Missing> {
        Ok(())
    }

    fn resolve(&self, name: &str) -> Result<Vec<Resolved>, Trouble> {
        let readings = vec![SimReading { add: 1, ..SimReading::default() }];
        let source = Source::Sim(SimScript { readings });
        let name = Called::Exactly(format!("toy:::{name}"));
        Ok(vec![Resolved { name, ..Resolved::new(source, Unit::Cycles) }])
    }

    fn entries(&self) -> Vec<Entry> {
        vec![Entry::new("toy:::cycles", "device toy", Unit::Cycles, "what it is")]
    }
}

fn test_devices() -> Devices {
    Devices::known().with(Box::new(Toy))
}

#[test]
fn a_source_of_an_accelerator() {
    let resolver = Resolver::new(&Machine::here()).with(Box::new(test_devices()));
    // Without the devices of this test, `toy` is unknown.
    let error = Resolver::new(&Machine::here()).resolve("toy:::cycles").unwrap_err();
    let Some(NameCause::Components(all)) = error.cause else { panic!("{error:?}") };
    assert_eq!(all[0], "cuda");
    assert!(resolver.catalogue().iter().any(|entry| entry.name == "toy:::cycles"));
    let toy = test_devices();
    assert_eq!(toy.source("TOY").unwrap().available(), Ok(()));
    assert_eq!(toy.source("toy").unwrap().resolve("cycles").unwrap()[0].unit, Unit::Cycles);
}

#[test]
fn a_device_without_a_source_is_skipped_with_one_sentence() {
    let set = of(&["cuda"], &[], Devices::known()).unwrap();
    assert_eq!((names(&set), set.notes.len(), set.skipped.len()), (vec![], 0, 1));
    let sentence = set.skipped[0].to_string();
    assert!(sentence.starts_with("no counters of cuda: "), "{sentence}");
    assert!(sentence.contains("libcupti.so"), "{sentence}");
    assert_eq!(set.skipped[0].component, "cuda");
    let set = of(&["rocm"], &[("TVM_PAPI_ROCM_METRICS", "rocm:::SQ_WAVES")], Devices::known());
    assert!(set.unwrap().skipped[0].missing.what.contains("librocprofiler64.so"));
    // In a list for `-e`, a counter that cannot be counted is an error.
    let error = Resolver::new(&Machine::here())
        .resolve("cs,cuda:::event:elapsed_cycles_sm:device=0")
        .unwrap_err();
    let expected = "counter list, byte 3: no counters of cuda here: this version cannot count with \
                    libcupti.so (CUPTI, part of NVIDIA's CUDA toolkit)";
    assert_eq!(error.to_string(), expected);
    assert!(matches!(error.kind, NameErrorKind::NoSource { device, .. } if device == "cuda"));
}

#[test]
fn variables_beat_the_sets() {
    if !can_count() {
        return;
    }
    let ours = ("COUNTERPOINT_CPU_METRICS", "page-faults:u; perf::TASK-CLOCK:u;");
    let tvms = ("TVM_PAPI_CPU_METRICS", "minor-faults:u");
    let set = of(&["cpu"], &[ours, tvms], Devices::known()).unwrap();
    assert_eq!(names(&set), [("page-faults:u", 0), ("perf::TASK-CLOCK:u", 0)]);
    let set = of(&["cpu"], &[tvms], Devices::known()).unwrap();
    assert_eq!(names(&set), [("minor-faults:u", 0)]);
    // An empty list stands for no counters, and not for the defaults.
    let set = of(&["cpu"], &[("COUNTERPOINT_CPU_METRICS", "")], Devices::known()).unwrap();
    assert_eq!(names(&set), []);
    // The counters of `cpu_pinned` (pinned memory) are also counters of the processor. A counter of
    // both lists is counted once.
    let pinned = ("COUNTERPOINT_CPU_PINNED_METRICS", "minor-faults:u;major-faults:u");
    let set = of(&["cpu", "cpu_pinned"], &[tvms, pinned], Devices::known()).unwrap();
    assert_eq!(names(&set), [("minor-faults:u", 0), ("major-faults:u", 1)]);
}

#[test]
fn a_wrong_variable_is_an_error_with_a_place() {
    let error = of(&["cpu"], &[("TVM_PAPI_CPU_METRICS", "cs;cycels")], Devices::known());
    let error = error.unwrap_err();
    assert_eq!(
        error.to_string(),
        "TVM_PAPI_CPU_METRICS=cs;cycels: counter list, byte 3: unknown counter \"cycels\""
    );
    let VariableProblem::Name(name) = *error.problem else { panic!("{error:?}") };
    assert_eq!(name.cause, Some(NameCause::Near(vec!["cycles".into()])));
    let error = of(&["cpu"], &[("COUNTERPOINT_CPU_METRICS", "cs:u")], Devices::known());
    assert!(error.unwrap_err().to_string().contains("cs:u is always 0"));
}

#[test]
fn which_devices_are_asked() {
    let asked = |set: &'static [&'static str]| {
        let kinds = asked(&|name: &str| set.contains(&name).then(String::new));
        kinds.iter().map(|kind| kind.name).collect::<Vec<_>>()
    };
    assert_eq!(asked(&[]), ["cpu"]);
    let set = &["TVM_PAPI_CUDA_METRICS", "COUNTERPOINT_CUDA_HOST_METRICS"];
    assert_eq!(asked(set), ["cpu", "cuda_host", "cuda"]);
}

/// The default sets must equal those of TVM's original collectors.
#[test]
fn kinds() {
    let cpu = [
        "cycles",
        "stalled-cycles-frontend",
        "stalled-cycles-backend",
        "instructions",
        "cache-misses",
    ];
    for name in ["cpu", "cpu_pinned", "cuda_host", "CPU", "llvm"] {
        assert_eq!(DeviceKind::named(name).unwrap().defaults, cpu, "{name}");
    }
    let cuda = DeviceKind::named("gpu").unwrap();
    assert_eq!(
        (cuda.name, cuda.defaults),
        ("cuda", &["cuda:::event:elapsed_cycles_sm:device=0"][..])
    );
    assert_eq!(DeviceKind::named("abacus"), None);
    assert!(KINDS.iter().all(|kind| kind.name == kind.name.to_lowercase()));
}
