//! Uprobes: `uprobe:/path/of/a/file:function[+offset]` and `uretprobe:…`, spelled as bpftrace
//! spells them. Each hit of an instruction in a file, in whichever process maps it, is a trap
//! that the kernel counts.
//!
//! ```text
//!  symbol ── .symtab, .dynsym, or the file's separate symbols ──► address
//!         ── program headers ──► offset in the file = config2
//!  path ──► config1 (the kernel's pointer)      return probe ──► a bit of config (format/retprobe)
//! ```
//!
//! Source: kernel/events/core.c (`perf_uprobe`, Linux 6.18). The PMU takes CAP_PERFMON.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use model::{PerfAttr, Source, Unit};
use object::elf::{PF_X, PT_LOAD, STT_GNU_IFUNC};
use object::read::elf::{ElfFile, FileHeader, ProgramHeader};
use object::{FileKind, Object, ObjectSymbol, ReadRef, SymbolFlags, SymbolKind};

use super::error::NameErrorKind;
use super::format::Format;
use super::resolve::{Entry, NameSource, Resolved, Trouble};
use super::syntax::Head;
use super::sysfs::DEVICES;
use crate::machine::Machine;
use model::suggest;

/// [`NameSource`] of uprobes.
pub(super) struct Uprobes(pub Machine);

impl NameSource for Uprobes {
    fn resolve(&self, head: &Head) -> Option<Result<Vec<Resolved>, Trouble>> {
        let Head::Uprobe { returns, path, at, symbol, offset } = head else { return None };
        Some(
            self.look_up(*returns, path, *at, symbol.as_deref(), *offset)
                .map(|attr| vec![Resolved::new(Source::Perf(attr), Unit::Count)]),
        )
    }

    fn entries(&self) -> Vec<Entry> {
        let entry = "hits of a function of a file, in any process that maps it";
        let exit = "returns of a function of a file";
        vec![
            Entry::pattern("uprobe:PATH:FUNCTION[+OFFSET]", "uprobe", entry),
            Entry::pattern("uretprobe:PATH:FUNCTION", "uprobe", exit),
        ]
    }
}

impl Uprobes {
    fn look_up(
        &self,
        returns: bool,
        path: &str,
        at: usize,
        symbol: Option<&str>,
        offset: u64,
    ) -> Result<PerfAttr, Trouble> {
        let machine = |problem: String| Trouble::new(NameErrorKind::Machine { problem });
        let (path, bytes) = read(path)?;
        let config2 = place(&path, &bytes, symbol, offset).map_err(|trouble| trouble.at(at))?;
        let number = self.0.read_trimmed(&format!("{DEVICES}/uprobe/type"));
        let kind = number.and_then(|text| text.parse().ok()).ok_or_else(|| {
            machine(format!("this kernel has no uprobe PMU (/{DEVICES}/uprobe/type)"))
                .hint("a kernel with CONFIG_UPROBE_EVENTS")
        })?;
        let mut attr = PerfAttr { kind, config2, ..PerfAttr::default() };
        if returns {
            let file = format!("{DEVICES}/uprobe/format/retprobe");
            let text = self.0.read_trimmed(&file).unwrap_or_else(|| "config:0".into());
            let format =
                Format::parse(&text).ok_or_else(|| machine(format!("/{file}: {text:?}")))?;
            format.put(&mut attr, 1);
        }
        // A file's name holds no zero byte: it was just read.
        attr.path = CString::new(path.as_os_str().as_bytes()).ok();
        Ok(attr)
    }
}

/// The file, absolute, and its content. A name without a slash is a program in PATH.
fn read(typed: &str) -> Result<(PathBuf, Vec<u8>), Trouble> {
    let found = match typed.contains('/') {
        true => Some(PathBuf::from(typed)),
        false => std::env::var_os("PATH").and_then(|path| {
            std::env::split_paths(&path).map(|dir| dir.join(typed)).find(|file| file.is_file())
        }),
    };
    let unreadable = |error: &str| {
        let problem = format!("read {typed}: {error}");
        Trouble::new(NameErrorKind::Machine { problem })
    };
    let Some(path) = found else {
        let hint = "a library needs its whole path; ldd PROGRAM shows it";
        return Err(unreadable("no such program in PATH").hint(hint));
    };
    let path = std::path::absolute(&path).map_err(|e| unreadable(&e.to_string()))?;
    // Devices and pipes might never end.
    let found = std::fs::metadata(&path).map_err(|e| unreadable(&e.to_string()))?;
    if !found.is_file() {
        return Err(unreadable("not a file"));
    }
    let bytes = std::fs::read(&path).map_err(|e| unreadable(&e.to_string()))?;
    Ok((path, bytes))
}

fn wrong(text: impl Into<String>, problem: impl Into<String>) -> Trouble {
    Trouble::new(NameErrorKind::Value { text: text.into(), problem: problem.into() })
}

/// Offset in the file of what was typed.
fn place(path: &Path, bytes: &[u8], symbol: Option<&str>, offset: u64) -> Result<u64, Trouble> {
    match FileKind::parse(bytes) {
        Ok(FileKind::Elf64) => {
            place_in::<object::elf::FileHeader64<object::Endianness>>(path, bytes, symbol, offset)
        }
        Ok(FileKind::Elf32) => {
            place_in::<object::elf::FileHeader32<object::Endianness>>(path, bytes, symbol, offset)
        }
        _ => Err(wrong(path.display().to_string(), "not an ELF program or library")),
    }
}

fn place_in<Elf: FileHeader<Endian = object::Endianness>>(
    path: &Path,
    bytes: &[u8],
    symbol: Option<&str>,
    offset: u64,
) -> Result<u64, Trouble> {
    let damaged = |e: object::Error| wrong(path.display().to_string(), e.to_string());
    let file = ElfFile::<Elf>::parse(bytes).map_err(damaged)?;
    let file_offset = match symbol {
        None => offset,
        Some(symbol) => {
            let (address, size) = find(&file, path, symbol)?;
            if size > 0 && offset >= size {
                return Err(wrong(
                    format!("{symbol}+{offset:#x}"),
                    format!("the function has {size} bytes"),
                ));
            }
            offset_of(&file, address + offset).ok_or_else(|| {
                wrong(symbol, format!("its address {address:#x} is in no segment of the file"))
            })?
        }
    };
    if !is_code(&file, file_offset) {
        return Err(wrong(format!("{file_offset:#x}"), "no code of this file is there"));
    }
    Ok(file_offset)
}

/// Address and size of the one function of that name.
fn find<'f, Elf: FileHeader<Endian = object::Endianness>, R: ReadRef<'f>>(
    file: &ElfFile<'f, Elf, R>,
    path: &Path,
    name: &str,
) -> Result<(u64, u64), Trouble> {
    let mut found = functions(file, name);
    let separate = if found.is_empty() { separate_symbols(file) } else { None };
    if let Some(bytes) = &separate
        && let Ok(debug) = ElfFile::<Elf>::parse(bytes.as_slice())
    {
        found = functions(&debug, name);
    }
    found.sort_unstable();
    found.dedup_by_key(|(address, ..)| *address);
    match found.as_slice() {
        [(_, _, true)] => {
            let problem = "chosen anew by each process (an indirect function): a probe there hits \
                           only the choosing";
            Err(wrong(name, problem).hint("probe the function that is chosen"))
        }
        [(address, size, false)] => Ok((*address, *size)),
        [] => {
            let names: Vec<&str> = file
                .symbols()
                .chain(file.dynamic_symbols())
                .filter(|s| s.is_definition() && s.kind() == SymbolKind::Text)
                .filter_map(|s| s.name().ok())
                .collect();
            let hint = match suggest::closest(name, names.iter().copied()).join(", ").as_str() {
                "" if names.is_empty() => {
                    "the file has no symbols; type an offset: uprobe:PATH:0x1234".to_owned()
                }
                "" => "nm -D and nm show what a file defines".to_owned(),
                near => format!("did you mean {near}?"),
            };
            Err(wrong(name, format!("no function of {}", path.display())).hint(hint))
        }
        several => {
            let offsets: Vec<String> = several
                .iter()
                .filter_map(|(address, ..)| offset_of(file, *address))
                .map(|offset| format!("{offset:#x}"))
                .collect();
            let problem = format!("{} functions of that name", several.len());
            let hint = format!("choose one by its offset: {}", offsets.join(", "));
            Err(wrong(name, problem).hint(hint))
        }
    }
}

/// Address, size, and whether it is an indirect function.
fn functions<'f, Elf: FileHeader<Endian = object::Endianness>, R: ReadRef<'f>>(
    file: &ElfFile<'f, Elf, R>,
    name: &str,
) -> Vec<(u64, u64, bool)> {
    let is_indirect = |flags| matches!(flags, SymbolFlags::Elf { st_info, .. } if st_info.0 & 0xf == STT_GNU_IFUNC.0);
    file.symbols()
        .chain(file.dynamic_symbols())
        .filter(|s| !s.is_undefined() && s.name() == Ok(name))
        .map(|s| (s.address(), s.size(), s.kind(), is_indirect(s.flags())))
        .filter(|&(_, _, kind, indirect)| kind == SymbolKind::Text || indirect)
        .map(|(address, size, _, indirect)| (address, size, indirect))
        .collect()
}

/// The symbols that distributions keep beside a stripped file, found by its build id.
fn separate_symbols<'f, Elf: FileHeader<Endian = object::Endianness>, R: ReadRef<'f>>(
    file: &ElfFile<'f, Elf, R>,
) -> Option<Vec<u8>> {
    let id = file.build_id().ok()??;
    let (first, rest) = id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    std::fs::read(format!("/usr/lib/debug/.build-id/{first:02x}/{rest}.debug")).ok()
}

fn offset_of<'f, Elf: FileHeader<Endian = object::Endianness>, R: ReadRef<'f>>(
    file: &ElfFile<'f, Elf, R>,
    address: u64,
) -> Option<u64> {
    let endian = file.endian();
    file.elf_program_headers().iter().filter(|h| h.p_type(endian) == PT_LOAD).find_map(|h| {
        let inside = address.checked_sub(h.p_vaddr(endian).into())?;
        let size: u64 = h.p_filesz(endian).into();
        (inside < size).then(|| inside + Into::<u64>::into(h.p_offset(endian)))
    })
}

fn is_code<'f, Elf: FileHeader<Endian = object::Endianness>, R: ReadRef<'f>>(
    file: &ElfFile<'f, Elf, R>,
    offset: u64,
) -> bool {
    let endian = file.endian();
    let mut headers = file.elf_program_headers().iter();
    headers.any(|h| {
        let (start, size): (u64, u64) = (h.p_offset(endian).into(), h.p_filesz(endian).into());
        let code = h.p_type(endian) == PT_LOAD && h.p_flags(endian).0 & PF_X.0 != 0;
        code && offset.checked_sub(start).is_some_and(|inside| inside < size)
    })
}
