//! The hosts (kinds of profiled runtimes) of the adapters, and their numbers in profiles.

use std::sync::atomic::{AtomicU32, Ordering};

use record::host::Host;
use record::meta::Frame;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A host. Its description is written at most once into each part of a profile (the files of one
/// process).
#[derive(Debug)]
pub struct Described {
    pub host: Host,
    /// The name of the host's op that allocates storage and whose arguments say how much; empty if
    /// there is none.
    pub allocates: &'static [u8],
    /// The host's number plus one, or 0 before the host has one.
    number: AtomicU32,
    /// Serial number of the last part for which [`Described::untold`] returned the description, or
    /// 0.
    told: AtomicU32,
}

impl Described {
    pub const fn new(host: Host) -> Self {
        let (number, told) = (AtomicU32::new(0), AtomicU32::new(0));
        Self { host, allocates: &[], number, told }
    }

    pub const fn allocating(mut self, op: &'static [u8]) -> Self {
        self.allocates = op;
        self
    }

    /// Returns the host's number, which forked children keep. The first call of this function
    /// assigns the number.
    pub fn number(&self) -> u8 {
        let mut number = self.number.load(Ordering::Relaxed);
        if number == 0 {
            let new = NEXT.fetch_add(1, Ordering::Relaxed) + 1;
            let order = Ordering::Relaxed;
            number = self.number.compare_exchange(0, new, order, order).map_or_else(|n| n, |_| new);
        }
        // All hosts from the 256th on share the number 255. Readers of profiles keep far fewer
        // descriptions anyway.
        u8::try_from(number - 1).unwrap_or(u8::MAX)
    }

    /// Returns the host's frame (its description as bytes) if the part with this serial number does
    /// not contain the frame yet. The caller must write the frame to that part.
    pub fn untold(&self, serial: u32) -> Option<Vec<u8>> {
        let told = self.told.swap(serial, Ordering::Relaxed) == serial;
        let frame = || Frame::Host(self.number(), Box::new(self.host.clone())).to_bytes();
        (!told).then(frame)
    }
}
