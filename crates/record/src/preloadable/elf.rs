//! Reads the parts of an ELF file that [`super`] needs.
//!
//! The file may be damaged: offsets come from the file, and a read may return fewer bytes than
//! requested. So each loop over entries of the file has a limit that does not come from the file.

use std::ffi::CStr;

use super::{File, PATH_BYTES, START_BYTES};

/// The needed fields of an ELF header.
pub(super) struct Header {
    segments: u64,
    segment_bytes: u64,
    count: u64,
}

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
pub(super) const PT_INTERP: u32 = 3;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;
const DT_VERDEF: u64 = 0x6fff_fffc;
/// At most this many segments are read. The files of programs have far fewer; the rest of a longer
/// table is ignored.
const MOST_SEGMENTS: u64 = 128;
const MOST_ENTRIES: u64 = 256;
/// Size of an entry of the segment table on 64-bit machines.
const SEGMENT_BYTES: usize = 56;
const SEGMENTS_AT_ONCE: usize = 16;
/// Size of an entry of the dynamic section.
const ENTRY_BYTES: usize = 16;
const ENTRIES_AT_ONCE: usize = 32;

pub(super) struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    bytes: u64,
}

impl Header {
    /// Returns `None` if the file is not an ELF file, or is one for another class, byte order or
    /// machine.
    pub(super) fn read(start: &[u8; START_BYTES]) -> Option<Self> {
        let is_ours = start[..4] == *b"\x7fELF"
            && start[4] == 2
            && start[5] == 1
            && u16_at(start, 18) == MACHINE;
        is_ours.then(|| Self {
            segments: u64_at(start, 32),
            segment_bytes: u16_at(start, 54).into(),
            count: u64::from(u16_at(start, 56)).min(MOST_SEGMENTS),
        })
    }

    /// Returns the first segment that `wanted` accepts. `None` if there is none, or if the table's
    /// entries are not [`SEGMENT_BYTES`] long; the kernel refuses such a table, too.
    fn segment(&self, file: &File, wanted: impl Fn(&Segment) -> bool) -> Option<Segment> {
        if self.segment_bytes != SEGMENT_BYTES as u64 {
            return None;
        }
        let mut raw = [0u8; SEGMENT_BYTES * SEGMENTS_AT_ONCE];
        let mut done = 0;
        while done < self.count {
            let at = self.segments.checked_add(done * SEGMENT_BYTES as u64)?;
            let length = file.read(at, &mut raw);
            let some = raw.get(..length)?.chunks_exact(SEGMENT_BYTES);
            let left = usize::try_from(self.count - done).ok()?;
            let some = some.take(left).map(|raw| Segment {
                kind: u32_at(raw, 0),
                offset: u64_at(raw, 8),
                address: u64_at(raw, 16),
                bytes: u64_at(raw, 32),
            });
            let read = some.len() as u64;
            if let Some(found) = some.into_iter().find(&wanted) {
                return Some(found);
            }
            if read == 0 {
                return None;
            }
            done += read;
        }
        None
    }

    /// Returns the path of the dynamic linker that the program asks for.
    pub(super) fn interpreter<'a>(
        &self,
        file: &File,
        path: &'a mut [u8; PATH_BYTES],
    ) -> Option<&'a CStr> {
        let segment = self.segment(file, |s| s.kind == PT_INTERP)?;
        let length = usize::try_from(segment.bytes).ok()?.min(PATH_BYTES - 1);
        path.fill(0);
        file.read(segment.offset, path.get_mut(..length)?);
        CStr::from_bytes_until_nul(path).ok()
    }

    /// Returns the offset in the file of the byte that has this address.
    fn offset_of(&self, file: &File, address: u64) -> Option<u64> {
        let holds = |s: &Segment| s.kind == PT_LOAD && address.wrapping_sub(s.address) < s.bytes;
        self.segment(file, holds)?.file_offset(address)
    }

    /// Calls `body` with the key and the value of each entry of the dynamic section, up to
    /// [`MOST_ENTRIES`] entries.
    fn each_entry(&self, file: &File, mut body: impl FnMut(u64, u64)) {
        let Some(dynamic) = self.segment(file, |s| s.kind == PT_DYNAMIC) else { return };
        let count = (dynamic.bytes / ENTRY_BYTES as u64).min(MOST_ENTRIES);
        let mut raw = [0u8; ENTRY_BYTES * ENTRIES_AT_ONCE];
        let mut done = 0;
        while done < count {
            let Some(at) = dynamic.offset.checked_add(done * ENTRY_BYTES as u64) else { return };
            let length = file.read(at, &mut raw);
            let entries = raw.get(..length).unwrap_or_default().chunks_exact(ENTRY_BYTES);
            let read = entries.len() as u64;
            for (entry, _) in entries.zip(done..count) {
                body(u64_at(entry, 0), u64_at(entry, 8));
            }
            if read == 0 {
                return;
            }
            done += read;
        }
    }

    /// Returns whether the library defines symbols of this version (`DT_VERDEF`).
    pub(super) fn defines_version(&self, file: &File, wanted: &[u8]) -> bool {
        self.find_version(file, wanted).is_some()
    }

    fn find_version(&self, file: &File, wanted: &[u8]) -> Option<()> {
        let (mut strings, mut versions) = (None, None);
        self.each_entry(file, |key, value| match key {
            DT_STRTAB => strings = Some(value),
            DT_VERDEF => versions = Some(value),
            _ => {}
        });
        let strings = self.offset_of(file, strings?)?;
        let mut at = self.offset_of(file, versions?)?;
        for _ in 0..MOST_ENTRIES {
            // In an Elf64_Verdef, vd_aux is at offset 12 and vd_next at 16. The first Elf64_Verdaux
            // starts with the name's offset in the string table.
            let (mut definition, mut name) = ([0u8; 20], [0u8; 4]);
            file.read(at, &mut definition);
            file.read(at.checked_add(u32_at(&definition, 12).into())?, &mut name);
            let mut text = [0u8; 32];
            if text_at(file, strings, u32_at(&name, 0).into(), &mut text) == Some(wanted) {
                return Some(());
            }
            match u32_at(&definition, 16) {
                0 => break,
                next => at = at.checked_add(next.into())?,
            }
        }
        None
    }

    /// Calls `body` with the names of the libraries that the program needs (at most
    /// [`MOST_NEEDED`]), until `body` returns true. Returns whether `body` has returned true. Names
    /// longer than 63 bytes are skipped.
    pub(super) fn any_needed(&self, file: &File, mut body: impl FnMut(&[u8]) -> bool) -> bool {
        let (mut strings, mut needs) = (None, [0u64; MOST_NEEDED]);
        let mut count = 0;
        self.each_entry(file, |key, value| match key {
            DT_STRTAB => strings = Some(value),
            DT_NEEDED => {
                if let Some(place) = needs.get_mut(count) {
                    *place = value;
                    count += 1;
                }
            }
            _ => {}
        });
        let Some(strings) = strings.and_then(|at| self.offset_of(file, at)) else { return false };
        let mut text = [0u8; 64];
        needs[..count]
            .iter()
            .any(|need| text_at(file, strings, *need, &mut text).is_some_and(&mut body))
    }

    /// Returns whether the string table of dynamic symbols contains this name. So a symbol that is
    /// only imported counts, too.
    pub(super) fn names_symbol(&self, file: &File, wanted: &[u8]) -> bool {
        let (mut strings, mut bytes) = (None, 0);
        self.each_entry(file, |key, value| match key {
            DT_STRTAB => strings = Some(value),
            DT_STRSZ => bytes = value.min(MOST_NAME_BYTES),
            _ => {}
        });
        let Some(strings) = strings.and_then(|at| self.offset_of(file, at)) else { return false };
        let mut window = [0u8; 1024];
        let mut done = 0;
        while done < bytes {
            let Some(at) = strings.checked_add(done) else { return false };
            let length = file.read(at, &mut window);
            let found = window.get(..length).unwrap_or_default();
            if found.windows(wanted.len() + 2).any(|w| {
                w.first() == Some(&0)
                    && w.last() == Some(&0)
                    && w.get(1..=wanted.len()) == Some(wanted)
            }) {
                return true;
            }
            if length < window.len() {
                return false;
            }
            // The next part overlaps this one, because the name may begin in one part and end in
            // the next.
            done += (length - wanted.len() - 1) as u64;
        }
        false
    }
}

/// At most this many bytes of the string table are searched. A damaged file may state any length.
const MOST_NAME_BYTES: u64 = 64 << 20;
/// At most this many needed libraries are examined (the most that we have seen are about 60).
const MOST_NEEDED: usize = 128;

impl Segment {
    fn file_offset(&self, address: u64) -> Option<u64> {
        self.offset.checked_add(address.checked_sub(self.address)?)
    }
}

/// Returns the text at an offset of a string table; `None` if the text does not fit in `to` or the
/// file ends before the text does.
fn text_at<'a>(file: &File, strings: u64, at: u64, to: &'a mut [u8]) -> Option<&'a [u8]> {
    let length = file.read(strings.checked_add(at)?, to);
    let read = to.get(..length)?;
    read.get(..read.iter().position(|b| *b == 0)?)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
