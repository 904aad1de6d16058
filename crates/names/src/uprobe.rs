//! Resolves uprobes: `uprobe:/path/of/a/file:function[@version][+offset]` and `uretprobe:…`, as in
//! bpftrace. The kernel counts a hit when a counted thread reaches the probed instruction of the
//! file or, for `uretprobe:`, returns from the function that begins there.
//!
//! ```text
//!  symbol ── symbols: .symtab, .dynsym, or the file's separate symbols ──► address
//!         ── indirect: the implementation, if each process chooses one when it starts
//!         ── entry: whether a return probe is allowed there
//!         ── program headers ──► offset in the file = config2
//!  path ──► config1 (the kernel's pointer)      return probe ──► a bit of config (format/retprobe)
//! ```
//!
//! Source: kernel/events/core.c (`perf_uprobe`, Linux 6.18). Opening a uprobe takes CAP_PERFMON.

mod entry;
mod indirect;
mod symbols;

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use model::{PerfAttr, Source, Unit};
use object::elf::{FileHeader32, FileHeader64};
use object::{Endianness, FileKind};

use crate::cause::NameCause;
use crate::error::NameErrorKind;
use crate::format::Format;
use crate::source::{Entry, NameSource, Resolved, Trouble};
use crate::syntax::Head;
use machine::Machine;
use machine::files::DEVICES;
use symbols::Symbols;

pub(crate) struct Uprobes(pub Machine);

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
            Entry::pattern("uprobe:PATH:FUNCTION[@VERSION][+OFFSET]", "uprobe", entry),
            Entry::pattern("uretprobe:PATH:FUNCTION[@VERSION]", "uprobe", exit),
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
        let asked = Asked { machine: &self.0, path: &path, symbol, offset, returns };
        let config2 = asked.place(&bytes).map_err(|trouble| trouble.at(at))?;
        let number = self.0.read_trimmed(&format!("{DEVICES}/uprobe/type"));
        let kind = number.and_then(|text| text.parse().ok()).ok_or_else(|| {
            machine(format!("this kernel has no uprobe PMU (/{DEVICES}/uprobe/type)"))
                .because(NameCause::NoUprobes)
        })?;
        let mut attr = PerfAttr { kind, config2, ..PerfAttr::default() };
        if returns {
            let file = format!("{DEVICES}/uprobe/format/retprobe");
            let text = self.0.read_trimmed(&file).unwrap_or_else(|| "config:0".into());
            let format =
                Format::parse(&text).ok_or_else(|| machine(format!("/{file}: {text:?}")))?;
            format.put(&mut attr, 1);
        }
        // The path has no zero byte, because a file with such a path could not have been read
        // above.
        attr.path = CString::new(path.as_os_str().as_bytes()).ok();
        Ok(attr)
    }
}

/// Returns the absolute path of the file, and its content. A name without a slash is searched for
/// in PATH.
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
        return Err(unreadable("no such program in PATH").because(NameCause::NotInPath));
    };
    let path = std::path::absolute(&path).map_err(|e| unreadable(&e.to_string()))?;
    // Reading a device or a pipe might never end.
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

/// The parts of a typed uprobe, and the machine on which it is looked up.
struct Asked<'a> {
    machine: &'a Machine,
    path: &'a Path,
    symbol: Option<&'a str>,
    offset: u64,
    returns: bool,
}

impl Asked<'_> {
    /// Returns the offset of the instruction in the file.
    fn place(&self, bytes: &[u8]) -> Result<u64, Trouble> {
        match FileKind::parse(bytes) {
            Ok(FileKind::Elf64) => self.place_in::<FileHeader64<Endianness>>(bytes),
            Ok(FileKind::Elf32) => self.place_in::<FileHeader32<Endianness>>(bytes),
            _ => Err(wrong(self.path.display().to_string(), "not an ELF program or library")),
        }
    }

    fn place_in<Elf: symbols::Class>(&self, bytes: &[u8]) -> Result<u64, Trouble> {
        let file = &Symbols::<Elf>::read(self.machine, self.path, bytes)?;
        let offset = match self.symbol {
            Some(symbol) => self.function(file, symbol)?,
            None => self.number(file)?,
        };
        if self.returns {
            let typed = self.symbol.map_or_else(|| format!("{offset:#x}"), str::to_owned);
            entry::check(file, offset)
                .map_err(|problem| wrong(typed, problem).because(NameCause::NotAnEntry))?;
        }
        Ok(offset)
    }

    fn number<Elf: symbols::Class>(&self, file: &Symbols<'_, Elf>) -> Result<u64, Trouble> {
        let typed = format!("{:#x}", self.offset);
        let address = file.address_of(self.offset);
        let address = address.ok_or_else(|| wrong(&*typed, "the file has no code there"))?;
        if let Some(chosen) = file.indirect_at(address) {
            let problem = format!(
                "this is the code that chooses an implementation of {}, not the function",
                chosen.name
            );
            let named = format!("uprobe:{}:{}", self.path.display(), chosen.name);
            return Err(wrong(typed, problem).because(NameCause::ChoosingCode(named)));
        }
        Ok(self.offset)
    }

    fn function<Elf: symbols::Class>(
        &self,
        file: &Symbols<'_, Elf>,
        symbol: &str,
    ) -> Result<u64, Trouble> {
        let typed = || format!("{symbol}+{:#x}", self.offset);
        if self.returns && self.offset > 0 {
            let problem = "a return probe in the middle of a function would damage the \
                           program's stack";
            let instead = format!("uretprobe:{}:{symbol}", self.path.display());
            return Err(wrong(typed(), problem).because(NameCause::Instead(instead)));
        }
        let function = file.find(self.path, symbol)?;
        if function.indirect {
            if self.offset > 0 {
                let problem = "an offset into a function of which each process chooses an \
                               implementation when it starts";
                return Err(wrong(typed(), problem).because(NameCause::OffsetIntoIndirect));
            }
            return indirect::implementation(self.path, &function)
                .ok_or_else(|| file.not_chosen(symbol, &function));
        }
        if function.size > 0 && self.offset >= function.size {
            return Err(wrong(typed(), format!("the function has {} bytes", function.size)));
        }
        let address = function.address.checked_add(self.offset);
        let offset = address.and_then(|address| file.offset_of(address));
        offset.ok_or_else(|| wrong(typed(), "the file has no code there"))
    }
}
