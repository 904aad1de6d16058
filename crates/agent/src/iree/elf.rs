//! From a range that was just made executable to the query function of an embedded ELF.
//!
//! IREE loads its default executables with a small loader of its own: it reserves a range, copies
//! the segments, relocates, and calls `mprotect(text, READ|EXEC)`. Everything here is read
//! through [`crate::sys`], so that no guess can fault; only an ELF whose dynamic symbol table has
//! the query function *inside the range* counts.

use abi::iree::QUERY_SYMBOL;

use crate::sys;

const PAGE: usize = 4096;
/// How far before the text the header is looked for. Constants of a module stand between them.
const FARTHEST: usize = 64 << 20;
/// Pages asked for at a time.
const STEP: usize = 256;

/// The address of the query function, if `[text, text + bytes)` is the text of an embedded ELF.
pub fn find_query(text: usize, bytes: usize) -> Option<usize> {
    let base = find_header(text)?;
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

/// The nearest page at or before `text` that starts as a 64-bit shared object does. Stops at the
/// first page that is not mapped. JIT compilers call `mprotect` often, so pages that are not in
/// memory are passed over: reading them would bring them in.
fn find_header(text: usize) -> Option<usize> {
    let mut page = text & !(PAGE - 1);
    let farthest = page.saturating_sub(FARTHEST);
    let mut present = [0u8; STEP];
    while page >= farthest && page > 0 {
        let count = STEP.min((page - farthest) / PAGE + 1);
        let first = page - (count - 1) * PAGE;
        let (first, count) = if sys::resident(first, &mut present[..count]) {
            (first, count)
        } else {
            // Something in the step is not mapped: one page at a time.
            if !sys::resident(page, &mut present[..1]) {
                return None;
            }
            (page, 1)
        };
        for i in (0..count).rev() {
            let at = first + i * PAGE;
            if present[i] & 1 != 0 && is_header(at) {
                return Some(at);
            }
        }
        page = first.checked_sub(PAGE)?;
    }
    None
}

/// ELF, 64 bits, little-endian, ET_DYN.
fn is_header(at: usize) -> bool {
    sys::read_value::<[u8; 18]>(at).is_some_and(|b| {
        b[..4] == *b"\x7fELF" && b[4] == 2 && b[5] == 1 && b[16] == 3 && b[17] == 0
    })
}
