//! Writes the code of hooks. `loops.h` explains the numbers that hooks change, and `docs/loops.md`
//! the modes.
//!
//! An entry contains the numbers of one function or loop on one thread. These numbers are read and
//! written with monotonic atomic accesses, which are ordinary loads and stores in machine code.
//! Other threads never see half of a new value, and the optimiser cannot join the increments of two
//! calls that it has inlined.

use std::fmt::Write;
use std::mem::offset_of;

use abi::loops::{Entry, Mode, Module};

use crate::hit::Print;

const ENTRY_BYTES: u64 = size_of::<Entry>() as u64;

/// The instruction that reads the time stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// `rdtsc`.
    X86,
    /// `mrs cntvct_el0`.
    Arm,
}

impl Clock {
    /// Returns the clock of a target triple, if one is known.
    pub fn of(triple: &str) -> Option<Self> {
        let machine = triple.split('-').next().unwrap_or_default();
        let narrow = triple.ends_with("x32") || triple.ends_with("_ilp32");
        match machine {
            _ if narrow => None,
            "x86_64" | "x86_64h" | "amd64" => Some(Self::X86),
            "aarch64" | "aarch64_be" | "arm64" | "arm64e" => Some(Self::Arm),
            _ => None,
        }
    }

    /// Returns the call that reads the clock, without a result's name.
    fn read(self) -> &'static str {
        match self {
            Self::X86 => "call i64 @llvm.readcyclecounter()",
            Self::Arm => "call i64 asm sideeffect \"mrs $0, cntvct_el0\", \"=r\"()",
        }
    }
}

/// The properties of a function or loop that determine its hooks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hook {
    pub id: u32,
    /// Whether the hooks may read counters, as those of functions and of loops of depth 0 or 1 do.
    pub counters: bool,
    /// Mode timed: whether there is a slot (a word of the stack) to which the loops inside add
    /// their times.
    pub slot: bool,
    /// Mode timed: the id of the function or loop around this one, to whose slot the hooks add this
    /// one's time.
    pub parent: Option<u32>,
}

/// The pointer to the calling thread's table of entries.
pub const TABLE: &str = "%cpt.table";

/// Writes hooks into the text of one function.
#[derive(Debug)]
pub struct Writer {
    /// The text so far.
    pub out: String,
    /// The current block, without `%`.
    pub block: String,
    next: u32,
    mode: Mode,
    clock: Clock,
    /// The descriptor's name, with `@`.
    descriptor: String,
    /// The metadata nodes for a branch that is rarely taken, and for one that is nearly always
    /// taken.
    weights: [u32; 2],
}

/// A value that a hit keeps from its start to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The time stamp; 0 if the hit is not timed.
    Stamp,
    /// What `begin` of the descriptor returned; 0 without a call of `begin`.
    Count,
    /// The `end` function to call; null without a call of `begin`.
    End,
}

impl Kept {
    /// Returns the values that a hook keeps in a mode.
    pub fn of(mode: Mode, hook: &Hook) -> &'static [Self] {
        match mode {
            Mode::Count | Mode::Log => &[],
            _ if hook.counters => &[Self::Stamp, Self::Count, Self::End],
            _ => &[Self::Stamp],
        }
    }

    /// Returns the value's type.
    pub fn kind(self) -> &'static str {
        if self == Self::End { "ptr" } else { "i64" }
    }

    /// Returns the constant that stands for no value.
    pub fn nothing(self) -> &'static str {
        if self == Self::End { "null" } else { "0" }
    }

    /// Returns the letter that stands for the value in names.
    pub fn letter(self) -> char {
        match self {
            Self::Stamp => 't',
            Self::Count => 'c',
            Self::End => 'x',
        }
    }

    /// Returns the name of the value for an id, with `%`. `copy` is the number of an edge into the
    /// loop, if there are several.
    pub fn name(self, id: u32, copy: Option<u32>) -> String {
        match copy {
            None => format!("%cpt.{}{id}", self.letter()),
            Some(copy) => format!("%cpt.{}{id}.{copy}", self.letter()),
        }
    }
}

/// Returns the name of the slot that the function or loop `id` has in mode timed.
pub fn slot(id: u32) -> String {
    format!("%cpt.s{id}")
}

impl Writer {
    /// Makes a writer. `weights` are the metadata nodes for a branch that is rarely taken, and for
    /// one that is nearly always taken.
    pub fn new(mode: Mode, clock: Clock, descriptor: String, weights: [u32; 2]) -> Self {
        let (out, block) = (String::new(), String::new());
        Self { out, block, next: 0, mode, clock, descriptor, weights }
    }

    /// Prepares the writer for another function.
    pub fn restart(&mut self) {
        self.next = 0;
    }

    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns a number that this method has not returned before for this function.
    pub fn fresh(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    /// Adds a statement.
    pub fn line(&mut self, statement: std::fmt::Arguments) {
        let _ = writeln!(self.out, "  {statement}");
    }

    /// Adds a statement with a new name for its result, and returns the name.
    pub fn value(&mut self, code: std::fmt::Arguments) -> String {
        let name = format!("%cpt.v{}", self.fresh());
        let _ = writeln!(self.out, "  {name} = {code}");
        name
    }

    /// Reads the pointer in a field of the descriptor.
    pub fn pointer(&mut self, offset: usize, order: &str) -> String {
        let descriptor = self.descriptor.clone();
        let address = self.at(&descriptor, offset);
        self.value(format_args!("load atomic ptr, ptr {address} {order}, align 8"))
    }

    /// Begins a block that runs if the thread has a table. Returns the block in which both paths
    /// join.
    fn if_table(&mut self) -> String {
        let there = self.is_there(TABLE);
        let (on, join) = (self.new_block(), self.new_block());
        self.branch(&there, &on, &join, Some(false));
        self.label(on);
        join
    }

    /// Writes the start of a function: asks the runtime for the calling thread's table. The written
    /// text begins in the entry block, and ends in the block `cpt.in`.
    pub fn enter(&mut self) {
        self.join("cpt.start".to_owned());
        let enter = self.pointer(offset_of!(Module, enter), "acquire");
        let there = self.is_there(&enter);
        self.branch(&there, "cpt.ask", "cpt.in", Some(false));
        self.label("cpt.ask".to_owned());
        let descriptor = self.descriptor.clone();
        let table = self.value(format_args!("notail call ptr {enter}(ptr {descriptor}) nounwind"));
        self.join("cpt.in".to_owned());
        self.line(format_args!("{TABLE} = phi ptr [ null, %cpt.start ], [ {table}, %cpt.ask ]"));
    }

    /// Writes the start of a hit, whose values have the names of [`Kept::name`].
    pub fn begin(&mut self, hook: &Hook, copy: Option<u32>) {
        let from = self.block.clone();
        let join = self.if_table();
        let offset = u64::from(hook.id) * ENTRY_BYTES;
        let entry =
            self.value(format_args!("getelementptr inbounds i8, ptr {TABLE}, i64 {offset}"));
        self.begin_at(&entry, hook, copy, join, from);
    }

    /// Writes the start of a hit in the entry at address `entry`. `from` is a block that jumps
    /// directly to `join`.
    pub fn begin_at(
        &mut self,
        entry: &str,
        hook: &Hook,
        copy: Option<u32>,
        join: String,
        from: String,
    ) {
        let (_, hits) = self.count(entry, offset_of!(Entry, hits));
        let kept = Kept::of(self.mode, hook);
        // The blocks that jump to `join` without a time stamp.
        let mut plain = vec![from];
        let mut values = Vec::new();
        match self.mode {
            Mode::Count => {}
            Mode::Log => {
                let log = self.pointer(offset_of!(Module, log), "monotonic");
                self.line(format_args!(
                    "notail call void {log}(ptr {entry}, i32 {}, i32 0) nounwind",
                    hook.id as i32
                ));
            }
            Mode::Sampled => {
                let next = self.at(entry, offset_of!(Entry, next));
                let due = self.load(&next);
                let now = self.value(format_args!("icmp eq i64 {hits}, {due}"));
                let cold = self.new_block();
                plain.push(self.block.clone());
                self.branch(&now, &cold, &join, Some(true));
                self.label(cold);
                self.draw(entry, &hits, &next);
                values = self.start(entry, hook);
            }
            Mode::Timed => {
                if hook.slot {
                    self.line(format_args!("store i64 0, ptr {}, align 8", slot(hook.id)));
                }
                self.count(entry, offset_of!(Entry, begun));
                values = self.start(entry, hook);
            }
        }
        let last = self.block.clone();
        self.join(join);
        for (kept, value) in kept.iter().zip(&values) {
            let (name, kind, nothing) = (kept.name(hook.id, copy), kept.kind(), kept.nothing());
            let _ = write!(self.out, "  {name} = phi {kind} [ {value}, %{last} ]");
            for block in &plain {
                let _ = write!(self.out, ", [ {nothing}, %{block} ]");
            }
            self.out.push('\n');
        }
    }

    /// Reads the counters, if the runtime wants them, and then the clock. Returns the values to
    /// keep.
    fn start(&mut self, entry: &str, hook: &Hook) -> Vec<String> {
        let mut counted = Vec::new();
        if hook.counters {
            let begin = self.pointer(offset_of!(Module, begin), "monotonic");
            let wanted = self.is_there(&begin);
            let (count, stamp) = (self.new_block(), self.new_block());
            let from = self.block.clone();
            self.branch(&wanted, &count, &stamp, None);
            self.label(count.clone());
            let id = hook.id as i32;
            let began =
                self.value(format_args!("notail call i64 {begin}(ptr {entry}, i32 {id}) nounwind"));
            let end = self.pointer(offset_of!(Module, end), "monotonic");
            self.join(stamp);
            for (kind, nothing, value) in [("i64", "0", began), ("ptr", "null", end)] {
                counted.push(self.value(format_args!(
                    "phi {kind} [ {nothing}, %{from} ], [ {value}, %{count} ]"
                )));
            }
        }
        let clock = self.clock.read();
        let mut values = vec![self.value(format_args!("{clock}"))];
        values.extend(counted);
        values
    }

    /// Writes the end of a hit. `iterations` is a value of type `i64`.
    pub fn end(&mut self, hook: &Hook, iterations: Option<&str>) {
        let offset = u64::from(hook.id) * ENTRY_BYTES;
        let entry = format!("getelementptr inbounds i8, ptr {TABLE}, i64 {offset}");
        match self.mode {
            Mode::Count => {
                if iterations.is_some() {
                    let join = self.if_table();
                    let entry = self.value(format_args!("{entry}"));
                    self.known_iterations(&entry, iterations);
                    self.join(join);
                }
            }
            Mode::Log => {
                let join = self.if_table();
                let entry = self.value(format_args!("{entry}"));
                let log = self.pointer(offset_of!(Module, log), "monotonic");
                self.line(format_args!(
                    "notail call void {log}(ptr {entry}, i32 {}, i32 1) nounwind",
                    hook.id as i32
                ));
                self.known_iterations(&entry, iterations);
                self.join(join);
            }
            Mode::Sampled | Mode::Timed => {
                let stamp = Kept::Stamp.name(hook.id, None);
                let timed = self.value(format_args!("icmp ne i64 {stamp}, 0"));
                let (cold, join) = (self.new_block(), self.new_block());
                self.branch(&timed, &cold, &join, Some(self.mode == Mode::Sampled));
                self.label(cold);
                let clock = self.clock.read();
                let now = self.value(format_args!("{clock}"));
                let entry = self.value(format_args!("{entry}"));
                self.end_at(&entry, hook, &now, iterations);
                self.join(join);
            }
        }
    }

    /// Adds a timed hit, which ends at time `now`, to its entry.
    pub fn end_at(&mut self, entry: &str, hook: &Hook, now: &str, iterations: Option<&str>) {
        let stamp = Kept::Stamp.name(hook.id, None);
        let ticks = self.value(format_args!("sub i64 {now}, {stamp}"));
        self.book(entry, &ticks, self.mode);
        if self.mode == Mode::Timed {
            if hook.slot {
                let own = slot(hook.id);
                let inside = self.value(format_args!("load i64, ptr {own}, align 8"));
                self.add(entry, offset_of!(Entry, child_ticks), &inside);
            }
            if let Some(parent) = hook.parent.map(slot) {
                let sum = self.value(format_args!("load i64, ptr {parent}, align 8"));
                let sum = self.value(format_args!("add i64 {sum}, {ticks}"));
                self.line(format_args!("store i64 {sum}, ptr {parent}, align 8"));
            }
        }
        self.known_iterations(entry, iterations);
        if hook.counters {
            let (end, began) = (Kept::End.name(hook.id, None), Kept::Count.name(hook.id, None));
            let wanted = self.is_there(&end);
            let (count, after) = (self.new_block(), self.new_block());
            self.branch(&wanted, &count, &after, None);
            self.label(count);
            let id = hook.id as i32;
            self.line(format_args!(
                "notail call void {end}(ptr {entry}, i32 {id}, i64 {began}) nounwind"
            ));
            self.join(after);
        }
    }

    /// Writes an empty hit in the entry at address `entry`, in a function without a table. The next
    /// text begins in the block `after`.
    pub fn rehearse(&mut self, entry: &str, hook: &Hook, after: &str) {
        let from = self.block.clone();
        let join = self.new_block();
        // A real hit tests whether the thread has a table. This test of `entry` costs the same.
        let there = self.is_there(entry);
        let on = self.new_block();
        self.branch(&there, &on, &join, Some(false));
        self.label(on);
        self.begin_at(entry, hook, None, join, from);
        if matches!(self.mode, Mode::Sampled | Mode::Timed) {
            let stamp = Kept::Stamp.name(hook.id, None);
            let timed = self.value(format_args!("icmp ne i64 {stamp}, 0"));
            let cold = self.new_block();
            self.branch(&timed, &cold, after, Some(self.mode == Mode::Sampled));
            self.label(cold);
            let clock = self.clock.read();
            let now = self.value(format_args!("{clock}"));
            self.end_at(entry, hook, &now, None);
        }
        self.join(after.to_owned());
    }

    fn known_iterations(&mut self, entry: &str, iterations: Option<&str>) {
        if let Some(iterations) = iterations {
            self.iterated(entry, iterations, self.mode);
        }
    }
}

impl Print for Writer {
    fn at(&mut self, pointer: &str, offset: usize) -> String {
        match offset {
            0 => pointer.to_owned(),
            _ => self.value(format_args!("getelementptr inbounds i8, ptr {pointer}, i64 {offset}")),
        }
    }

    fn load(&mut self, address: &str) -> String {
        self.value(format_args!("load atomic i64, ptr {address} monotonic, align 8"))
    }

    fn store(&mut self, value: &str, address: &str) {
        self.line(format_args!("store atomic i64 {value}, ptr {address} monotonic, align 8"));
    }

    fn load_pointer(&mut self, address: &str) -> String {
        self.value(format_args!("load atomic ptr, ptr {address} monotonic, align 8"))
    }

    fn load_constant(&mut self, address: &str) -> String {
        self.value(format_args!("load i64, ptr {address}, align 8"))
    }

    fn setting(&mut self, offset: usize) -> String {
        let descriptor = self.descriptor.clone();
        let address = self.at(&descriptor, offset);
        let narrow = self.value(format_args!("load i32, ptr {address}, align 4"));
        self.value(format_args!("zext i32 {narrow} to i64"))
    }

    fn number(&mut self, number: u64) -> String {
        number.to_string()
    }

    fn binary(&mut self, op: &str, a: &str, b: &str) -> String {
        self.value(format_args!("{op} i64 {a}, {b}"))
    }

    fn compare(&mut self, how: &str, a: &str, b: &str) -> String {
        self.value(format_args!("icmp {how} i64 {a}, {b}"))
    }

    fn select(&mut self, condition: &str, a: &str, b: &str) -> String {
        self.value(format_args!("select i1 {condition}, i64 {a}, i64 {b}"))
    }

    fn flag(&mut self, condition: &str) -> String {
        self.value(format_args!("zext i1 {condition} to i64"))
    }

    fn is_there(&mut self, pointer: &str) -> String {
        self.value(format_args!("icmp ne ptr {pointer}, null"))
    }

    fn square(&mut self, number: &str) -> [String; 2] {
        let wide = self.value(format_args!("zext i64 {number} to i128"));
        let square = self.value(format_args!("mul i128 {wide}, {wide}"));
        let low = self.value(format_args!("trunc i128 {square} to i64"));
        let high = self.value(format_args!("lshr i128 {square}, 64"));
        [low, self.value(format_args!("trunc i128 {high} to i64"))]
    }

    fn leading_zeros(&mut self, number: &str) -> String {
        self.value(format_args!("call i64 @llvm.ctlz.i64(i64 {number}, i1 false)"))
    }

    fn element(&mut self, array: &str, index: &str) -> String {
        self.value(format_args!("getelementptr inbounds i64, ptr {array}, i64 {index}"))
    }

    fn new_block(&mut self) -> String {
        format!("cpt.b{}", self.fresh())
    }

    fn label(&mut self, block: String) {
        let _ = writeln!(self.out, "{block}:");
        self.block = block;
    }

    fn branch(&mut self, condition: &str, then: &str, otherwise: &str, rare: Option<bool>) {
        let _ = write!(self.out, "  br i1 {condition}, label %{then}, label %{otherwise}");
        if let Some(rare) = rare {
            let _ = write!(self.out, ", !prof !{}", self.weights[usize::from(!rare)]);
        }
        self.out.push('\n');
    }

    fn join(&mut self, block: String) {
        self.line(format_args!("br label %{block}"));
        self.label(block);
    }
}
