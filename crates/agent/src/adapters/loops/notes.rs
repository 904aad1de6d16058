//! Finds instrumented modules by their ELF notes. This also finds modules whose constructors ran
//! before this library was loaded, or before this library's own constructor.

use abi::loops::{Module, NOTE_NAME, NOTE_TYPE};

const MOST: usize = 1024;

struct Found {
    at: [usize; MOST],
    count: usize,
}

/// Returns the addresses of the descriptors (the structs that describe modules) that the notes of
/// loaded objects refer to.
pub fn find() -> Vec<usize> {
    let mut found = Box::new(Found { at: [0; MOST], count: 0 });
    // SAFETY: `look` has the type that `dl_iterate_phdr` calls, and `found` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut *found).cast()) };
    found.at[..found.count].to_vec()
}

unsafe extern "C" fn look(
    info: *mut libc::dl_phdr_info,
    _: usize,
    found: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: `dl_iterate_phdr` passes a valid description and the pointer that `find` passed to
    // it.
    let (info, found) = unsafe { (&*info, &mut *found.cast::<Found>()) };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the linker's description gives the address and the length of its own array, and the
    // address is not null.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let address = |virtual_address: u64| info.dlpi_addr.wrapping_add(virtual_address);
    let loaded = |at: u64, bytes: u64| {
        headers.iter().any(|header| {
            let from = at.wrapping_sub(address(header.p_vaddr));
            header.p_type == libc::PT_LOAD
                && from.checked_add(bytes).is_some_and(|end| end <= header.p_memsz)
        })
    };
    for header in headers.iter().filter(|header| header.p_type == libc::PT_NOTE) {
        let start = address(header.p_vaddr);
        if header.p_align > 4 && header.p_align != 8 || !loaded(start, header.p_memsz) {
            continue;
        }
        // SAFETY: a loaded segment contains all of the notes (`loaded` checked this), and nobody
        // writes to notes.
        let notes =
            unsafe { std::slice::from_raw_parts(start as *const u8, header.p_memsz as usize) };
        let align = header.p_align.max(4) as usize;
        for (at, distance) in descriptors(notes, align) {
            let descriptor = (start + at as u64).wrapping_add_signed(distance);
            if loaded(descriptor, size_of::<Module>() as u64) && found.count < MOST {
                found.at[found.count] = descriptor as usize;
                found.count += 1;
            }
        }
    }
    0
}

/// Returns for each of our notes: the offset of the note's content in `notes`, and the content,
/// which is the distance from the content to a module's descriptor.
fn descriptors(notes: &[u8], align: usize) -> impl Iterator<Item = (usize, i64)> + '_ {
    let word =
        |at: usize| notes.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word) as usize);
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let (name, description) = (word(at)?, word(at + 4)?);
            let kind = word(at + 8)?;
            let name_at = at + 12;
            let description_at = (name_at.checked_add(name)?).next_multiple_of(align);
            let is_ours = kind == NOTE_TYPE as usize
                && description == 8
                && notes.get(name_at..name_at + name)? == NOTE_NAME.to_bytes_with_nul();
            let distance = notes.get(description_at..)?.first_chunk::<8>().copied();
            at = description_at.checked_add(description)?.checked_next_multiple_of(align)?;
            if is_ours {
                return Some((description_at, i64::from_ne_bytes(distance?)));
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(kind: u32, name: &[u8], description: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [name.len() as u32, description.len() as u32, kind] {
            bytes.extend(word.to_ne_bytes());
        }
        for text in [name, description] {
            bytes.extend(text);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    #[test]
    fn our_notes_are_found_among_others() {
        let notes = [
            note(3, b"GNU\0", &[1; 20]),
            note(NOTE_TYPE, b"Counterpoint\0", &100i64.to_ne_bytes()),
            note(1, b"Counterpoint\0", &7i64.to_ne_bytes()),
            note(NOTE_TYPE, b"Counterpoint\0", &(-4i64).to_ne_bytes()),
        ];
        // Each note has 36 bytes (header, name and content): the first has 12 + 4 + 20, and the
        // others have 12 + 16 + 8.
        let bytes = notes.concat();
        let found: Vec<_> = descriptors(&bytes, 4).collect();
        assert_eq!(found, [(36 + 28, 100), (3 * 36 + 28, -4)]);
        for cut in 0..bytes.len() {
            descriptors(&bytes[..cut], 4).count();
        }
        assert_eq!(descriptors(&[0xff; 64], 4).count(), 0);
    }
}
