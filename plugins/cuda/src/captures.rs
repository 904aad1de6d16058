//! Finds out whether the program captures streams for a graph. Captured work does not run, and a
//! wait for the device makes captures invalid, so that the program would fail. Reading counters of
//! a kernel or an op needs such a wait, so the plugin counts nothing during a capture.
//!
//! | known from | of which streams |
//! |---|---|
//! | calls of `cuStreamBeginCapture` and `cuStreamEndCapture` that CUPTI reports | all streams |
//! | [`driver::is_capturing`] for the stream of a launch | this stream |
//! | the same function for the legacy stream | all blocking streams of its context |
//!
//! A collector that counts around TVM's ops (module `collector`) has no subscriber and does not
//! know the stream, so only the last row applies to it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::callback::Call;
use crate::cupti::{self, Cupti};
use crate::driver::{self, Stream};

/// The number of captures that began during the recording and have not ended.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// CUPTI's numbers of the driver's functions that begin and end captures.
#[derive(Debug, Default)]
struct Functions {
    begin: Vec<u32>,
    end: Vec<u32>,
}

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

/// The search for the functions ends at this number. The driver of CUDA 13.5 has fewer than 900
/// functions.
const MOST_FUNCTIONS: u32 = 1500;

/// Searches by the beginning of the names: each function has several versions, each with its own
/// number.
fn functions(cupti: &Cupti) -> &'static Functions {
    FUNCTIONS.get_or_init(|| {
        let mut functions = Functions::default();
        for id in 1..MOST_FUNCTIONS {
            match cupti.callback_name(cupti::DOMAIN_DRIVER, id) {
                Some(name) if name.starts_with("cuStreamBeginCapture") => functions.begin.push(id),
                Some(name) if name.starts_with("cuStreamEndCapture") => functions.end.push(id),
                _ => {}
            }
        }
        functions
    })
}

/// Counts captures that begin from now on. The callback of `subscriber` must call [`called`].
pub fn begin(cupti: &Cupti, subscriber: usize) {
    OPEN.store(0, Ordering::Release);
    let functions = functions(cupti);
    for id in functions.begin.iter().chain(&functions.end) {
        // If this call fails, the plugin still asks the driver at each launch and op.
        let _ = cupti.enable_callback(subscriber, cupti::DOMAIN_DRIVER, *id);
    }
}

/// The subscriber's callback calls this function for calls of the driver.
pub fn called(id: u32, call: &Call) {
    let Some(functions) = FUNCTIONS.get() else { return };
    // A capture counts as open from before the call that begins it until after the call that ends
    // it.
    if functions.begin.contains(&id) && call.is_enter() {
        OPEN.fetch_add(1, Ordering::AcqRel);
    } else if (functions.begin.contains(&id) && call.has_failed())
        || (functions.end.contains(&id) && !call.is_enter())
    {
        // A capture that began before the recording was not counted, so the count may already be 0.
        let less = |open: usize| Some(open.saturating_sub(1));
        let _ = OPEN.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }
}

/// Returns whether a capture forbids waiting for a device now. `stream` is the stream of the
/// launch, if it is known.
pub fn are_open(stream: Option<Stream>) -> bool {
    OPEN.load(Ordering::Acquire) > 0
        || stream.is_some_and(driver::is_capturing)
        || driver::is_capturing(Stream::LEGACY)
}
