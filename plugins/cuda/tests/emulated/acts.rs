//! Acts: sequences of ops, kernels, pauses and graph captures in the child process of a test. The
//! stand-ins for CUDA's driver and CUPTI are `tests/programs/plugins/cuda_driver.c` and
//! `cupti_range.c`. In the second one, each kernel adds 5 + c to the counter with the number c.

use std::ffi::c_int;
use std::path::Path;

use plugin_host::platform::Library;
use plugin_host::session::{Correlation, Session, Stack};

use crate::child::call;

type Function = extern "C" fn() -> c_int;
type WithNumber = extern "C" fn(c_int) -> c_int;

pub struct Doubles {
    /// Sets the device of the calling thread; -1 for none.
    pub device: WithNumber,
    /// Launches a kernel on a device.
    pub kernel: WithNumber,
    /// Begins (1 or 2, see `cuda_driver.c`) or ends (0) the capture of a graph.
    pub captures: WithNumber,
    /// Returns how often something waited for a device during a capture, which makes the capture
    /// invalid.
    pub broken: Function,
    collective: WithNumber,
    waiting: Function,
    arrive: Function,
    _libraries: [Library; 2],
}

impl Doubles {
    /// Returns `None` if the test has no stand-in for the driver.
    pub fn open(driver: &Path, cupti: &Path) -> Option<Self> {
        if driver.as_os_str().is_empty() {
            return None;
        }
        let driver = Library::open(driver).expect("it loads");
        let cupti = Library::open(cupti).expect("it loads");
        Some(Self {
            device: call(&driver, c"double_device"),
            kernel: call(&cupti, c"double_op"),
            captures: call(&driver, c"double_captures"),
            broken: call(&driver, c"double_broken"),
            collective: call(&driver, c"double_collective"),
            waiting: call(&driver, c"double_waiting"),
            arrive: call(&driver, c"double_arrive"),
            _libraries: [driver, cupti],
        })
    }

    /// Runs an op with one kernel on device 0.
    fn op(&self, correlation: &Correlation, op: u64) {
        correlation.push(Stack::Ops, op);
        (self.kernel)(0);
        correlation.pop(Stack::Ops);
    }
}

/// Begins an op that is still open when its recording ends.
pub fn leave_an_op_open(mut session: Session<'_>, doubles: &Doubles) {
    (doubles.device)(0);
    assert!(session.start());
    session.correlation().push(Stack::Ops, 5);
    (doubles.kernel)(0);
}

pub fn act(name: &str, session: &mut Session<'_>, doubles: &Doubles) {
    let correlation = session.correlation();
    match name {
        "plain" => plain(&correlation, doubles),
        "collective" => collective(&correlation, doubles),
        "capture" => capture(&correlation, doubles),
        "pause" => {
            (doubles.device)(0);
            doubles.op(&correlation, 7);
            assert!(session.toggle(false));
            doubles.op(&correlation, 8);
            assert!(session.toggle(true));
            doubles.op(&correlation, 9);
        }
        // The op of `leave_an_op_open` ends here, in a later recording.
        "stale" => {
            (doubles.device)(0);
            doubles.op(&correlation, 8);
            correlation.pop(Stack::Ops);
            doubles.op(&correlation, 9);
        }
        _ => panic!("{name} is not known"),
    }
}

/// Op 7 has three kernels, one of which is inside op 8. Op 9 has no kernel, op 10 has one kernel on
/// device 1, and the thread of op 11 has no device.
fn plain(correlation: &Correlation, doubles: &Doubles) {
    // op, device of the thread, number of kernels (the third one inside an op of its own)
    for (op, on, kernels) in [(7, 0, 3), (9, 0, 0), (10, 1, 1), (11, -1, 1)] {
        (doubles.device)(on);
        correlation.push(Stack::Ops, op);
        for at in 0..kernels {
            if at == 2 {
                correlation.push(Stack::Ops, 8);
            }
            (doubles.kernel)(on.max(0));
            if at == 2 {
                correlation.pop(Stack::Ops);
            }
        }
        correlation.pop(Stack::Ops);
    }
}

/// When op 20 begins and when it ends, the plugin waits for device 0, which waits for a kernel on
/// device 1. Other threads launch the two kernels on device 1, in the ops 21 and 22.
fn collective(correlation: &Correlation, doubles: &Doubles) {
    let other = |op: u64| {
        (doubles.device)(1);
        while (doubles.waiting)() == 0 {
            std::thread::yield_now();
        }
        correlation.push(Stack::Ops, op);
        (doubles.kernel)(1);
        (doubles.arrive)();
        correlation.pop(Stack::Ops);
    };
    (doubles.device)(0);
    (doubles.collective)(1);
    std::thread::scope(|scope| {
        scope.spawn(|| other(21));
        correlation.push(Stack::Ops, 20);
    });
    (doubles.kernel)(0);
    (doubles.collective)(1);
    std::thread::scope(|scope| {
        scope.spawn(|| other(22));
        correlation.pop(Stack::Ops);
    });
}

/// Op 7 is inside the capture of a graph. Another capture begins in op 8 and ends after it.
fn capture(correlation: &Correlation, doubles: &Doubles) {
    (doubles.device)(0);
    (doubles.captures)(1);
    correlation.push(Stack::Ops, 7);
    correlation.pop(Stack::Ops);
    (doubles.captures)(0);
    correlation.push(Stack::Ops, 8);
    (doubles.kernel)(0);
    (doubles.captures)(1);
    correlation.pop(Stack::Ops);
    (doubles.captures)(0);
    doubles.op(correlation, 9);
}
