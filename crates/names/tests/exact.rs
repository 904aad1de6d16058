//! Tests with real counters: exact counts, the check whether counters open on this machine, and
//! errors that a test can cause.

use counters::{OpenErrorKind, Plan, ReadStatus, Readings, ThreadCounters};
use machine::Machine;
use machine::check::{Cause, Opens, check, opens};
use model::Counter;
use names::Resolver;
use names::defaults::defaults;
use testkit::counting::*;

fn resolve(text: &str) -> Vec<Counter> {
    Resolver::new(&Machine::here()).resolve(text).expect("names that exist")
}

fn plan(text: &str) -> Plan {
    Plan::new(resolve(text)).expect("a resolved list is a plan")
}

#[test]
fn page_faults_by_name() {
    if !can_count() {
        return;
    }
    let plan = plan("page-faults:u,task-clock:u,{minor-faults:u,faults:u}");
    let mut counters = ThreadCounters::closed();
    counters.open(&plan).unwrap();
    let (mut begin, mut end) = (Readings::new(), Readings::new());
    for _ in 0..2 {
        let memory = Fresh::new(1000 * 4096);
        assert_eq!(counters.read(&mut begin), ReadStatus::Complete);
        memory.touch(4096);
        assert_eq!(counters.read(&mut end), ReadStatus::Complete);
    }
    assert_eq!([0, 2, 3].map(|i| end.since(&begin, i)), [Some(1000); 3]);
    assert!(end.since(&begin, 1).unwrap() > 0);
    counters.close();
}

static WATCHED: [std::sync::atomic::AtomicU64; 2] =
    [const { std::sync::atomic::AtomicU64::new(0) }; 2];

/// Two breakpoints count the writes to one address, and the accesses to another.
#[test]
fn breakpoints_by_address() {
    use std::sync::atomic::Ordering::Relaxed;
    let [a, b] = [&raw const WATCHED[0], &raw const WATCHED[1]].map(|p| p as usize);
    let plan = plan(&format!("mem:{a:#x}/8:w:u,mem:{b:#x}/8:rw:u"));
    let mut counters = ThreadCounters::closed();
    if let Err(failure) = counters.open(&plan) {
        return skip(&format!("breakpoints do not open here: {failure}"));
    }
    let (mut begin, mut end) = (Readings::new(), Readings::new());
    assert_eq!(counters.read(&mut begin), ReadStatus::Complete);
    for i in 0..1000 {
        WATCHED[0].store(i, Relaxed);
        if i % 2 == 0 {
            WATCHED[1].store(i, Relaxed);
        }
        if i % 4 == 0 {
            std::hint::black_box(WATCHED[1].load(Relaxed));
        }
    }
    assert_eq!(counters.read(&mut end), ReadStatus::Complete);
    assert_eq!([0, 1].map(|i| end.since(&begin, i)), [Some(1000), Some(750)]);
    counters.close();
}

#[test]
fn tracepoints_by_name() {
    let counters = match Resolver::new(&Machine::here()).resolve("syscalls:sys_enter_getppid:u") {
        Ok(counters) => counters,
        Err(error) => return skip(&error.to_string()),
    };
    let plan = Plan::new(counters).unwrap();
    let mut counters = ThreadCounters::closed();
    if let Err(failure) = counters.open(&plan) {
        return skip(&format!("tracepoints do not open here: {failure}"));
    }
    let (mut begin, mut end) = (Readings::new(), Readings::new());
    assert_eq!(counters.read(&mut begin), ReadStatus::Complete);
    for _ in 0..1000 {
        // SAFETY: `getppid` has no preconditions.
        unsafe { libc::getppid() };
    }
    assert_eq!(counters.read(&mut end), ReadStatus::Complete);
    assert_eq!(end.since(&begin, 0), Some(1000));
    counters.close();
}

/// x86-64 processors have four breakpoints, so 17 are too many. The error names the first
/// breakpoint that does not fit.
#[test]
fn one_breakpoint_too_many() {
    let at = &raw const WATCHED[0] as usize;
    let list: Vec<String> = (0..17).map(|i| format!("mem:{:#x}/1:w:u", at + i)).collect();
    let counters = resolve(&list.join(","));
    let mut open = ThreadCounters::closed();
    let plan = Plan::new(counters.clone()).unwrap();
    let failure = match open.open(&plan) {
        Ok(()) => return skip("17 breakpoints at once"),
        Err(failure) if failure.counter == 0 => return skip("no breakpoint opens here"),
        Err(failure) => failure,
    };
    assert_eq!(failure.error.kind, OpenErrorKind::NoSlot);
    let report = check(&counters, &Machine::here());
    let problem = report.problem().unwrap();
    assert!(
        problem.message.ends_with(&format!("as one group: ENOSPC at {}", list[failure.counter]))
    );
    let cause = Cause::TooMany {
        fits: list[..failure.counter].to_vec(),
        refused: vec![list[failure.counter].clone()],
        can_take_turns: false,
    };
    assert_eq!(problem.cause, cause);
}

#[test]
fn hardware_counters_work_or_the_machine_has_no_pmu() {
    let machine = Machine::here();
    let cycles = resolve("cycles:u");
    match check(&cycles, &machine).problem() {
        None => assert_eq!(opens(&cycles[0], &machine), Opens::Yes),
        Some(problem) if !machine.core_pmus().is_empty() => {
            skip(&format!("there is a PMU, but: {}", problem.message));
        }
        Some(problem) => {
            let expected = match machine.virtualisation() {
                Some(_) => "(no PMU in this virtual machine)",
                None => "(the kernel knows no PMU of this machine)",
            };
            if problem.error.map(|e| e.kind) != Some(OpenErrorKind::NoSuchCounter) {
                return skip(&problem.message);
            }
            assert_eq!(problem.message, format!("open cycles:u on this thread: ENOENT {expected}"));
            let is_virtual = machine.virtualisation().is_some();
            assert_eq!(problem.cause, Cause::NoPmu { is_virtual });
        }
    }
}

#[test]
fn a_process_out_of_descriptors() {
    if !can_count() {
        return;
    }
    let counters = resolve("page-faults:u");
    let code = in_child(|| {
        let lowest = (0..).find(|&fd| !is_open(fd)).unwrap_or(0) as libc::rlim_t;
        let limit = libc::rlimit { rlim_cur: lowest, rlim_max: lowest };
        // SAFETY: `limit` outlives the call, which changes the child in which it runs.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
        let plan = Plan::new(counters.clone()).unwrap();
        let mut open = ThreadCounters::closed();
        match open.open(&plan) {
            Err(f) if f.error.kind == OpenErrorKind::ProcessDescriptors => {}
            _ => return 1,
        }
        let report = check(&counters, &Machine::here());
        let problem = report.problem().unwrap();
        let message = format!("open page-faults:u on this thread: EMFILE (RLIMIT_NOFILE={lowest})");
        let ok = problem.message == message && problem.cause == Cause::ProcessDescriptors;
        // Counting works if one file descriptor is free, whatever its number.
        let limit = libc::rlimit { rlim_cur: lowest, ..limit };
        // SAFETY: `limit` outlives the call. The calls change only the child in which they run, and
        // nothing there uses descriptor 0.
        unsafe {
            libc::close(0);
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
        let works = open.open(&plan).is_ok() && open.owns(0);
        if ok && works { 0 } else { 2 }
    });
    assert_eq!(code, 0);
}

fn is_open(fd: i32) -> bool {
    // SAFETY: `F_GETFD` has no argument and accepts any descriptor number.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

/// For a user other than root and with `perf_event_paranoid` at 2, counting in the kernel is
/// forbidden, and the cause of the error names the counter that works.
#[test]
fn without_privileges() {
    let machine = Machine::here();
    let level = machine.paranoid().unwrap_or(i32::MAX);
    if !can_count() {
        return;
    }
    if level != 2 {
        return skip(&format!("perf_event_paranoid={level}; the expected texts are those of 2"));
    }
    let kernel = resolve("page-faults");
    let code = in_child(|| {
        // SAFETY: the call takes numbers only, and changes the ids of the child in which it runs.
        if is_root() && unsafe { libc::setresuid(65534, 65534, 65534) } != 0 {
            return 1;
        }
        let Opens::OnlyUser = opens(&kernel[0], &machine) else { return 2 };
        let report = check(&kernel, &machine);
        let Some(problem) = report.problem() else { return 3 };
        if problem.message != "open page-faults on this thread: EACCES (perf_event_paranoid=2)"
            || problem.cause != (Cause::KernelForbidden { user_only: "page-faults:u".into() })
        {
            eprintln!("{problem:?}");
            return 4;
        }
        if problem.error.map(|e| e.kind) != Some(OpenErrorKind::AccessDenied) {
            return 5;
        }
        let set = defaults(&machine);
        let names: Vec<_> = set.counters.iter().map(|c| c.name.as_str()).collect();
        let has_pmu = !machine.core_pmus().is_empty();
        if !has_pmu && (!names.is_empty() || set.notes.len() != 1) {
            eprintln!("{set:?}");
            return 6;
        }
        let user = resolve("page-faults:u");
        if check(&user, &machine).problem().is_some() { 7 } else { 0 }
    });
    if code == 3 {
        return skip("the kernel's part is allowed to us all the same");
    }
    assert_eq!(code, 0);
}

#[test]
fn the_default_set() {
    let machine = Machine::here();
    let set = defaults(&machine);
    let names: Vec<_> = set.counters.iter().map(|c| c.name.as_str()).collect();
    if !can_count() {
        return;
    }
    Plan::new(set.counters.clone()).unwrap();
    assert_eq!(check(&set.counters, &machine).problem(), None);
    let hardware = match opens(&resolve("cycles")[0], &machine) {
        // Nothing is counted by default if each reading would be a system call.
        Opens::Yes | Opens::OnlyUser if names.is_empty() => {
            return assert!(set.notes[0].contains("system call"), "{:?}", set.notes);
        }
        Opens::Yes | Opens::OnlyUser => {
            return assert!(names[0].contains("cycles"), "{names:?}");
        }
        Opens::No(problem) => problem.message,
    };
    let why = format!("only times are recorded, because hardware counters are missing: {hardware}");
    assert_eq!((names, &set.notes), (vec![], &vec![why]));
}

#[test]
fn simulated_counters_always_work() {
    let counters = resolve("sim/a,readings=0:5/,sim/b,readings=!/");
    assert_eq!(check(&counters, &Machine::here()).problem(), None);
}

/// Compares our count of page faults for 5000 pages with perf's. perf counts two runs of this
/// program, of which only one touches the pages. Address randomisation is off, so that both runs
/// start in the same way.
#[test]
fn perf_counts_the_same() {
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    if !can_count() {
        return;
    }
    // ADDR_NO_RANDOMIZE of sys/personality.h.
    let fixed = |command: &mut Command| {
        // SAFETY: between fork and exec, the closure only calls personality, which is
        // async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                libc::personality(0x0004_0000);
                Ok(())
            });
        }
    };
    let mut perf = Command::new("perf");
    let argument = std::env::current_exe().unwrap();
    perf.args(["stat", "-x,", "-e", "page-faults:u", "--"]).arg(&argument);
    perf.args(["--ignored", "--exact", "touch_many_pages"]);
    fixed(&mut perf);
    let output = match perf.output() {
        Ok(output) if output.status.success() => output,
        Ok(output) => {
            return skip(&format!("perf stat: {}", String::from_utf8_lossy(&output.stderr)));
        }
        Err(error) => return skip(&format!("perf: {error}")),
    };
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find(|l| l.contains("page-faults")).expect("perf's line");
    let with_pages: i64 = line.split(',').next().unwrap().parse().expect("perf's count");

    // This run does not touch the 5000 pages. Its count is subtracted below.
    let mut without = Command::new("perf");
    without.args(["stat", "-x,", "-e", "page-faults:u", "--"]).arg(&argument);
    without.args(["--ignored", "--exact", "touch_no_pages"]);
    fixed(&mut without);
    let output = without.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find(|l| l.contains("page-faults")).expect("perf's line");
    let without_pages: i64 = line.split(',').next().unwrap().parse().expect("perf's count");

    let plan = plan("page-faults:u");
    let mut counters = ThreadCounters::closed();
    counters.open(&plan).unwrap();
    let (mut begin, mut end) = (Readings::new(), Readings::new());
    touch_fresh_pages(1);
    assert_eq!(counters.read(&mut begin), ReadStatus::Complete);
    touch_fresh_pages(5000);
    assert_eq!(counters.read(&mut end), ReadStatus::Complete);
    counters.close();
    let ours = end.since(&begin, 0).unwrap() as i64;
    assert_eq!(ours, 5000);
    // The number of pages at a program's start differs a little between runs.
    let theirs = with_pages - without_pages;
    assert!((theirs - ours).abs() < 50, "perf stat {theirs}, ours {ours}");
}

#[test]
#[ignore = "run by perf_counts_the_same under perf stat"]
fn touch_many_pages() {
    touch_fresh_pages(5000);
}

#[test]
#[ignore = "run by perf_counts_the_same under perf stat"]
fn touch_no_pages() {}
