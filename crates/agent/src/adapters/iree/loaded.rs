//! Finds the executables of IREE that are already loaded when a session begins, to register their
//! instrumented loops. Another thread may unload an executable during the search. This race cannot
//! be avoided.

use crate::adapters::iree::elf;
use crate::adapters::loops::executables;
use crate::os::sys;

type Range = std::ops::Range<usize>;

/// Registers the instrumented modules of loaded executables, if the recording includes loops.
pub fn register() {
    if !executables::wanted() {
        return;
    }
    let Ok(maps) = sys::read_file(c"/proc/self/maps") else { return };
    let mut budget = MOST_PAGES;
    for text in maps.split(|b| *b == b'\n').filter_map(candidate) {
        // The executable's header is at a lower address than its text. The header may be in the
        // middle of a mapping, because the operating system joins adjacent mappings.
        let pages = (1..=FARTHEST_PAGES).map_while(|page| text.start.checked_sub(page * 4096));
        for base in pages {
            if budget == 0 || sys::read_value::<u32>(base).is_none() {
                break;
            }
            budget -= 1;
            if elf::has_query(base, text.start, text.len()) {
                executables::embedded(base, None);
                break;
            }
        }
    }
}

/// The number of pages before an executable's code that are searched for its header. The code's
/// constants are between the header and the code.
const FARTHEST_PAGES: usize = 1024;
/// The largest number of pages that one call of [`register`] searches. With this limit, the search
/// takes at most some tens of milliseconds in a program with much JIT-compiled code.
const MOST_PAGES: usize = 1 << 15;

/// Parses a line of `/proc/self/maps`. Returns the mapping's range if it can be the code of an
/// executable: private and executable, without a file or with the temporary file of a system
/// library (a shared library that IREE loads with `dlopen`).
fn candidate(line: &[u8]) -> Option<Range> {
    let mut fields = line.splitn(6, |b| *b == b' ');
    let (range, mode) = (fields.next()?, fields.next()?);
    let path = fields.nth(3).unwrap_or_default().trim_ascii();
    let own = path.is_empty() || path.windows(11).any(|name| name == b"iree_dylib_");
    if mode != b"r-xp" || !own {
        return None;
    }
    let (start, end) = std::str::from_utf8(range).ok()?.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}
