//! Tests exact counts of uprobes, of breakpoints, and of tracepoints with filters. The numbers of
//! hits are random.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::hint::black_box;

use counters::{OpenErrorKind, Plan, ReadStatus, Readings, ThreadCounters};
use machine::Machine;
use machine::check::{Privilege, check, needs};
use model::{PerfAttr, Source};
use names::{NameCause, Resolver};
use testkit::counting::*;

fn some() -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: the call writes at most `bytes.len()` bytes.
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    100 + u64::from_le_bytes(bytes) % 900
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn counterpoint_test_probed(x: u64) -> u64 {
    black_box(x) + 1
}

/// A second function to probe, with a name similar to that of the function above.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn counterpoint_test_other(x: u64) -> u64 {
    black_box(x) + 2
}

fn own_program() -> String {
    std::env::current_exe().unwrap().display().to_string()
}

fn attr(text: &str) -> Result<PerfAttr, String> {
    let counters = Resolver::new(&Machine::here()).resolve(text);
    match counters.map(|mut c| c.remove(0).source) {
        Ok(Source::Perf(attr)) => Ok(attr),
        Ok(Source::Sim(_)) => Err("simulated".into()),
        Err(e) => Err(format!("{e} | {:?}", e.cause)),
    }
}

/// Returns the counts while `body` runs. `None` if the names cannot be resolved or the counters do
/// not open here, which is reported as a skip.
fn counted(text: &str, body: impl FnOnce()) -> Option<Vec<Option<u64>>> {
    let counters = match Resolver::new(&Machine::here()).resolve(text) {
        Ok(counters) => counters,
        Err(error) => {
            skip(&error.to_string());
            return None;
        }
    };
    let plan = Plan::new(counters).unwrap();
    let mut open = ThreadCounters::closed();
    if let Err(failure) = open.open(&plan) {
        skip(&format!("{text}: {failure}"));
        return None;
    }
    let (mut begin, mut end) = (Readings::new(), Readings::new());
    assert_eq!(open.read(&mut begin), ReadStatus::Complete);
    body();
    assert_eq!(open.read(&mut end), ReadStatus::Complete);
    open.close();
    Some((0..plan.counters().len()).map(|i| end.since(&begin, i)).collect())
}

#[test]
fn uprobes_count_calls() {
    let program = own_program();
    let (calls, others) = (some(), some());
    let list = format!(
        "uprobe:{program}:counterpoint_test_probed,uretprobe:{program}:counterpoint_test_probed,\
         uprobe:{program}:counterpoint_test_other:u"
    );
    let counts = counted(&list, || {
        for i in 0..calls {
            counterpoint_test_probed(i);
        }
        // Hits of another thread are not counted.
        std::thread::scope(|scope| {
            scope.spawn(move || (0..others).map(|i| counterpoint_test_probed(i)).sum::<u64>());
        });
        for i in 0..others {
            counterpoint_test_other(i);
        }
    });
    if let Some(counts) = counts {
        assert_eq!(counts, [Some(calls), Some(calls), Some(others)]);
    }
}

/// An execution breakpoint is at an address, so this test does not depend on the symbol table.
#[test]
fn breakpoints_count_calls() {
    let address = counterpoint_test_probed as *const () as usize;
    let (calls, list) = (some(), format!("mem:{address:#x}:x:u"));
    let counts = counted(&list, || {
        for i in 0..calls {
            counterpoint_test_probed(i);
        }
    });
    if let Some(counts) = counts {
        assert_eq!(counts, [Some(calls)]);
    }
}

/// The offset of a symbol must be the offset that follows from the function's address and the
/// mapping of the file.
#[test]
fn symbols_become_offsets_of_the_file() {
    let address = counterpoint_test_probed as *const () as u64;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let expected = maps
        .lines()
        .find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let hex = |text| u64::from_str_radix(text, 16).unwrap();
            let (start, end) = fields[0].split_once('-').unwrap();
            let inside = hex(start) <= address && address < hex(end);
            inside.then(|| address - hex(start) + hex(fields[2]))
        })
        .unwrap();
    let program = own_program();
    let of = |text: &str| match attr(text) {
        Ok(attr) => Some(attr),
        Err(error) if error.contains("no uprobe PMU") => None,
        Err(error) => panic!("{error}"),
    };
    let Some(entry) = of(&format!("uprobe:{program}:counterpoint_test_probed")) else {
        return skip("this kernel has no uprobes");
    };
    assert_eq!(entry.config2, expected);
    assert_eq!(entry.path.as_deref().unwrap().to_str(), Ok(program.as_str()));
    assert_eq!(entry.config, 0);
    let exit = of(&format!("uretprobe:{program}:counterpoint_test_probed")).unwrap();
    assert_eq!((exit.config, exit.config2), (1, expected));
    let inside = of(&format!("uprobe:{program}:counterpoint_test_probed+1")).unwrap();
    assert_eq!(inside.config2, expected + 1);
    let number = of(&format!("uprobe:\"{program}\":{expected:#x}")).unwrap();
    assert_eq!(number, entry);
    let counters = Resolver::new(&Machine::here()).resolve(&format!("uprobe:{program}:{expected}"));
    assert_eq!(needs(&counters.unwrap()[0], &Machine::here()), Privilege::PerfMon);
}

#[test]
fn what_is_no_place_for_a_probe() {
    let program = own_program();
    let refused = |text: String| attr(&text).expect_err("accepted");
    let error = refused(format!("uprobe:{program}:counterpoint_test_porbed"));
    assert!(error.contains("no function of"), "{error}");
    assert!(error.contains(r#"| Some(Near(["counterpoint_test_probed", "#), "{error}");
    let error = refused(format!("uprobe:{program}:counterpoint_test_probed+0x100000"));
    assert!(error.contains(": the function has "), "{error}");
    let error = refused(format!("uprobe:{program}:0"));
    assert!(error.contains("\"0x0\": the file has no code there"), "{error}");
}

#[test]
fn a_probe_takes_a_capability() {
    let program = own_program();
    let resolver = Resolver::new(&Machine::here());
    let Ok(counters) = resolver.resolve(&format!("uprobe:{program}:counterpoint_test_probed"))
    else {
        return skip("this kernel has no uprobes");
    };
    let code = in_child(|| {
        // SAFETY: the call takes numbers only, and changes the ids of the child in which it runs.
        if is_root() && unsafe { libc::setresuid(65534, 65534, 65534) } != 0 {
            return 77;
        }
        let report = check(&counters, &Machine::here());
        match report.problem().and_then(|p| p.error) {
            Some(error) if error.kind == OpenErrorKind::AccessDenied => 0,
            Some(_) => 1,
            None => 2,
        }
    });
    match code {
        77 => skip("cannot give up root"),
        code => assert_eq!(code, 0),
    }
}

/// Mounts tracefs in a mount namespace of this process alone, if necessary. Returns whether it is
/// mounted.
fn tracefs() -> bool {
    if std::path::Path::new("/sys/kernel/tracing/events").is_dir() {
        return true;
    }
    let (root, none) = (c"/".as_ptr(), std::ptr::null());
    let (at, kind) = (c"/sys/kernel/tracing".as_ptr(), c"tracefs".as_ptr());
    // SAFETY: the calls get C strings and null pointers, as mount(2) allows.
    unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(none, root, none, libc::MS_REC | libc::MS_PRIVATE, none.cast()) == 0
            && libc::mount(kind, at, kind, 0, none.cast()) == 0
    }
}

/// Runs `body` in a child process, so that tracefs, if it must be mounted, is mounted only for the
/// child.
fn with_tracefs(body: impl FnOnce() -> i32) {
    match in_child(|| if tracefs() { body() } else { 77 }) {
        77 => skip("no tracefs, and not allowed to mount one"),
        code => assert_eq!(code, 0),
    }
}

fn read_zeros(fd: i32, bytes: usize, times: u64) {
    let mut buffer = [0u8; 256];
    for _ in 0..times {
        // SAFETY: the buffer has 256 bytes, and no caller asks for more.
        let got = unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), bytes) };
        assert_eq!(got, bytes as isize);
    }
}

#[test]
fn filters_choose_hits() {
    with_tracefs(|| {
        // SAFETY: the path is a C string. The descriptor stays open until the child ends.
        let fd = unsafe { libc::open(c"/dev/zero".as_ptr(), libc::O_RDONLY) };
        let (short, long) = (some(), some());
        let point = "syscalls:sys_enter_read";
        let list = format!(
            "{point}/filter=\"fd == {fd} && count == 77\"/,{point}/filter=\"fd=={fd}&&count>77\"/u,\
             {{{point}/filter=\"fd == {fd}\"/}}"
        );
        let counts = counted(&list, || {
            read_zeros(fd, 77, short);
            read_zeros(fd, 200, long);
        });
        match counts {
            None => 77,
            Some(counts) if counts == [Some(short), Some(long), Some(short + long)] => 0,
            Some(counts) => {
                eprintln!("{counts:?}, expected {short}, {long}");
                1
            }
        }
    });
}

#[test]
fn a_filter_that_the_kernel_refuses() {
    with_tracefs(|| {
        let machine = Machine::here();
        let typed = "syscalls:sys_enter_read/filter=\"count >\"/";
        let Ok(counters) = Resolver::new(&machine).resolve(typed) else { return 1 };
        let report = check(&counters, &machine);
        let Some(problem) = report.problem() else { return 2 };
        eprintln!("{problem:?}");
        let invalid = problem.error.map(|e| e.kind) == Some(OpenErrorKind::Invalid);
        let said = problem.message.contains("the kernel rejects the filter");
        if invalid && said { 0 } else { 3 }
    });
}

/// Tracepoints are listed, and the error for a misspelt name suggests a similar name.
#[test]
fn tracepoints_are_listed_and_suggested() {
    with_tracefs(|| {
        let resolver = Resolver::new(&Machine::here());
        let listed = resolver.bulk().into_iter().filter(|e| e.source == "tracepoint").count();
        let error = resolver.resolve("syscalls:sys_enter_getppdi").unwrap_err();
        let Some(NameCause::Near(near)) = error.cause else { return 2 };
        let found = near.iter().any(|name| name == "syscalls:sys_enter_getppid");
        if listed > 300 && found { 0 } else { 1 }
    });
}
