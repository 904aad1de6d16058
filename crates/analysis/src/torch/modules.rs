//! Adds up ops by the module, or by the line of Python code, that called them.
//!
//! A forward op belongs to the innermost module around it. A backward op runs later, often on
//! another thread. It belongs to the module of the forward op that has the same number (`Sequence
//! number`). Each thread numbers its ops separately. So a backward op also names the thread on
//! which the forward op ran, by PyTorch's own number of that thread. PyTorch draws arrows from some
//! forward ops to their backward ops. An arrow begins in the row of the forward thread, and ends at
//! a backward op with this thread's number. So arrows show which row of the trace belongs to such a
//! number.

use std::collections::{BTreeMap, HashMap};

use profile::activities::Activities;

use super::slices::{Around, Kind, Slice, Slices};

/// A module. Its path contains the modules around it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleRow {
    /// The module's path, such as `Net_0/Linear_1`, or the name of the line or function in a table
    /// by line. `None` for ops outside of all modules.
    pub module: Option<String>,
    pub calls: u64,
    /// The time of the module's calls, including Python code.
    pub total_ns: i64,
    /// The time of the module without the modules inside of it.
    pub self_ns: i64,
    /// Number of forward ops whose innermost module is this one.
    pub ops: u64,
    /// The sum of the self times of `ops`.
    pub ops_ns: i64,
    /// Number of backward ops whose forward ops belong to this module, including the ops inside of
    /// these backward ops.
    pub backward_ops: u64,
    /// The sum of the self times of `backward_ops`.
    pub backward_ns: i64,
}

/// The table of modules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modules {
    /// The rows, sorted by the self times of their forward and backward ops, the largest sum first.
    pub rows: Vec<ModuleRow>,
    /// Sum of the self times of all ops, forward and backward.
    pub ops_ns: i64,
    pub any: bool,
}

type Path = usize;

#[derive(Default)]
struct Paths {
    numbers: BTreeMap<String, Path>,
    rows: Vec<ModuleRow>,
}

impl Paths {
    fn number(&mut self, path: String) -> Path {
        let next = self.rows.len();
        *self.numbers.entry(path).or_insert_with_key(|path| {
            self.rows.push(ModuleRow { module: Some(path.clone()), ..ModuleRow::default() });
            next
        })
    }
}

#[derive(Clone, Copy, Default, PartialEq)]
struct Of {
    path: Option<Path>,
    backward: bool,
}

/// Adds up the ops of all recordings by module.
pub fn by_module(all: &[Activities]) -> profile::Result<Modules> {
    by(all, Around::Modules)
}

/// Adds up the ops of all recordings by the innermost line of code outside of PyTorch that called
/// them. [`ModuleRow::module`] is this line.
pub fn by_line(all: &[Activities]) -> profile::Result<Modules> {
    by(all, Around::Lines)
}

fn by(all: &[Activities], around: Around) -> profile::Result<Modules> {
    let slices = Slices::read(all, around)?;
    let mut paths = Paths::default();
    let mut of: Vec<Vec<Of>> =
        slices.rows.iter().map(|row| forward(&slices, row, &mut paths, around)).collect();
    let any = !paths.rows.is_empty();
    backward(&slices, &mut of);

    let mut none = ModuleRow::default();
    for (row, of) in slices.rows.iter().zip(&of) {
        for (slice, of) in row.iter().zip(of) {
            let to = match of.path {
                Some(path) => &mut paths.rows[path],
                None => &mut none,
            };
            match slice.kind {
                Kind::Module => {
                    to.calls += 1;
                    to.total_ns += slice.duration_ns();
                    to.self_ns += slice.self_ns();
                }
                Kind::Op if of.backward => {
                    to.backward_ops += 1;
                    to.backward_ns += slice.self_ns();
                }
                Kind::Op => {
                    to.ops += 1;
                    to.ops_ns += slice.self_ns();
                }
            }
        }
    }
    let mut rows = paths.rows;
    if around == Around::Lines {
        // Most lines that call a Python function call no op, so lines without ops are removed.
        rows.retain(|row| row.ops + row.backward_ops > 0);
    }
    if none.ops + none.backward_ops > 0 {
        rows.push(none);
    }
    let time = |row: &ModuleRow| row.ops_ns + row.backward_ns;
    rows.sort_by(|a, b| time(b).cmp(&time(a)).then_with(|| a.module.cmp(&b.module)));
    let ops_ns = rows.iter().map(time).sum();
    Ok(Modules { rows, ops_ns, any })
}

/// Returns the module that each slice of a row belongs to. The slice of a module belongs to this
/// module itself.
fn forward(slices: &Slices, row: &[Slice], paths: &mut Paths, kind: Around) -> Vec<Of> {
    let mut found: Vec<Of> = Vec::with_capacity(row.len());
    for slice in row {
        // The slices are sorted, so an enclosing slice comes first.
        let around = slice.module.and_then(|module| found[module as usize].path);
        let path = match (slice.kind, slice.hierarchy) {
            (Kind::Module, _) => {
                let name = slices.text(slice.name);
                let around = around.filter(|_| kind == Around::Modules);
                let around = around.and_then(|path| paths.rows[path].module.as_deref());
                Some(match around {
                    Some(around) => format!("{around}/{name}"),
                    None => name.to_owned(),
                })
            }
            (Kind::Op, Some(hierarchy)) if around.is_none() && kind == Around::Modules => {
                Some(slices.text(hierarchy).to_owned()).filter(|text| !text.is_empty())
            }
            _ => None,
        };
        let path = match path {
            Some(path) => Some(paths.number(path)),
            None => around,
        };
        found.push(Of { path, backward: false });
    }
    found
}

/// Assigns backward ops, and the ops inside of them, to the modules of their forward ops.
fn backward(slices: &Slices, of: &mut [Vec<Of>]) {
    // Maps PyTorch's numbers of forward threads to rows.
    let mut threads: HashMap<u64, usize> = HashMap::new();
    for [(from, _), (to, at)] in &slices.arrows {
        if let Some(thread) = slices.rows[*to][*at].forward_thread {
            threads.insert(thread, *from);
        }
    }
    // The module of each forward op, by row and sequence number. If an op calls another op, both
    // may have the same number. The inner op comes later, so its module is the one that is kept.
    // Either both ops are in the same module, or the inner op's module did the work.
    let mut numbered: HashMap<(usize, i64), Option<Path>> = HashMap::new();
    let mut forward_rows: Vec<usize> = Vec::new();
    for (row, all) in slices.rows.iter().enumerate() {
        for (slice, of) in all.iter().zip(&of[row]) {
            if let (Some(sequence), None) = (slice.sequence, slice.forward_thread) {
                numbered.insert((row, sequence), of.path);
                if forward_rows.last() != Some(&row) {
                    forward_rows.push(row);
                }
            }
        }
    }
    for (row, all) in slices.rows.iter().enumerate() {
        for (at, slice) in all.iter().enumerate() {
            let around = slice.op.map(|op| of[row][op as usize]).filter(|of| of.backward);
            let own = slice.forward_thread.zip(slice.sequence).map(|(thread, sequence)| {
                // Without an arrow for this thread, its row is still known if only one row has
                // forward ops with sequence numbers.
                let known = threads.get(&thread).copied();
                let from = known.or(match forward_rows[..] {
                    [only] => Some(only),
                    _ => None,
                });
                let path = from.and_then(|from| *numbered.get(&(from, sequence))?);
                Of { path, backward: true }
            });
            let is_engine = || slices.text(slice.name).starts_with("autograd::engine::");
            let found = match (own, around) {
                (Some(own), _) => Some(own),
                // Forward ops that are computed again inside of a backward op belong to the module
                // around them, if there is one.
                (None, Some(around)) if of[row][at].path.is_none() => Some(around),
                (None, None) if slice.kind == Kind::Op && is_engine() => {
                    Some(Of { path: None, backward: true })
                }
                _ => None,
            };
            if let Some(found) = found.filter(|_| slice.kind == Kind::Op) {
                of[row][at] = found;
            }
        }
    }
}
