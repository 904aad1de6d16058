//! From a range that was just made executable to the query function of an embedded ELF.
//!
//! IREE loads its default executables with a small loader of its own: it reserves a range
//! (`mmap`, no access, `MAP_NORESERVE`), copies the segments, relocates, and calls
//! `mprotect(text, READ|EXEC)`. Reservations of that kind are remembered, so the ELF header of a
//! text is looked for in one place only, and programs that make other memory executable (JIT
//! compilers) never get further than a comparison of addresses. (Walking back from the text to
//! the header was tried: with much memory below, it cost a JIT 45 ms per `mprotect`.)
//!
//! Everything is read through [`crate::os::sys`], so that no guess can fault; only an ELF whose dynamic
//! symbol table has the query function *inside the range* counts.

use std::sync::atomic::{AtomicUsize, Ordering};

use abi::iree::QUERY_SYMBOL;

use crate::os::sys;

/// The last reservations, oldest overwritten first. A program would have to make as many others
/// between the reservation of an executable and its `mprotect`, some microseconds later.
static RESERVED: [Range; 256] =
    [const { Range { start: AtomicUsize::new(0), end: AtomicUsize::new(0) } }; 256];
static NEXT: AtomicUsize = AtomicUsize::new(0);

struct Range {
    start: AtomicUsize,
    end: AtomicUsize,
}

/// Remembers a reservation. Lock-free; one that is overwritten while it is read names a range
/// that has no ELF at its start, which is found out there.
pub fn note_reservation(start: usize, bytes: usize) {
    let range = &RESERVED[NEXT.fetch_add(1, Ordering::Relaxed) % RESERVED.len()];
    range.end.store(0, Ordering::Release);
    range.start.store(start, Ordering::Release);
    range.end.store(start.saturating_add(bytes), Ordering::Release);
}

/// Where the newest known reservation around an address starts.
fn reservation_of(address: usize) -> Option<usize> {
    let next = NEXT.load(Ordering::Relaxed);
    (1..=RESERVED.len()).find_map(|back| {
        let range = &RESERVED[next.wrapping_sub(back) % RESERVED.len()];
        let (start, end) = (range.start.load(Ordering::Acquire), range.end.load(Ordering::Acquire));
        (start <= address && address < end).then_some(start)
    })
}

/// The address of the query function, if `[text, text + bytes)` is the text of an embedded ELF.
pub fn find_query(text: usize, bytes: usize) -> Option<usize> {
    let base = reservation_of(text).filter(|base| is_header(*base))?;
    let header: [u64; 8] = sys::read_value(base)?;
    // e_phoff at 32, e_phentsize and e_phnum at 54 and 56.
    let program_headers = header[4] as usize;
    let entry_size = (header[6] >> 48) as usize;
    let entries = (header[7] & 0xffff) as usize;
    if entry_size != 56 || entries > 64 {
        return None;
    }
    let mut dynamic = None;
    for i in 0..entries {
        let at = base.checked_add(program_headers)?.checked_add(i * entry_size)?;
        let entry: [u64; 7] = sys::read_value(at)?;
        if entry[0] as u32 == PT_DYNAMIC {
            dynamic = Some((base.checked_add(entry[2] as usize)?, entry[5] as usize / 16));
        }
    }
    let (dynamic, entries) = dynamic?;
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

const PT_DYNAMIC: u32 = 2;
const DT_NULL: u64 = 0;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;

/// ELF, 64 bits, little-endian, ET_DYN.
fn is_header(at: usize) -> bool {
    sys::read_value::<[u8; 18]>(at).is_some_and(|b| {
        b[..4] == *b"\x7fELF" && b[4] == 2 && b[5] == 1 && b[16] == 3 && b[17] == 0
    })
}
