//! Ops: exported functions as people know them, the same one over all its loadings.
//!
//! An export id belongs to one process. The same function in another process, or in the same
//! module loaded again, has another id and is the same op. Two exports are one op if everything
//! that the compiler said about them is equal: library name, export name, tag, source location,
//! workgroup size, numbers of bindings and constants, local memory. So the equally named
//! functions of two different models stay apart as soon as one of these differs. What a virtual
//! machine of TVM calls is one op if its name, arguments, device and the machine's name are equal.

use std::collections::{BTreeMap, HashMap};

use record::meta::{Export, Library, OpExport, Role};

/// A number in [`Ops`].
pub type OpId = u32;

/// One op.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Op {
    /// Name of the exported function; never empty.
    pub name: String,
    /// Name that the compiler gave the library.
    pub library: String,
    /// The compiler's tag, often empty.
    pub tag: String,
    /// Source file where the compiler left one, else empty.
    pub source_path: String,
    /// Source line, 0 if unknown.
    pub source_line: u32,
    /// What its calls are.
    pub role: Role,
    /// Types and shapes of its tensor arguments, else empty: see [`OpExport::arguments`].
    pub arguments: String,
    /// Device of its last tensor argument (`cpu0`), else empty.
    pub device: String,
    /// Its durations are those of launches: calls return before the device is done.
    pub asynchronous: bool,
    workgroup_size: [u32; 3],
    bindings: u32,
    constants: u32,
    local_memory_pages: u32,
}

impl Op {
    fn new(library: &Library, export: &Export) -> Self {
        let name = if export.name.is_empty() {
            format!("{}#{}", library.name, export.ordinal)
        } else {
            export.name.clone()
        };
        Self {
            name,
            library: library.name.clone(),
            tag: export.tag.clone(),
            source_path: export.source_path.clone(),
            source_line: export.source_line,
            workgroup_size: export.workgroup_size,
            bindings: export.bindings,
            constants: export.constants,
            local_memory_pages: export.local_memory_pages,
            ..Self::default()
        }
    }

    fn of_machine(libraries: &[Library], export: &OpExport) -> Self {
        let library = libraries.iter().find(|l| l.id == export.library);
        Self {
            name: match export.name.as_str() {
                "" => format!("op#{}", export.id),
                name => name.to_owned(),
            },
            library: library.map(|l| l.name.clone()).unwrap_or_default(),
            role: export.role,
            arguments: export.arguments.clone(),
            device: export.device.clone(),
            asynchronous: export.asynchronous,
            ..Self::default()
        }
    }

    /// `path:line`, `path`, or `None` where the compiler left nothing.
    pub fn source(&self) -> Option<String> {
        match (self.source_path.as_str(), self.source_line) {
            ("", _) => None,
            (path, 0) => Some(path.to_owned()),
            (path, line) => Some(format!("{path}:{line}")),
        }
    }
}

/// The ops of a profile, numbered in the order in which the metadata names them.
#[derive(Clone, Debug, Default)]
pub struct Ops {
    ops: Vec<Op>,
    by_export: Vec<Exports>,
}

/// The ops of a process's exports. Recorders number exports from 0 on: nearly all of them are in
/// the list, which is read for every call.
#[derive(Clone, Debug, Default)]
struct Exports {
    list: Vec<Option<OpId>>,
    beyond: BTreeMap<u32, OpId>,
}

impl Exports {
    /// Longer than that for each export, and nobody has numbered them from 0.
    const SPARSEST: usize = 4;

    fn new(all: &[(u32, OpId)]) -> Self {
        let mut exports = Self::default();
        let most = Self::SPARSEST * all.len();
        for (export, op) in all {
            let place = *export as usize;
            if place >= most {
                exports.beyond.insert(*export, *op);
                continue;
            }
            if place >= exports.list.len() {
                exports.list.resize(place + 1, None);
            }
            exports.list[place] = Some(*op);
        }
        exports
    }

    fn get(&self, export: u32) -> Option<OpId> {
        match self.list.get(export as usize) {
            Some(op) => *op,
            None => self.beyond.get(&export).copied(),
        }
    }
}

impl Ops {
    /// Numbers the exports of each process: of its libraries, then of its machines.
    pub(crate) fn new<'a>(
        processes: impl IntoIterator<Item = (&'a [Library], &'a [OpExport])>,
    ) -> Self {
        let mut known: HashMap<Op, OpId> = HashMap::new();
        let mut result = Self::default();
        for (libraries, exports) in processes {
            let mut all = Vec::new();
            let functions = libraries
                .iter()
                .flat_map(|l| l.exports.iter().map(move |export| (export.id, Op::new(l, export))));
            let calls = exports.iter().map(|e| (e.id, Op::of_machine(libraries, e)));
            for (export, op) in functions.chain(calls) {
                let id = *known.entry(op).or_insert_with_key(|op| {
                    result.ops.push(op.clone());
                    (result.ops.len() - 1) as OpId
                });
                all.push((export, id));
            }
            result.by_export.push(Exports::new(&all));
        }
        result
    }

    /// The op of an export of the process with this index; `None` if its metadata is missing.
    pub fn of(&self, process: usize, export: u32) -> Option<OpId> {
        self.by_export.get(process)?.get(export)
    }

    /// Every op, by number.
    pub fn all(&self) -> &[Op] {
        &self.ops
    }

    /// The op with this number.
    pub fn get(&self, id: OpId) -> Option<&Op> {
        self.ops.get(id as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_of_any_number_are_found() {
        let all = [(0, 7), (2, 8), (15, 9), (16, 10), (u32::MAX, 11), (2, 12)];
        let exports = Exports::new(&all[..4]);
        let found = [0, 1, 2, 14, 15, 16, 17, u32::MAX].map(|export| exports.get(export));
        assert_eq!(found, [Some(7), None, Some(8), None, Some(9), Some(10), None, None]);
        // A file that names one twice: the last is what counts, as for those far beyond.
        let exports = Exports::new(&all);
        assert_eq!([2, 16, u32::MAX].map(|e| exports.get(e)), [Some(12), Some(10), Some(11)]);
        assert_eq!(exports.list.len(), 17);
        assert_eq!(Exports::new(&[]).get(0), None);
    }
}
