//! Reads what a built ELF file requires (libraries, symbol versions) and exports.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use object::Endianness;
use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, Sym};

/// The properties of a 64-bit library or program that matter when it is loaded.
#[derive(Default)]
pub struct Elf {
    /// `DT_NEEDED`, in order.
    pub needed: Vec<String>,
    /// The required symbol versions, including those of weak symbols. If a version without the flag
    /// `VER_FLG_WEAK` is missing, the loader refuses the file.
    pub versions: BTreeSet<String>,
    /// Defined dynamic symbols that other objects can bind to.
    pub exports: BTreeSet<String>,
    pub text_relocations: bool,
    pub bind_now: bool,
    pub no_delete: bool,
    pub executable_stack: bool,
}

impl Elf {
    pub fn read(path: &Path) -> Result<Elf> {
        let what = || format!("read {}", path.display());
        let data = std::fs::read(path).with_context(what)?;
        let data = data.as_slice();
        let header = FileHeader64::<Endianness>::parse(data).with_context(what)?;
        let endian = header.endian().with_context(what)?;
        let sections = header.sections(endian, data).with_context(what)?;
        let mut elf = Elf::default();

        for segment in header.program_headers(endian, data).with_context(what)? {
            if segment.p_type(endian) == elf::PT_GNU_STACK {
                elf.executable_stack = segment.p_flags(endian).0 & elf::PF_X.0 != 0;
            }
        }
        let symbols = sections.symbols(endian, data, elf::SHT_DYNSYM).with_context(what)?;
        let strings = symbols.strings();
        if let Some((dynamic, _)) = sections.dynamic(endian, data).with_context(what)? {
            for entry in dynamic {
                let value = entry.d_val(endian);
                match entry.d_tag(endian) {
                    elf::DT_NEEDED => {
                        let offset = u32::try_from(value).with_context(what)?;
                        elf.needed.push(text(strings.get(offset).unwrap_or(b"?")));
                    }
                    elf::DT_TEXTREL => elf.text_relocations = true,
                    elf::DT_FLAGS => {
                        elf.text_relocations |= value & elf::DF_TEXTREL.0 != 0;
                    }
                    elf::DT_FLAGS_1 => {
                        elf.bind_now = value & elf::DF_1_NOW.0 != 0;
                        elf.no_delete = value & elf::DF_1_NODELETE.0 != 0;
                    }
                    _ => {}
                }
            }
        }
        for symbol in symbols.iter() {
            let bound =
                matches!(symbol.st_bind(), elf::STB_GLOBAL | elf::STB_WEAK | elf::STB_GNU_UNIQUE);
            let visible = matches!(symbol.st_visibility(), elf::STV_DEFAULT | elf::STV_PROTECTED);
            if bound && visible && !symbol.is_undefined(endian) {
                elf.exports.insert(text(symbol.name(endian, strings).with_context(what)?));
            }
        }
        if let Some((mut files, link)) = sections.gnu_verneed(endian, data).with_context(what)? {
            let strings = sections.strings(endian, data, link).with_context(what)?;
            while let Some((_, mut versions)) = files.next().with_context(what)? {
                while let Some(version) = versions.next().with_context(what)? {
                    let name = version.name(endian, strings).with_context(what)?;
                    elf.versions.insert(text(name));
                }
            }
        }
        Ok(elf)
    }
}

/// Returns 2 and 17 for `GLIBC_2.17`, and `None` for a name of another form, such as
/// `GLIBC_PRIVATE`.
pub fn glibc_version(name: &str) -> Option<(u32, u32)> {
    let numbers = name.strip_prefix("GLIBC_")?;
    let mut parts = numbers.split('.').map(str::parse::<u32>);
    let major = parts.next()?.ok()?;
    Some((major, parts.next()?.ok()?))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glibc_versions() {
        assert_eq!(glibc_version("GLIBC_2.17"), Some((2, 17)));
        assert_eq!(glibc_version("GLIBC_2.2.5"), Some((2, 2)));
        assert_eq!(glibc_version("GLIBC_PRIVATE"), None);
        assert_eq!(glibc_version("GCC_3.0"), None);
    }

    #[test]
    fn reads_its_own_test_binary() {
        let own = Elf::read(&std::env::current_exe().unwrap()).unwrap();
        assert!(own.needed.iter().any(|name| name == "libc.so.6"));
        assert!(own.versions.iter().any(|name| glibc_version(name).is_some()));
    }
}
