//! `export --format pprof|folded|speedscope`: writes the tree of `report --tree`, with the threads
//! of the calls, for programs that show flame graphs.
//!
//! ```text
//!  analysis::tree::stacks ─► frames with names ─► trace::stacks
//! ```
//!
//! In folded and speedscope output, the names of frames for threads and processes contain their
//! ids. In pprof output, labels of the samples contain the ids instead: `pprof -diff_base` matches
//! stacks by names, and the ids differ between runs.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use analysis::tree::{Stack, StackPart, Stacks, stacks};
use analysis::{By, Key, are_means};
use model::{Severity, Unit};
use profile::Profile;
use trace::stacks::{self as formats, StackFrame, StackNode, StackUnit};

use super::clock::ExportClock;
use super::{Args, ExportFormat, What};
use crate::failure::Failure;
use crate::terminal::{progress, visible};
use crate::view::labels::{labels, op_of, process_label, thread_label};
use crate::view::loops::{Loops, readable_name};
use crate::view::losses;
use crate::view::open::open;
use crate::view::rights::Needs;
use crate::whole::WholeFile;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Pprof,
    Folded,
    Speedscope,
}

/// Returns the format of stacks that `--format` requests; `None` for a format whose files contain
/// rows.
pub fn format(format: ExportFormat) -> Option<Format> {
    match format {
        ExportFormat::Pprof => Some(Format::Pprof),
        ExportFormat::Folded => Some(Format::Folded),
        ExportFormat::Speedscope => Some(Format::Speedscope),
        ExportFormat::Csv | ExportFormat::Json | ExportFormat::Parquet => None,
    }
}

pub fn main(args: &Args, format: Format) -> Result<ExitCode, Failure> {
    let name = args.format().name();
    let metrics = &args.metrics;
    let unfit = [
        ("--what", args.what != What::Calls),
        ("--filter", args.filter.is_some()),
        ("--clock", args.clock != ExportClock::default()),
        ("--metric", !metrics.metric.is_empty()),
        ("--metrics-file", !metrics.metrics_file.is_empty()),
    ];
    if let Some((option, _)) = unfit.into_iter().find(|(_, is_given)| *is_given) {
        return Err(Failure::new(format!("export --format {name}: {option} does not go with it"))
            .hint("stacks are of all calls, and their values are own times and counters"));
    }
    let path = args.output.as_deref().unwrap_or(Path::new("-"));
    let mut profile = open(&args.profile, &Needs::files(&[]).output(path))?;
    args.ranks.choose(&mut profile)?;
    let recorded = profile.loops().map_err(Failure::new)?;
    let loops = Loops::new(&profile, &recorded, &[], false);
    let Some(found) = stacks(&profile, &loops.table, &loops.around, false) else {
        return Err(Failure::new(format!(
            "export --format {name}: with a budget, it is not known what was around a call that was \
             only counted"
        ))
        .hint("`report` has one row for each op"));
    };
    let stacks = named(&profile, &loops, &found, format);
    let failed = |e: io::Error| Failure::writing(path, e);
    let mut file = WholeFile::create(path, args.format().kind()).map_err(failed)?;
    let writing = progress::writing(path);
    let mut out = io::BufWriter::with_capacity(1 << 16, &mut file);
    match format {
        Format::Pprof => formats::pprof::write(&mut out, &stacks),
        Format::Folded => formats::folded::write(&mut out, &stacks),
        Format::Speedscope => formats::speedscope::write(&mut out, &stacks),
    }
    .and_then(|()| out.flush())
    .map_err(failed)?;
    drop(out);
    file.finish().map_err(failed)?;
    drop(writing);
    losses::say(&profile.all_losses());
    Ok(ExitCode::SUCCESS)
}

#[derive(Default)]
struct Frames {
    numbers: HashMap<StackFrame, usize>,
    all: Vec<StackFrame>,
}

impl Frames {
    fn number(&mut self, frame: StackFrame) -> usize {
        if let Some(known) = self.numbers.get(&frame) {
            return *known;
        }
        self.all.push(frame.clone());
        self.numbers.insert(frame, self.all.len() - 1);
        self.all.len() - 1
    }
}

fn named(profile: &Profile, loops: &Loops<'_>, found: &Stacks, format: Format) -> formats::Stacks {
    let mut keys: Vec<Key> = found.nodes.iter().filter_map(key).collect();
    keys.sort_unstable();
    keys.dedup();
    let labels = labels(profile, &keys);
    let mut frames = Frames::default();
    // A thread becomes two nodes, one for its process and one for the thread.
    let mut nodes: Vec<StackNode> = Vec::new();
    let mut places = Vec::with_capacity(found.nodes.len());
    for stack in &found.nodes {
        let mut parent = stack.parent.map(|parent| places[parent]);
        let mut values = vec![stack.calls, stack.own_ns];
        values.extend(&stack.values);
        if let StackPart::Thread(process, thread) = stack.what {
            let names = threads(profile, process, thread, format);
            let known = profile.processes.get(process);
            let pid = known.map(|known| u64::from(known.id.pid));
            let tid = known.and_then(|known| known.threads.get(thread));
            let tid = tid.map(|thread| u64::from(thread.tid));
            for (name, number) in
                names.into_iter().zip([pid.map(|n| ("pid", n)), tid.map(|n| ("tid", n))])
            {
                let frame = frames.number(StackFrame { name, ..StackFrame::default() });
                let (numbers, values) = (number.into_iter().collect(), vec![0; values.len()]);
                nodes.push(StackNode { parent, frame, numbers, values });
                parent = Some(nodes.len() - 1);
            }
            places.push(nodes.len() - 1);
            continue;
        }
        let label = key(stack).and_then(|key| labels.get(keys.binary_search(&key).ok()?));
        let frame = frames.number(frame(profile, loops, stack, label));
        places.push(nodes.len());
        nodes.push(StackNode { parent, frame, numbers: Vec::new(), values });
    }
    let mut kinds =
        vec![("calls".to_owned(), StackUnit::Count), ("time".to_owned(), StackUnit::Nanoseconds)];
    for counter in &found.counters {
        let info = profile.manifest.counters.get(*counter);
        let name = info.map_or(String::new(), |info| visible(&info.name).into_owned());
        kinds.push((name, info.map_or(StackUnit::Count, |info| unit(info.unit()))));
    }
    formats::Stacks {
        frames: frames.all,
        nodes,
        kinds,
        main: 1,
        title: visible(&profile.manifest.command.join(" ")).into_owned(),
        comments: comments(profile, found),
        begin_unix_ns: profile.manifest.created_unix_ns,
        exporter: format!("counterpoint {}", env!("CARGO_PKG_VERSION")),
    }
}

/// Returns the key of the function or op whose calls the node shows; `None` for a node that shows
/// something else.
fn key(stack: &Stack) -> Option<Key> {
    match stack.what {
        StackPart::Calls { key, .. } => Some(key),
        StackPart::Thread(..) | StackPart::Loop(..) | StackPart::InNoCall => None,
    }
}

fn frame(
    profile: &Profile,
    loops: &Loops<'_>,
    stack: &Stack,
    label: Option<&String>,
) -> StackFrame {
    let shown = |name: &str, file: &str, line| StackFrame {
        name: visible(name).into_owned(),
        file: visible(file).into_owned(),
        line,
    };
    match stack.what {
        StackPart::Calls { is_deeper: true, .. } => shown("(deeper calls)", "", 0),
        StackPart::Calls { key, .. } => {
            let op = op_of(profile, key);
            let (file, line) = op.map_or(("", 0), |op| (&*op.source_path, op.source_line));
            shown(label.map_or("", String::as_str), file, line)
        }
        StackPart::Loop(module, node) => {
            let tree = &loops.table.modules[module];
            let node = &tree.nodes[node];
            let entry = tree.entry(node);
            let file = entry.and_then(|entry| entry.file.as_deref()).unwrap_or_default();
            let line = entry.and_then(|entry| entry.line).unwrap_or(0);
            shown(&readable_name(tree, node), file, line)
        }
        StackPart::InNoCall => shown("(loops in no recorded call)", "", 0),
        StackPart::Thread(..) => StackFrame::default(),
    }
}

fn threads(profile: &Profile, process: usize, thread: usize, format: Format) -> [String; 2] {
    let (of_process, of_thread) =
        (process_label(profile, process), thread_label(profile, process, thread));
    let Some(known) = profile.processes.get(process).filter(|_| format == Format::Pprof) else {
        return [visible(&of_process).into_owned(), of_thread];
    };
    let program = known.info.as_ref().map_or("", |info| info.program.as_str());
    let program = program.rsplit('/').next().unwrap_or_default();
    let name = known.threads.get(thread).map_or("", |thread| &thread.name);
    let or = |name: &str, other: &str| match name {
        "" => other.to_owned(),
        name => visible(name).into_owned(),
    };
    [or(program, "process"), or(name, "thread")]
}

fn unit(unit: Unit) -> StackUnit {
    match unit {
        Unit::Count => StackUnit::Count,
        Unit::Nanoseconds => StackUnit::Nanoseconds,
        Unit::Bytes => StackUnit::Bytes,
        Unit::Cycles => StackUnit::Other("cycles"),
        Unit::Joules => StackUnit::Other("joules"),
        Unit::Other => StackUnit::Other("other"),
    }
}

fn comments(profile: &Profile, found: &Stacks) -> Vec<String> {
    let mut comments = vec![
        "time: own time in recorded calls, without what the recorder added, as in `counterpoint report \
         --tree`"
            .to_owned(),
    ];
    if !found.counters.is_empty() {
        comments.push(
            "counters: of calls without those inside, as they were counted, with what the recorder \
             added"
                .to_owned(),
        );
    }
    if are_means(profile, By::Op) {
        comments.push("calls and time: means of the passes; counters: of their pass".to_owned());
    }
    let losses = profile.all_losses();
    let grave = losses.iter().filter(|loss| loss.severity() > Severity::Note);
    comments.extend(grave.map(|loss| format!("loss: {} × {}", loss.count, visible(&loss.name))));
    comments
}
