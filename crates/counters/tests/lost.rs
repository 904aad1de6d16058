//! Tests that a program is not harmed when it closes or reuses the descriptors of its counters, or
//! forks.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::LazyLock;

use counters::{Plan, ReadStatus, Readings, ThreadCounters};
use testkit::counting::*;

static PLAN: LazyLock<Plan> = LazyLock::new(|| {
    Plan::new(vec![perf("page-faults:u", 0, PAGE_FAULTS), perf("dummy:u", 0, DUMMY)])
        .expect("one group")
});

/// Opens counters, or returns `None` where nothing can be counted.
fn opened() -> Option<ThreadCounters<'static>> {
    let mut counters = ThreadCounters::closed();
    can_count().then(|| counters.open(&PLAN).expect("they can be counted"))?;
    Some(counters)
}

fn close(fd: i32) {
    // SAFETY: closing takes a number only. The tests imitate a program that closes descriptors that
    // are not its own.
    assert_eq!(unsafe { libc::close(fd) }, 0);
}

fn pipe() -> [OwnedFd; 2] {
    let mut fds = [0; 2];
    // SAFETY: `fds` has room for two descriptors, which are new, so nobody else owns them.
    unsafe {
        assert_eq!(libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC), 0);
        fds.map(|fd| OwnedFd::from_raw_fd(fd))
    }
}

/// Imitates a program that gives the number of our descriptor to a file of its own.
fn taken(by: &impl AsRawFd, number: i32) -> OwnedFd {
    // SAFETY: dup2 takes numbers only. From now on, `number` belongs to the value that this
    // function returns.
    unsafe {
        assert_eq!(libc::dup2(by.as_raw_fd(), number), number);
        OwnedFd::from_raw_fd(number)
    }
}

#[test]
fn a_closed_leader_is_reported_once() {
    let Some(mut counters) = opened() else { return };
    let mut out = Readings::new();
    assert_eq!(counters.read(&mut out), ReadStatus::Complete);
    close(counters.descriptors().next().unwrap());
    assert_eq!(counters.read(&mut out), ReadStatus::DescriptorLost);
    assert_eq!(out.missing(), !0);
    assert_eq!(counters.read(&mut out), ReadStatus::Closed);
    assert!(!counters.is_open());
    counters.open(&PLAN).unwrap();
    assert_eq!(counters.read(&mut out), ReadStatus::Complete);
    counters.close();
}

/// A closed member leaves its group, so the reading has another layout.
#[test]
fn a_closed_member_is_noticed() {
    let Some(mut counters) = opened() else { return };
    let mut out = Readings::new();
    close(counters.descriptors().nth(1).unwrap());
    assert_eq!(counters.read(&mut out), ReadStatus::DescriptorLost);
    counters.close();
}

/// A pipe has taken over the number of a counter's descriptor. `verify` takes no bytes from the
/// pipe, and `close` does not close it.
#[test]
fn verify_spares_the_new_owner_of_a_number() {
    let Some(mut counters) = opened() else { return };
    assert!(counters.verify());
    let number = counters.descriptors().next().unwrap();
    let [reader, writer] = pipe();
    let taken = taken(&reader, number);
    // SAFETY: the descriptor is open, and the bytes outlive the call.
    unsafe { libc::write(writer.as_raw_fd(), b"theirs".as_ptr().cast(), 6) };
    assert!(!counters.verify());
    let mut out = Readings::new();
    assert_eq!(counters.read(&mut out), ReadStatus::Closed);
    counters.close();
    let mut buf = [0u8; 16];
    // SAFETY: the descriptor is open, and `buf` has 16 bytes.
    let got = unsafe { libc::read(taken.as_raw_fd(), buf.as_mut_ptr().cast(), 16) };
    assert_eq!((got, &buf[..6]), (6, &b"theirs"[..]));
}

/// A pipe has taken over the number of a counter's descriptor. The reading that detects this takes
/// bytes from the pipe. Without `verify`, a reading cannot avoid that.
#[test]
fn an_unverified_read_detects_the_loss_once() {
    let Some(mut counters) = opened() else { return };
    let number = counters.descriptors().next().unwrap();
    let [reader, writer] = pipe();
    let taken = taken(&reader, number);
    let bytes = [0xabu8; 100];
    // SAFETY: the descriptor is open, and `bytes` has 100 bytes.
    unsafe { libc::write(writer.as_raw_fd(), bytes.as_ptr().cast(), 100) };
    let mut out = Readings::new();
    assert_eq!(counters.read(&mut out), ReadStatus::DescriptorLost);
    assert_eq!(out.value(0), None);
    assert_eq!(counters.read(&mut out), ReadStatus::Closed);
    counters.close();
    let mut buf = [0u8; 128];
    // SAFETY: the descriptor is open, and `buf` has 128 bytes.
    let left = unsafe { libc::read(taken.as_raw_fd(), buf.as_mut_ptr().cast(), 128) };
    // A group of two has 3 + 2 · 2 words of 8 bytes.
    assert_eq!(left, 100 - 56);
}

/// A file at its end has taken over the number of a counter's descriptor. Reading it returns 0
/// bytes, like reading a counter in the error state.
#[test]
fn a_file_at_its_end_is_not_in_the_error_state() {
    let Some(mut counters) = opened() else { return };
    let number = counters.descriptors().next().unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    let _taken = taken(&null, number);
    let mut out = Readings::new();
    assert_eq!(counters.read(&mut out), ReadStatus::DescriptorLost);
    counters.close();
}

/// Another perf event with the same layout has taken over the number of a counter's descriptor.
/// Only its id differs.
#[test]
fn another_counter_under_our_number_is_noticed() {
    if !can_count() {
        return;
    }
    let (mut ours, mut theirs) = (ThreadCounters::closed(), ThreadCounters::closed());
    ours.open(&PLAN).unwrap();
    theirs.open(&PLAN).unwrap();
    let number = ours.descriptors().next().unwrap();
    let other = theirs.descriptors().next().unwrap();
    // SAFETY: dup2 takes numbers only. The test imitates a program that takes our number.
    assert_eq!(unsafe { libc::dup2(other, number) }, number);
    let mut out = Readings::new();
    assert_eq!(ours.read(&mut out), ReadStatus::DescriptorLost);
    ours.close();
    assert_eq!(theirs.read(&mut out), ReadStatus::Complete);
    theirs.close();
    close(number);
}

#[test]
fn a_forked_child_can_close_what_it_inherited() {
    let Some(mut counters) = opened() else { return };
    let mut out = Readings::new();
    let code = in_child(|| {
        let numbers = counters.descriptors().collect::<Vec<_>>();
        counters.close();
        // SAFETY: F_GETFD takes any number.
        let open = |&fd: &i32| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0;
        i32::from(numbers.len() != 2 || numbers.iter().any(open))
    });
    assert_eq!(code, 0);
    assert_eq!(counters.read(&mut out), ReadStatus::Complete);
    counters.close();
}
