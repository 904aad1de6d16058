//! Tests the plugin's collectors with `tests/programs/plugins/cupti_range.c` in place of CUPTI. The
//! test program starts itself again as a child process, because the plugin loads only one CUPTI in
//! a process.

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::Path;
use std::process::Command;

use abi::collector::{Collector, Value};
use abi::dlpack::Device;
use plugin_host::platform::Library;
use testkit::{Scratch, c};

use crate::child::call;
use crate::ranges::{SOURCE, THREADS};
use crate::{double_of, plugin};

type Make =
    unsafe extern "C" fn(*const c_char, *const c_char, *mut c_char, usize) -> *const Collector;
type End = unsafe extern "C" fn(*const Collector, *mut c_char, usize) -> usize;

const TWO: &str = "cuda:::sm__cycles_active.avg:device=1; cuda:::needs__two_passes.sum:device=1";
const GOOD: &str =
    "cuda:::sm__cycles_active.avg:device=1;cuda:::dram__bytes_read.sum:stat=per_second:device=1";

struct Child {
    make: Make,
    end: End,
    cupti: CString,
}

impl Child {
    fn make(&self, names: &str) -> Result<*const Collector, String> {
        let names = CString::new(names).expect("no zero byte");
        let mut why = [0; 300];
        // SAFETY: the pointers are to variables of this process, which outlive the call.
        let made = unsafe {
            (self.make)(names.as_ptr(), self.cupti.as_ptr(), why.as_mut_ptr(), why.len())
        };
        if made.is_null() { Err(text(&why)) } else { Ok(made) }
    }

    fn end(&self, collector: &Collector) -> String {
        let mut why = [0; 300];
        // SAFETY: the plugin made the collector, and `why` outlives the call.
        let length = unsafe { (self.end)(collector, why.as_mut_ptr(), why.len()) };
        let why = text(&why);
        assert_eq!(length, why.len());
        why
    }
}

fn text(bytes: &[c_char]) -> String {
    // SAFETY: the plugin has ended the text with a zero byte.
    unsafe { CStr::from_ptr(bytes.as_ptr()) }.to_string_lossy().into_owned()
}

/// Runs an op with this number of kernels. Returns the op's values, or the collector's error.
fn op(
    collector: &Collector,
    kernel: extern "C" fn(c_int) -> c_int,
    on: Device,
    kernels: u32,
) -> Result<[Value; 2], i32> {
    let (start, stop) = (collector.start.expect("is there"), collector.stop.expect("is there"));
    let mut values = [Value::default(); 2];
    // SAFETY: the functions belong to the collector, and are called as the recorder calls them.
    unsafe {
        let state = start(collector.this, on);
        for _ in 0..kernels {
            kernel(1);
        }
        match stop(collector.this, state, values.as_mut_ptr(), 2) {
            0 => Ok(values),
            error => Err(error),
        }
    }
}

#[test]
fn collector_child() {
    let Ok(cupti) = std::env::var("CUDA_TEST_COLLECTOR") else { return };
    let own = Library::open(&plugin()).expect("it is loaded");
    let (make, end) = (
        call::<Make>(&own, c"counterpoint_cuda_collector"),
        call::<End>(&own, c"counterpoint_cuda_collector_end"),
    );
    let child = Child { make, end, cupti: CString::new(&*cupti).expect("no zero byte") };
    // The plugin checks the names, then whether the program has loaded the driver, and only then
    // loads CUPTI.
    for (names, why) in [
        (GOOD, "the program has not loaded CUDA's driver"),
        ("", "there is no counter"),
        ("cuda:::event:none:device=0", "CUPTI has no events any more"),
        ("cuda:::a.sum:device=0;cuda:::b.sum:device=1", "of one device"),
    ] {
        let error = child.make(names).expect_err(names);
        assert!(error.contains(why), "{error}");
    }
    let driver = Library::open(Path::new(&std::env::var("CUDA_TEST_DRIVER").expect("set")));
    let driver = driver.expect("it loads");
    // SAFETY: the collector belongs to the plugin, and exists until the process ends.
    let collector = unsafe { &*child.make(GOOD).expect("it is made") };
    assert_eq!(collector.slots, 2);
    let device_of_thread: extern "C" fn(c_int) -> c_int = call(&driver, c"double_device");
    let waits: extern "C" fn() -> c_int = call(&driver, c"double_waits");
    let library = Library::open(Path::new(&cupti)).expect("it loads");
    let kernel: extern "C" fn(c_int) -> c_int = call(&library, c"double_op");
    let left: extern "C" fn() -> c_int = call(&library, c"double_left");
    let (none, cuda) = (Ok([Value::default(); 2]), Device { kind: 2, id: 1 });

    assert_eq!(op(collector, kernel, cuda, 1), none, "the thread has no context");
    device_of_thread(1);
    for other in [Device { kind: 1, id: 0 }, Device { kind: 2, id: 0 }] {
        assert_eq!(op(collector, kernel, other, 1), none, "an op of another device");
    }
    assert_eq!(waits(), 0, "nothing was waited for");
    for kernels in [1_u32, 3] {
        let values = op(collector, kernel, cuda, kernels).expect("it is counted");
        // In cupti_range.c, each kernel adds 5 + c to counter c.
        let expected = [5, 6].map(|of_one: u32| f64::from(of_one * kernels));
        assert_eq!(values.map(|value| f64::from_bits(value.bits)), expected);
        assert!(values.iter().all(|value| value.filled == 1));
    }
    assert_eq!(waits(), 2 * 2, "before and after each op that is counted");
    assert_eq!(op(collector, kernel, cuda, 0), none, "an op that launches nothing");
    assert_eq!(child.end(collector), "");
    assert_eq!(left(), 0, "objects of CUPTI's are given back");
    // During a capture, the plugin does not wait for the device.
    let captures: extern "C" fn(c_int) -> c_int = call(&driver, c"double_captures");
    let broken: extern "C" fn() -> c_int = call(&driver, c"double_broken");
    captures(1);
    assert_eq!(op(collector, kernel, cuda, 1), Err(1), "the recorder counts this");
    captures(0);
    assert!(op(collector, kernel, cuda, 1).is_ok_and(|values| values[0].filled == 1), "again");
    assert_eq!(
        (broken(), &*child.end(collector)),
        (
            0,
            "1 ops have no values, because another op \
        was counted at the time or a graph was captured"
        )
    );
    assert_eq!(left(), 0);

    // SAFETY: as above.
    let collector = unsafe { &*child.make(TWO).expect("it is made") };
    assert_eq!(op(collector, kernel, cuda, 1), Err(1));
    let why = child.end(collector);
    assert!(why.contains("these counters need 2 runs"), "{why}");
    assert_eq!(left(), 0);
    println!("the child is content");
}

#[test]
fn a_collector_counts_ops_of_its_device() {
    let scratch = Scratch::new();
    let Some(cupti) = double_of(&scratch, SOURCE, &THREADS) else { return };
    let driver = scratch.join("libcuda.so.1");
    let soname = "-Wl,-soname,libcuda.so.1";
    c::shared("cc", "plugins/cuda_driver.c", &driver, &[soname]).expect("there is a cc");
    let mut child = Command::new(std::env::current_exe().expect("a path"));
    child.args(["--exact", "collector::collector_child", "--nocapture", "--test-threads=1"]);
    child.env("CUDA_TEST_COLLECTOR", &cupti).env("CUDA_TEST_DRIVER", &driver);
    let output = child.output().expect("starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("the child is content"), "{output:?}");
}
