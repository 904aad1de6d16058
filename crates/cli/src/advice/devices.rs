//! Advice about a device whose counters cannot be read.

use names::defaults::Skipped;

/// Returns advice for a component, which is the part of PAPI for one kind of device (such as
/// `cuda`).
pub(super) fn for_device(component: &str) -> Option<&'static str> {
    match component.to_ascii_lowercase().as_str() {
        "cuda" => Some(
            "a CounterCollector of counterpoint.tvm counts ops of TVM; by CUPTI's names, run --plugin cuda \
             --plugin-config cuda.range-counters=NAME counts each kernel, and cuda.counters=NAME samples \
             over time; NVIDIA's driver keeps them for root unless the module option \
             NVreg_RestrictProfilingToAdminUsers is 0: put `options nvidia \
             NVreg_RestrictProfilingToAdminUsers=0` into a file below /etc/modprobe.d, rebuild the \
             initramfs if it loads the driver, and reboot",
        ),
        "rocm" => Some(
            "the user must be in the groups that own /dev/kfd and /dev/dri/renderD*: sudo usermod \
             -aG render,video USER, then log in again",
        ),
        "intel_gpu" => Some(
            "counting on Intel's GPUs takes sudo sysctl dev.i915.perf_stream_paranoid=0 \
             (dev.xe.observation_paranoid=0 with the driver xe) and ZET_ENABLE_METRICS=1",
        ),
        _ => None,
    }
}

/// Returns a note about a device that is left out.
pub fn skipped(skipped: &Skipped) -> String {
    match for_device(skipped.component) {
        Some(advice) => format!("{skipped}; {advice}"),
        None => skipped.to_string(),
    }
}
