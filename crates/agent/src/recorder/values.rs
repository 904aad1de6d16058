//! Values that are recorded with a call, and texts, which are recorded as numbers.

use std::collections::BTreeMap;

use record::meta::{Frame, Text};
use record::page::MOST_VALUES;

use crate::process::lock::Lock;
use crate::process::part::Process;

/// Different texts that a process keeps.
const MOST_TEXTS: usize = 4096;

/// The values of one call, by their keys. What does not fit is left out.
pub struct Values {
    all: [(u32, u64); MOST_VALUES],
    count: usize,
}

impl Values {
    /// None yet.
    #[inline(always)]
    pub fn new() -> Self {
        Self { all: [(0, 0); MOST_VALUES], count: 0 }
    }

    /// Adds one.
    pub fn push(&mut self, key: u32, value: u64) {
        if let Some(place) = self.all.get_mut(self.count) {
            *place = (key, value);
            self.count += 1;
        }
    }

    /// All of them, as the writer of pages takes them.
    pub fn as_slice(&self) -> &[(u32, u64)] {
        self.all.get(..self.count).unwrap_or_default()
    }
}

/// Each text's number, and the part that has its frame. Under the process's lock.
static mut TEXTS: BTreeMap<Vec<u8>, (u32, u32)> = BTreeMap::new();

/// The number of a text; its frame is in the part afterwards. `None`: there are too many texts, or a
/// signal handler has interrupted the recorder.
pub fn text(bytes: &[u8], process: &Process) -> Option<u64> {
    let _lock = Lock::take()?;
    // SAFETY: we hold the lock.
    let texts = unsafe { (&raw mut TEXTS).as_mut() }?;
    let next = texts.len() as u32;
    if !texts.contains_key(bytes) && texts.len() >= MOST_TEXTS {
        return None;
    }
    let (number, told) = texts.entry(bytes.to_vec()).or_insert((next, 0));
    if *told != process.serial() {
        let text = String::from_utf8_lossy(bytes).into_owned();
        process.append(&Frame::Text(Text { id: *number, text }));
        *told = process.serial();
    }
    Some((*number).into())
}
