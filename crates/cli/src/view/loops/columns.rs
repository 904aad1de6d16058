//! Makes tables of loops for CSV: the full table, and the table of TVM's original lightweight
//! profiling.

use std::io::{self, Write};

use analysis::loops::log::{hits, places};
use analysis::loops::{Estimate, LoopNode, LoopThread, LoopTree, Numbers, Times, unrolled};
use ir::table::{Entry, Kind};

use super::{Loops, iterations, iterations_per_hit, module_name, name, pid, trips};
use crate::view::csv::field;
use crate::view::table::{Column, Table, Value};

struct Line<'a> {
    tree: &'a LoopTree,
    node: &'a LoopNode,
    entry: Option<&'a Entry>,
    thread: Option<LoopThread>,
    numbers: &'a Numbers,
    times: Option<&'a Times>,
}

impl<'a> Line<'a> {
    fn new(
        loops: &Loops<'_>,
        tree: &'a LoopTree,
        node: &'a LoopNode,
        thread: Option<LoopThread>,
        numbers: &'a Numbers,
    ) -> Self {
        Self {
            tree,
            node,
            entry: tree.entry(node),
            thread,
            numbers,
            times: numbers.times(loops.raw),
        }
    }

    /// Returns the result of `find`, or `None` in the row of a single thread, because the value is
    /// known only for all threads together.
    fn of_node<T>(&self, find: impl FnOnce(&Self) -> Option<T>) -> Option<T> {
        match self.thread {
            None => find(self),
            Some(_) => None,
        }
    }
}

/// Makes the full table of the chosen functions and loops, also of those that were never entered.
/// With `threads`, a row for each thread follows the row of a function or loop.
pub fn full(loops: &Loops<'_>, threads: bool) -> Table {
    let mut lines = Vec::new();
    for (module, tree) in loops.table.modules.iter().enumerate() {
        for node in loops.chosen(module) {
            lines.push(Line::new(loops, tree, node, None, &node.all));
            for (thread, numbers) in node.threads.iter().filter(|_| threads) {
                lines.push(Line::new(loops, tree, node, Some(tree.threads[*thread]), numbers));
            }
        }
    }
    Table::new(columns(loops, &lines), (0..lines.len()).collect())
}

/// Returns the name of the column that has the title `title` in the tables for people.
pub fn of_title(table: &Table, title: &str) -> String {
    let ns = format!("{title}_ns");
    let per_hit = title.strip_suffix("/hit").map(|name| format!("{name}_per_hit"));
    let name = match title {
        "mean per hit" => "mean_ns",
        "of parent" => "share",
        "of dispatch" => "share_of_dispatch",
        "per workgroup" => "hits_per_workgroup",
        "timed" => "timed_hits",
        "schedule iterations" => "schedule_each",
        "source" => "file",
        _ => per_hit.as_deref().unwrap_or(title),
    };
    let known = |name: &str| table.columns.iter().any(|column| column.name == name);
    if !known(name) && known(&ns) { ns } else { name.to_owned() }
}

/// Returns one of a row's times, such as the inclusive time. There are four columns for a time: the
/// time in ticks and in ns, and half of its 95 % interval in ticks and in ns.
type TimeOf = fn(&Times) -> Option<Estimate>;

fn columns(loops: &Loops<'_>, lines: &[Line<'_>]) -> Vec<Column> {
    let mut columns = Vec::new();
    let mut add = |name: &str, cell: &dyn Fn(&Line<'_>) -> Option<Value>| {
        columns.push(Column::new(0, name, name, lines.iter().map(cell).collect()));
    };
    let text = |text: &str| Some(Value::Text(text.to_owned()));
    let whole = |n: u128| Some(Value::Count(n));
    let of_thread = |line: &Line<'_>, known: Option<u32>| {
        line.thread.and(known).map(|n| Value::Count(n.into()))
    };
    add("module", &|line| text(&line.tree.identity()));
    add("module_source", &|line| text(&line.tree.table.as_ref()?.source));
    add("mode", &|line| text(line.tree.mode.name()));
    add("pid", &|line| of_thread(line, pid(loops.profile, line.thread?.process)));
    add("tid", &|line| of_thread(line, Some(line.thread?.tid)));
    add("id", &|line| whole(line.node.id.into()));
    add("kind", &|line| text(kind(line.entry?.kind)));
    add("function", &|line| text(&line.entry?.function));
    add("name", &|line| line.entry.and_then(|_| text(&name(line.tree, line.node))));
    add("variable", &|line| text(line.entry?.variable.as_ref()?));
    add("label", &|line| text(line.entry?.label.as_ref()?));
    add("parent", &|line| whole(line.entry?.parent?.into()));
    add("depth", &|line| whole(line.entry?.depth?.into()));
    add("height", &|line| whole(line.entry?.height.into()));
    add("siblings", &|line| whole(line.entry?.siblings.into()));
    add("file", &|line| text(line.entry?.file.as_ref()?));
    add("line", &|line| whole(line.entry?.line.filter(|line| *line > 0)?.into()));
    add("column", &|line| whole(line.entry?.column.filter(|column| *column > 0)?.into()));
    add("text_first_line", &|line| whole(line.entry?.text[0].into()));
    add("text_last_line", &|line| whole(line.entry?.text[1].into()));
    add("hits", &|line| whole(line.numbers.hits));
    add("timed_hits", &|line| whole(line.numbers.timed_hits()?.0));
    add("ended_hits", &|line| whole(line.numbers.timed_hits()?.1));
    add("iterations", &|line| iterations(line.entry, line.numbers).and_then(whole));
    add("iterations_per_hit", &|line| {
        iterations_per_hit(line.entry, line.numbers).map(Value::Number)
    });
    let of_schedule = |line: &Line<'_>| line.of_node(|line| unrolled(line.tree, line.node));
    add("schedule_each", &|line| whole(of_schedule(line)?.each.into()));
    add("schedule_apart", &|line| whole(of_schedule(line)?.apart.into()));
    add("iterated_hits", &|line| {
        whole(line.numbers.iterated).filter(|_| line.numbers.iterated > 0)
    });
    add("estimated_iterations", &|line| line.numbers.estimated_iterations.map(Value::Number));
    add("least_iterations", &|line| whole(line.numbers.trips.as_ref()?.least.into()));
    add("most_iterations", &|line| whole(line.numbers.trips.as_ref()?.most.into()));
    add("iterations_histogram", &|line| {
        trips::histogram_cell(trips::buckets(line.numbers)).map(Value::Text)
    });
    let times: [(&str, TimeOf); 3] = [
        ("inclusive", |times| Some(times.inclusive)),
        ("self", |times| times.own),
        ("mean", |times| times.mean),
    ];
    for (name, of) in times {
        let found = |line: &Line<'_>| line.times.and_then(of);
        let ns = |line: &Line<'_>, ticks: f64| line.tree.ns(ticks).map(Value::Number);
        add(&format!("{name}_ticks"), &|line| Some(Value::Number(found(line)?.value)));
        add(&format!("{name}_ticks_95"), &|line| Some(Value::Number(found(line)?.margin?)));
        add(&format!("{name}_ns"), &|line| ns(line, found(line)?.value));
        add(&format!("{name}_ns_95"), &|line| ns(line, found(line)?.margin?));
    }
    add("share", &|line| Some(Value::Number(line.times?.share?.value)));
    add("share_95", &|line| Some(Value::Number(line.times?.share?.margin?)));
    add("compensated", &|line| {
        line.times?;
        text(flag(!loops.raw && line.numbers.compensated.is_some()))
    });
    add("sampled_only", &|line| line.times.and_then(|_| text(flag(line.numbers.sampled_only))));
    add("measured_ticks", &|line| line.numbers.raw.and_then(|_| whole(line.numbers.ticks)));
    add("child_ticks", &|line| whole(line.numbers.child_ticks?));
    add("deviation_ticks", &|line| line.numbers.deviation.map(Value::Number));
    add("threads", &|line| line.of_node(|line| whole(line.node.threads.len() as u128)));
    add("imbalance", &|line| line.of_node(|line| line.node.imbalance.map(Value::Number)));
    add("hit_imbalance", &|line| line.of_node(|line| line.node.hit_imbalance.map(Value::Number)));
    let dispatch = |line: &Line<'_>| line.of_node(|line| loops.inside(line.tree, line.node));
    add("dispatch_workgroups", &|line| whole(dispatch(line)?.0.workgroups.into()));
    add("dispatches", &|line| whole(dispatch(line)?.0.dispatches?.into()));
    add("dispatch_ns", &|line| Some(Value::Number(dispatch(line)?.0.total_ns(loops.profile))));
    add("hits_per_workgroup", &|line| Some(Value::Number(dispatch(line)?.1.per_workgroup)));
    add("share_of_dispatch", &|line| Some(Value::Number(dispatch(line)?.1.share?)));
    for (i, counter) in loops.profile.manifest.counters.iter().enumerate() {
        add(&counter.name, &|line| whole(line.numbers.counter(i)?.total));
        add(&format!("{}_hits", counter.name), &|line| whole(line.numbers.counter(i)?.hits));
        add(&format!("{}_per_hit", counter.name), &|line| {
            Some(Value::Number(line.numbers.counter(i)?.per_hit()))
        });
    }
    columns
}

fn flag(yes: bool) -> &'static str {
    if yes { "true" } else { "false" }
}

pub fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Function => "function",
        Kind::Loop => "loop",
    }
}

/// Writes the CSV of TVM's original lightweight profiling. It has a row for each shown function or
/// loop that was entered. The column `Processor Cycles` is the time of all hits in whole ticks, or
/// empty if this is not known. The offsets are addresses of the machine code if the code is known,
/// or else return addresses, which only mode log records.
pub fn original(out: &mut impl Write, loops: &Loops<'_>) -> io::Result<()> {
    write!(
        out,
        "Function Name,Loop/Function ID,Loop Depth,Start Offset,End Offset,Processor Cycles\r\n"
    )?;
    let (hits, _) = hits(&loops.recorded.modules, &loops.recorded.events);
    for (index, tree) in loops.table.modules.iter().enumerate() {
        let found = loops.more.codes.as_ref().and_then(|codes| codes.get(index)?.as_ref().ok());
        let first = tree.registrations.iter().find(|m| hits.iter().any(|hit| hit.module == **m));
        let places = first.map(|module| places(&hits, *module)).unwrap_or_default();
        for node in loops.chosen(index).filter(|node| node.all.hits > 0) {
            let entry = tree.entry(node);
            let function = match entry {
                Some(entry) => entry.function.clone(),
                None => module_name(tree),
            };
            let depth = match entry {
                Some(Entry { kind: Kind::Function, .. }) => "-".to_owned(),
                Some(entry) => entry.depth.map(|depth| depth.to_string()).unwrap_or_default(),
                None => String::new(),
            };
            let offset = |at: Option<u64>| at.map(|at| format!("{at:#x}")).unwrap_or_default();
            // With `--asm`, the offsets are the beginning and the end of the node's machine code.
            let region = found.and_then(|code| code.regions.found.get(&node.id));
            let of_code = |end: bool| {
                let range =
                    region.and_then(|r| if end { r.ranges.last() } else { r.ranges.first() });
                range.map(|range| if end { range.end } else { range.start })
            };
            let place = places.get(&node.id);
            let times = node.all.times(loops.raw);
            let cells = [
                field(&function),
                node.id.to_string(),
                depth,
                offset(of_code(false).or(place.map(|(begin, _)| *begin))),
                offset(of_code(true).or(place.and_then(|(_, end)| *end))),
                times.map(|t| format!("{:.0}", t.inclusive.value)).unwrap_or_default(),
            ];
            write!(out, "{}\r\n", cells.join(","))?;
        }
    }
    Ok(())
}
