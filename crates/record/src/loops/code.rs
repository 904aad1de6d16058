//! Defines the frame that describes where the machine code of a module is.

use crate::wire::{Decoder, Encoder, Truncated, Wire, last, wire};

const PREFIX: &str = "code-";
const MOST_PIECES: usize = 64;
const MOST_CALLEES: usize = 4096;

/// Where the machine code of a module is. Addresses are those in the module's ELF file. For code
/// without a file, such as that of a JIT compiler, they are addresses in the memory of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeFrame {
    pub module: u32,
    /// The address of the module's descriptor.
    pub descriptor: u64,
    /// The architecture, as `e_machine` of ELF files numbers it.
    pub machine: u16,
    /// The build id of the module's file; empty if it has none.
    pub build_id: Vec<u8>,
    /// Size of the module's file in bytes; 0 if there is none or it cannot be found.
    pub file_bytes: u64,
    /// When the module's file was modified last, in ns since 1970; 0 if unknown.
    pub modified_ns: u64,
    /// The number of the file with a copy of the code; `None` if there is no copy.
    pub kept: Option<u32>,
    /// The pieces of code that the copy contains one after the other: first address and number of
    /// bytes. Empty if there is no copy, or if the copy is the whole ELF file.
    pub pieces: Vec<(u64, u64)>,
    /// For code without a file: the library functions that the code calls.
    pub callees: Vec<Callee>,
}

/// A library's function that code without a file calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Callee {
    /// The address of the slot from which the code loads the function's address; 0 if the code
    /// contains the address itself.
    pub slot: u64,
    /// The function's first address.
    pub function: u64,
    pub name: String,
}

wire!(Callee { slot, function, name });

/// Returns the name of the file that contains the copy with this number.
pub fn code_name(number: u32) -> String {
    format!("{PREFIX}{number}.bin")
}

impl Wire for CodeFrame {
    fn put(&self, e: &mut Encoder) {
        e.u32(self.module).u64(self.descriptor).u16(self.machine).bytes(&self.build_id);
        e.u64(self.file_bytes).u64(self.modified_ns).u8(self.kept.is_some().into());
        e.u32(self.kept.unwrap_or(0));
        self.pieces.put(e);
        // Frames of earlier versions end here.
        if !self.callees.is_empty() {
            self.callees.put(e);
        }
    }

    fn get(d: &mut Decoder<'_>) -> Result<Self, Truncated> {
        let (module, descriptor, machine) = (d.u32()?, d.u64()?, d.u16()?);
        let build_id = d.bytes()?.to_vec();
        let (file_bytes, modified_ns, kept) = (d.u64()?, d.u64()?, d.u8()? != 0);
        let kept = Some(d.u32()?).filter(|_| kept);
        let pieces: Vec<_> = Wire::get(d)?;
        if pieces.len() > MOST_PIECES {
            return Err(Truncated { at: 0 });
        }
        let mut callees: Vec<Callee> = last::get(d)?.unwrap_or_default();
        callees.truncate(MOST_CALLEES);
        Ok(Self {
            module,
            descriptor,
            machine,
            build_id,
            file_bytes,
            modified_ns,
            kept,
            pieces,
            callees,
        })
    }
}
