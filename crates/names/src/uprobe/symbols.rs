//! Reads the functions of an ELF file, by name, version and address.
//!
//! ```text
//!  .symtab  name, name@VERSION, name@@VERSION; a local one belongs to the last source file before it
//!  .dynsym  name, with its version in .gnu.version and .gnu.version_d; "hidden" is name@VERSION
//!  /usr/lib/debug/.build-id/ab/cdef….debug     the same two tables for a file that was stripped
//! ```
//!
//! A name without a version stands for the default version (`name@@VERSION`), which newly linked
//! programs call.
//!
//! Sources: the ELF specification (gABI); "LSB symbol versioning" for .gnu.version.

use std::path::Path;

use object::elf::{PF_X, PT_LOAD, STT_GNU_IFUNC};
use object::read::elf::{ElfFile, FileHeader, ProgramHeader};
use object::{
    Endianness, Object, ObjectSection, ObjectSymbol, SymbolFlags, SymbolKind, SymbolSection,
};

use super::wrong;
use crate::cause::NameCause;
use crate::source::Trouble;
use machine::Machine;
use model::suggest;

pub(super) trait Class: FileHeader<Endian = Endianness> {}
impl<T: FileHeader<Endian = Endianness>> Class for T {}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Function {
    /// Virtual address.
    pub address: u64,
    /// In bytes; 0 if it is not known.
    pub size: u64,
    /// Whether the symbol is `STT_GNU_IFUNC`: the code there chooses an implementation.
    pub indirect: bool,
    /// Without the version.
    pub name: String,
    /// For example `GLIBC_2.27`.
    pub version: Option<String>,
    /// Whether the name without a version stands for this version.
    pub is_default: bool,
    /// The source file, if the function is local to it.
    pub source: Option<String>,
}

pub(super) struct Symbols<'f, Elf: Class> {
    pub file: ElfFile<'f, Elf>,
    /// Functions from the file's own symbol tables.
    functions: Vec<Function>,
    /// Functions from the separate file with symbols. `find` uses them only for a name that the
    /// file's own tables do not have.
    separate: Vec<Function>,
    /// Names of dynamic symbols that the file uses but does not define.
    imported: Vec<String>,
}

impl<'f, Elf: Class> Symbols<'f, Elf> {
    pub fn read(machine: &Machine, path: &Path, bytes: &'f [u8]) -> Result<Self, Trouble> {
        let damaged = |e: object::Error| wrong(path.display().to_string(), e.to_string());
        let file = ElfFile::<Elf>::parse(bytes).map_err(damaged)?;
        let own = functions(&file);
        let separate = separate_symbols(machine, &file).map_or_else(Vec::new, |bytes| {
            ElfFile::<Elf>::parse(bytes.as_slice()).map_or_else(|_| Vec::new(), |f| functions(&f))
        });
        let imported = file.dynamic_symbols().filter(|s| s.is_undefined());
        let imported = imported.filter_map(|s| s.name().ok().map(str::to_owned)).collect();
        Ok(Self { file, functions: own, separate, imported })
    }

    /// Returns the function that `typed` (`name`, `name@VERSION`, `name@@VERSION`) stands for.
    pub fn find(&self, path: &Path, typed: &str) -> Result<Function, Trouble> {
        let mut found = named(&self.functions, typed);
        if found.is_empty() {
            found = named(&self.separate, typed);
        }
        // Symbols with the same address are one function, which is indirect if one of them is.
        found.sort_by_key(|f| (f.address, !f.indirect));
        found.dedup_by_key(|f| f.address);
        if found.is_empty() {
            return Err(self.none(path, typed));
        }
        found.retain(|f| self.offset_of(f.address).is_some());
        match found.as_slice() {
            [one] => Ok((*one).clone()),
            [] => Err(wrong(typed, "its address is not in the code of the file")),
            several => Err(self.several(typed, several)),
        }
    }

    fn none(&self, path: &Path, typed: &str) -> Trouble {
        let (base, _, _) = split(typed);
        let all = || self.functions.iter().chain(&self.separate);
        let versions: Vec<String> =
            all().filter(|f| f.name == base).filter_map(Function::versioned).collect();
        if base != typed && !versions.is_empty() {
            let problem = format!("{} has no such version of {base}", path.display());
            return wrong(typed, problem).because(NameCause::Versions(unique(versions)));
        }
        let trouble = wrong(typed, format!("no function of {}", path.display()));
        if self.imported.iter().any(|name| name == base) {
            return trouble.because(NameCause::Imported(path.display().to_string()));
        }
        let near = suggest::closest(base, all().map(|f| f.name.as_str()));
        trouble.because(match near.is_empty() {
            true if self.functions.is_empty() && self.separate.is_empty() => NameCause::NoSymbols,
            true => NameCause::NoSuchSymbol,
            false => NameCause::Near(near.into_iter().map(str::to_owned).collect()),
        })
    }

    fn several(&self, typed: &str, several: &[&Function]) -> Trouble {
        let versions: Vec<String> = several.iter().filter_map(|f| f.versioned()).collect();
        if versions.len() == several.len() {
            let problem = format!("{} versions, none of which is the default", several.len());
            return wrong(typed, problem).because(NameCause::NoDefaultVersion(versions));
        }
        let place = |f: &&Function| {
            let offset = self.offset_of(f.address)?;
            let what = match (&f.source, f.indirect) {
                (_, true) => return f.versioned().map(|name| format!("{name} (indirect)")),
                (Some(source), _) => format!(" ({source})"),
                (None, _) => String::new(),
            };
            Some(format!("{offset:#x}{what}"))
        };
        let places: Vec<String> = several.iter().filter_map(place).collect();
        wrong(typed, format!("{} functions of that name", several.len()))
            .because(NameCause::Places(places))
    }

    pub fn not_chosen(&self, typed: &str, function: &Function) -> Trouble {
        let problem = "an indirect function: each process chooses an implementation when it starts, \
                       and a probe there would count the choosing";
        let inside = format!("_{}_", function.name);
        let named =
            |f: &&Function| !f.indirect && f.name.contains(&inside) && !f.name.contains("ifunc");
        let all = self.functions.iter().chain(&self.separate);
        let mut names = unique(all.filter(named).map(|f| f.name.clone()).collect());
        names.truncate(8);
        wrong(typed, problem).because(NameCause::Implementations(names))
    }

    /// Returns the indirect function whose choosing code contains `address`.
    pub fn indirect_at(&self, address: u64) -> Option<&Function> {
        let all = self.functions.iter().chain(&self.separate).filter(|f| f.indirect);
        let holds = |f: &&Function| {
            address.checked_sub(f.address).is_some_and(|inside| inside < f.size.max(1))
        };
        // The default version is preferred, then a name without a leading underscore, then the
        // shortest name.
        all.filter(holds).min_by_key(|f| (!f.is_default, f.name.starts_with('_'), f.name.len()))
    }

    pub fn beginning_at(&self, address: u64) -> impl Iterator<Item = &Function> {
        self.functions.iter().chain(&self.separate).filter(move |f| f.address == address)
    }

    /// Returns the offset in the file of the code at `address`.
    pub fn offset_of(&self, address: u64) -> Option<u64> {
        self.code().find_map(|(virtual_address, offset, size)| {
            let inside = address.checked_sub(virtual_address)?;
            (inside < size).then(|| inside.checked_add(offset))?
        })
    }

    /// Returns the virtual address of the code at this offset of the file.
    pub fn address_of(&self, file_offset: u64) -> Option<u64> {
        self.code().find_map(|(virtual_address, offset, size)| {
            let inside = file_offset.checked_sub(offset)?;
            (inside < size).then(|| inside.checked_add(virtual_address))?
        })
    }

    /// Returns address, offset and size of the executable segments.
    fn code(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let endian = self.file.endian();
        let segments = self.file.elf_program_headers().iter();
        segments
            .filter(move |h| h.p_type(endian) == PT_LOAD && h.p_flags(endian).0 & PF_X.0 != 0)
            .map(move |h| {
                (h.p_vaddr(endian).into(), h.p_offset(endian).into(), h.p_filesz(endian).into())
            })
    }

    /// Returns address and content of a section.
    pub fn section(&self, name: &str) -> Option<(u64, &'f [u8])> {
        let section = self.file.section_by_name(name)?;
        Some((section.address(), section.data().ok()?))
    }
}

impl Function {
    /// Returns the name with its version (`expf@GLIBC_2.27`).
    fn versioned(&self) -> Option<String> {
        Some(format!("{}@{}", self.name, self.version.as_ref()?))
    }
}

/// Returns the functions that `typed` stands for. If the name has no version, the default version
/// hides the others.
fn named<'s>(functions: &'s [Function], typed: &str) -> Vec<&'s Function> {
    let (base, version, _) = split(typed);
    let mut found: Vec<&Function> = functions.iter().filter(|f| f.name == base).collect();
    match version {
        Some(version) => found.retain(|f| f.version.as_deref() == Some(version)),
        None if found.iter().any(|f| f.is_default) => found.retain(|f| f.is_default),
        None => {}
    }
    found
}

/// Splits a symbol into its name and its version, and says whether the version is the default one
/// (`name@@VERSION`, or a name without a version).
fn split(symbol: &str) -> (&str, Option<&str>, bool) {
    match symbol.split_once('@') {
        Some((name, version))
            if !name.is_empty() && !version.trim_start_matches('@').is_empty() =>
        {
            (name, Some(version.trim_start_matches('@')), version.starts_with('@'))
        }
        _ => (symbol, None, true),
    }
}

fn unique(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names.dedup();
    names
}

fn functions<Elf: Class>(file: &ElfFile<'_, Elf>) -> Vec<Function> {
    let mut found = Vec::new();
    let mut source = None;
    for symbol in file.symbols() {
        let name = symbol.name().unwrap_or_default();
        if symbol.kind() == SymbolKind::File {
            source = Some(name).filter(|name| !name.is_empty());
        } else if let Some((indirect, symbol)) = function(&symbol) {
            let (name, version, is_default) = split(name);
            found.push(Function {
                address: symbol.address(),
                size: symbol.size(),
                indirect,
                name: name.to_owned(),
                version: version.map(str::to_owned),
                is_default,
                source: source.filter(|_| symbol.is_local()).map(str::to_owned),
            });
        }
    }
    let endian = file.endian();
    let versions = file.elf_section_table().versions(endian, file.data()).ok().flatten();
    for symbol in file.dynamic_symbols() {
        let Some((indirect, symbol)) = function(&symbol) else { continue };
        let index = versions.as_ref().map(|table| table.version_index(endian, symbol.index()));
        let version = versions.as_ref().zip(index).and_then(|(table, index)| {
            let version = table.version(index.index()).ok()??;
            String::from_utf8(version.name().to_vec()).ok()
        });
        found.push(Function {
            address: symbol.address(),
            size: symbol.size(),
            indirect,
            name: symbol.name().unwrap_or_default().to_owned(),
            version,
            is_default: index.is_none_or(|index| !index.is_hidden()),
            source: None,
        });
    }
    found
}

/// Returns the symbol, and whether it is indirect, if it names code that its file defines.
fn function<'d, 's, S: ObjectSymbol<'d>>(symbol: &'s S) -> Option<(bool, &'s S)> {
    let indirect = matches!(symbol.flags(), SymbolFlags::Elf { st_info, .. } if st_info.0 & 0xf == STT_GNU_IFUNC.0);
    let absolute = matches!(symbol.section(), SymbolSection::Absolute | SymbolSection::Common);
    let code = indirect || symbol.kind() == SymbolKind::Text;
    (code && !absolute && !symbol.is_undefined()).then_some((indirect, symbol))
}

/// Reads the separate file that has the symbols of a stripped file. Its path follows from the
/// stripped file's build id.
fn separate_symbols<Elf: Class>(machine: &Machine, file: &ElfFile<'_, Elf>) -> Option<Vec<u8>> {
    let id = file.build_id().ok()??;
    let (first, rest) = id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    std::fs::read(machine.path(&format!("usr/lib/debug/.build-id/{first:02x}/{rest}.debug"))).ok()
}
