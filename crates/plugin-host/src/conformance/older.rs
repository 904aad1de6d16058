//! Finds out whether a plugin was built for an older state of the interface. There are two such
//! states. In one, the table of functions has another size, which is seen at registration. In the
//! other, `profilerStart` has other arguments, which this probe tries.

use std::ffi::c_void;

use abi::kineto::{Function, HandleParams, OLDER, PULL_REQUEST, REVISION};

use super::clauses::{RESULT, STATE};
use super::{Findings, Plugin, Probe, Raw, call, supported};

pub(super) const PROBES: &[Probe] = &[Probe {
    only_after_failure: true,
    ..Probe::beyond("it is started as in an older state of the interface", RESULT, start)
}];

/// The older arguments of `profilerStart`.
#[repr(C)]
struct StartWithTypes {
    size: usize,
    types: *mut u32,
    types_length: usize,
    profiler: *mut c_void,
}

const _: () = assert!(size_of::<StartWithTypes>() == 32);

fn start(plugin: &mut Plugin, findings: &mut Findings) {
    for interface in plugin.profilers() {
        let Ok(raw) = Raw::create(&interface) else { continue };
        let mut types = supported(&interface);
        let types_length = types.len();
        // A plugin of the current state takes the types' address for its handle. After the types,
        // such a plugin reads zeros as its state.
        types.resize(1 << 16, 0);
        let mut arguments = StartWithTypes {
            size: size_of::<StartWithTypes>(),
            types: types.as_mut_ptr(),
            types_length,
            profiler: raw.handle,
        };
        let function = interface.start;
        // SAFETY: both types are pointers to functions that take one pointer. The probe tests what
        // the plugin does with the arguments.
        let function = unsafe {
            std::mem::transmute::<Function<HandleParams>, Function<StartWithTypes>>(function)
        };
        if call(function, &mut arguments) == Some(0) {
            let older = OLDER[1];
            findings.violation(
                STATE,
                format!(
                    "was built for state {} of Kineto's pull request {PULL_REQUEST}, in which {}: \
                     profilerStart succeeds with these arguments only; build it for state {}",
                    older.commit, older.differs, REVISION.commit
                ),
            );
        }
        raw.stop();
        raw.destroy();
    }
}
