//! Reads the headers and the symbols of an ELF in this process's memory. The memory may contain
//! something else or be unmapped, so it is read through [`crate::os::sys`], which returns `None`
//! instead of causing a fault.

use crate::os::sys;

const PT_DYNAMIC: u32 = 2;
const DT_NULL: u64 = 0;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;

/// Returns the address of the function with this name, if the ELF at `base` has it in its dynamic
/// symbol table and the address is in `[text, text + bytes)`.
pub fn function_in(base: usize, text: usize, bytes: usize, function: &str) -> Option<usize> {
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
            && sys::read_c_string(name, function.len() + 1)
                .is_some_and(|(name, _)| name == function)
        {
            return Some(address);
        }
    }
    None
}

/// Returns the program headers of the ELF at `base`, each as seven words: type (low half) and flags
/// (high half), offset, address, physical address, size in the file, size in memory, alignment.
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

/// Returns whether there is a 64-bit little-endian ELF header of type ET_DYN at this address.
fn is_header(at: usize) -> bool {
    sys::read_value::<[u8; 18]>(at).is_some_and(|b| {
        b[..4] == *b"\x7fELF" && b[4] == 2 && b[5] == 1 && b[16] == 3 && b[17] == 0
    })
}
