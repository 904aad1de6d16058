//! The values that are recorded with a call. A value that is a text is recorded as a number, which
//! identifies the text.

use std::collections::BTreeMap;

use record::meta::{Frame, Text};
use record::page::MOST_VALUES;

use crate::process::lock::Lock;
use crate::process::part::Process;

/// Maximum number of distinct texts of a process.
const MOST_TEXTS: usize = 4096;

/// The values of one call, with their keys. If there are more than `N`, the rest is left out.
pub struct Values<const N: usize = MOST_VALUES> {
    all: [(u32, u64); N],
    count: usize,
}

impl<const N: usize> Values<N> {
    #[inline(always)]
    pub fn new() -> Self {
        Self { all: [(0, 0); N], count: 0 }
    }

    pub fn push(&mut self, key: u32, value: u64) {
        if let Some(place) = self.all.get_mut(self.count) {
            *place = (key, value);
            self.count += 1;
        }
    }

    pub fn as_slice(&self) -> &[(u32, u64)] {
        self.all.get(..self.count).unwrap_or_default()
    }
}

/// For each text: its number, and the serial number of the part of the profile to which the text
/// was last written. Protected by the process's lock.
static mut TEXTS: BTreeMap<Vec<u8>, (u32, u32)> = BTreeMap::new();

/// Returns the number of a text, and writes the text to the process's part of the profile if it is
/// not there yet. Returns `None` if the text is new and there are already `MOST_TEXTS` texts, or if
/// the lock cannot be taken.
pub fn text(bytes: &[u8], process: &Process) -> Option<u64> {
    let _lock = Lock::take()?;
    // SAFETY: this thread has the process's lock, which protects `TEXTS`.
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
