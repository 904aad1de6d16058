//! Whether the program captures streams for a graph. What is launched on such a stream does not run, and waiting for
//! a device makes its captures invalid, so that the program would fail. Counters need such a wait: nothing is counted
//! meanwhile.
//!
//! | known from | of which streams |
//! |---|---|
//! | calls of `cuStreamBeginCapture` and `cuStreamEndCapture`, of which CUPTI tells a subscriber | all, since the recording began |
//! | [`driver::is_capturing`] of the stream of a launch | this one |
//! | the same of the legacy stream | those of its context that are not non-blocking |
//!
//! A collector of TVM's ops has no subscriber and knows no stream, so it has only the last row.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::callback::Call;
use crate::cupti::{self, Cupti};
use crate::driver::{self, Stream};

/// Captures that have begun and not ended.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// The numbers of the driver's functions that begin and end captures.
#[derive(Debug, Default)]
struct Functions {
    begin: Vec<u32>,
    end: Vec<u32>,
}

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

/// CUDA 13.5 has less than 900 functions in its driver.
const MOST_FUNCTIONS: u32 = 1500;

/// Looks for the functions by their names, because there are several versions of them.
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

/// Watches captures from now on. The subscriber's function is to call [`called`].
pub fn begin(cupti: &Cupti, subscriber: usize) {
    OPEN.store(0, Ordering::Release);
    let functions = functions(cupti);
    for id in functions.begin.iter().chain(&functions.end) {
        // If this fails, the driver is asked all the same.
        let _ = cupti.enable_callback(subscriber, cupti::DOMAIN_DRIVER, *id);
    }
}

/// A function of the driver was called, or returns.
pub fn called(id: u32, call: &Call) {
    let Some(functions) = FUNCTIONS.get() else { return };
    // A capture is open from the moment before it begins to the one after its end.
    if functions.begin.contains(&id) && call.is_enter() {
        OPEN.fetch_add(1, Ordering::AcqRel);
    } else if (functions.begin.contains(&id) && call.has_failed())
        || (functions.end.contains(&id) && !call.is_enter())
    {
        // One that began before the recording was not counted.
        let less = |open: usize| Some(open.saturating_sub(1));
        let _ = OPEN.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }
}

/// Whether a device must not be waited for now. `stream` is that of a launch.
pub fn are_open(stream: Option<Stream>) -> bool {
    OPEN.load(Ordering::Acquire) > 0
        || stream.is_some_and(driver::is_capturing)
        || driver::is_capturing(Stream::LEGACY)
}
