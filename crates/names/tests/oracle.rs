//! Compares the meaning of names with their meaning in perf and libpfm4, if these are installed.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::process::Command;

use machine::Machine;
use model::Source;
use names::Resolver;
use testkit::counting::*;

fn generic() -> Vec<String> {
    let resolver = Resolver::new(&Machine::at("/nonexistent"));
    let kinds = ["software", "hardware", "cache"];
    let entries = resolver.catalogue().into_iter().filter(|e| kinds.contains(&e.source.as_str()));
    entries.filter(|e| !e.is_pattern).flat_map(|e| [vec![e.name], e.aliases].concat()).collect()
}

/// The type and config of a perf event, and whether it excludes user mode, kernel and hypervisor.
type Numbers = (u32, u64, [bool; 3]);

fn ours(name: &str) -> Numbers {
    let resolver = Resolver::new(&Machine::at("/nonexistent"));
    let counters = resolver.resolve(name).unwrap_or_else(|e| panic!("{name}: {e}"));
    let Source::Perf(a) = &counters[0].source else { panic!("{name} is simulated") };
    (a.kind, a.config, [a.exclude_user, a.exclude_kernel, a.exclude_hv])
}

#[test]
fn perf_encodes_the_same() {
    let attr = |name: &str| -> Option<Numbers> {
        let output =
            Command::new("perf").args(["stat", "-vv", "-e", name, "true"]).output().ok()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned()
            + &String::from_utf8_lossy(&output.stdout);
        let block = text.split("perf_event_attr:").nth(1)?.split("-----").next()?.to_owned();
        let field = |name: &str| {
            let line = block.lines().find(|l| l.split_whitespace().next() == Some(name));
            let value = line.and_then(|l| l.split_whitespace().nth(1)).unwrap_or("0");
            match value.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).ok(),
                None => value.parse().ok(),
            }
        };
        let excluded =
            ["exclude_user", "exclude_kernel", "exclude_hv"].map(|f| field(f) == Some(1));
        Some((field("type")? as u32, field("config")?, excluded))
    };
    if attr("page-faults").is_none() {
        return skip("perf is not installed, or does not show its attributes");
    }
    let mut compared = 0;
    let more = ["r01c2", "cycles:u", "instructions:k", "cache-misses:uk", "cpu-clock:u"];
    // Names that the installed perf does not know are not compared.
    for name in generic().iter().map(String::as_str).chain(more) {
        let Some(theirs) = attr(name) else { continue };
        assert_eq!(ours(name), theirs, "{name}");
        compared += 1;
    }
    assert!(compared > 50, "only {compared} names were compared");
}

/// `pfm_perf_encode_arg_t` of perfmon/pfmlib_perf_event.h.
#[repr(C)]
struct EncodeArg {
    attr: *mut u64,
    fstr: *mut *mut c_char,
    size: usize,
    idx: c_int,
    cpu: c_int,
    flags: c_int,
}

type Encode = unsafe extern "C" fn(*const c_char, c_int, c_int, *mut c_void) -> c_int;
type Strerror = unsafe extern "C" fn(c_int) -> *const c_char;

struct Pfm {
    encode: Encode,
    strerror: Strerror,
}

impl Pfm {
    fn open() -> Option<Self> {
        // SAFETY: the names are C strings. libpfm4's headers declare the functions with these
        // types, and the library stays loaded.
        unsafe {
            let library = libc::dlopen(c"libpfm.so.4".as_ptr(), libc::RTLD_NOW);
            if library.is_null() {
                return None;
            }
            let symbol = |name: &CStr| {
                let found = libc::dlsym(library, name.as_ptr());
                (!found.is_null()).then_some(found)
            };
            let initialize: unsafe extern "C" fn() -> c_int =
                std::mem::transmute(symbol(c"pfm_initialize")?);
            if initialize() != 0 {
                return None;
            }
            let encode = symbol(c"pfm_get_os_event_encoding")?;
            let strerror = symbol(c"pfm_strerror")?;
            Some(Self {
                encode: std::mem::transmute::<*mut c_void, Encode>(encode),
                strerror: std::mem::transmute::<*mut c_void, Strerror>(strerror),
            })
        }
    }

    fn numbers(&self, name: &str) -> Result<Numbers, String> {
        const OS_PERF_EVENT: c_int = 1;
        // User mode, kernel and hypervisor: the modes of a counter without modifiers.
        const ALL_MODES: c_int = 1 | 8 | 16;
        let mut attr = [0u64; 32];
        let mut arg = EncodeArg {
            attr: attr.as_mut_ptr(),
            fstr: std::ptr::null_mut(),
            size: size_of::<EncodeArg>(),
            idx: 0,
            cpu: 0,
            flags: 0,
        };
        let text = CString::new(name).unwrap();
        // SAFETY: `text` is a C string. `attr`, to which `arg` points, is longer than any
        // `perf_event_attr`, and `arg` contains its own size. Both live through the call.
        let code = unsafe {
            (self.encode)(text.as_ptr(), ALL_MODES, OS_PERF_EVENT, (&raw mut arg).cast())
        };
        if code != 0 {
            // SAFETY: `pfm_strerror` returns a C string that is never freed, for any number.
            let text = unsafe { CStr::from_ptr((self.strerror)(code)) };
            return Err(text.to_string_lossy().into_owned());
        }
        let flag = |bit: u32| attr[5] >> bit & 1 == 1;
        Ok((attr[0] as u32, attr[1], [flag(4), flag(5), flag(6)]))
    }
}

#[test]
fn libpfm4_encodes_the_same() {
    let Some(pfm) = Pfm::open() else { return skip("libpfm4 is not installed") };
    if let Err(why) = pfm.numbers("perf::CYCLES") {
        return skip(&format!("libpfm4 knows no perf::CYCLES here: {why}"));
    }
    // libpfm4 has no mode `h` on processors that it believes to have no hypervisor.
    let hypervisor = pfm.numbers("perf::CYCLES:h").is_ok();
    let said = |(kind, config, [user, kernel, hv]): Numbers| {
        (kind, config, [user, kernel, hv && hypervisor])
    };
    let mut compared = 0;
    let more = [
        "perf::CYCLES:u",
        "perf::CYCLES:k",
        "perf::CYCLES:u=1:k=1",
        "perf::PAGE-FAULTS:u",
        "perf::PERF_COUNT_HW_CPU_CYCLES",
        "perf::PERF_COUNT_SW_PAGE_FAULTS_MIN",
        "perf::PERF_COUNT_HW_CACHE_L1D:READ:MISS",
        "perf::PERF_COUNT_HW_CACHE_DTLB:WRITE:ACCESS",
        "perf::PERF_COUNT_HW_CACHE_BPU:READ:MISS:u",
    ];
    let names = generic().into_iter().map(|name| format!("perf::{}", name.to_ascii_uppercase()));
    for name in names.chain(more.map(str::to_owned)) {
        let Ok(theirs) = pfm.numbers(&name) else { continue };
        assert_eq!(said(ours(&name)), said(theirs), "{name}");
        compared += 1;
    }
    assert!(compared > 50, "only {compared} names were compared");
}

/// Compares PAPI's presets of floating-point operations with libpfm4's encodings, also for
/// processors other than this one.
#[test]
fn libpfm4_encodes_floating_point_operations() {
    let Ok(me) = std::env::current_exe() else { return };
    // libpfm4 reads `LIBPFM_ENCODE_INACTIVE` once in a process, so the test runs itself again in a
    // process that has the variable.
    if std::env::var_os("LIBPFM_ENCODE_INACTIVE").is_none() {
        let name = "libpfm4_encodes_floating_point_operations";
        let status = Command::new(me)
            .args(["--exact", name, "--nocapture"])
            .env("LIBPFM_ENCODE_INACTIVE", "1")
            .status();
        assert!(status.unwrap().success());
        return;
    }
    let Some(pfm) = Pfm::open() else { return skip("libpfm4 is not installed") };
    let zen1 = "amd64_fam17h_zen1::RETIRED_SSE_AVX_OPERATIONS";
    let of = |precision: &str| {
        ["MULT_ADD", "DIV", "MULT", "ADD_SUB"].map(|op| format!("{precision}_{op}_FLOPS")).join(":")
    };
    let any = |zen: &str| format!("{zen}::RETIRED_SSE_AVX_FLOPS:ANY");
    for (family, model, preset, theirs) in [
        (0x17, 0x01, "PAPI_FP_OPS", format!("{zen1}:{}:{}", of("SP"), of("DP"))),
        (0x17, 0x01, "PAPI_SP_OPS", format!("{zen1}:{}", of("SP"))),
        (0x17, 0x01, "PAPI_DP_OPS", format!("{zen1}:{}", of("DP"))),
        (0x17, 0x31, "PAPI_FP_OPS", any("amd64_fam17h_zen2")),
        (0x19, 0x01, "PAPI_FP_OPS", any("amd64_fam19h_zen3")),
        (0x19, 0x61, "PAPI_FP_OPS", any("amd64_fam19h_zen4")),
    ] {
        let (kind, config, _) = match pfm.numbers(&theirs) {
            Ok(numbers) => numbers,
            Err(why) => return skip(&format!("libpfm4 does not encode {theirs}: {why}")),
        };
        let tree = Tree::new("oracle-flops");
        let text =
            format!("vendor_id\t: AuthenticAMD\ncpu family\t: {family}\nmodel\t\t: {model}\n");
        tree.file("proc/cpuinfo", &text);
        let counters = Resolver::new(&Machine::at(&tree.root)).resolve(preset).unwrap();
        let Source::Perf(ours) = &counters[0].source else { panic!("simulated") };
        assert_eq!((ours.kind, ours.config), (kind, config), "{theirs}");
    }
}
