//! Instruments a whole text of MLIR. Text that is not part of an edit stays unchanged, byte for
//! byte.

use twox_hash::XxHash3_128;

use crate::choice::{Choice, Options};
use crate::descriptor::Names;
use crate::dominators::{Dominators, NONE};
use crate::edit::Edits;
use crate::error::IrError;
use crate::function::{Edge, show};
use crate::hooks::{Clock, Hook};
use crate::instrument::{Counts, REVISION, number_hooks};
use crate::kept::Keeper;
use crate::loops::Loops;
use crate::scan::Span;
use crate::source::Place;
use crate::table::{Entry, Kind, SideTable, Skipped, VERSION};
use crate::twice;

use super::body::Blocks;
use super::descriptor::Descriptor;
use super::hooks::{Code, Hooks};
use super::iterations::{Counter, Search};
use super::place::Places;
use super::read::{Function, Module, PREFIX, modules};
use super::rewrite::Work;

#[derive(Clone, Debug)]
pub struct Instrumented {
    pub text: Vec<u8>,
    /// One side table for each module in which something was instrumented, in the order of the
    /// text.
    pub tables: Vec<SideTable>,
    /// The side tables as embedded in the text.
    pub json: Vec<String>,
    /// The functions and loops that were not instrumented, in modules without a side table.
    pub skipped: Vec<Skipped>,
    /// The numbers of functions and loops in all modules together.
    pub counts: Counts,
}

/// Instruments a text. Each module in which something is instrumented gets a descriptor.
pub fn instrument(text: &[u8], options: &Options) -> Result<Instrumented, IrError> {
    let found = modules(text)?;
    if found.is_empty() {
        return Err(IrError::NoFunctions);
    }
    let places = Places::read(text);
    let mut done = Instrumented {
        text: Vec::with_capacity(text.len() + text.len() / 2),
        tables: Vec::new(),
        json: Vec::new(),
        skipped: Vec::new(),
        counts: Counts::default(),
    };
    let mut edits = Edits::default();
    for (ordinal, module) in found.iter().enumerate() {
        let triple = module.triple.clone().or_else(|| options.target.map(str::to_owned));
        let triple = triple.filter(|triple| !triple.is_empty()).ok_or(IrError::NoTarget)?;
        let clock = Clock::of(&triple).ok_or_else(|| IrError::Target(triple.clone()))?;
        let id = identity(text, ordinal, module, options, &triple);
        let names = Names { id: format!("{:032x}", u128::from_be_bytes(id)) };
        let hooks = Hooks {
            mode: options.mode,
            clock,
            enter: names.of("enter"),
            begin: names.of("begin"),
            end: names.of("end"),
        };
        let mut run = Run {
            text,
            options,
            places: &places,
            hooks: &hooks,
            edits: &mut edits,
            counts: &mut done.counts,
            table: SideTable {
                counterpoint_loops: VERSION,
                module: names.id.clone(),
                source: options.source.to_owned(),
                producer: None,
                target: Some(triple),
                mode: options.mode.name().to_owned(),
                ..SideTable::default()
            },
            kept: Keeper::default(),
        };
        for function in &module.functions {
            run.function(function)?;
        }
        let (mut table, kept) = (run.table, run.kept);
        if table.entries.is_empty() {
            done.skipped.extend(table.skipped);
            continue;
        }
        table.texts.push(kept.finish("mlir", options.source, text));
        let json = table.to_json()?;
        let mut code = Code::new(names.of("module"));
        let ids = table.entries.len() as u32;
        Descriptor { names: &names, ids, id, table: &json, hooks: &hooks }.write(&mut code);
        let at_line = text[..module.end as usize].ends_with(b"\n");
        edits.insert(module.end, &format!("{}{}", if at_line { "" } else { "\n" }, code.out));
        done.tables.push(table);
        done.json.push(json);
    }
    edits.apply(text, Span::new(0, text.len()), &mut done.text);
    Ok(done)
}

/// Returns a hash of the module's text, its index in the file, its target triple, the options, and
/// the instrumenter's revision.
fn identity(
    text: &[u8],
    ordinal: usize,
    module: &Module,
    options: &Options,
    triple: &str,
) -> [u8; 16] {
    let Options { mode, max_depth, min_height, siblings, functions, source, .. } = options;
    let how = format!(
        "mlir {REVISION} {ordinal} {mode:?} {max_depth:?} {min_height:?} {siblings} {functions:?} {triple} {source}"
    );
    let mut all =
        [XxHash3_128::oneshot(module.whole.of(text)), XxHash3_128::oneshot(how.as_bytes())]
            .map(u128::to_be_bytes)
            .concat();
    if let Some(filter) = options.filter {
        all.extend(module.functions.iter().map(|function| u8::from(filter(&function.name))));
    }
    XxHash3_128::oneshot(&all).to_be_bytes()
}

struct Run<'a> {
    text: &'a [u8],
    options: &'a Options<'a>,
    places: &'a Places<'a>,
    hooks: &'a Hooks,
    edits: &'a mut Edits,
    counts: &'a mut Counts,
    table: SideTable,
    kept: Keeper,
}

impl Run<'_> {
    fn skip(&mut self, function: &str, label: Option<String>, why: impl Into<String>) {
        let (function, why) = (function.to_owned(), why.into());
        self.table.skipped.push(Skipped { function, label, why });
    }

    /// Instruments a function, if the function or one of its loops is chosen.
    fn function(&mut self, function: &Function) -> Result<(), IrError> {
        self.counts.functions += 1;
        let name = &function.name;
        if self.options.filter.is_some_and(|filter| !filter(name)) {
            self.counts.left_functions += 1;
            return Ok(());
        }
        if name.as_bytes().starts_with(PREFIX) {
            return Err(IrError::Instrumented(name.clone()));
        }
        let blocks = Blocks::read(self.text, function)?;
        if function.header.of(self.text).windows(5).any(|window| window == b"%cpt.") {
            self.skip(name, None, "it has a value whose name begins with cpt.");
            return Ok(());
        }
        if let Some(why) = &blocks.body.strange {
            self.skip(name, None, why.clone());
            return Ok(());
        }
        let body = &blocks.body;
        let graph = body.graph();
        let reversed = graph.reversed();
        let dominators = Dominators::of(&graph, &reversed);
        let loops =
            Loops::of(&graph, &reversed, &dominators, |block| body.blocks[block as usize].lines);
        self.counts.loops += loops.all.len();
        for entry in &loops.irreducible {
            let label = self.label(&blocks, *entry);
            self.skip(name, Some(label), "a cycle with several entries is not a loop");
        }
        let mut choice = Choice::make(self.options, body, &loops);
        self.counts.left_loops += choice.left;
        for (l, why) in std::mem::take(&mut choice.unfit) {
            let label = self.label(&blocks, loops.all[l as usize].header);
            self.skip(name, Some(label), why);
        }
        if !choice.function && choice.loops.is_empty() {
            return Ok(());
        }
        if function.body.of(self.text).split(|b| *b == b'\n').any(twice::is_called_in_mlir) {
            self.skip(name, None, twice::WHY);
            return Ok(());
        }
        let first = self.table.entries.len() as u32;
        let (hook, hooks) = number_hooks(first, &choice, &loops, self.options.mode);
        let mut arriving: Vec<Vec<(u32, Edge)>> = vec![Vec::new(); body.blocks.len()];
        for from in 0..body.blocks.len() as u32 {
            for edge in body.leaving(from) {
                arriving[edge.to as usize].push((from, *edge));
            }
        }
        let search =
            Search { text: self.text, blocks: &blocks, loops: &loops, arriving: &arriving };
        let counters: Vec<Option<Counter>> =
            choice.loops.iter().map(|l| search.counter(*l)).collect();
        let work = Work {
            text: self.text,
            definition: function,
            blocks: &blocks,
            dominators: &dominators,
            loops: &loops,
            choice: &choice,
            function: hook,
            hooks: &hooks,
            counters: &counters,
            calls: self.hooks,
        };
        if let Err(why) = work.rewrite(self.edits) {
            self.skip(name, None, why);
            return Ok(());
        }
        let trips = search.trip_counts(&choice, &counters);
        self.enter_ids(function, &work, &trips);
        Ok(())
    }

    /// Returns the name of a block, without `^`.
    fn label(&self, blocks: &Blocks, block: u32) -> String {
        show(blocks.body.blocks[block as usize].label.of(self.text)).replacen('^', "", 1)
    }

    fn enter_ids(&mut self, function: &Function, work: &Work, trips: &[Option<u64>]) {
        let lines = [function.line, function.last_line];
        self.kept.add(self.text, function.header.start as usize, lines);
        let (loops, choice) = (work.loops, work.choice);
        if let Some(hook) = work.function {
            let place = self.places.of(self.text, function.tail);
            let height = loops.all.iter().map(|l| l.height + 1).max().unwrap_or(0);
            self.table.entries.push(Entry {
                kind: Kind::Function,
                parent: None,
                depth: None,
                height,
                siblings: 0,
                label: None,
                text: [function.line, function.last_line],
                trip_count: None,
                ..self.entry(&hook, function, place)
            });
            self.counts.instrumented_functions += 1;
        }
        for (i, (l, hook)) in choice.loops.iter().zip(work.hooks).enumerate() {
            let found = &loops.all[*l as usize];
            let header = &work.blocks.body.blocks[found.header as usize];
            let place = self.places.of(self.text, header.terminator);
            let parent = match choice.parent(loops, *l) {
                NONE => work.function.map(|hook| hook.id),
                above => choice.loops.binary_search(&above).ok().map(|i| work.hooks[i].id),
            };
            self.table.entries.push(Entry {
                kind: Kind::Loop,
                parent,
                depth: Some(found.depth),
                height: found.height,
                siblings: loops.siblings(*l),
                label: Some(self.label(work.blocks, found.header)),
                text: found.lines,
                trip_count: trips[i],
                ..self.entry(hook, function, place)
            });
            self.counts.instrumented_loops += 1;
        }
    }

    /// Makes an entry of the side table with the fields that functions and loops share.
    fn entry(&self, hook: &Hook, function: &Function, place: Place) -> Entry {
        Entry {
            id: hook.id,
            kind: Kind::Function,
            function: function.name.clone(),
            parent: None,
            depth: None,
            height: 0,
            siblings: 0,
            label: None,
            variable: None,
            file: place.file,
            line: place.line,
            column: place.column,
            text: [function.line, function.last_line],
            trip_count: None,
            places: Vec::new(),
        }
    }
}
