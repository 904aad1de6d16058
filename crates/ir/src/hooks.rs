//! The code of a hook: what runs when a function or loop begins and ends. `loops.h` says what each
//! number means, and `docs/loops.md` what each mode does.
//!
//! Every number of an entry is read and written with a monotonic atomic access, which is a plain
//! load or store in machine code. It keeps each number whole for those who read it at the same
//! time, and it keeps the optimiser from joining the counts of two calls that it has inlined.

use std::fmt::Write;

use abi::loops::Mode;

/// Offsets in `counterpoint_loops_entry_t`.
mod entry {
    pub const NEXT: u32 = 8;
    pub const RANDOM: u32 = 16;
    pub const BEGUN: u32 = 24;
    pub const ENDED: u32 = 32;
    pub const TICKS: u32 = 40;
    pub const CHILD_TICKS: u32 = 48;
    /// Mode sampled keeps the longest time in the same place.
    pub const LONGEST: u32 = CHILD_TICKS;
    pub const ITERATIONS: u32 = 56;
    pub const SQUARES: [u32; 2] = [64, 72];
    /// What is copied when the first random hit begins: from, to.
    pub const FIRST: [(u32, u32); 4] = [(ENDED, 80), (TICKS, 88), (64, 96), (72, 104)];
    pub const ITERATED: u32 = 112;
    pub const TRIPS: u32 = 120;
}

/// Offsets in `counterpoint_loops_trips_t`.
mod trips {
    pub const LEAST: u32 = 0;
    pub const MOST: u32 = 8;
    pub const FIRST: u32 = 16;
    pub const MASK: u32 = 24;
    pub const BUCKETS: u32 = 32;
}

/// Offsets in `counterpoint_loops_module_t`.
pub mod module {
    /// `enter`
    pub const ENTER: u32 = 64;
    /// `begin`
    pub const BEGIN: u32 = 72;
    /// `end`
    pub const END: u32 = 80;
    /// `log`
    pub const LOG: u32 = 88;
    /// `first`
    pub const FIRST: u32 = 96;
    /// `gap_mask`
    pub const GAP_MASK: u32 = 100;
}

/// Bytes of an entry.
const ENTRY_BYTES: u64 = 128;

/// The time stamp of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// `rdtsc`
    X86,
    /// `mrs cntvct_el0`
    Arm,
}

impl Clock {
    /// The clock of a target triple, if there is one.
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

    /// The call that reads it, without its result.
    fn read(self) -> &'static str {
        match self {
            Self::X86 => "call i64 @llvm.readcyclecounter()",
            Self::Arm => "call i64 asm sideeffect \"mrs $0, cntvct_el0\", \"=r\"()",
        }
    }
}

/// A function or loop that has an id, as its hooks need it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hook {
    /// The hook's id.
    pub id: u32,
    /// Whether counters may be read: a function, or a loop of depth 0 or 1.
    pub counters: bool,
    /// Mode timed: whether children add to a slot of its own.
    pub slot: bool,
    /// Mode timed: the id of the parent whose slot it adds to.
    pub parent: Option<u32>,
}

/// The table of the calling thread.
pub const TABLE: &str = "%cpt.table";

/// Writes hooks into the text of one function.
#[derive(Debug)]
pub struct Writer {
    /// What was written.
    pub out: String,
    /// The block that is being written, without `%`.
    pub block: String,
    /// Numbers of names that were used.
    next: u32,
    mode: Mode,
    clock: Clock,
    /// The descriptor, with `@`.
    descriptor: String,
    /// Metadata of a branch that is rarely taken, and of one that nearly always is.
    weights: [u32; 2],
}

/// The value that a hook keeps from its begin to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The time stamp; 0 if this hit is not timed.
    Stamp,
    /// What `begin` returned.
    Count,
    /// The `end` to call; null if `begin` was not called.
    End,
}

impl Kept {
    /// What a hook keeps in a mode.
    pub fn of(mode: Mode, hook: &Hook) -> &'static [Self] {
        match mode {
            Mode::Count | Mode::Log => &[],
            _ if hook.counters => &[Self::Stamp, Self::Count, Self::End],
            _ => &[Self::Stamp],
        }
    }

    /// The kept value's type.
    pub fn kind(self) -> &'static str {
        if self == Self::End { "ptr" } else { "i64" }
    }

    /// The value where there is nothing to keep.
    pub fn nothing(self) -> &'static str {
        if self == Self::End { "null" } else { "0" }
    }

    /// The letter in its name.
    pub fn letter(self) -> char {
        match self {
            Self::Stamp => 't',
            Self::Count => 'c',
            Self::End => 'x',
        }
    }

    /// The kept value's name for an id, with `%`; `copy` tells several entries into a loop apart.
    pub fn name(self, id: u32, copy: Option<u32>) -> String {
        match copy {
            None => format!("%cpt.{}{id}", self.letter()),
            Some(copy) => format!("%cpt.{}{id}.{copy}", self.letter()),
        }
    }
}

/// The slot of a parent in mode timed.
pub fn slot(id: u32) -> String {
    format!("%cpt.s{id}")
}

impl Writer {
    /// A writer of hooks in this mode. `weights` are two metadata nodes of branch weights.
    pub fn new(mode: Mode, clock: Clock, descriptor: String, weights: [u32; 2]) -> Self {
        let (out, block) = (String::new(), String::new());
        Self { out, block, next: 0, mode, clock, descriptor, weights }
    }

    /// Starts with another function.
    pub fn restart(&mut self) {
        self.next = 0;
    }

    /// The mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// A name that nothing else in the function has.
    pub fn fresh(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    /// Begins a block.
    pub fn label(&mut self, block: String) {
        let _ = writeln!(self.out, "{block}:");
        self.block = block;
    }

    /// Adds a statement.
    pub fn line(&mut self, statement: std::fmt::Arguments) {
        let _ = writeln!(self.out, "  {statement}");
    }

    /// A value of its own for the result of `code`.
    pub fn value(&mut self, code: std::fmt::Arguments) -> String {
        let name = format!("%cpt.v{}", self.fresh());
        let _ = writeln!(self.out, "  {name} = {code}");
        name
    }

    fn new_block(&mut self) -> String {
        format!("cpt.b{}", self.fresh())
    }

    /// The address of a field.
    fn at(&mut self, pointer: &str, offset: u32) -> String {
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

    /// Adds to a field of an entry, and gives what was there and what is there now.
    fn add(&mut self, entry: &str, offset: u32, value: &str) -> (String, String) {
        let address = self.at(entry, offset);
        let old = self.load(&address);
        let new = self.value(format_args!("add i64 {old}, {value}"));
        self.store(&new, &address);
        (old, new)
    }

    /// A field of the descriptor that is a pointer.
    pub fn pointer(&mut self, offset: u32, order: &str) -> String {
        let descriptor = self.descriptor.clone();
        let address = self.at(&descriptor, offset);
        self.value(format_args!("load atomic ptr, ptr {address} {order}, align 8"))
    }

    /// A field of the descriptor that is a number of 32 bits.
    fn number(&mut self, offset: u32) -> String {
        let descriptor = self.descriptor.clone();
        let address = self.at(&descriptor, offset);
        let narrow = self.value(format_args!("load i32, ptr {address}, align 4"));
        self.value(format_args!("zext i32 {narrow} to i64"))
    }

    /// A branch. `rare` says that it is rarely taken, or nearly always.
    fn branch(&mut self, condition: &str, then: &str, otherwise: &str, rare: Option<bool>) {
        let _ = write!(self.out, "  br i1 {condition}, label %{then}, label %{otherwise}");
        if let Some(rare) = rare {
            let _ = write!(self.out, ", !prof !{}", self.weights[usize::from(!rare)]);
        }
        self.out.push('\n');
    }

    /// Goes on in a new block if there is a table; gives the block in which both ways join.
    fn if_table(&mut self) -> String {
        let there = self.value(format_args!("icmp ne ptr {TABLE}, null"));
        let (on, join) = (self.new_block(), self.new_block());
        self.branch(&there, &on, &join, Some(false));
        self.label(on);
        join
    }

    fn join(&mut self, block: String) {
        self.line(format_args!("br label %{block}"));
        self.label(block);
    }

    /// Asks for the table of this thread, at the entry of a function. What is written begins in a
    /// block that has no name, and ends in one that has.
    pub fn enter(&mut self) {
        self.join("cpt.start".to_owned());
        let enter = self.pointer(module::ENTER, "acquire");
        let there = self.value(format_args!("icmp ne ptr {enter}, null"));
        self.branch(&there, "cpt.ask", "cpt.in", Some(false));
        self.label("cpt.ask".to_owned());
        let descriptor = self.descriptor.clone();
        let table = self.value(format_args!("notail call ptr {enter}(ptr {descriptor}) nounwind"));
        self.join("cpt.in".to_owned());
        self.line(format_args!("{TABLE} = phi ptr [ null, %cpt.start ], [ {table}, %cpt.ask ]"));
    }

    /// The begin of a hit. What it keeps has the names of [`Kept::name`].
    pub fn begin(&mut self, hook: &Hook, copy: Option<u32>) {
        let from = self.block.clone();
        let join = self.if_table();
        let offset = u64::from(hook.id) * ENTRY_BYTES;
        let entry =
            self.value(format_args!("getelementptr inbounds i8, ptr {TABLE}, i64 {offset}"));
        self.begin_at(&entry, hook, copy, join, from);
    }

    /// Begins a hit on the entry at `entry`; `from` is a block that goes to `join` directly.
    pub fn begin_at(
        &mut self,
        entry: &str,
        hook: &Hook,
        copy: Option<u32>,
        join: String,
        from: String,
    ) {
        let (_, hits) = self.add(entry, 0, "1");
        let kept = Kept::of(self.mode, hook);
        // Blocks that go to `join` without a time stamp.
        let mut plain = vec![from];
        let mut values = Vec::new();
        match self.mode {
            Mode::Count => {}
            Mode::Log => {
                let log = self.pointer(module::LOG, "monotonic");
                self.line(format_args!(
                    "notail call void {log}(ptr {entry}, i32 {}, i32 0) nounwind",
                    hook.id as i32
                ));
            }
            Mode::Sampled => {
                let next = self.at(entry, entry::NEXT);
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
                self.add(entry, entry::BEGUN, "1");
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

    /// Sampled: says when the next hit is timed.
    fn draw(&mut self, entry: &str, hits: &str, next: &str) {
        let (begun, _) = self.add(entry, entry::BEGUN, "1");
        let first = self.number(module::FIRST);
        let random = self.value(format_args!("icmp eq i64 {begun}, {first}"));
        let (copy, gap) = (self.new_block(), self.new_block());
        self.branch(&random, &copy, &gap, None);
        self.label(copy);
        for (from, to) in entry::FIRST {
            let from = self.at(entry, from);
            let value = self.load(&from);
            let to = self.at(entry, to);
            self.store(&value, &to);
        }
        self.join(gap);
        let state = self.at(entry, entry::RANDOM);
        let mut x = self.load(&state);
        for (shift, bits) in [("shl", 13), ("lshr", 7), ("shl", 17)] {
            let shifted = self.value(format_args!("{shift} i64 {x}, {bits}"));
            x = self.value(format_args!("xor i64 {x}, {shifted}"));
        }
        self.store(&x, &state);
        let mask = self.number(module::GAP_MASK);
        let gap = self.value(format_args!("and i64 {x}, {mask}"));
        let early = self.value(format_args!("icmp ult i64 {hits}, {first}"));
        let gap = self.value(format_args!("select i1 {early}, i64 0, i64 {gap}"));
        let after = self.value(format_args!("add i64 {hits}, 1"));
        let due = self.value(format_args!("add i64 {after}, {gap}"));
        self.store(&due, next);
    }

    /// Reads counters, if somebody wants them, and then the clock: the values to keep.
    fn start(&mut self, entry: &str, hook: &Hook) -> Vec<String> {
        let mut counted = Vec::new();
        if hook.counters {
            let begin = self.pointer(module::BEGIN, "monotonic");
            let wanted = self.value(format_args!("icmp ne ptr {begin}, null"));
            let (count, stamp) = (self.new_block(), self.new_block());
            let from = self.block.clone();
            self.branch(&wanted, &count, &stamp, None);
            self.label(count.clone());
            let id = hook.id as i32;
            let began =
                self.value(format_args!("notail call i64 {begin}(ptr {entry}, i32 {id}) nounwind"));
            let end = self.pointer(module::END, "monotonic");
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

    /// The end of a hit; `iterations` is a value of type `i64` that is computed before.
    pub fn end(&mut self, hook: &Hook, iterations: Option<&str>) {
        let offset = u64::from(hook.id) * ENTRY_BYTES;
        let entry = format!("getelementptr inbounds i8, ptr {TABLE}, i64 {offset}");
        match self.mode {
            Mode::Count => {
                if iterations.is_some() {
                    let join = self.if_table();
                    let entry = self.value(format_args!("{entry}"));
                    self.iterated(&entry, iterations);
                    self.join(join);
                }
            }
            Mode::Log => {
                let join = self.if_table();
                let entry = self.value(format_args!("{entry}"));
                let log = self.pointer(module::LOG, "monotonic");
                self.line(format_args!(
                    "notail call void {log}(ptr {entry}, i32 {}, i32 1) nounwind",
                    hook.id as i32
                ));
                self.iterated(&entry, iterations);
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

    /// Books a timed hit that ends at `now`.
    pub fn end_at(&mut self, entry: &str, hook: &Hook, now: &str, iterations: Option<&str>) {
        let stamp = Kept::Stamp.name(hook.id, None);
        let ticks = self.value(format_args!("sub i64 {now}, {stamp}"));
        self.add(entry, entry::ENDED, "1");
        self.add(entry, entry::TICKS, &ticks);
        let wide = self.value(format_args!("zext i64 {ticks} to i128"));
        let square = self.value(format_args!("mul i128 {wide}, {wide}"));
        let low = self.value(format_args!("trunc i128 {square} to i64"));
        let high = self.value(format_args!("lshr i128 {square}, 64"));
        let high = self.value(format_args!("trunc i128 {high} to i64"));
        let (_, sum) = self.add(entry, entry::SQUARES[0], &low);
        let over = self.value(format_args!("icmp ult i64 {sum}, {low}"));
        let carry = self.value(format_args!("zext i1 {over} to i64"));
        let high = self.value(format_args!("add i64 {high}, {carry}"));
        self.add(entry, entry::SQUARES[1], &high);
        if self.mode == Mode::Sampled {
            let address = self.at(entry, entry::LONGEST);
            let old = self.load(&address);
            self.better("ugt", &ticks, &old, &address);
        }
        if self.mode == Mode::Timed {
            if hook.slot {
                let own = slot(hook.id);
                let inside = self.value(format_args!("load i64, ptr {own}, align 8"));
                self.add(entry, entry::CHILD_TICKS, &inside);
            }
            if let Some(parent) = hook.parent.map(slot) {
                let sum = self.value(format_args!("load i64, ptr {parent}, align 8"));
                let sum = self.value(format_args!("add i64 {sum}, {ticks}"));
                self.line(format_args!("store i64 {sum}, ptr {parent}, align 8"));
            }
        }
        self.iterated(entry, iterations);
        if hook.counters {
            let (end, began) = (Kept::End.name(hook.id, None), Kept::Count.name(hook.id, None));
            let wanted = self.value(format_args!("icmp ne ptr {end}, null"));
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

    /// An empty hit on the entry at `entry`, begin and end, in a function that has no table. What
    /// follows begins in the block `after`.
    pub fn rehearse(&mut self, entry: &str, hook: &Hook, after: &str) {
        let from = self.block.clone();
        let join = self.new_block();
        // The table is there in this case, too: the test is of the pointer that it would be.
        let there = self.value(format_args!("icmp ne ptr {entry}, null"));
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

    fn iterated(&mut self, entry: &str, iterations: Option<&str>) {
        let Some(iterations) = iterations else { return };
        let (_, sum) = self.add(entry, entry::ITERATIONS, iterations);
        self.add(entry, entry::ITERATED, "1");
        if self.mode != Mode::Log {
            self.trip(entry, iterations, &sum);
        }
    }

    /// Books the iterations of this one hit, if somebody wants them; `sum` are those of all. One block
    /// without branches, so that it costs a load and a test where nobody does.
    fn trip(&mut self, entry: &str, iterations: &str, sum: &str) {
        let address = self.at(entry, entry::TRIPS);
        let trips = self.value(format_args!("load atomic ptr, ptr {address} monotonic, align 8"));
        let there = self.value(format_args!("icmp ne ptr {trips}, null"));
        let (on, join) = (self.new_block(), self.new_block());
        self.branch(&there, &on, &join, (self.mode != Mode::Sampled).then_some(true));
        self.label(on);
        for (offset, better) in [(trips::LEAST, "ult"), (trips::MOST, "ugt")] {
            let address = self.at(&trips, offset);
            let old = self.load(&address);
            self.better(better, iterations, &old, &address);
        }
        if self.mode == Mode::Sampled {
            let address = self.at(entry, entry::BEGUN);
            let begun = self.load(&address);
            let first = self.number(module::FIRST);
            let random = self.value(format_args!("icmp ugt i64 {begun}, {first}"));
            let address = self.at(&trips, trips::FIRST);
            let old = self.load(&address);
            let new = self.value(format_args!("select i1 {random}, i64 {old}, i64 {sum}"));
            self.store(&new, &address);
        }
        let zeros = self.value(format_args!("call i64 @llvm.ctlz.i64(i64 {iterations}, i1 false)"));
        let bits = self.value(format_args!("sub i64 64, {zeros}"));
        let few = self.value(format_args!("icmp ult i64 {bits}, 63"));
        let bucket = self.value(format_args!("select i1 {few}, i64 {bits}, i64 63"));
        let address = self.at(&trips, trips::MASK);
        let mask = self.value(format_args!("load i64, ptr {address}, align 8"));
        let bucket = self.value(format_args!("and i64 {bucket}, {mask}"));
        let buckets = self.at(&trips, trips::BUCKETS);
        let own =
            self.value(format_args!("getelementptr inbounds i64, ptr {buckets}, i64 {bucket}"));
        self.add(&own, 0, "1");
        self.join(join);
    }

    /// Stores the one of two numbers that is better.
    fn better(&mut self, comparison: &str, new: &str, old: &str, address: &str) {
        let is_better = self.value(format_args!("icmp {comparison} i64 {new}, {old}"));
        let value = self.value(format_args!("select i1 {is_better}, i64 {new}, i64 {old}"));
        self.store(&value, address);
    }
}
