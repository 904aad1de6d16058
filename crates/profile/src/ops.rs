//! Defines ops: what reports show as one function or op, however often a program loaded it.
//!
//! An export id is the number that a recorder gave to a function or op of its process, and is valid
//! only for this process. The same function in another process, or in a module that was loaded
//! again, may have another id but is the same op. Two exports are the same op if all that is known
//! about them is equal: the fields of [`Op`] and the description of the host. So functions of two
//! models usually are different ops, even if their names are equal.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use record::host::Host;
use record::meta::{Export, Library, OpExport, Role};

/// Index of an op in [`Ops`].
pub type OpId = u32;

/// What the calls of a process may refer to: the process's hosts with their numbers, its libraries,
/// and the exports of its hosts.
pub(crate) type Exporting<'a> = (&'a [(u8, Host)], &'a [Library], &'a [OpExport]);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Op {
    /// Name of the exported function or op; not empty.
    pub name: String,
    /// Name that the compiler gave the library. The ops of a library share one string. With a copy
    /// for each op, a small profile with one long name and many exports would need very much
    /// memory.
    pub library: Arc<str>,
    /// The tag that the compiler gave the function; often empty.
    pub tag: String,
    /// Source file of the function; empty if the compiler did not store it.
    pub source_path: String,
    /// Source line, 0 if unknown.
    pub source_line: u32,
    /// The role of the op's calls: for example, each call is a workgroup or a whole op.
    pub role: Role,
    /// Types and shapes of the op's tensor arguments; see [`OpExport::arguments`].
    pub arguments: String,
    /// Device of the op's last tensor argument (`cpu0`); may be empty.
    pub device: String,
    /// Whether calls may return before the device has finished. Then the durations contain only the
    /// launches.
    pub asynchronous: bool,
    /// See [`Host::is_bookkeeping`].
    pub bookkeeping: bool,
    /// Index of the op's host in [`Ops::hosts`].
    pub host: u32,
    /// See [`Host::shown_name`].
    shown: Option<Box<str>>,
    workgroup_size: [u32; 3],
    bindings: u32,
    constants: u32,
    local_memory_pages: u32,
}

impl Op {
    fn new((library, host): &(Arc<str>, u32), export: &Export, hosts: &[Host]) -> Self {
        let name = if export.name.is_empty() {
            format!("{}#{}", beginning(library), export.ordinal)
        } else {
            export.name.clone()
        };
        let described = hosts.get(*host as usize).unwrap_or(&Host::UNKNOWN);
        Self {
            shown: described.shown_name(&name).map(String::into_boxed_str),
            name,
            library: Arc::clone(library),
            host: *host,
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

    fn of_machine(library: Option<&(Arc<str>, u32)>, export: &OpExport, hosts: &[Host]) -> Self {
        let (library, host) = library.cloned().unwrap_or_default();
        let described = hosts.get(host as usize).unwrap_or(&Host::UNKNOWN);
        let shown = described.shown_name(&export.name);
        Self {
            name: match export.name.as_str() {
                "" => format!("op#{}", export.id),
                name => name.to_owned(),
            },
            library,
            host,
            shown: shown.map(String::into_boxed_str),
            bookkeeping: export.role == Role::Op && described.is_bookkeeping(&export.name),
            role: export.role,
            arguments: export.arguments.clone(),
            device: export.device.clone(),
            asynchronous: export.asynchronous,
            ..Self::default()
        }
    }

    /// Returns the name that tables show. Calls whose names differ only in a number
    /// (`ProfilerStep#7`) may share a row, `ProfilerStep*`.
    pub fn shown_name(&self) -> &str {
        self.shown.as_deref().unwrap_or(&self.name)
    }

    /// Returns whether `glob` matches the op's recorded name, its demangled name, or the shown name
    /// with the role: `aten::mm (task)`.
    pub fn is_called(&self, glob: &str) -> bool {
        let with_role = || match self.role {
            Role::Workgroup | Role::Op => None,
            role => Some(format!("{} ({})", self.shown_name(), role.name())),
        };
        crate::demangle::matches(glob, &self.name)
            || with_role().is_some_and(|name| model::glob::matches(glob, &name))
    }

    /// Returns `path:line` or `path`; `None` if the compiler stored no source file.
    pub fn source(&self) -> Option<String> {
        match (self.source_path.as_str(), self.source_line) {
            ("", _) => None,
            (path, 0) => Some(path.to_owned()),
            (path, line) => Some(format!("{path}:{line}")),
        }
    }
}

/// Returns the beginning of a library's name, for the names of its unnamed exports.
fn beginning(name: &str) -> &str {
    const LONGEST: usize = 255;
    let end = (0..=name.len().min(LONGEST)).rfind(|end| name.is_char_boundary(*end));
    &name[..end.unwrap_or(0)]
}

/// The ops of a profile.
#[derive(Clone, Debug, Default)]
pub struct Ops {
    ops: Vec<Op>,
    /// The distinct descriptions of hosts; the first one is an unknown host.
    hosts: Vec<Host>,
    by_export: Vec<Exports>,
    /// For each op: the first op in its table row.
    rows: Vec<OpId>,
}

/// The ops of a process's exports. The op of an export is looked up for every call. Most lookups
/// are fast, because recorders number exports from 0, and `list` is indexed by this number.
#[derive(Clone, Debug, Default)]
struct Exports {
    list: Vec<Option<OpId>>,
    beyond: BTreeMap<u32, OpId>,
}

impl Exports {
    /// The length of `list` is at most this many times the number of exports. Exports with higher
    /// numbers are in `beyond`.
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
    /// Numbers the ops process by process, and within a process those of its libraries first.
    pub(crate) fn new<'a>(processes: impl IntoIterator<Item = Exporting<'a>>) -> Self {
        let mut known: HashMap<Op, OpId> = HashMap::new();
        let mut result = Self { hosts: vec![Host::UNKNOWN], ..Self::default() };
        let mut known_hosts: HashMap<&Host, u32> = HashMap::new();
        for (hosts, libraries, exports) in processes {
            let mut all = Vec::new();
            // If several hosts have the same number, or several libraries the same id, the first
            // one is used.
            let mut numbers: HashMap<u8, u32> = HashMap::new();
            for (number, host) in hosts {
                let place = *known_hosts.entry(host).or_insert_with(|| {
                    result.hosts.push(host.clone());
                    (result.hosts.len() - 1) as u32
                });
                numbers.entry(*number).or_insert(place);
            }
            let host = |library: &Library| numbers.get(&library.host).copied().unwrap_or(0);
            let names: Vec<(Arc<str>, u32)> =
                libraries.iter().map(|l| (l.name.as_str().into(), host(l))).collect();
            let by_id: HashMap<u32, &(Arc<str>, u32)> =
                libraries.iter().map(|library| library.id).zip(&names).rev().collect();
            let described = &result.hosts;
            let functions = libraries.iter().zip(&names).flat_map(|(library, name)| {
                let exports = library.exports.iter();
                exports.map(move |export| (export.id, Op::new(name, export, described)))
            });
            let calls = exports
                .iter()
                .map(|e| (e.id, Op::of_machine(by_id.get(&e.library).copied(), e, described)));
            let ops = &mut result.ops;
            for (export, op) in functions.chain(calls) {
                let id = *known.entry(op).or_insert_with_key(|op| {
                    ops.push(op.clone());
                    (ops.len() - 1) as OpId
                });
                all.push((export, id));
            }
            result.by_export.push(Exports::new(&all));
        }
        let mut numbered: HashMap<Op, OpId> = HashMap::new();
        let row = |(id, op): (usize, &Op)| {
            let shown = op.shown_name();
            match shown == op.name {
                true => id as OpId,
                false => {
                    let name = shown.to_owned();
                    *numbered.entry(Op { name, ..op.clone() }).or_insert(id as OpId)
                }
            }
        };
        result.rows = result.ops.iter().enumerate().map(row).collect();
        result
    }

    /// Returns the op of an export of the process with this index; `None` if its metadata is
    /// missing.
    pub fn of(&self, process: usize, export: u32) -> Option<OpId> {
        self.by_export.get(process)?.get(export)
    }

    /// Returns the first of the ops that share this op's table row, which may be the op itself.
    pub fn row_of(&self, op: OpId) -> OpId {
        self.rows.get(op as usize).copied().unwrap_or(op)
    }

    /// Returns the ops of a process's exports, in no particular order.
    pub fn of_process(&self, process: usize) -> impl Iterator<Item = OpId> {
        let exports = self.by_export.get(process).into_iter();
        exports.flat_map(|of| of.list.iter().flatten().chain(of.beyond.values()).copied())
    }

    /// Returns the description of an op's host.
    pub fn host_of(&self, op: &Op) -> &Host {
        self.hosts.get(op.host as usize).unwrap_or(&Host::UNKNOWN)
    }

    /// Returns the distinct descriptions of hosts. [`Op::host`] is an index in this list. The first
    /// description is that of an unknown host.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Returns the ops in the order of their numbers.
    pub fn all(&self) -> &[Op] {
        &self.ops
    }

    pub fn get(&self, id: OpId) -> Option<&Op> {
        self.ops.get(id as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_one_row() {
        let op = |id: u32, name: &str, role| OpExport {
            id,
            role,
            name: name.into(),
            ..OpExport::default()
        };
        let names = ["ProfilerStep#1", "ProfilerStep#", "ProfilerStep#22", "ProfilerStep#x", "mm"];
        let mut exports: Vec<OpExport> =
            (0..).zip(names).map(|(id, name)| op(id, name, Role::Range)).collect();
        exports.push(op(5, "ProfilerStep#2", Role::Op));
        let host = Host { numbered: vec!["ProfilerStep#".into()].into(), ..Host::UNKNOWN };
        let library = Library {
            id: 0,
            name: "torch".to_owned(),
            host: 3,
            abi: 0,
            features: 0,
            sanitizer: 0,
            ticks: 0,
            exports: Vec::new(),
        };
        // In an imported trace, ops are functions of a library.
        let steps = ["ProfilerStep#4", "ProfilerStep#5", "mm"];
        let function =
            |id: u32| Export { id, name: steps[id as usize].into(), ..Export::default() };
        let imported = Library { exports: (0..3).map(function).collect(), ..library.clone() };
        let ops = Ops::new([(&[(3, host.clone())][..], &[imported][..], &[][..])]);
        assert_eq!((0..3).map(|op| ops.row_of(op)).collect::<Vec<_>>(), [0, 0, 2]);
        let (hosts, libraries) = ([(3, host)], [library]);
        let ops = Ops::new([(&hosts[..], &libraries[..], &exports[..])]);
        let rows: Vec<OpId> = (0..6).map(|op| ops.row_of(op)).collect();
        assert_eq!(rows, [0, 1, 0, 3, 4, 5], "a call of another role is another row");
        let shown: Vec<&str> = ops.all().iter().map(Op::shown_name).collect();
        let steps = "ProfilerStep*";
        assert_eq!(shown, [steps, "ProfilerStep#", steps, "ProfilerStep#x", "mm", steps]);
    }

    #[test]
    fn exports_of_any_number_are_found() {
        let all = [(0, 7), (2, 8), (15, 9), (16, 10), (u32::MAX, 11), (2, 12)];
        let exports = Exports::new(&all[..4]);
        let found = [0, 1, 2, 14, 15, 16, 17, u32::MAX].map(|export| exports.get(export));
        assert_eq!(found, [Some(7), None, Some(8), None, Some(9), Some(10), None, None]);
        // If an export has several entries, the last one is used.
        let exports = Exports::new(&all);
        assert_eq!([2, 16, u32::MAX].map(|e| exports.get(e)), [Some(12), Some(10), Some(11)]);
        assert_eq!(exports.list.len(), 17);
        assert_eq!(Exports::new(&[]).get(0), None);
    }
}
