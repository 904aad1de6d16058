//! Instruments a whole module of LLVM IR.

use std::collections::{HashMap, VecDeque};

use abi::loops::Mode;

use crate::attributes::Weaker;
use crate::choice::{Choice, Options};
use crate::descriptor::{Descriptor, Names};
use crate::dominators::{Dominators, Graph, NONE};
use crate::edit::Edits;
use crate::error::IrError;
use crate::function::{Body, show};
use crate::hooks::{Clock, Hook, Writer};
use crate::iterations::{Counter, Search};
use crate::kept::Keeper;
use crate::loops::Loops;
use crate::module::{Definition, Module};
use crate::rewrite::Work;
use crate::scan::{Span, Token, Tokens};
use crate::schedule::ScheduledLoop;
use crate::source::{Place, Source};
use crate::table::{Entry, Kind, SideTable, Skipped, TextPlace, VERSION};
use crate::trips::trip_counts;
use crate::twice::{self, Twice};

#[derive(Clone, Debug)]
pub struct Instrumented {
    pub text: Vec<u8>,
    /// The side table, which describes the function or loop of each id.
    pub table: SideTable,
    /// The side table as embedded in the text.
    pub json: String,
    pub counts: Counts,
}

/// Numbers of functions and loops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The functions with bodies.
    pub functions: usize,
    /// The loops of the functions that neither the filter nor `Body::strange` leaves out.
    pub loops: usize,
    /// The functions with an id.
    pub instrumented_functions: usize,
    /// The loops with an id.
    pub instrumented_loops: usize,
    /// The loops that the options leave out.
    pub left_loops: usize,
    /// The functions that the filter leaves out.
    pub left_functions: usize,
}

/// A function with its blocks and loops.
#[derive(Debug, Default)]
pub struct Analysis {
    /// The function's blocks.
    pub body: Body,
    /// The graph of the function's blocks, with reversed edges.
    pub reversed: Graph,
    /// The function's dominators.
    pub dominators: Dominators,
    /// The function's loops.
    pub loops: Loops,
}

impl Analysis {
    /// Reads a function and finds its loops. A function that must be left unchanged
    /// (`Body::strange`) gets no loops.
    pub fn read<'a>(
        &mut self,
        text: &'a [u8],
        definition: &Definition,
        names: &mut HashMap<&'a [u8], u32>,
    ) -> Result<(), IrError> {
        self.body.read(text, definition, names)?;
        if self.body.strange.is_some() {
            self.loops = Loops::default();
            return Ok(());
        }
        let graph = self.body.graph();
        self.reversed = graph.reversed();
        self.dominators = Dominators::of(&graph, &self.reversed);
        let lines = |block: u32| self.body.blocks[block as usize].lines;
        self.loops = Loops::of(&graph, &self.reversed, &self.dominators, lines);
        Ok(())
    }
}

struct Run<'a> {
    text: &'a [u8],
    module: &'a Module,
    options: &'a Options<'a>,
    source: Source<'a>,
    weaker: Weaker,
    twice: Twice,
    writer: Writer,
    edits: Edits,
    out: Vec<u8>,
    table: SideTable,
    counts: Counts,
    /// The offset up to which the text was copied to `out`.
    done: u32,
    /// The changes still to be made in the text between functions, in the order of their offsets.
    outside: VecDeque<(Span, String)>,
    /// New lists of constructors and destructors, where the module has none.
    lists: String,
    kept: Keeper,
}

pub fn instrument(text: &[u8], options: &Options) -> Result<Instrumented, IrError> {
    let module = Module::read(text)?;
    if let Some(name) = module.instrumented {
        return Err(IrError::Instrumented(show(crate::scan::name(name.of(text)))));
    }
    let triple = module.triple.clone().or_else(|| options.target.map(str::to_owned));
    let triple = triple.filter(|triple| !triple.is_empty()).ok_or(IrError::NoTarget)?;
    let clock = Clock::of(&triple).ok_or_else(|| IrError::Target(triple.clone()))?;
    // The output contains the identity, so the identity cannot be a hash of the output, but is
    // computed from the input.
    let id = identity(text, options, &triple, &module);
    let names = Names { id: format!("{:032x}", u128::from_be_bytes(id)) };
    let free = module.metadata.len() as u32;
    let weights = [free, free + 1];
    let table = SideTable {
        counterpoint_loops: VERSION,
        module: names.id.clone(),
        source: options.source.to_owned(),
        producer: module.producer(text),
        target: module.triple.clone().or_else(|| Some(triple.clone())),
        mode: options.mode.name().to_owned(),
        schedule: options.schedule.map_or(Vec::new(), |schedule| schedule.loops.clone()),
        ..SideTable::default()
    };
    let mut run = Run {
        text,
        module: &module,
        options,
        source: Source::new(text, &module),
        weaker: Weaker::new(text, &module),
        twice: Twice::new(text, &module),
        writer: Writer::new(options.mode, clock, names.of("module"), weights),
        edits: Edits::default(),
        out: Vec::with_capacity(text.len() + text.len() / 2),
        table,
        counts: Counts { functions: module.definitions.len(), ..Counts::default() },
        done: 0,
        outside: VecDeque::new(),
        lists: String::new(),
        kept: Keeper::default(),
    };
    let mut outside: Vec<(Span, String)> =
        module.use_orders.iter().map(|order| (*order, String::new())).collect();
    if !triple.contains("windows") {
        names.constructors(text, &module, &mut outside, &mut run.lists)?;
    }
    outside.sort_by_key(|(span, _)| span.start);
    run.outside = outside.into();
    run.functions()?;
    run.finish(&names, id, &triple, weights)
}

/// This number must be raised when a change of this crate gives the same text with the same options
/// other ids, another side table, or other counters of iterations. Otherwise two different modules
/// would have the same identity.
pub const REVISION: u32 = 2;

/// Returns a hash of the text and the options.
fn identity(text: &[u8], options: &Options, triple: &str, module: &Module) -> [u8; 16] {
    use twox_hash::XxHash3_128;
    let Options { mode, max_depth, min_height, siblings, functions, source, .. } = options;
    let how = format!(
        "{REVISION} {mode:?} {max_depth:?} {min_height:?} {siblings} {functions:?} {triple} {source}"
    );
    let mut all = [XxHash3_128::oneshot(text), XxHash3_128::oneshot(how.as_bytes())]
        .map(u128::to_be_bytes)
        .concat();
    if let Some(schedule) = options.schedule {
        all.extend(XxHash3_128::oneshot(schedule_key(&schedule.loops).as_bytes()).to_be_bytes());
    }
    if let Some(filter) = options.filter {
        let names = module.definitions.iter().map(|definition| show(definition.name.of(text)));
        all.extend(names.map(|name| u8::from(filter(&name))));
    }
    XxHash3_128::oneshot(&all).to_be_bytes()
}

fn schedule_key(loops: &[ScheduledLoop]) -> String {
    format!("{loops:?}")
}

impl Run<'_> {
    fn functions(&mut self) -> Result<(), IrError> {
        let mut analysis = Analysis::default();
        let mut names = HashMap::new();
        let module = self.module;
        let deoptimizes = |name: &Vec<u8>| name.starts_with(b"llvm.experimental.deoptimize");
        analysis.body.deoptimizes = module.declared.iter().any(deoptimizes);
        for definition in &module.definitions {
            self.flush(definition.header.start);
            analysis.read(self.text, definition, &mut names)?;
            let instrumented = self.function(definition, &analysis, &names);
            let mut calls_defined = false;
            for call in &analysis.body.calls {
                let (text, declared) = (self.text, &module.declared);
                calls_defined |= self.weaker.call(text, call.text, declared, &mut self.edits);
            }
            if instrumented || calls_defined {
                self.weaker.definition(self.text, definition.tail, &mut self.edits);
            }
            for order in &analysis.body.use_orders {
                self.edits.replace(*order, "");
            }
            // The new blocks can be large, so they are appended to the output, and not stored as
            // edits.
            self.flush(definition.body.end);
            self.out.extend_from_slice(self.writer.out.as_bytes());
            self.writer.out.clear();
        }
        Ok(())
    }

    fn flush(&mut self, to: u32) {
        if to > self.done {
            let apart = self.outside.iter().position(|(span, _)| span.start >= to);
            for (span, with) in self.outside.drain(..apart.unwrap_or(self.outside.len())) {
                self.edits.replace(span, &with);
            }
            let span = Span { start: self.done, end: to };
            self.edits.apply(self.text, span, &mut self.out);
            self.done = to;
        }
    }

    fn skip(&mut self, function: &str, label: Option<String>, why: impl Into<String>) {
        let (function, why) = (function.to_owned(), why.into());
        self.table.skipped.push(Skipped { function, label, why });
    }

    /// Instruments a function, if the function or one of its loops is chosen.
    fn function(
        &mut self,
        definition: &Definition,
        analysis: &Analysis,
        names: &HashMap<&[u8], u32>,
    ) -> bool {
        let Analysis { body, reversed, dominators, loops } = analysis;
        let name = show(definition.name.of(self.text));
        if self.options.filter.is_some_and(|filter| !filter(&name)) {
            self.counts.left_functions += 1;
            return false;
        }
        if let Some(why) = &body.strange {
            self.skip(&name, None, why.clone());
            return false;
        }
        self.counts.loops += loops.all.len();
        for entry in &loops.irreducible {
            let label = self.label(body, *entry);
            self.skip(&name, Some(label), "a cycle with several entries is not a loop");
        }
        let scheduled = self
            .options
            .schedule
            .map(|schedule| schedule.match_loops(self.text, body, loops, &mut self.source));
        let mut choice = match (&scheduled, self.options.schedule) {
            (Some(scheduled), Some(schedule)) => {
                let is_chosen = |n: u32| schedule.loops[n as usize].chosen;
                let takes = |l: u32| scheduled[l as usize].is_some_and(is_chosen);
                Choice::among(self.options.functions, body, loops, takes)
            }
            _ => Choice::make(self.options, body, loops),
        };
        if !choice.function && choice.loops.is_empty() && choice.unfit.is_empty() {
            self.counts.left_loops += choice.left;
            return false;
        }
        let twice = body.calls.iter().any(|call| self.twice.is_called(self.text, call.text));
        let why = excluded(self.text, definition, self.module);
        if let Some(why) = why.or_else(|| twice.then_some(twice::WHY)) {
            self.skip(&name, None, why);
            return false;
        }
        self.counts.left_loops += choice.left;
        for (l, why) in std::mem::take(&mut choice.unfit) {
            let label = self.label(body, loops.all[l as usize].header);
            self.skip(&name, Some(label), why);
        }
        if !choice.function && choice.loops.is_empty() {
            return false;
        }
        let first = self.table.entries.len() as u32;
        let (function, hooks) = number_hooks(first, &choice, loops, self.options.mode);
        let mut search = Search {
            text: self.text,
            body,
            names,
            loops,
            budget: 4 * (definition.body.end - definition.body.start) as usize + (1 << 16),
            uses: None,
        };
        let counters: Vec<Option<Counter>> =
            choice.loops.iter().map(|l| search.counter(*l)).collect();
        let work = Work {
            text: self.text,
            body,
            dominators,
            reversed,
            loops,
            choice: &choice,
            function,
            hooks: &hooks,
            mode: self.options.mode,
            counters: &counters,
        };
        if let Err(why) = work.rewrite(&mut self.writer, &mut self.edits) {
            self.skip(&name, None, why);
            return false;
        }
        self.enter_ids(definition, name, &work);
        if let Some(scheduled) = scheduled {
            self.enter_schedule(&work, &scheduled);
        }
        true
    }

    fn label(&self, body: &Body, block: u32) -> String {
        show(crate::scan::name(body.blocks[block as usize].label.of(self.text)))
    }

    fn enter_ids(&mut self, definition: &Definition, name: String, work: &Work) {
        let lines = [definition.line, definition.last_line];
        self.kept.add(self.text, definition.header.start as usize, lines);
        let loops = work.loops;
        if let Some(hook) = work.function {
            let place = self.source.function(definition.tail);
            let levels = loops.all.iter().map(|l| l.height + 1).max().unwrap_or(0);
            self.table.entries.push(Entry {
                id: hook.id,
                kind: Kind::Function,
                function: name.clone(),
                parent: None,
                depth: None,
                height: levels,
                siblings: 0,
                label: None,
                variable: None,
                file: place.file,
                line: place.line,
                column: place.column,
                text: [definition.line, definition.last_line],
                trip_count: None,
                places: Vec::new(),
            });
            self.counts.instrumented_functions += 1;
        }
        let (body, choice) = (work.body, work.choice);
        let trips = trip_counts(self.text, body, loops, choice, work.counters);
        for (i, (l, hook)) in choice.loops.iter().zip(work.hooks).enumerate() {
            let found = &loops.all[*l as usize];
            let from = work.reversed.of(found.header).iter().copied();
            let mut latches: Vec<u32> = from.filter(|b| loops.contains(*l, *b)).collect();
            latches.sort_unstable();
            latches.dedup();
            latches.truncate(16);
            let counter = work.counters[i].as_ref().map(|c| c.value.as_str());
            let Place { file, line, column } = self.source.of_loop(work.body, loops, *l, &latches);
            let variable = self.source.variable(work.body, found.header, counter, file.as_deref());
            let parent = match work.choice.parent(loops, *l) {
                NONE => work.function.map(|hook| hook.id),
                above => work.choice.loops.binary_search(&above).ok().map(|i| work.hooks[i].id),
            };
            self.table.entries.push(Entry {
                id: hook.id,
                kind: Kind::Loop,
                function: name.clone(),
                parent,
                depth: Some(found.depth),
                height: found.height,
                siblings: loops.siblings(*l),
                label: Some(self.label(work.body, found.header)),
                variable,
                file,
                line,
                column,
                text: found.lines,
                trip_count: trips[i],
                places: Vec::new(),
            });
            self.counts.instrumented_loops += 1;
        }
    }

    /// Adds to the side table what the schedule says about the instrumented loops and their
    /// function.
    fn enter_schedule(&mut self, work: &Work, scheduled: &[Option<u32>]) {
        let Some(schedule) = self.options.schedule else { return };
        let place = |lines| TextPlace { language: "tir".to_owned(), lines };
        let mut function = None;
        for (l, hook) in work.choice.loops.iter().zip(work.hooks) {
            let Some(n) = scheduled[*l as usize] else { continue };
            let one = &schedule.loops[n as usize];
            self.table.schedule[n as usize].ids.push(hook.id);
            function.get_or_insert(&one.function);
            let entry = &mut self.table.entries[hook.id as usize];
            entry.variable = Some(one.variable.clone());
            // The lines in the debug information of a scheduled module stand for loops of the
            // schedule, so the entry gets the source line that the schedule knows, or none.
            (entry.file, entry.line, entry.column) = match &one.source {
                Some((file, line)) => (Some(file.clone()), Some(*line), None),
                None => (None, None, None),
            };
            entry.places.extend(one.lines.map(place));
        }
        let Some(hook) = work.function else { return };
        let entry = &mut self.table.entries[hook.id as usize];
        if entry.line.is_some_and(|line| line >= crate::schedule::LINE) {
            (entry.file, entry.line, entry.column) = (None, None, None);
        }
        let lines = schedule.functions.iter().find(|f| Some(&f.name) == function);
        entry.places.extend(lines.map(|function| place(function.lines)));
    }

    fn finish(
        mut self,
        names: &Names,
        id: [u8; 16],
        triple: &str,
        weights: [u32; 2],
    ) -> Result<Instrumented, IrError> {
        let kept = std::mem::take(&mut self.kept);
        if !self.table.entries.is_empty() {
            self.table.texts.push(kept.finish("llvm", self.options.source, self.text));
            let tir = self.options.schedule.filter(|schedule| !schedule.text.is_empty());
            if let Some(schedule) = tir {
                let text = schedule.text.as_bytes();
                let mut kept = Keeper::default();
                kept.add(text, 0, [1, schedule.text.lines().count() as u32]);
                self.table.texts.push(kept.finish("tir", &schedule.path, text));
            }
        }
        let json = self.table.to_json()?;
        let descriptor = Descriptor {
            names,
            mode: self.options.mode,
            ids: self.table.entries.len() as u32,
            id,
            table: &json,
            triple,
        };
        let mut tail = String::from("\n");
        descriptor.write(self.module, &mut self.writer, &mut tail);
        let text = self.text;
        tail.push_str(&self.lists);
        if !self.module.names(b"llvm.readcyclecounter") {
            tail.push_str("declare i64 @llvm.readcyclecounter()\n");
        }
        if !self.module.names(b"llvm.ctlz.i64") {
            tail.push_str("declare i64 @llvm.ctlz.i64(i64, i1 immarg)\n");
        }
        self.weaker.write(text, self.module, &mut tail);
        for (number, weight) in weights.into_iter().zip(["1, i32 1000", "1000, i32 1"]) {
            tail.push_str(&format!("!{number} = !{{!\"branch_weights\", i32 {weight}}}\n"));
        }
        self.flush(text.len() as u32);
        self.out.extend_from_slice(tail.as_bytes());
        let Self { out, table, counts, .. } = self;
        Ok(Instrumented { text: out, table, json, counts })
    }
}

/// Numbers the function (if its calls are recorded) and its chosen loops, from `first` on.
pub(crate) fn number_hooks(
    first: u32,
    choice: &Choice,
    loops: &Loops,
    mode: Mode,
) -> (Option<Hook>, Vec<Hook>) {
    let timed = mode == Mode::Timed;
    let mut function = choice.function.then_some(Hook {
        id: first,
        counters: true,
        slot: timed && !choice.loops.is_empty(),
        parent: None,
    });
    let start = first + u32::from(choice.function);
    let mut hooks: Vec<Hook> = Vec::with_capacity(choice.loops.len());
    for (i, l) in choice.loops.iter().enumerate() {
        let counters = loops.all[*l as usize].depth <= 1;
        let mut hook = Hook { id: start + i as u32, counters, slot: false, parent: None };
        match choice.parent(loops, *l) {
            NONE => hook.parent = function.filter(|_| timed).map(|f| f.id),
            above => {
                if let Ok(above) = choice.loops.binary_search(&above) {
                    hook.parent = timed.then_some(hooks[above].id);
                    hooks[above].slot = timed;
                }
            }
        }
        hooks.push(hook);
    }
    if hooks.is_empty() {
        function = function.map(|hook| Hook { slot: false, ..hook });
    }
    (function, hooks)
}

/// Returns why a function must not be changed, if its header says so.
fn excluded(text: &[u8], definition: &Definition, module: &Module) -> Option<&'static str> {
    let before = Span { start: definition.header.start, end: definition.name.start };
    for (token, span) in Tokens::new(text, before) {
        match span.of(text) {
            b"available_externally" => return Some("its body is only for inlining"),
            b"ghccc" | b"preserve_allcc" | b"x86_intrcc" | b"anyregcc" | b"cfguard_checkcc" => {
                return Some("its calling convention leaves no room for other calls");
            }
            [b'c', b'c', rest @ ..] if rest.iter().all(u8::is_ascii_digit) => {
                return Some("its calling convention is not known");
            }
            _ if token == Token::Global => break,
            _ => {}
        }
    }
    let mut found = None;
    let mut look = |span: Span| {
        for (token, span) in Tokens::new(text, span) {
            found = found.or(match (token, span.of(text)) {
                (Token::Word, b"naked") => Some("it is naked"),
                (Token::Word, b"presplitcoroutine") => Some("it is a coroutine that is not split"),
                (Token::Word, b"gc") => Some("it has a garbage collector"),
                (Token::Text, b"\"no_caller_saved_registers\"") => {
                    Some("its calling convention leaves no room for other calls")
                }
                (Token::Text, text) if text.starts_with(b"\"aarch64_pstate") => {
                    Some("it changes the mode of the processor")
                }
                _ => None,
            });
        }
    };
    look(definition.tail);
    for (token, span) in Tokens::new(text, definition.tail) {
        let group = crate::scan::number(span.of(text)).filter(|_| token == Token::Attributes);
        if let Some(group) = group.and_then(|group| module.attributes.get(&group)) {
            look(*group);
        }
    }
    found
}
