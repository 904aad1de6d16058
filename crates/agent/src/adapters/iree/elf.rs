//! Finds the query function of an embedded ELF (an executable in IREE's default format) in a memory
//! range that was just made executable. The query function returns the executable's tables.
//!
//! IREE loads its default executables with its own small loader. The loader reserves a range
//! (`mmap` without access and with `MAP_NORESERVE`), copies the segments, relocates, and calls
//! `mprotect(text, READ|EXEC)`. The agent remembers such reservations. So when a range becomes
//! executable, the agent looks for the ELF header in only one place: the start of the reservation.
//! (Searching backwards from the text to the header was tried. In a program with much memory below
//! the text, it cost a JIT compiler 45 ms per `mprotect`.)
//!
//! An ELF is accepted if its dynamic symbol table contains the query function, with an address
//! *inside the range* ([`crate::os::elf`]).

use std::sync::atomic::{AtomicUsize, Ordering};

use abi::iree::QUERY_SYMBOL;

use crate::os::elf::function_in;

/// The most recent reservations; a new one overwrites the oldest. A reservation is lost if the
/// program makes 256 others before the loader calls `mprotect` for it, some microseconds later.
static RESERVED: [Range; 256] =
    [const { Range { start: AtomicUsize::new(0), end: AtomicUsize::new(0) } }; 256];
static NEXT: AtomicUsize = AtomicUsize::new(0);

struct Range {
    start: AtomicUsize,
    end: AtomicUsize,
}

/// Remembers a reservation without a lock. If another thread reads the overwritten entry meanwhile,
/// it may get a wrong start address. The thread then finds no ELF that belongs to its text range.
pub fn note_reservation(start: usize, bytes: usize) {
    let range = &RESERVED[NEXT.fetch_add(1, Ordering::Relaxed) % RESERVED.len()];
    range.end.store(0, Ordering::Release);
    range.start.store(start, Ordering::Release);
    range.end.store(start.saturating_add(bytes), Ordering::Release);
}

fn reservation_of(address: usize) -> Option<usize> {
    let next = NEXT.load(Ordering::Relaxed);
    (1..=RESERVED.len()).find_map(|back| {
        let range = &RESERVED[next.wrapping_sub(back) % RESERVED.len()];
        let (start, end) = (range.start.load(Ordering::Acquire), range.end.load(Ordering::Acquire));
        (start <= address && address < end).then_some(start)
    })
}

pub struct Embedded {
    pub base: usize,
    pub query: usize,
}

/// Returns the embedded ELF whose text is `[text, text + bytes)`.
pub fn find(text: usize, bytes: usize) -> Option<Embedded> {
    let base = reservation_of(text)?;
    let query = function_in(base, text, bytes, QUERY_SYMBOL)?;
    Some(Embedded { base, query })
}

/// Returns whether there is an ELF at `base` that has its query function in `[text, text + bytes)`.
pub fn has_query(base: usize, text: usize, bytes: usize) -> bool {
    function_in(base, text, bytes, QUERY_SYMBOL).is_some()
}
