//! Tests that each error number with which the kernel refuses a counter is converted to the right
//! [`OpenErrorKind`]. Errors that do not occur on this machine are made by a seccomp filter in a
//! child, as in a container.

use counters::{OpenError, OpenErrorKind, Target, perf};
use machine::Machine;
use machine::check::{Cause, check, is_allowed};
use model::PerfAttr;
use names::Resolver;
use testkit::counting::perf as perf_counter;
use testkit::counting::*;

fn open(attr: &PerfAttr, target: Target, group: i32) -> Option<(OpenErrorKind, i32)> {
    match perf::open(attr, target, group) {
        Ok(fd) => {
            // SAFETY: `fd` was just opened, and nobody else has it.
            unsafe { libc::close(fd) };
            None
        }
        Err(error) => Some((error.kind, error.errno)),
    }
}

#[test]
fn what_the_kernel_itself_refuses() {
    if !can_count() {
        return;
    }
    let me = Target::CALLING_THREAD;
    let absent = software(999);
    assert_eq!(open(&absent, me, -1), Some((OpenErrorKind::NoSuchCounter, libc::ENOENT)));
    let nobody = Target { pid: i32::MAX, cpu: -1 };
    assert_eq!(open(&DUMMY, nobody, -1), Some((OpenErrorKind::NoSuchThread, libc::ESRCH)));
    assert_eq!(open(&DUMMY, me, 1 << 20), Some((OpenErrorKind::Other, libc::EBADF)));
    // Only the first counter of a group may be pinned.
    let leader = perf::open(&DUMMY, me, -1).unwrap();
    let pinned = PerfAttr { pinned: true, ..DUMMY };
    assert_eq!(open(&pinned, me, leader), Some((OpenErrorKind::Invalid, libc::EINVAL)));
    // SAFETY: `leader` was opened above, and nobody uses it after this.
    unsafe { libc::close(leader) };
}

fn forbid_perf(errno: i32) -> bool {
    // `struct seccomp_data` begins with the number of the system call.
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let ret = (libc::BPF_RET | libc::BPF_K) as u16;
    let line = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut lines = [
        line(load, 0, 0, 0),
        line(equal, 0, 1, libc::SYS_perf_event_open as u32),
        line(ret, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        line(ret, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: lines.len() as u16, filter: lines.as_mut_ptr() };
    // SAFETY: the program is well-formed, and the kernel copies it before the call returns.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    }
}

#[test]
fn every_number_has_its_kind() {
    let golden = [
        (libc::ENOENT, OpenErrorKind::NoSuchCounter),
        (libc::EACCES, OpenErrorKind::AccessDenied),
        (libc::EPERM, OpenErrorKind::NotPermitted),
        (libc::ENOSPC, OpenErrorKind::NoSlot),
        (libc::EINVAL, OpenErrorKind::Invalid),
        (libc::EMFILE, OpenErrorKind::ProcessDescriptors),
        (libc::ENFILE, OpenErrorKind::SystemDescriptors),
        (libc::ENOSYS, OpenErrorKind::NoSystemCall),
        (libc::EOPNOTSUPP, OpenErrorKind::Unsupported),
        (libc::ENODEV, OpenErrorKind::NoDevice),
        (libc::EBUSY, OpenErrorKind::Busy),
        // After this error, `perf::open` tries the smallest attribute structure, which the filter
        // also refuses.
        (libc::E2BIG, OpenErrorKind::TooBig),
        (libc::ESRCH, OpenErrorKind::NoSuchThread),
        (libc::EIO, OpenErrorKind::Other),
    ];
    for (errno, kind) in golden {
        let code = in_child(|| {
            if !forbid_perf(errno) {
                return 77;
            }
            i32::from(open(&DUMMY, Target::CALLING_THREAD, -1) != Some((kind, errno)))
        });
        if code == 77 {
            return skip("seccomp filters are not available");
        }
        assert_eq!(code, 0, "errno {errno}");
    }
}

#[test]
fn a_filter_is_explained() {
    let machine = Machine::here();
    if machine.paranoid().is_none_or(|level| level > 2) {
        return skip("the expected texts are those of perf_event_paranoid up to 2");
    }
    let counters = Resolver::new(&machine).resolve("page-faults").unwrap();
    assert_eq!(perf::reaches_the_kernel(), Ok(()));
    let golden = [
        (libc::EPERM, "EPERM (a seccomp filter forbids perf)"),
        (libc::EACCES, "EACCES (a seccomp filter forbids perf)"),
        (libc::ENOSYS, "ENOSYS (a seccomp filter hides perf)"),
    ];
    for (errno, expected) in golden {
        let code = in_child(|| {
            if !forbid_perf(errno) {
                return 77;
            }
            let report = check(&counters, &machine);
            let Some(problem) = report.problem() else { return 1 };
            let message = format!("open page-faults on this thread: {expected}");
            let reaches = perf::reaches_the_kernel();
            if reaches != Err(OpenError::from_errno(errno)) {
                return 3;
            }
            if problem.message != message || problem.cause != Cause::Filtered {
                eprintln!("{problem:?}");
                return 2;
            }
            0
        });
        if code == 77 {
            return skip("seccomp filters are not available");
        }
        assert_eq!(code, 0, "errno {errno}");
    }
}

/// Asking for the right to a software counter gives the same answer as opening it.
#[test]
fn a_right_is_asked_for_without_opening() {
    let agree = || {
        let descriptors = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        let before = descriptors();
        for attr in [0, 1, 2].map(software) {
            for attr in [attr.clone(), PerfAttr { exclude_kernel: true, ..attr }] {
                let opens = open(&attr, Target::CALLING_THREAD, -1).is_none();
                if is_allowed(&perf_counter("it", 0, attr)) != opens || descriptors() != before {
                    return 1;
                }
            }
        }
        0
    };
    assert_eq!(in_child(agree), 0);
    // SAFETY: both calls take numbers only, and run in a child of their own.
    let drop_rights = || unsafe { libc::setgid(65_534) == 0 && libc::setuid(65_534) == 0 };
    let code = in_child(|| if !is_root() || drop_rights() { agree() } else { 2 });
    assert_eq!(code, 0, "as nobody");
    let code = in_child(|| if forbid_perf(libc::EPERM) { agree() } else { 77 });
    if code == 77 {
        return skip("seccomp filters are not available");
    }
    assert_eq!(code, 0, "under a filter");
}

/// With `:u`, a counter of events that happen only in the kernel would always be 0. So `check`
/// refuses it, and does not propose `:u`.
#[test]
fn switches_are_not_counted_in_user_mode() {
    let machine = Machine::here();
    let resolve = |text: &str| Resolver::new(&machine).resolve(text).unwrap();
    for name in ["context-switches", "cs", "cpu-migrations", "migrations", "cgroup-switches"] {
        let report = check(&resolve(&format!("{name}:u")), &machine);
        let problem = report.problem().unwrap();
        assert!(problem.message.starts_with(&format!("{name}:u is always 0")), "{problem:?}");
        for text in [name.to_owned(), format!("{name}:u")] {
            if let Some(problem) = check(&resolve(&text), &machine).problem() {
                let narrows = matches!(problem.cause, Cause::KernelForbidden { .. });
                assert!(!narrows, "{text}: {problem:?}");
            }
        }
    }
}
