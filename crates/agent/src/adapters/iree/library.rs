//! Reads the tables of an executable library (compiled code for IREE), in versions 5 and 6 of
//! IREE's interface for such libraries. The tables are not trusted: an invalid address in them does
//! not crash the process.

use std::mem::offset_of;

use abi::iree::{
    AttributesV5, AttributesV6, ExportTableV5, ExportTableV6, Header, LibraryHead, LibraryV5,
    LibraryV6, SourceLocation,
};
use record::meta::{Export, LONGEST_NAME, Library};

use crate::os::sys::{AnyBytes, copy_memory, read_c_string, read_value};

/// Maximum number of exports of a library. A table that states more is refused.
const MOST_EXPORTS: u32 = 65_536;

pub struct Found {
    /// Description of the library. The library and its exports have no ids yet.
    pub library: Library,
    /// Address of `exports.ptrs`.
    pub pointers: usize,
    /// Number of names, tags and paths that were longer than [`LONGEST_NAME`] and were cut off.
    pub truncated: u64,
}

// SAFETY: the type is a C struct of integers and raw pointers.
unsafe impl AnyBytes for Header {}
// SAFETY: the type is a C struct of integers and raw pointers.
unsafe impl AnyBytes for LibraryHead {}
// SAFETY: the type is a C struct of integers and raw pointers.
unsafe impl AnyBytes for ExportTableV6 {}
// SAFETY: the type is a C struct of integers and raw pointers.
unsafe impl AnyBytes for ExportTableV5 {}
// SAFETY: the type is a C struct of integers and raw pointers.
unsafe impl AnyBytes for AttributesV6 {}
// SAFETY: the type is a C struct of integers and raw pointers.
unsafe impl AnyBytes for AttributesV5 {}
// SAFETY: the type is a C struct of integers and raw pointers.
unsafe impl AnyBytes for SourceLocation {}

/// Reads the tables of a library. Returns `None` if the version is unknown, if the tables cannot be
/// read, or if there are too many exports.
pub fn read(head: *const LibraryHead) -> Option<Found> {
    let at = head as usize;
    let header: Header = read_value(read_value::<LibraryHead>(at)?.header as usize)?;
    let mut reader = Reader { truncated: 0 };
    let (pointers, exports) = match header.version {
        6 => reader.exports_v6(read_value(at + offset_of!(LibraryV6, exports))?)?,
        5 => reader.exports_v5(read_value(at + offset_of!(LibraryV5, exports))?)?,
        _ => return None,
    };
    let name = reader.text(header.name as usize);
    Some(Found {
        library: Library {
            id: 0,
            name,
            host: 0,
            abi: header.version,
            features: header.features,
            sanitizer: header.sanitizer,
            ticks: 0,
            exports,
        },
        pointers,
        truncated: reader.truncated,
    })
}

struct Reader {
    truncated: u64,
}

impl Reader {
    fn exports_v6(&mut self, table: ExportTableV6) -> Option<(usize, Vec<Export>)> {
        let exports = self.exports(
            table.count,
            table.names as usize,
            table.tags as usize,
            table.source_locations as usize,
            |i, export| {
                let at = (table.attrs as usize).checked_add(i * size_of::<AttributesV6>())?;
                let a: AttributesV6 = read_value(at)?;
                export.workgroup_size =
                    [a.workgroup_size_x, a.workgroup_size_y, a.workgroup_size_z.into()];
                export.bindings = a.binding_count.into();
                export.constants = a.constant_count.into();
                export.local_memory_pages = a.local_memory_pages.into();
                Some(())
            },
        )?;
        Some((table.ptrs as usize, exports))
    }

    fn exports_v5(&mut self, table: ExportTableV5) -> Option<(usize, Vec<Export>)> {
        let exports = self.exports(
            table.count,
            table.names as usize,
            table.tags as usize,
            table.source_locations as usize,
            |i, export| {
                let at = (table.attrs as usize).checked_add(i * size_of::<AttributesV5>())?;
                let a: AttributesV5 = read_value(at)?;
                export.bindings = a.binding_count.into();
                export.constants = a.constant_count.into();
                export.local_memory_pages = a.local_memory_pages.into();
                Some(())
            },
        )?;
        Some((table.ptrs as usize, exports))
    }

    /// Reads the exports, which are described by parallel tables. All tables except the table of
    /// functions may be absent.
    fn exports(
        &mut self,
        count: u32,
        names: usize,
        tags: usize,
        locations: usize,
        attributes: impl Fn(usize, &mut Export) -> Option<()>,
    ) -> Option<Vec<Export>> {
        if count > MOST_EXPORTS {
            return None;
        }
        let mut all = Vec::with_capacity(count as usize);
        for i in 0..count as usize {
            let mut export = Export { ordinal: i as u32, ..Export::default() };
            export.name = self.text_in(names, i);
            if export.name.is_empty() {
                export.name = format!("export_{i}");
            }
            export.tag = self.text_in(tags, i);
            let _ = attributes(i, &mut export);
            self.source(locations, i, &mut export);
            all.push(export);
        }
        Some(all)
    }

    fn source(&mut self, table: usize, i: usize, export: &mut Export) {
        if table == 0 {
            return;
        }
        let Some(location) = read_value::<SourceLocation>(table + i * size_of::<SourceLocation>())
        else {
            return;
        };
        let length = location.path_length as usize;
        let mut path = vec![0u8; length.min(LONGEST_NAME)];
        self.truncated += u64::from(length > LONGEST_NAME);
        if copy_memory(location.path as usize, &mut path) == path.len() {
            export.source_path = String::from_utf8_lossy(&path).into_owned();
            export.source_line = location.line;
        }
    }

    fn text_in(&mut self, table: usize, i: usize) -> String {
        if table == 0 {
            return String::new();
        }
        read_value::<usize>(table + 8 * i).map_or_else(String::new, |at| self.text(at))
    }

    fn text(&mut self, at: usize) -> String {
        let Some((text, cut)) = read_c_string(at, LONGEST_NAME) else { return String::new() };
        self.truncated += u64::from(cut);
        text
    }
}
