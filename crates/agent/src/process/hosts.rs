//! The hosts (kinds of profiled runtimes) whose adapters have found something to record, and their
//! numbers in profiles.

use std::sync::atomic::{AtomicU32, Ordering};

use record::host::Host;
use record::meta::Frame;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A host, and the data that is needed to write its description once into each part of a profile
/// that this process creates.
#[derive(Debug)]
pub struct Described {
    pub host: Host,
    /// The name of the host's op that allocates storage and whose arguments say how much; empty if
    /// there is no such op.
    pub allocates: &'static [u8],
    /// The host's number plus one, or 0 before the host has a number.
    number: AtomicU32,
    /// Serial number of the part that contains the host's description.
    told: AtomicU32,
}

impl Described {
    pub const fn new(host: Host) -> Self {
        let (number, told) = (AtomicU32::new(0), AtomicU32::new(0));
        Self { host, allocates: &[], number, told }
    }

    /// Sets the name of the op with which the host allocates storage.
    pub const fn allocating(mut self, op: &'static [u8]) -> Self {
        self.allocates = op;
        self
    }

    /// Returns the host's number, which is the same in this process and in children that it forks
    /// later. A host gets its number at the first call of this function.
    pub fn number(&self) -> u8 {
        let mut number = self.number.load(Ordering::Relaxed);
        if number == 0 {
            let new = NEXT.fetch_add(1, Ordering::Relaxed) + 1;
            let order = Ordering::Relaxed;
            number = self.number.compare_exchange(0, new, order, order).map_or_else(|n| n, |_| new);
        }
        // Readers of profiles keep far fewer than 256 descriptions.
        u8::try_from(number - 1).unwrap_or(u8::MAX)
    }

    /// Returns the host's frame if the part with this serial number does not contain it yet. The
    /// caller must write the frame to that part.
    pub fn untold(&self, serial: u32) -> Option<Vec<u8>> {
        let told = self.told.swap(serial, Ordering::Relaxed) == serial;
        let frame = || Frame::Host(self.number(), Box::new(self.host.clone())).to_bytes();
        (!told).then(frame)
    }
}
