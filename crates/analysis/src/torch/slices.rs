//! Reads ops and modules from a profile's activities, and finds their nesting.

use std::borrow::Cow;
use std::collections::HashMap;

use profile::activities::{Activities, Activity};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::flops;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A call of a module, or what [`Around::Lines`] describes. This variant must stay before `Op`:
    /// of a module and an op with the same times, the module is then sorted first, and counts as
    /// the outer one.
    Module,
    Op,
}

/// A slice. Its texts are stored as indices in [`Slices::texts`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Slice {
    pub kind: Kind,
    /// The name of the op, or of the module without the prefix [`MODULE`].
    pub name: u32,
    pub start_ns: i64,
    pub end_ns: i64,
    /// Shapes of the inputs, as JSON. `None` if they were not recorded.
    pub shapes: Option<u32>,
    /// Floating-point operations of an op, if they are known.
    pub flops: Option<u64>,
    /// The number that autograd assigned to an op and its backward op.
    pub sequence: Option<i64>,
    /// For backward ops: For backward ops: PyTorch's number of the thread on which the forward op
    /// ran.
    pub forward_thread: Option<u64>,
    /// For ops of a TorchScript module: the path of this module.
    pub hierarchy: Option<u32>,
    /// The innermost slice of the same row around this one. `op` and `module` are the innermost op
    /// and the innermost module around this slice.
    pub parent: Option<u32>,
    pub op: Option<u32>,
    pub module: Option<u32>,
    /// Time in the ops directly inside of an op, or in the modules directly inside of a module.
    pub inside_ns: i64,
}

impl Slice {
    pub(super) fn duration_ns(&self) -> i64 {
        self.end_ns - self.start_ns
    }

    pub(super) fn self_ns(&self) -> i64 {
        self.duration_ns() - self.inside_ns
    }
}

/// One end of an arrow between a forward and a backward op: a row and a time.
#[derive(Clone, Copy, Debug)]
struct End {
    row: usize,
    time_ns: i64,
}

#[derive(Debug, Default)]
pub(super) struct Slices {
    texts: Vec<Box<str>>,
    numbers: HashMap<Box<str>, u32>,
    /// The slices of each row, sorted by time. A slice comes after the slices that enclose it.
    pub rows: Vec<Vec<Slice>>,
    /// For each arrow from a forward op to a backward op, the slices at both ends, as row and index
    /// in the row.
    pub arrows: Vec<[(usize, usize); 2]>,
    /// Number of slices that end after a slice in which they began.
    pub overlapping: u64,
}

#[derive(Deserialize, Default)]
struct Arguments<'a> {
    #[serde(rename = "Input Dims", borrow, default)]
    shapes: Option<&'a RawValue>,
    #[serde(rename = "Sequence number", default)]
    sequence: Option<i64>,
    #[serde(rename = "Fwd thread id", default)]
    forward_thread: Option<u64>,
    #[serde(rename = "Module Hierarchy", borrow, default)]
    hierarchy: Option<Cow<'a, str>>,
    #[serde(rename = "Concrete Inputs", borrow, default)]
    concrete: Option<&'a RawValue>,
    #[serde(rename = "CallFrom", borrow, default)]
    call_from: Option<Cow<'a, str>>,
}

/// What is read as slices of the kind [`Kind::Module`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Around {
    /// Calls of modules, named by the module.
    Modules,
    /// Calls of Python functions that are not part of PyTorch, with PyTorch's name for them
    /// (`FILE(LINE): NAME`, with the function's first line). Also calls from such a function into
    /// PyTorch, named by the line of the call (`FILE:LINE`). Traces of PyTorch 2.12 do not contain
    /// the line of a call. Operators (`a * b`) are not calls.
    Lines,
}

const MODULE: &str = "nn.Module: ";

impl Slices {
    pub(super) fn read(all: &[Activities], around: Around) -> profile::Result<Self> {
        let mut slices = Self::default();
        for one in all {
            slices.read_one(one, around)?;
        }
        Ok(slices)
    }

    pub(super) fn text(&self, number: u32) -> &str {
        self.texts.get(number as usize).map_or("", |text| text)
    }

    fn number(&mut self, text: &str) -> u32 {
        if let Some(known) = self.numbers.get(text) {
            return *known;
        }
        let number = self.texts.len() as u32;
        self.texts.push(text.into());
        self.numbers.insert(text.into(), number);
        number
    }

    fn read_one(&mut self, all: &Activities, around: Around) -> profile::Result<()> {
        let first = self.rows.len();
        let mut arrows: HashMap<String, [Option<End>; 2]> = HashMap::new();
        let mut events = all.events()?;
        while let Some(batch) = events.next_batch()? {
            let visited: Result<(), std::convert::Infallible> = batch.visit(|event| {
                let row = first + event.row.0 as usize;
                match event.form {
                    b'X' => {
                        if let Some(slice) = self.slice(all, event, around) {
                            // A damaged event may contain a row that does not exist.
                            if (event.row.0 as usize) < all.row_count() {
                                self.rows.resize_with(self.rows.len().max(row + 1), Vec::new);
                                self.rows[row].push(slice);
                            }
                        }
                    }
                    b's' | b'f' if event.category.and_then(|c| all.text(c)) == Some("fwdbwd") => {
                        if let (Some(id), Some(time_ns)) = (event.id, event.time_ns) {
                            let ends = arrows.entry(id.to_owned()).or_default();
                            ends[usize::from(event.form == b'f')] = Some(End { row, time_ns });
                        }
                    }
                    _ => {}
                }
                Ok(())
            });
            let Ok(()) = visited;
        }
        for row in first..self.rows.len() {
            self.overlapping += nest(&mut self.rows[row]);
        }
        for ends in arrows.into_values() {
            if let [Some(from), Some(to)] = ends
                && let (Some(from), Some(to)) = (self.at(from), self.at(to))
            {
                self.arrows.push([from, to]);
            }
        }
        Ok(())
    }

    fn slice(&mut self, all: &Activities, event: &Activity<'_>, around: Around) -> Option<Slice> {
        let (start_ns, duration_ns) = (event.time_ns?, event.duration_ns?);
        let name = all.text(event.name?)?;
        let kind = match all.text(event.category?)? {
            "cpu_op" | "user_annotation" => Kind::Op,
            "python_function" => Kind::Module,
            _ => return None,
        };
        let reads = kind == Kind::Op || around == Around::Lines;
        let arguments: Arguments<'_> = match event.args.filter(|_| reads) {
            Some(args) => serde_json::from_str(args).unwrap_or_default(),
            None => Arguments::default(),
        };
        let name = match (kind, around) {
            (Kind::Op, _) => name,
            (Kind::Module, Around::Modules) => name.strip_prefix(MODULE)?,
            (Kind::Module, Around::Lines) if is_function(name) && is_of_user(name) => name,
            (Kind::Module, Around::Lines) => {
                arguments.call_from.as_deref().filter(|line| is_of_user(line))?
            }
        };
        let [shapes, concrete] =
            [arguments.shapes, arguments.concrete].map(|raw| raw.map(RawValue::get));
        let flops = flops::of_op(name, shapes, concrete);
        Some(Slice {
            kind,
            flops,
            name: self.number(name),
            start_ns,
            end_ns: start_ns.saturating_add(duration_ns.max(0)),
            shapes: arguments.shapes.map(|shapes| self.number(shapes.get())),
            sequence: arguments.sequence.filter(|number| *number >= 0),
            forward_thread: arguments.forward_thread.filter(|thread| *thread != 0),
            hierarchy: arguments.hierarchy.map(|text| self.number(&text)),
            parent: None,
            op: None,
            module: None,
            inside_ns: 0,
        })
    }

    /// Returns the slice at the end of an arrow: the innermost op that begins at exactly the
    /// arrow's time, because PyTorch attaches arrows to the start of ops.
    fn at(&self, end: End) -> Option<(usize, usize)> {
        let row = self.rows.get(end.row)?;
        let next = row.partition_point(|slice| slice.start_ns <= end.time_ns);
        let begun = row[..next].iter().rposition(|slice| slice.kind == Kind::Op)?;
        (row[begun].start_ns == end.time_ns).then_some((end.row, begun))
    }
}

/// Whether a place in the code is in a file that does not belong to PyTorch. A place without a
/// file, such as `<frozen importlib>`, begins with `<`. PyTorch writes paths relative to the
/// directories in which Python looks for modules, so its own files are below `torch/`.
fn is_of_user(place: &str) -> bool {
    !place.starts_with("torch/") && !place.starts_with('<')
}

/// Whether a name has the form `FILE(LINE): NAME`. Names of built-in functions and of modules have
/// another form.
fn is_function(name: &str) -> bool {
    name.split_once("): ").and_then(|(place, _)| place.rsplit_once('(')).is_some_and(|(_, line)| {
        !line.is_empty() && line.bytes().all(|digit| digit.is_ascii_digit())
    })
}

/// Sorts the slices of a row and finds how they are nested. Returns the number of slices that
/// overlap others without being inside of them; such slices are treated as if they were inside.
fn nest(row: &mut [Slice]) -> u64 {
    row.sort_by_key(|slice| (slice.start_ns, std::cmp::Reverse(slice.end_ns), slice.kind));
    let mut open: Vec<usize> = Vec::new();
    let mut overlapping = 0;
    for at in 0..row.len() {
        let slice = row[at];
        while let Some(last) = open.last()
            && row[*last].end_ns <= slice.start_ns
            // A slice without a duration is inside of a longer slice that ends at the same moment.
            && !(slice.duration_ns() == 0 && row[*last].end_ns == slice.start_ns
                && row[*last].duration_ns() > 0)
        {
            open.pop();
        }
        let parent = open.last().copied();
        let of = |kind: Kind| open.iter().rev().copied().find(|at| row[*at].kind == kind);
        let (op, module) = (of(Kind::Op), of(Kind::Module));
        if let Some(same) = if slice.kind == Kind::Op { op } else { module } {
            row[same].inside_ns += slice.duration_ns();
        }
        overlapping += u64::from(parent.is_some_and(|parent| slice.end_ns > row[parent].end_ns));
        let place = |found: Option<usize>| found.and_then(|at| u32::try_from(at).ok());
        row[at].parent = place(parent);
        row[at].op = place(op);
        row[at].module = place(module);
        open.push(at);
    }
    overlapping
}
