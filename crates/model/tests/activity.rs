//! Tests activity kinds: published names, names that are registered, and lists.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use model::activity::{
    DefaultSet, FlowKind, Generic, Kind, Label, Published, RegisterError, Registry, UnknownKind,
    Vocabulary, names,
};

/// The names were transcribed from Kineto's enumerations and not from the table under test: pull
/// request #1212 (names and aliases), #1148 (constants without their prefix), and main (constants).
const PR_1212: &str = "cpu_op user_annotation gpu_user_annotation gpu_memcpy gpu_memset kernel \
    external_correlation runtime driver cpu_instant_event python_function overhead \
    collective_comm gpu_pm_counter mtia_insight cuda_sync cuda_event cuda_profiler_range \
    cuda_runtime mtia_runtime glow_runtime xpu_runtime privateuse1_runtime hpu_op cuda_driver \
    privateuse1_driver mtia_ccp_events";
const PR_1148: &str = "CPU_OP USER_ANNOTATION GPU_USER_ANNOTATION GPU_MEMCPY GPU_MEMSET \
    CONCURRENT_KERNEL EXTERNAL_CORRELATION CUDA_RUNTIME CUDA_DRIVER CPU_INSTANT_EVENT \
    PYTHON_FUNCTION OVERHEAD MTIA_RUNTIME MTIA_CCP_EVENTS MTIA_INSIGHT CUDA_SYNC GLOW_RUNTIME \
    CUDA_PROFILER_RANGE HPU_OP XPU_RUNTIME COLLECTIVE_COMM GPU_PM_COUNTER PRIVATEUSE1_RUNTIME \
    PRIVATEUSE1_DRIVER";
const MAIN: &str = "CPU_OP USER_ANNOTATION GPU_USER_ANNOTATION GPU_MEMCPY GPU_MEMSET \
    CONCURRENT_KERNEL EXTERNAL_CORRELATION CUDA_RUNTIME CUDA_DRIVER CPU_INSTANT_EVENT \
    PYTHON_FUNCTION OVERHEAD MTIA_RUNTIME MTIA_CCP_EVENTS MTIA_INSIGHT CUDA_SYNC CUDA_EVENT \
    MTIA_COUNTERS GLOW_RUNTIME CUDA_PROFILER_RANGE HPU_OP XPU_RUNTIME XPU_DRIVER \
    COLLECTIVE_COMM PRIVATEUSE1_RUNTIME PRIVATEUSE1_DRIVER XPU_SCOPE_PROFILER XPU_SYNC \
    HARDWARE_COUNTERS";

/// The generic kinds with their names, from the specification and not from the table under test.
const MEANING: &[(&str, &str)] = &[
    ("cpu_op", "cpu_op"),
    ("user_annotation", "user_annotation"),
    ("gpu_user_annotation", "gpu_user_annotation"),
    ("memcpy", "memcpy gpu_memcpy"),
    ("memset", "memset gpu_memset"),
    ("kernel", "kernel concurrent_kernel mtia_ccp_events"),
    ("external_correlation", "external_correlation"),
    (
        "runtime",
        "runtime cuda_runtime mtia_runtime glow_runtime xpu_runtime privateuse1_runtime hpu_op",
    ),
    ("driver", "driver cuda_driver xpu_driver privateuse1_driver"),
    ("cpu_instant", "cpu_instant cpu_instant_event"),
    ("python_function", "python_function"),
    ("overhead", "overhead"),
    ("sync", "sync cuda_sync xpu_sync"),
    ("device_event", "device_event cuda_event cuda_profiler_range"),
    ("collective", "collective collective_comm"),
    ("insight", "insight mtia_insight"),
    ("counter", "counter gpu_pm_counter mtia_counters xpu_scope_profiler hardware_counters"),
];

#[test]
fn every_published_name_parses() {
    let registry = Registry::new();
    for (list, published) in
        [(PR_1212, Published::Pr1212), (PR_1148, Published::Pr1148), (MAIN, Published::Main)]
    {
        for name in list.split_whitespace() {
            let label = registry.parse(name);
            assert!(label.is_some(), "{name} of {published:?}");
            let lower = name.to_ascii_lowercase();
            assert_eq!(registry.original(label.unwrap()), lower);
            assert!(names::names(published).any(|n| n == lower), "{name} not in {published:?}");
        }
    }
    // Each published list has one more name than the constant in this test, because it has both
    // `kernel` and `concurrent_kernel`.
    for (list, published, more) in [
        (PR_1212, Published::Pr1212, 1),
        (PR_1148, Published::Pr1148, 1),
        (MAIN, Published::Main, 1),
    ] {
        assert_eq!(names::names(published).count(), list.split_whitespace().count() + more);
    }
}

#[test]
fn names_have_the_right_kind_and_are_kept() {
    let registry = Registry::new();
    assert_eq!(MEANING.len(), Generic::ALL.len());
    for (number, (generic, all)) in MEANING.iter().enumerate() {
        let kind = Generic::from_u8(number as u8).unwrap();
        assert_eq!(kind.name(), *generic);
        for name in all.split_whitespace() {
            let label = registry.parse(name).unwrap();
            assert_eq!(registry.kind(label), Kind::Generic(kind), "{name}");
            assert_eq!(registry.name(label, Vocabulary::Generic), *generic, "{name}");
            let kineto = registry.name(label, Vocabulary::Kineto);
            if name == *generic {
                assert_eq!(kineto, kind.kineto_name());
                // The name in Kineto's vocabulary also means this kind.
                assert_eq!(registry.kind(registry.parse(kineto).unwrap()), kind.into());
            } else {
                assert_eq!(kineto, name);
            }
        }
    }
    assert_eq!(Generic::from_u8(17), None);
}

#[test]
fn defaults_are_those_of_the_lists() {
    let of = |set: DefaultSet| set.kinds().map(Generic::name).collect::<Vec<_>>().join(" ");
    // The default list of #1212 has seventeen entries. Two of these, MTIA_RUNTIME and
    // MTIA_CCP_EVENTS, have the same kinds as other entries.
    assert_eq!(
        of(DefaultSet::Generic),
        "cpu_op user_annotation gpu_user_annotation memcpy memset kernel external_correlation \
         runtime driver cpu_instant python_function overhead sync device_event insight"
    );
    assert_eq!(of(DefaultSet::Pr1148), of(DefaultSet::Generic).replace(" device_event", ""));
    assert_eq!(of(DefaultSet::Main), of(DefaultSet::Generic) + " counter");
}

#[test]
fn errors_of_lists_name_the_unknown_word_and_its_place() {
    let registry = Registry::new();
    let kinds = |list: &str| {
        registry.parse_list(list).map(|labels| {
            labels.iter().map(|l| registry.name(*l, Vocabulary::Generic).to_owned()).collect()
        })
    };
    let list: Result<Vec<String>, UnknownKind> = kinds("runtime, driver,kernel");
    assert_eq!(list.unwrap(), ["runtime", "driver", "kernel"]);
    assert_eq!(kinds(" ").unwrap(), Vec::<String>::new());
    let unknown = |name: &str, at| Err(UnknownKind { name: name.to_owned(), at });
    assert_eq!(kinds("runtime, cuda_runtim ,kernel"), unknown("cuda_runtim", 9));
    assert_eq!(kinds("kernel,,driver"), unknown("", 7));
    assert_eq!(kinds("é,kernel"), unknown("é", 0));
    assert_eq!(kinds("kernel,é,ü"), unknown("é", 7));
    assert_eq!(kinds("x").unwrap_err().to_string(), "activity kind \"x\" at byte 0: unknown");
}

#[test]
fn registered_kinds_have_numbers_of_their_producer() {
    let mut registry = Registry::new();
    let one = registry.producer("one").unwrap();
    let two = registry.producer("two").unwrap();
    assert_eq!(registry.producer("one"), Ok(one));
    let a = registry.register(two, "workgroup", Some("cpu_op")).unwrap();
    let b = registry.register(one, "graph", None).unwrap();
    let c = registry.register(one, "graph_2", None).unwrap();
    assert_eq!([a, b, c].map(Label::number), [0x2_0000, 0x1_0000, 0x1_0001]);
    assert_eq!(registry.kind(a), Kind::Registered(0x2_0000));
    assert_eq!(registry.name(a, Vocabulary::Generic), "workgroup");
    assert_eq!(registry.name(a, Vocabulary::Kineto), "cpu_op");
    assert_eq!(registry.name(b, Vocabulary::Kineto), "graph");
    assert_eq!(registry.parse_list("graph,workgroup"), Ok(vec![b, a]));
    assert_eq!(registry.register(two, "graph", None), Err(RegisterError::Taken(b)));
    assert_eq!(registry.register(two, "KERNEL", None), {
        Err(RegisterError::Taken(Generic::Kernel.into()))
    });
    for bad in ["", " x", "a,b"] {
        assert_eq!(registry.register(one, bad, None), Err(RegisterError::BadName), "{bad:?}");
    }
    for i in 0..0xfffe {
        registry.register(one, &format!("k{i}"), None).unwrap();
    }
    assert_eq!(registry.register(one, "one too many", None), Err(RegisterError::Full));
}

/// torch before 1.12 wrote `Kernel` and `Runtime`.
#[test]
fn names_in_files_are_kept_exactly() {
    let mut registry = Registry::new();
    let file = registry.producer("file").unwrap();
    let kernel = registry.note(file, "Kernel").unwrap();
    assert_eq!(registry.kind(kernel), Generic::Kernel.into());
    assert_eq!(registry.original(kernel), "Kernel");
    assert_eq!(registry.name(kernel, Vocabulary::Kineto), "Kernel");
    assert_eq!(registry.name(kernel, Vocabulary::Generic), "kernel");
    assert_eq!(registry.note(file, "Kernel"), Ok(kernel));
    assert_eq!(registry.note(file, "kernel"), Ok(Generic::Kernel.into()));
    // Names that a list separated by commas cannot contain are valid in files.
    let odd = registry.note(file, "a, b").unwrap();
    assert_eq!(registry.original(odd), "a, b");
    assert!(matches!(registry.kind(odd), Kind::Registered(_)));
    assert_eq!(registry.note(file, ""), Ok(registry.parse("").unwrap()));
}

#[test]
fn flows_have_kinetos_names() {
    for name in ["fwdbwd", "ac2g", "mine"] {
        assert_eq!(FlowKind::from_name(name).name(), name);
    }
    assert_eq!(FlowKind::from_name("ac2g"), FlowKind::HostToDevice);
}
