//! Functions of other libraries, and the slots (such as entries of the GOT) in which code finds
//! their addresses.
//!
//! ```text
//!  call ─► stub of the PLT ─► slot ─► address after the image ─► name
//!  load of a slot ────────────┘
//! ```
//!
//! A file does not say where other libraries will be. So each called function of another library
//! gets an unused address after the image's last one, and counts as a function without bytes. This
//! is done for x86-64 only: the names are for descriptions of loops in words, which exist for
//! x86-64 only.

use std::collections::HashMap;
use std::ops::Range;

use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Object, ObjectSymbol, ObjectSymbolTable, RelocationFlags, RelocationTarget, elf};

use super::{Function, Image, Machine, RELOCATION_BYTES};

/// The distance between assigned addresses.
const APART: u64 = 16;

/// The addresses after an image, which are assigned to functions of other libraries, and to slots.
pub(super) struct Outside {
    next: u64,
    /// The addresses of functions, by the indices of their symbols.
    functions: HashMap<usize, u64>,
    /// The assigned addresses of slots of an object file, by the addresses that the slots contain.
    slots: HashMap<u64, u64>,
}

impl Outside {
    /// Assigns addresses after `end`, the image's largest address.
    pub fn after(end: u64) -> Self {
        let next = end.checked_next_multiple_of(4096).unwrap_or(end);
        Self { next, functions: HashMap::new(), slots: HashMap::new() }
    }

    fn take(&mut self) -> u64 {
        self.next = self.next.wrapping_add(APART);
        self.next
    }
}

impl Image {
    /// Returns the address of the function to which a slot points; `None` if the function is not
    /// known, or if the program may change the slot.
    pub fn in_slot(&self, slot: u64) -> Option<u64> {
        self.slots.get(&slot).copied()
    }

    /// Adds functions outside of the image. Each element is the address of the function's slot (0
    /// for none), the function's first address, and its name.
    pub fn add_outside<'n>(&mut self, functions: impl IntoIterator<Item = (u64, u64, &'n str)>) {
        for (slot, start, name) in functions {
            if slot != 0 {
                self.slots.insert(slot, start);
            }
            if !self.is_code(start) {
                self.functions.push(Function { start, end: start, name: name.to_owned() });
            }
        }
        self.order();
    }

    pub(super) fn outside_function<'f>(
        &mut self,
        outside: &mut Outside,
        symbol: &impl ObjectSymbol<'f>,
    ) -> u64 {
        if let Some(known) = outside.functions.get(&symbol.index().0) {
            return *known;
        }
        let start = outside.take();
        outside.functions.insert(symbol.index().0, start);
        if let Ok(name) = symbol.name()
            && let Some(left) = self.names_left.checked_sub(name.len() as u64 + 1)
        {
            self.names_left = left;
            self.functions.push(Function { start, end: start, name: name.to_owned() });
        }
        start
    }

    fn of_symbol<'f>(
        &mut self,
        outside: &mut Outside,
        symbol: Option<impl ObjectSymbol<'f>>,
    ) -> Option<u64> {
        let symbol = symbol?;
        Some(match symbol.is_undefined() {
            true => self.outside_function(outside, &symbol),
            false => symbol.address(),
        })
    }

    /// Returns the address of the slot that contains `address`. An object file has no slots yet, so
    /// a slot gets an address when it is first needed.
    fn slot_for(&mut self, outside: &mut Outside, address: u64) -> u64 {
        if let Some(known) = outside.slots.get(&address) {
            return *known;
        }
        let slot = outside.take();
        outside.slots.insert(address, slot);
        self.slots.insert(slot, address);
        slot
    }

    /// Returns the address that a relocation of an object file refers to: that of the symbol, or
    /// that of a slot with the symbol's address.
    pub(super) fn target_of(
        &mut self,
        outside: &mut Outside,
        kind: elf::RelocationType,
        symbol: u64,
    ) -> u64 {
        match (self.machine, kind) {
            (
                Machine::X86,
                elf::R_X86_64_GOTPCREL | elf::R_X86_64_GOTPCRELX | elf::R_X86_64_REX_GOTPCRELX,
            ) => self.slot_for(outside, symbol),
            _ => symbol,
        }
    }

    /// Finds the slots that the dynamic linker fills.
    pub(super) fn link(&mut self, file: &ElfFile64<'_>) {
        let Some(symbols) = file.dynamic_symbol_table().filter(|_| self.machine == Machine::X86)
        else {
            return;
        };
        let (end, constant) = extent(file);
        let mut outside = Outside::after(end);
        let most = usize::try_from(self.file / RELOCATION_BYTES).unwrap_or(usize::MAX);
        for (slot, relocation) in file.dynamic_relocations().into_iter().flatten().take(most) {
            let RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
            // Of slots that are neither GLOB_DAT nor JUMP_SLOT, only constant ones are used,
            // because the program may write into the others.
            let is_constant = constant.contains(&slot);
            let address = match (r_type, relocation.target()) {
                (elf::R_X86_64_RELATIVE | elf::R_X86_64_IRELATIVE, _) if is_constant => {
                    // The addend is an address in the image: that of the function, or of the code
                    // that chooses the function.
                    Some(relocation.addend() as u64)
                }
                (
                    elf::R_X86_64_GLOB_DAT | elf::R_X86_64_JUMP_SLOT,
                    RelocationTarget::Symbol(at),
                ) => self.of_symbol(&mut outside, symbols.symbol_by_index(at).ok()),
                (elf::R_X86_64_64, RelocationTarget::Symbol(at))
                    if is_constant && relocation.addend() == 0 =>
                {
                    self.of_symbol(&mut outside, symbols.symbol_by_index(at).ok())
                }
                _ => None,
            };
            self.slots.extend(address.map(|address| (slot, address)));
        }
    }
}

/// Returns the first address after the image, and the range of addresses whose bytes do not change
/// after the dynamic linker has filled them.
fn extent(file: &ElfFile64<'_>) -> (u64, Range<u64>) {
    let endian = file.endian();
    let (mut end, mut constant) = (0, 0..0);
    for header in file.elf_program_headers() {
        let start = header.p_vaddr(endian);
        let own = start..start.saturating_add(header.p_memsz(endian));
        end = end.max(own.end);
        if header.p_type(endian) == elf::PT_GNU_RELRO {
            constant = own;
        }
    }
    (end, constant)
}
