//! Finds the query function of an embedded ELF in a range that was just made executable.
//!
//! IREE loads its default executables with its own small loader. The loader reserves a range
//! (`mmap` without access and with `MAP_NORESERVE`), copies the segments, relocates, and calls
//! `mprotect(text, READ|EXEC)`. The agent remembers reservations of that kind. So it looks for the
//! ELF header of a text in only one place. For programs that make other memory executable (JIT
//! compilers), it only compares addresses. (Walking back from the text to the header was tried.
//! With much memory below the text, it cost a JIT compiler 45 ms per `mprotect`.)
//!
//! Everything is read through [`crate::os::sys`], so that a wrong guess cannot fault. An ELF counts
//! only if its dynamic symbol table has the query function *inside the range*.

use std::sync::atomic::{AtomicUsize, Ordering};

use abi::iree::QUERY_SYMBOL;

use crate::os::sys;

/// The most recent reservations; the oldest is overwritten first. To lose one, a program would have
/// to make this many others between the reservation of an executable and its `mprotect`, some
/// microseconds later.
static RESERVED: [Range; 256] =
    [const { Range { start: AtomicUsize::new(0), end: AtomicUsize::new(0) } }; 256];
static NEXT: AtomicUsize = AtomicUsize::new(0);

struct Range {
    start: AtomicUsize,
    end: AtomicUsize,
}

/// Remembers a reservation without a lock. If an entry is overwritten while it is read, it
/// describes a range without an ELF at its start, and the reader finds that out.
pub fn note_reservation(start: usize, bytes: usize) {
    let range = &RESERVED[NEXT.fetch_add(1, Ordering::Relaxed) % RESERVED.len()];
    range.end.store(0, Ordering::Release);
    range.start.store(start, Ordering::Release);
    range.end.store(start.saturating_add(bytes), Ordering::Release);
}

/// Returns the start of the newest known reservation that contains `address`.
fn reservation_of(address: usize) -> Option<usize> {
    let next = NEXT.load(Ordering::Relaxed);
    (1..=RESERVED.len()).find_map(|back| {
        let range = &RESERVED[next.wrapping_sub(back) % RESERVED.len()];
        let (start, end) = (range.start.load(Ordering::Acquire), range.end.load(Ordering::Acquire));
        (start <= address && address < end).then_some(start)
    })
}

/// An embedded ELF.
pub struct Embedded {
    /// Where its header is.
    pub base: usize,
    /// The address of its query function.
    pub query: usize,
}

/// Returns the embedded ELF whose text is `[text, text + bytes)`.
pub fn find(text: usize, bytes: usize) -> Option<Embedded> {
    let base = reservation_of(text)?;
    let query = query_in(base, text, bytes)?;
    Some(Embedded { base, query })
}

/// Returns whether there is an ELF at `base` that has its query function in `[text, text + bytes)`.
pub fn has_query(base: usize, text: usize, bytes: usize) -> bool {
    query_in(base, text, bytes).is_some()
}

/// Returns the address of the query function of the ELF at `base`, if it is in
/// `[text, text + bytes)`.
fn query_in(base: usize, text: usize, bytes: usize) -> Option<usize> {
    let headers = program_headers(base)?;
    let dynamic = headers.iter().find(|header| header[0] as u32 == PT_DYNAMIC)?;
    let (dynamic, entries) = (base.checked_add(dynamic[2] as usize)?, dynamic[5] as usize / 16);
    let (mut symbols, mut strings, mut hash) = (None, None, None);
    for i in 0..entries.min(256) {
        let [tag, value]: [u64; 2] = sys::read_value(dynamic.checked_add(16 * i)?)?;
        let place = Some(base.checked_add(value as usize)?);
        match tag {
            DT_NULL => break,
            DT_HASH => hash = place,
            DT_STRTAB => strings = place,
            DT_SYMTAB => symbols = place,
            _ => {}
        }
    }
    let (symbols, strings) = (symbols?, strings?);
    // The second word of DT_HASH is the number of symbols.
    let count = sys::read_value::<[u32; 2]>(hash?)?[1] as usize;
    for i in 0..count.min(4096) {
        let symbol: [u64; 3] = sys::read_value(symbols.checked_add(24 * i)?)?;
        let name = strings.checked_add(symbol[0] as u32 as usize)?;
        let address = base.checked_add(symbol[1] as usize)?;
        if (text..text.checked_add(bytes)?).contains(&address)
            && sys::read_c_string(name, QUERY_SYMBOL.len() + 1)
                .is_some_and(|(name, _)| name == QUERY_SYMBOL)
        {
            return Some(address);
        }
    }
    None
}

/// Returns the program headers of the ELF at `base`, each as seven words: type (low half) and
/// flags (high half), offset, address, physical address, bytes in the file, bytes in memory,
/// alignment.
pub fn program_headers(base: usize) -> Option<Vec<[u64; 7]>> {
    if !is_header(base) {
        return None;
    }
    let header: [u64; 8] = sys::read_value(base)?;
    // e_phoff is at offset 32, e_phentsize at 54, and e_phnum at 56.
    let first = base.checked_add(header[4] as usize)?;
    let entry_size = (header[6] >> 48) as usize;
    let entries = (header[7] & 0xffff) as usize;
    if entry_size != 56 || entries > 64 {
        return None;
    }
    (0..entries).map(|i| sys::read_value(first.checked_add(i * entry_size)?)).collect()
}

const PT_DYNAMIC: u32 = 2;
const DT_NULL: u64 = 0;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;

/// Returns whether there is a 64-bit little-endian ELF header of type ET_DYN at this address.
fn is_header(at: usize) -> bool {
    sys::read_value::<[u8; 18]>(at).is_some_and(|b| {
        b[..4] == *b"\x7fELF" && b[4] == 2 && b[5] == 1 && b[16] == 3 && b[17] == 0
    })
}
