//! Acts: what the child process can do with ops. The stand-ins for CUDA's driver and CUPTI are
//! `tests/programs/plugins/cuda_driver.c` and `cupti_range.c`, in which a kernel adds 5 + c to
//! counter c.

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
    /// Begins (1 or 2, see `cuda_driver.c`) or ends (0) a capture.
    pub captures: WithNumber,
    /// Returns how many captures became invalid because something waited for a device.
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

    /// An op with one kernel on device 0.
    fn op(&self, correlation: &Correlation, op: u64) {
        correlation.push(Stack::Ops, op);
        (self.kernel)(0);
        correlation.pop(Stack::Ops);
    }
}

/// The plugin does not see the end of this op.
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
/// device 1, and op 11 is on no device.
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

/// At its begin and at its end, op 20 waits on device 0 for a kernel of device 1. Another thread
/// launches these kernels in the ops 21 and 22.
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

/// Op 7 is inside a capture. Another capture begins in op 8 and ends after it.
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
