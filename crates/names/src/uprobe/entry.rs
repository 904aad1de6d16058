//! Decides whether a return probe may be put at an offset of a file.
//!
//! When a program reaches a return probe, the kernel replaces the return address: the word on top
//! of the stack on x86, and the link register on AArch64 (`arch_uretprobe_hijack_return_addr`,
//! Linux 6.18). The kernel does not check whether a return address is there. In the middle of a
//! function, the kernel would destroy a saved register or a variable. So two things are checked in
//! the file. A symbol or the unwinding tables (`.eh_frame`) must say that a function begins there.
//! If the tables describe the place, they must also say that the return address is on top of the
//! stack or in the link register. The second check finds symbols that look like functions but are
//! reached by a jump: `NAME.cold`, trampolines, the first instruction of a program.
//!
//! Sources for the registers: the System V ABI of x86-64 and i386, the AArch64 DWARF ABI.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EndianSlice, Register, RegisterRule, RunTimeEndian,
    UnwindContext, UnwindSection,
};
use object::{Architecture, Endianness, Object};

use super::symbols::{Class, Symbols};

/// Checks that a return probe may be put at this offset of the file. An error says why the probe
/// may not be put there.
pub(super) fn check<Elf: Class>(file: &Symbols<'_, Elf>, offset: u64) -> Result<(), String> {
    let address = file.address_of(offset).ok_or("the file has no code there")?;
    // Go's runtime moves stacks, and ends the program if it finds the address of a return probe on
    // a stack.
    if [".gopclntab", ".go.buildinfo"].iter().any(|name| file.section(name).is_some()) {
        return Err("a return probe crashes programs written in Go when they move a stack".into());
    }
    if file.file.entry() == address {
        return Err("the first instruction of a program, which does not return".into());
    }
    let named = file.beginning_at(address).next().is_some();
    match frame(file, address) {
        Frame::Entered { begins: true } => Ok(()),
        Frame::Entered { begins: false } | Frame::Unknown if named => Ok(()),
        Frame::Elsewhere => {
            Err("the return address is not where it is at the entry of a function".into())
        }
        _ => Err("no function is known to begin there".into()),
    }
}

/// Where the return address is, according to the unwinding tables.
enum Frame {
    /// The return address is where it is at the entry of a function. `begins` says whether the
    /// description of a function begins here.
    Entered { begins: bool },
    /// The return address is in another place.
    Elsewhere,
    /// The tables do not describe this instruction.
    Unknown,
}

fn frame<Elf: Class>(file: &Symbols<'_, Elf>, address: u64) -> Frame {
    // DWARF's numbers of the stack pointer and of the return address, and how many bytes a call
    // pushes.
    let (stack, returns, pushed) = match file.file.architecture() {
        Architecture::X86_64 => (Register(7), Register(16), 8),
        Architecture::I386 => (Register(4), Register(8), 4),
        Architecture::Aarch64 => (Register(31), Register(30), 0),
        _ => return Frame::Unknown,
    };
    let Some((start, bytes)) = file.section(".eh_frame") else { return Frame::Unknown };
    let endian = match file.file.endianness() {
        Endianness::Little => RunTimeEndian::Little,
        Endianness::Big => RunTimeEndian::Big,
    };
    let mut section = EhFrame::from(EndianSlice::new(bytes, endian));
    section.set_address_size(if file.file.is_64() { 8 } else { 4 });
    let mut bases = BaseAddresses::default().set_eh_frame(start);
    if let Some((text, _)) = file.section(".text") {
        bases = bases.set_text(text);
    }
    let Ok(fde) = section.fde_for_address(&bases, address, EhFrame::cie_from_offset) else {
        return Frame::Unknown;
    };
    let mut context = UnwindContext::new();
    let Ok(row) = fde.unwind_info_for_address(&section, &bases, &mut context, address) else {
        return Frame::Unknown;
    };
    let frame = matches!(row.cfa(), CfaRule::RegisterAndOffset { register, offset }
        if *register == stack && *offset == pushed);
    let in_place = match row.register(returns) {
        Some(RegisterRule::Offset(offset)) => pushed > 0 && offset == -pushed,
        None | Some(RegisterRule::SameValue) => pushed == 0,
        _ => false,
    };
    match frame && in_place {
        true => Frame::Entered { begins: fde.initial_address() == address },
        false => Frame::Elsewhere,
    }
}
