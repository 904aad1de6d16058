//! Machine code and data by address, from a file or copied out of a process.
//!
//! The input is not trusted, because anybody may have made the file or the process. So an image
//! copies at most twice as many bytes as a file has, or [`MOST_BYTES`] from a process. It reads at
//! an address only after it has found the segment that contains the address.

use std::collections::{BTreeMap, HashMap};

use gimli::{
    BaseAddresses, CieOrFde, CommonInformationEntry, EhFrame, LittleEndian, UnwindSection,
};
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{
    Architecture, Endianness, Object, ObjectKind, ObjectSection, ObjectSymbol, RelocationFlags,
    RelocationTarget, SectionKind, SymbolKind, elf,
};

use crate::error::CodeError;

mod links;

use links::Outside;

/// The largest number of bytes of a file that is read, or of the memory that is copied from a
/// process.
pub const MOST_BYTES: u64 = 1 << 30;
/// The largest number of symbols, and of entries of unwind tables.
const MOST_NAMES: usize = 1 << 22;
/// At most this many bytes of symbol names are read for each byte of the file. Without this limit,
/// many symbols could share one name that is as long as the file.
const NAMES_PER_BYTE: u64 = 8;
/// Of a file of n times this many bytes, at most n relocations are read. Without this limit, many
/// sections could refer to the same relocations.
const RELOCATION_BYTES: u64 = 16;
/// The largest number of segments, or of an object file's sections.
const MOST_SEGMENTS: usize = 4096;

/// An architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// x86-64.
    X86,
    /// AArch64, little-endian.
    Arm,
}

#[derive(Clone, Debug)]
struct Segment {
    address: u64,
    bytes: Vec<u8>,
    executable: bool,
}

impl Segment {
    fn end(&self) -> u64 {
        self.address.saturating_add(self.bytes.len() as u64)
    }
}

/// A function, from a symbol or an unwind table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The first address.
    pub start: u64,
    /// The address after the function; `start` if the size is not known.
    pub end: u64,
    /// The name; empty if no symbol names the function.
    pub name: String,
}

/// Code and data by address, from an ELF file, or, for code that is in no file, from a process.
#[derive(Clone, Debug)]
pub struct Image {
    pub machine: Machine,
    /// The build id, if there is one.
    pub build_id: Option<Vec<u8>>,
    /// The functions, sorted by address. Each has a different start.
    pub functions: Vec<Function>,
    segments: Vec<Segment>,
    /// The ranges of addresses that segments contain, in ascending order: begin, end, and index of
    /// the segment. Of overlapping segments, the first one is used.
    places: Vec<(u64, u64, usize)>,
    /// The number of bytes of all segments.
    total: u64,
    /// The largest allowed `total`.
    most: u64,
    /// The number of bytes of the file; 0 for an image from a process.
    file: u64,
    /// For the address of a slot (such as an entry of the GOT): the address of the function to
    /// which the slot points.
    slots: BTreeMap<u64, u64>,
    /// The number of bytes of symbol names that may still be read.
    names_left: u64,
}

impl Image {
    /// Reads an executable, a shared object, or an object file. The sections of an object file are
    /// placed one after the other, from address 0 on, code first.
    pub fn elf(bytes: &[u8]) -> Result<Self, CodeError> {
        if bytes.len() as u64 > MOST_BYTES {
            return Err(CodeError::TooLarge {
                what: "file",
                size: bytes.len() as u64,
                unit: "bytes",
            });
        }
        let file =
            ElfFile64::<Endianness>::parse(bytes).map_err(|e| CodeError::Elf(e.to_string()))?;
        let machine = match file.architecture() {
            Architecture::X86_64 => Machine::X86,
            Architecture::Aarch64 if file.is_little_endian() => Machine::Arm,
            other => return Err(CodeError::Machine(format!("{other:?}"))),
        };
        let mut image = Self {
            machine,
            build_id: file.build_id().ok().flatten().map(<[u8]>::to_vec),
            functions: Vec::new(),
            segments: Vec::new(),
            places: Vec::new(),
            total: 0,
            most: 2 * bytes.len() as u64,
            file: bytes.len() as u64,
            slots: BTreeMap::new(),
            names_left: (bytes.len() as u64).saturating_mul(NAMES_PER_BYTE),
        };
        if file.kind() == ObjectKind::Relocatable {
            let places = image.lay_out(&file)?;
            image.index();
            let places: HashMap<usize, u64> = places.into_iter().collect();
            let place = |section: usize| places.get(&section).copied();
            image.symbols(&file, |symbol| {
                place(symbol.section_index()?.0)?.checked_add(symbol.address())
            });
            return Ok(image);
        }
        let endian = file.endian();
        for header in file.elf_program_headers() {
            if header.p_type(endian) != elf::PT_LOAD {
                continue;
            }
            let data = header
                .data(endian, bytes)
                .map_err(|()| CodeError::Elf("a segment lies outside of the file".to_owned()))?;
            image.segment(
                header.p_vaddr(endian),
                data,
                header.p_flags(endian).0 & elf::PF_X.0 != 0,
            )?;
        }
        image.index();
        image.symbols(&file, |symbol| Some(symbol.address()));
        if let Some(section) = file.section_by_name(".eh_frame") {
            image.unwind_table(section.data().unwrap_or_default(), section.address());
        }
        image.link(&file);
        image.order();
        Ok(image)
    }

    /// Makes an image of pieces of a process's memory. If a piece begins with an ELF header, the
    /// program headers say where the code and the unwind table are.
    pub fn copied(machine: Machine, pieces: Vec<(u64, Vec<u8>)>) -> Result<Self, CodeError> {
        let mut image = Self {
            machine,
            build_id: None,
            functions: Vec::new(),
            segments: Vec::new(),
            places: Vec::new(),
            total: 0,
            most: MOST_BYTES,
            file: 0,
            slots: BTreeMap::new(),
            names_left: 0,
        };
        for (address, bytes) in pieces {
            image.segment(address, &bytes, true)?;
        }
        image.index();
        let header = image.segments.iter().find(|s| s.bytes.starts_with(b"\x7fELF\x02\x01"));
        if let Some(headers) = header.map(|s| program_headers(&s.bytes)) {
            for segment in &mut image.segments {
                let is_own = |h: &&Header| h.kind == elf::PT_LOAD.0 && h.address == segment.address;
                let own = headers.iter().find(is_own);
                segment.executable = own.is_none_or(|header| header.flags & elf::PF_X.0 != 0);
            }
            let table = headers.iter().find(|header| header.kind == elf::PT_GNU_EH_FRAME.0);
            if let Some(at) = table.and_then(|header| image.eh_frame(header.address)) {
                let bytes = image.bytes(at).unwrap_or_default().to_vec();
                image.unwind_table(&bytes, at);
                image.order();
            }
        }
        Ok(image)
    }

    fn segment(&mut self, address: u64, bytes: &[u8], executable: bool) -> Result<(), CodeError> {
        if address.checked_add(bytes.len() as u64).is_none() {
            return Err(CodeError::Elf(format!(
                "a segment at {address:#x} ends beyond all addresses"
            )));
        }
        // The sum of all segments is limited, because several headers may refer to the same bytes.
        self.total += bytes.len() as u64;
        if self.total > self.most || self.segments.len() == MOST_SEGMENTS {
            return Err(CodeError::TooLarge {
                what: "sum of segments",
                size: self.total,
                unit: "bytes",
            });
        }
        self.segments.push(Segment { address, bytes: bytes.to_vec(), executable });
        Ok(())
    }

    /// Fills `places`, which makes lookups fast: code is looked up for each instruction, and there
    /// may be thousands of segments.
    fn index(&mut self) {
        let mut places: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
        for (number, segment) in self.segments.iter().enumerate() {
            let (mut at, end) = (segment.address, segment.end());
            if let Some((_, (before, _))) = places.range(..=at).next_back() {
                at = at.max(*before);
            }
            while at < end {
                let next = places.range(at..end).next().map(|(next, (end, _))| (*next, *end));
                let (next, after) = next.unwrap_or((end, end));
                if at < next {
                    places.insert(at, (next, number));
                }
                at = after;
            }
        }
        let places = places.into_iter();
        self.places = places.map(|(begin, (end, number))| (begin, end, number)).collect();
    }

    fn segment_at(&self, address: u64) -> Option<&Segment> {
        let after = self.places.partition_point(|(begin, ..)| *begin <= address);
        let (_, end, number) = self.places.get(after.checked_sub(1)?)?;
        self.segments.get(*number).filter(|_| address < *end)
    }

    /// Returns the address of the unwind table, from `.eh_frame_hdr` at `header`. In the form that
    /// linkers write, which is the only one read here, bytes 4 to 7 of this section contain the
    /// distance from byte 4 to the table.
    fn eh_frame(&self, header: u64) -> Option<u64> {
        const PC_RELATIVE_4: u8 = 0x1b;
        let bytes: &[u8; 8] = self.bytes(header)?.first_chunk()?;
        let [1, PC_RELATIVE_4, _, _, a, b, c, d] = *bytes else { return None };
        header.checked_add(4)?.checked_add_signed(i32::from_le_bytes([a, b, c, d]).into())
    }

    /// Assigns addresses to the sections of an object file that contain code or data, and applies
    /// their relocations. Returns index and address of each of these sections.
    fn lay_out(&mut self, file: &ElfFile64<'_>) -> Result<Vec<(usize, u64)>, CodeError> {
        let mut places = Vec::new();
        let mut next = 0_u64;
        let is_code = |kind: SectionKind| kind == SectionKind::Text;
        for wanted in [true, false] {
            for section in file.sections() {
                let kept = match section.kind() {
                    kind if is_code(kind) => wanted,
                    SectionKind::Data | SectionKind::ReadOnlyData | SectionKind::ReadOnlyString => {
                        !wanted
                    }
                    _ => false,
                };
                if !kept {
                    continue;
                }
                let data = section.data().map_err(|e| CodeError::Elf(e.to_string()))?;
                let align = section.align().clamp(1, 4096).next_power_of_two();
                next = next.next_multiple_of(align);
                self.segment(next, data, wanted)?;
                places.push((section.index().0, next));
                next += data.len() as u64;
            }
        }
        let by_index: HashMap<usize, u64> = places.iter().copied().collect();
        let of = |index: usize| by_index.get(&index).copied();
        let mut left = self.file / RELOCATION_BYTES;
        let mut outside = Outside::after(next);
        for (number, (index, at)) in places.iter().enumerate() {
            let Ok(section) = file.section_by_index(object::SectionIndex(*index)) else { continue };
            for (offset, relocation) in section.relocations() {
                left = left.checked_sub(1).ok_or(CodeError::TooLarge {
                    what: "sum of relocations",
                    size: self.file,
                    unit: "bytes",
                })?;
                let RelocationTarget::Symbol(symbol) = relocation.target() else { continue };
                let Ok(symbol) = file.symbol_by_index(symbol) else { continue };
                let RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
                let base = match symbol.section_index().and_then(|section| of(section.0)) {
                    Some(base) => base.wrapping_add(symbol.address()),
                    None if symbol.is_undefined() && self.machine == Machine::X86 => {
                        self.outside_function(&mut outside, &symbol)
                    }
                    None => continue,
                };
                let base = self.target_of(&mut outside, r_type, base);
                let target = base.wrapping_add_signed(relocation.addend());
                let place = at.wrapping_add(offset);
                let Ok(offset) = usize::try_from(offset) else { continue };
                let bytes = &mut self.segments[number].bytes;
                relocate(self.machine, bytes, offset, r_type, target, place);
            }
        }
        Ok(places)
    }

    fn symbols<'f>(
        &mut self,
        file: &'f ElfFile64<'f>,
        address: impl Fn(&object::read::elf::ElfSymbol64<'f, 'f, Endianness>) -> Option<u64>,
    ) {
        for symbol in file.symbols().chain(file.dynamic_symbols()).take(MOST_NAMES) {
            if symbol.kind() != SymbolKind::Text || symbol.is_undefined() {
                continue;
            }
            let (Some(start), Ok(name)) = (address(&symbol), symbol.name_bytes()) else { continue };
            let Some(left) = self.names_left.checked_sub(name.len() as u64 + 1) else { break };
            self.names_left = left;
            let Ok(name) = std::str::from_utf8(name) else { continue };
            let end = start.saturating_add(symbol.size());
            self.functions.push(Function { start, end, name: name.to_owned() });
        }
        self.order();
    }

    /// Adds the functions of `.eh_frame`, which stripped files still have.
    fn unwind_table(&mut self, bytes: &[u8], address: u64) {
        let mut section = EhFrame::new(bytes, LittleEndian);
        section.set_address_size(8);
        let bases = BaseAddresses::default().set_eh_frame(address);
        let mut entries = section.entries(&bases);
        let mut count = 0;
        // Many functions may share one common entry (CIE), which can be as long as the table. So a
        // common entry is parsed only once for all its functions.
        let mut shared: HashMap<usize, CommonInformationEntry<_>> = HashMap::new();
        while let Ok(Some(entry)) = entries.next() {
            count += 1;
            if count > MOST_NAMES {
                break;
            }
            let CieOrFde::Fde(partial) = entry else { continue };
            let found = partial.parse(|section, bases, at| match shared.get(&at.0) {
                Some(known) => Ok(known.clone()),
                None => {
                    let new = section.cie_from_offset(bases, at)?;
                    shared.insert(at.0, new.clone());
                    Ok(new)
                }
            });
            let Ok(found) = found else { continue };
            let (start, end) = (found.initial_address(), found.end_address());
            if end > start && self.is_code(start) {
                self.functions.push(Function { start, end, name: String::new() });
            }
        }
    }

    /// Sorts functions, and keeps one for each start: preferably with a name, and then with a size.
    fn order(&mut self) {
        self.functions.sort_by(|a, b| {
            let size = |f: &Function| f.end > f.start;
            (a.start, a.name.is_empty(), !size(a)).cmp(&(b.start, b.name.is_empty(), !size(b)))
        });
        self.functions.dedup_by(|b, a| {
            if a.start == b.start {
                a.end = a.end.max(b.end);
            }
            a.start == b.start
        });
    }

    pub fn function_at(&self, address: u64) -> Option<&Function> {
        let after = self.functions.partition_point(|f| f.start <= address);
        let found = self.functions.get(after.checked_sub(1)?)?;
        (address < found.end || address == found.start).then_some(found)
    }

    /// Returns whether a function begins at this address.
    pub fn is_entry(&self, address: u64) -> bool {
        self.functions.binary_search_by_key(&address, |f| f.start).is_ok()
    }

    /// Returns the known bytes from an address on.
    pub fn bytes(&self, address: u64) -> Option<&[u8]> {
        let segment = self.segment_at(address)?;
        segment.bytes.get((address - segment.address) as usize..)
    }

    /// Returns the known code from an address on.
    pub fn code(&self, address: u64) -> Option<&[u8]> {
        if self.is_code(address) { self.bytes(address) } else { None }
    }

    /// Returns whether there may be code at an address.
    pub fn is_code(&self, address: u64) -> bool {
        self.segment_at(address).is_some_and(|segment| segment.executable)
    }

    /// Returns address and bytes of each piece of code.
    pub fn pieces(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let code = self.segments.iter().filter(|s| s.executable);
        code.map(|s| (s.address, s.bytes.as_slice()))
    }

    /// Returns the addresses of the descriptors of the module with this identity (at most 16).
    pub fn descriptors(&self, identity: &[u8; 16]) -> Vec<u64> {
        let mut found = Vec::new();
        for segment in &self.segments {
            let aligned = (segment.address.next_multiple_of(8) - segment.address) as usize;
            let mut at = aligned;
            while let Some(head) = segment.bytes.get(at..at + 40) {
                if head[..8] == abi::loops::MAGIC
                    && head[24..40] == identity[..]
                    && found.len() < 16
                {
                    found.push(segment.address + at as u64);
                }
                at += 8;
            }
        }
        found
    }

    /// Returns the descriptors in the image (at most 1024).
    pub fn modules(&self) -> Vec<Described> {
        let mut found: Vec<Described> = Vec::new();
        for segment in &self.segments {
            let mut at = (segment.address.next_multiple_of(8) - segment.address) as usize;
            while let Some(head) = segment.bytes.get(at..at + 40) {
                if head[..8] == abi::loops::MAGIC
                    && let (Some(ids), Some(mode)) = (word(head, 16), word(head, 20))
                    && word(head, 8) == Some(size_of::<abi::loops::Module>() as u32)
                    && let Some(identity) = head[24..].first_chunk()
                    && found.len() < 1024
                {
                    let address = segment.address + at as u64;
                    found.push(Described { address, identity: *identity, ids, mode });
                }
                at += 8;
            }
        }
        found
    }
}

/// The descriptor of an instrumented module in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Described {
    /// The descriptor's address.
    pub address: u64,
    /// The module's identity.
    pub identity: [u8; 16],
    /// How many ids the module has.
    pub ids: u32,
    /// The mode in which the module records hits, as a number.
    pub mode: u32,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|four| u32::from_le_bytes(*four))
}

struct Header {
    kind: u32,
    flags: u32,
    address: u64,
}

/// Returns the program headers (at most 64) to which the ELF header at the start of `bytes` refers.
fn program_headers(bytes: &[u8]) -> Vec<Header> {
    let long = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let count = bytes.get(56..58).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]));
    let Some(first) = long(32).and_then(|at| usize::try_from(at).ok()) else { return Vec::new() };
    let header = |i: usize| {
        let at = first.checked_add(56 * i)?;
        let address = long(at.checked_add(16)?)?;
        Some(Header { kind: word(bytes, at)?, flags: word(bytes, at + 4)?, address })
    };
    (0..usize::from(count.min(64))).map_while(header).collect()
}

/// Applies a relocation of an object file, if its kind is one of those below.
fn relocate(
    machine: Machine,
    bytes: &mut [u8],
    at: usize,
    kind: elf::RelocationType,
    target: u64,
    place: u64,
) {
    let Some(rest) = bytes.get_mut(at..) else { return };
    if let (Machine::X86, elf::R_X86_64_64) = (machine, kind) {
        if let Some(eight) = rest.first_chunk_mut::<8>() {
            *eight = target.to_le_bytes();
        }
        return;
    }
    let Some(four) = rest.first_chunk_mut::<4>() else { return };
    let old = u32::from_le_bytes(*four);
    let new = match (machine, kind) {
        (
            Machine::X86,
            elf::R_X86_64_PC32
            | elf::R_X86_64_PLT32
            | elf::R_X86_64_GOTPCREL
            | elf::R_X86_64_GOTPCRELX
            | elf::R_X86_64_REX_GOTPCRELX,
        ) => target.wrapping_sub(place) as u32,
        (Machine::X86, elf::R_X86_64_32 | elf::R_X86_64_32S) => target as u32,
        (Machine::Arm, elf::R_AARCH64_ADR_PREL_PG_HI21) => {
            let pages = ((target & !0xfff).wrapping_sub(place & !0xfff) >> 12) as u32;
            (old & 0x9f00_001f) | (pages & 3) << 29 | (pages >> 2 & 0x7_ffff) << 5
        }
        (Machine::Arm, elf::R_AARCH64_ADR_PREL_LO21) => {
            let distance = target.wrapping_sub(place) as u32;
            (old & 0x9f00_001f) | (distance & 3) << 29 | (distance >> 2 & 0x7_ffff) << 5
        }
        (Machine::Arm, elf::R_AARCH64_ADD_ABS_LO12_NC | elf::R_AARCH64_LDST8_ABS_LO12_NC) => {
            low12(old, target, 0)
        }
        (Machine::Arm, elf::R_AARCH64_LDST32_ABS_LO12_NC) => low12(old, target, 2),
        (Machine::Arm, elf::R_AARCH64_LDST64_ABS_LO12_NC) => low12(old, target, 3),
        (Machine::Arm, elf::R_AARCH64_LDST128_ABS_LO12_NC) => low12(old, target, 4),
        (Machine::Arm, elf::R_AARCH64_JUMP26 | elf::R_AARCH64_CALL26) => {
            (old & 0xfc00_0000) | (target.wrapping_sub(place) >> 2) as u32 & 0x03ff_ffff
        }
        _ => return,
    };
    *four = new.to_le_bytes();
}

/// Writes the low 12 bits of an address, divided by 2 to the power of `scale`, into an
/// instruction's immediate.
fn low12(old: u32, target: u64, scale: u32) -> u32 {
    (old & !(0xfff << 10)) | ((target as u32 & 0xfff) >> scale) << 10
}
