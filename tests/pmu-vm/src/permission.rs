//! Tests the messages for a user without rights, and what such a user can still count.

use std::fs;

use ::machine::Machine;
use ::machine::check;
use counters::{OpenErrorKind, Target, ThreadCounters, perf};
use model::Source;

use crate::loops::{self, Random};
use crate::report::tests;
use crate::{machine, set};

tests![permission: user_mode_at_level_2, nothing_at_level_3, no_capability_no_kernel_part];

/// Sets the level of `perf_event_paranoid`, which requires root.
fn paranoid(level: i32) {
    fs::write(machine::PARANOID, level.to_string()).expect("set perf_event_paranoid as root");
}

/// Makes this process run as an unprivileged user until it ends. This does not affect other tests,
/// because every test is a separate process.
fn become_nobody() {
    // SAFETY: the calls take numbers and a null list of length 0, and there is no other thread.
    unsafe {
        assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
        assert_eq!(libc::setresgid(65_534, 65_534, 65_534), 0);
        assert_eq!(libc::setresuid(65_534, 65_534, 65_534), 0);
        assert_eq!(libc::getuid(), 65_534);
    }
}

/// Returns the kernel's error, or `None` if the counter could be opened.
fn refusal(name: &str) -> Option<OpenErrorKind> {
    let counters = set::resolve(name);
    let Source::Perf(attr) = &counters[0].source else { panic!("{name} is not a perf counter") };
    match perf::open(attr, Target::CALLING_THREAD, -1) {
        Ok(fd) => {
            // SAFETY: `fd` was just opened, and nobody else uses it.
            unsafe { libc::close(fd) };
            None
        }
        Err(error) => Some(error.kind),
    }
}

/// Returns how far the first counter counts during a loop of `trips` iterations. The function is
/// not inlined, so that all calls measure the same copy of the code. Two inlined copies once
/// differed by 47 instructions.
#[inline(never)]
fn spin(counters: &mut ThreadCounters<'_>, trips: u64) -> u64 {
    let [begin, end] = set::measure(counters, || loops::spin(trips));
    end.since(&begin, 0).expect("the counter was read")
}

fn user_mode_at_level_2() {
    paranoid(2);
    become_nobody();
    assert_eq!(refusal("instructions"), Some(OpenErrorKind::AccessDenied));
    assert_eq!(refusal("instructions:u"), None);
    let plan = set::plan("instructions:u");
    let mut counters = set::open(&plan);
    let constant = spin(&mut counters, 0);
    let trips = Random::new("level_2").below(1_000_000);
    assert_eq!(spin(&mut counters, trips), 2 * trips + constant);
    counters.close();
}

/// Debian's kernel has an additional level, which forbids an unprivileged user every counter.
fn nothing_at_level_3() {
    paranoid(3);
    become_nobody();
    assert_eq!(refusal("instructions:u"), Some(OpenErrorKind::AccessDenied));
    let report = check::check(&set::resolve("instructions:u"), &Machine::here());
    let problem = report.problem().expect("the counter is forbidden");
    println!("{}\n{:?}", problem.message, problem.cause);
    assert_eq!(
        problem.message,
        "open instructions:u on this thread: EACCES (perf_event_paranoid=3)"
    );
    assert_eq!(problem.cause, check::Cause::Forbidden { paranoid: Some(2) });
}

fn no_capability_no_kernel_part() {
    paranoid(2);
    become_nobody();
    let report = check::check(&set::resolve("instructions"), &Machine::here());
    let problem = report.problem().expect("the kernel's part is forbidden");
    println!("{}\n{:?}", problem.message, problem.cause);
    assert_eq!(problem.message, "open instructions on this thread: EACCES (perf_event_paranoid=2)");
    let user_only = "instructions:u".to_owned();
    assert_eq!(problem.cause, check::Cause::KernelForbidden { user_only });
    // An unprivileged user may not count the threads of another user.
    let counters = set::resolve("instructions:u");
    let Source::Perf(attr) = &counters[0].source else { panic!("not a perf counter") };
    let refused = perf::open(attr, Target { pid: 1, cpu: -1 }, -1).map_err(|e| e.kind);
    assert_eq!(refused, Err(OpenErrorKind::AccessDenied));
}
