//! The functions that hooks call: what runs when a function or loop begins and ends, as
//! [`crate::hooks`] has it in LLVM IR. `loops.h` says what each number means.
//!
//! ```text
//!  enter()                                                            → table
//!  begin(table, id, kept, child, counters)
//!  end(table, id, kept, child, parent, iterations, counters)
//! ```
//!
//! `kept` points at three words of the caller's stack: the time stamp (0 if the hit is not timed),
//! what `begin` of the descriptor returned, and the `end` to call. `child` is the word that loops
//! directly inside add their times to, and `parent` that of the hit around (mode timed; otherwise
//! null). `iterations` is negative if they are not known. All arguments but the first are constants
//! or addresses of the stack where they are called, so that nothing is left of them after LLVM has
//! inlined the functions, which it must (`alwaysinline`).
//!
//! Fields of the descriptor are read as volatile: no code of the module writes them, and LLVM would
//! otherwise take their initial values for constants. Reads and writes with an order are in MLIR's
//! generic form, whose syntax does not change between versions.

use std::fmt::{Arguments, Write};

use abi::loops::{Entry, Mode, Module, Trips};
use std::mem::offset_of;

use crate::hooks::Clock;

/// Bytes of an entry.
const ENTRY_BYTES: usize = size_of::<Entry>();

/// Attributes of functions that are inlined.
const INLINED: &str = "attributes {passthrough = [\"alwaysinline\", \"nounwind\"]}";

/// Writes functions.
#[derive(Debug)]
pub struct Code {
    /// What was written.
    pub out: String,
    /// Numbers of values that were used.
    next: u32,
}

impl Code {
    /// Nothing yet.
    pub fn new() -> Self {
        Self { out: String::new(), next: 0 }
    }

    /// Adds an operation without a result.
    pub fn line(&mut self, operation: Arguments) {
        let _ = writeln!(self.out, "    {operation} loc(unknown)");
    }

    /// Adds an operation, and names its result.
    pub fn value(&mut self, operation: Arguments) -> String {
        self.next += 1;
        let name = format!("%v{}", self.next);
        let _ = writeln!(self.out, "    {name} = {operation} loc(unknown)");
        name
    }

    /// Begins a block.
    pub fn label(&mut self, block: &str) {
        let _ = writeln!(self.out, "  ^{block}:");
    }

    /// Begins a function.
    pub fn function(&mut self, header: Arguments) {
        self.next = 0;
        let _ = writeln!(self.out, "  llvm.func internal {header} {{");
    }

    /// Ends a function.
    pub fn close(&mut self) {
        self.out.push_str("  } loc(unknown)\n");
    }

    fn constant(&mut self, value: i64, bits: u32) -> String {
        self.value(format_args!("llvm.mlir.constant({value} : i{bits}) : i{bits}"))
    }

    fn number(&mut self, value: u64) -> String {
        self.constant(value as i64, 64)
    }

    fn null(&mut self) -> String {
        self.value(format_args!("llvm.mlir.zero : !llvm.ptr"))
    }

    fn is_not_null(&mut self, pointer: &str) -> String {
        let null = self.null();
        self.value(format_args!("llvm.icmp \"ne\" {pointer}, {null} : !llvm.ptr"))
    }

    fn binary(&mut self, op: &str, a: &str, b: &str) -> String {
        self.value(format_args!("llvm.{op} {a}, {b} : i64"))
    }

    fn compare(&mut self, how: &str, a: &str, b: &str) -> String {
        self.value(format_args!("llvm.icmp \"{how}\" {a}, {b} : i64"))
    }

    fn at(&mut self, pointer: &str, offset: usize) -> String {
        self.value(format_args!(
            "llvm.getelementptr {pointer}[{offset}] : (!llvm.ptr) -> !llvm.ptr, i8"
        ))
    }

    /// Reads a word of an entry.
    fn load(&mut self, address: &str) -> String {
        self.value(format_args!(
            "\"llvm.load\"({address}) <{{alignment = 8 : i64, ordering = 2 : i64}}> : (!llvm.ptr) -> i64"
        ))
    }

    /// Writes a word of an entry.
    fn store(&mut self, value: &str, address: &str) {
        self.line(format_args!(
            "\"llvm.store\"({value}, {address}) <{{alignment = 8 : i64, ordering = 2 : i64}}> : (i64, !llvm.ptr) -> ()"
        ));
    }

    /// Reads a word of the stack.
    fn kept(&mut self, address: &str, kind: &str) -> String {
        self.value(format_args!("llvm.load {address} : !llvm.ptr -> {kind}"))
    }

    /// Writes a word of the stack.
    fn keep(&mut self, value: &str, kind: &str, address: &str) {
        self.line(format_args!("llvm.store {value}, {address} : {kind}, !llvm.ptr"));
    }

    /// Adds to a word of an entry: what was there and what is there now.
    fn add(&mut self, entry: &str, offset: usize, value: &str) -> (String, String) {
        let address = self.at(entry, offset);
        let old = self.load(&address);
        let new = self.binary("add", &old, value);
        self.store(&new, &address);
        (old, new)
    }

    /// Stores a number in the place of a worse one.
    fn better(&mut self, how: &str, new: &str, pointer: &str, offset: usize) {
        let address = self.at(pointer, offset);
        let old = self.load(&address);
        let is_better = self.compare(how, new, &old);
        let value = self.value(format_args!("llvm.select {is_better}, {new}, {old} : i1, i64"));
        self.store(&value, &address);
    }

    fn branch(&mut self, condition: &str, then: &str, otherwise: &str, rare: Option<bool>) {
        let weights = match rare {
            None => "",
            Some(true) => " weights([1, 1000])",
            Some(false) => " weights([1000, 1])",
        };
        self.line(format_args!("llvm.cond_br {condition}{weights}, ^{then}, ^{otherwise}"));
    }

    fn go(&mut self, block: &str) {
        self.line(format_args!("llvm.br ^{block}"));
    }
}

impl Default for Code {
    fn default() -> Self {
        Self::new()
    }
}

/// What the functions are for.
#[derive(Clone, Debug)]
pub struct Hooks {
    /// How hits are recorded.
    pub mode: Mode,
    /// The clock of the target.
    pub clock: Clock,
    /// The descriptor, with `@`.
    pub descriptor: String,
    /// The functions, with `@`.
    pub enter: String,
    /// See the module's documentation.
    pub begin: String,
    /// See the module's documentation.
    pub end: String,
}

impl Hooks {
    /// Writes all of them.
    pub fn write(&self, code: &mut Code) {
        self.write_enter(code);
        self.write_begin(code);
        self.write_end(code);
    }

    /// A field of the descriptor that is a pointer.
    fn pointer(&self, code: &mut Code, offset: usize, acquire: bool) -> String {
        let descriptor = &self.descriptor;
        let descriptor = code.value(format_args!("llvm.mlir.addressof {descriptor} : !llvm.ptr"));
        let address = code.at(&descriptor, offset);
        let ordering = if acquire { 4 } else { 2 };
        code.value(format_args!(
            "\"llvm.load\"({address}) <{{alignment = 8 : i64, ordering = {ordering} : i64, volatile_}}> : (!llvm.ptr) -> !llvm.ptr"
        ))
    }

    /// A field of the descriptor that is a number of 32 bits.
    fn number(&self, code: &mut Code, offset: usize) -> String {
        let descriptor = &self.descriptor;
        let descriptor = code.value(format_args!("llvm.mlir.addressof {descriptor} : !llvm.ptr"));
        let address = code.at(&descriptor, offset);
        let narrow = code.value(format_args!("llvm.load volatile {address} : !llvm.ptr -> i32"));
        code.value(format_args!("llvm.zext {narrow} : i32 to i64"))
    }

    fn now(&self, code: &mut Code) -> String {
        match self.clock {
            Clock::X86 => code
                .value(format_args!("llvm.call_intrinsic \"llvm.readcyclecounter\"() : () -> i64")),
            Clock::Arm => code.value(format_args!(
                "llvm.inline_asm has_side_effects \"mrs $0, cntvct_el0\", \"=r\" : () -> i64"
            )),
        }
    }

    fn write_enter(&self, code: &mut Code) {
        code.function(format_args!("{}() -> !llvm.ptr {INLINED}", self.enter));
        let enter = self.pointer(code, offset_of!(Module, enter), true);
        let there = code.is_not_null(&enter);
        code.branch(&there, "ask", "none", Some(false));
        code.label("ask");
        let descriptor = &self.descriptor;
        let descriptor = code.value(format_args!("llvm.mlir.addressof {descriptor} : !llvm.ptr"));
        let table = code.value(format_args!(
            "llvm.call {enter}({descriptor}) : !llvm.ptr, (!llvm.ptr) -> !llvm.ptr"
        ));
        code.line(format_args!("llvm.return {table} : !llvm.ptr"));
        code.label("none");
        let null = code.null();
        code.line(format_args!("llvm.return {null} : !llvm.ptr"));
        code.close();
    }

    /// The entry of `%id` in `%table`.
    fn entry(code: &mut Code) -> String {
        let wide = code.value(format_args!("llvm.zext %id : i32 to i64"));
        let size = code.number(ENTRY_BYTES as u64);
        let offset = code.binary("mul", &wide, &size);
        code.value(format_args!(
            "llvm.getelementptr %table[{offset}] : (!llvm.ptr, i64) -> !llvm.ptr, i8"
        ))
    }

    fn write_begin(&self, code: &mut Code) {
        code.function(format_args!(
            "{}(%table: !llvm.ptr, %id: i32, %kept: !llvm.ptr, %child: !llvm.ptr, %counters: i1) {INLINED}",
            self.begin
        ));
        let timed = matches!(self.mode, Mode::Sampled | Mode::Timed);
        if timed {
            let zero = code.number(0);
            code.keep(&zero, "i64", "%kept");
        }
        let there = code.is_not_null("%table");
        code.branch(&there, "on", "out", Some(false));
        code.label("on");
        let entry = Self::entry(code);
        let one = code.number(1);
        match self.mode {
            Mode::Log => {
                self.write_log(code, &entry, 0);
                code.go("out");
            }
            Mode::Count => {
                code.add(&entry, offset_of!(Entry, hits), &one);
                code.go("out");
            }
            Mode::Sampled => {
                let (_, hits) = code.add(&entry, offset_of!(Entry, hits), &one);
                let next = code.at(&entry, offset_of!(Entry, next));
                let due = code.load(&next);
                let now = code.compare("eq", &hits, &due);
                code.branch(&now, "cold", "out", Some(true));
                code.label("cold");
                self.draw(code, &entry, &hits, &next, &one);
                self.start(code, &entry);
            }
            Mode::Timed => {
                code.add(&entry, offset_of!(Entry, hits), &one);
                code.add(&entry, offset_of!(Entry, begun), &one);
                let has_child = code.is_not_null("%child");
                code.branch(&has_child, "clear", "cleared", None);
                code.label("clear");
                let zero = code.number(0);
                code.keep(&zero, "i64", "%child");
                code.go("cleared");
                code.label("cleared");
                self.start(code, &entry);
            }
        }
        code.label("out");
        code.line(format_args!("llvm.return"));
        code.close();
    }

    /// Sampled: says when the next hit is timed.
    fn draw(&self, code: &mut Code, entry: &str, hits: &str, next: &str, one: &str) {
        let (begun, _) = code.add(entry, offset_of!(Entry, begun), one);
        let first = self.number(code, offset_of!(Module, first));
        let random = code.compare("eq", &begun, &first);
        code.branch(&random, "copy", "gap", None);
        code.label("copy");
        let squares = offset_of!(Entry, squares);
        let first_squares = offset_of!(Entry, first_squares);
        for (from, to) in [
            (offset_of!(Entry, ended), offset_of!(Entry, first_ended)),
            (offset_of!(Entry, ticks), offset_of!(Entry, first_ticks)),
            (squares, first_squares),
            (squares + 8, first_squares + 8),
        ] {
            let from = code.at(entry, from);
            let value = code.load(&from);
            let to = code.at(entry, to);
            code.store(&value, &to);
        }
        code.go("gap");
        code.label("gap");
        let state = code.at(entry, offset_of!(Entry, random));
        let mut x = code.load(&state);
        for (shift, bits) in [("shl", 13), ("lshr", 7), ("shl", 17)] {
            let bits = code.number(bits);
            let shifted = code.binary(shift, &x, &bits);
            x = code.binary("xor", &x, &shifted);
        }
        code.store(&x, &state);
        let mask = self.number(code, offset_of!(Module, gap_mask));
        let gap = code.binary("and", &x, &mask);
        let early = code.compare("ult", hits, &first);
        let zero = code.number(0);
        let gap = code.value(format_args!("llvm.select {early}, {zero}, {gap} : i1, i64"));
        let after = code.binary("add", hits, one);
        let due = code.binary("add", &after, &gap);
        code.store(&due, next);
    }

    /// Reads counters, if somebody wants them, and then the clock. Ends the block.
    fn start(&self, code: &mut Code, entry: &str) {
        let end_at = code.at("%kept", 16);
        let null = code.null();
        code.keep(&null, "!llvm.ptr", &end_at);
        code.branch("%counters", "wanted", "stamp", None);
        code.label("wanted");
        let begin = self.pointer(code, offset_of!(Module, begin), false);
        let there = code.is_not_null(&begin);
        code.branch(&there, "count", "stamp", Some(true));
        code.label("count");
        let began = code.value(format_args!(
            "llvm.call {begin}({entry}, %id) : !llvm.ptr, (!llvm.ptr, i32) -> i64"
        ));
        let began_at = code.at("%kept", 8);
        code.keep(&began, "i64", &began_at);
        let end = self.pointer(code, offset_of!(Module, end), false);
        code.keep(&end, "!llvm.ptr", &end_at);
        code.go("stamp");
        code.label("stamp");
        let now = self.now(code);
        code.keep(&now, "i64", "%kept");
        code.go("out");
    }

    fn write_log(&self, code: &mut Code, entry: &str, end: i64) {
        let log = self.pointer(code, offset_of!(Module, log), false);
        let end = code.constant(end, 32);
        code.line(format_args!(
            "llvm.call {log}({entry}, %id, {end}) : !llvm.ptr, (!llvm.ptr, i32, i32) -> ()"
        ));
    }

    fn write_end(&self, code: &mut Code) {
        code.function(format_args!(
            "{}(%table: !llvm.ptr, %id: i32, %kept: !llvm.ptr, %child: !llvm.ptr, %parent: !llvm.ptr, %iterations: i64, %counters: i1) {INLINED}",
            self.end
        ));
        let timed = matches!(self.mode, Mode::Sampled | Mode::Timed);
        if timed {
            let stamp = code.kept("%kept", "i64");
            let zero = code.number(0);
            let is_timed = code.compare("ne", &stamp, &zero);
            code.branch(&is_timed, "on", "out", Some(self.mode == Mode::Sampled));
            code.label("on");
            let now = self.now(code);
            let entry = Self::entry(code);
            self.book(code, &entry, &now, &stamp);
        } else {
            let there = code.is_not_null("%table");
            code.branch(&there, "on", "out", Some(false));
            code.label("on");
            let entry = Self::entry(code);
            if self.mode == Mode::Log {
                self.write_log(code, &entry, 1);
            }
            self.iterated(code, &entry);
            code.go("out");
        }
        code.label("out");
        code.line(format_args!("llvm.return"));
        code.close();
    }

    /// Books a timed hit that ends at `now`. Ends the block.
    fn book(&self, code: &mut Code, entry: &str, now: &str, stamp: &str) {
        let ticks = code.binary("sub", now, stamp);
        let one = code.number(1);
        code.add(entry, offset_of!(Entry, ended), &one);
        code.add(entry, offset_of!(Entry, ticks), &ticks);
        let wide = code.value(format_args!("llvm.zext {ticks} : i64 to i128"));
        let square = code.value(format_args!("llvm.mul {wide}, {wide} : i128"));
        let low = code.value(format_args!("llvm.trunc {square} : i128 to i64"));
        let bits = code.constant(64, 128);
        let high = code.value(format_args!("llvm.lshr {square}, {bits} : i128"));
        let high = code.value(format_args!("llvm.trunc {high} : i128 to i64"));
        let squares = offset_of!(Entry, squares);
        let (_, sum) = code.add(entry, squares, &low);
        let over = code.compare("ult", &sum, &low);
        let carry = code.value(format_args!("llvm.zext {over} : i1 to i64"));
        let high = code.binary("add", &high, &carry);
        code.add(entry, squares + 8, &high);
        if self.mode == Mode::Sampled {
            code.better("ugt", &ticks, entry, offset_of!(Entry, child_ticks));
        }
        if self.mode == Mode::Timed {
            let has_child = code.is_not_null("%child");
            code.branch(&has_child, "children", "inside", None);
            code.label("children");
            let inside = code.kept("%child", "i64");
            code.add(entry, offset_of!(Entry, child_ticks), &inside);
            code.go("inside");
            code.label("inside");
            let has_parent = code.is_not_null("%parent");
            code.branch(&has_parent, "around", "iterations", None);
            code.label("around");
            let sum = code.kept("%parent", "i64");
            let sum = code.binary("add", &sum, &ticks);
            code.keep(&sum, "i64", "%parent");
            code.go("iterations");
            code.label("iterations");
        }
        self.iterated(code, entry);
        code.branch("%counters", "wanted", "out", None);
        code.label("wanted");
        let end_at = code.at("%kept", 16);
        let end = code.kept(&end_at, "!llvm.ptr");
        let there = code.is_not_null(&end);
        code.branch(&there, "count", "out", Some(true));
        code.label("count");
        let began_at = code.at("%kept", 8);
        let began = code.kept(&began_at, "i64");
        code.line(format_args!(
            "llvm.call {end}({entry}, %id, {began}) : !llvm.ptr, (!llvm.ptr, i32, i64) -> ()"
        ));
        code.go("out");
    }

    /// Adds the iterations of a hit, if they are known. Begins a new block.
    fn iterated(&self, code: &mut Code, entry: &str) {
        let zero = code.number(0);
        let known = code.compare("sge", "%iterations", &zero);
        code.branch(&known, "iterated", "after", None);
        code.label("iterated");
        let (_, sum) = code.add(entry, offset_of!(Entry, iterations), "%iterations");
        let one = code.number(1);
        code.add(entry, offset_of!(Entry, iterated), &one);
        if self.mode != Mode::Log {
            self.trip(code, entry, &sum, &one);
        }
        code.go("after");
        code.label("after");
    }

    /// Books the iterations of this one hit, if somebody wants them; `sum` are those of all.
    fn trip(&self, code: &mut Code, entry: &str, sum: &str, one: &str) {
        let address = code.at(entry, offset_of!(Entry, trips));
        let trips = code.value(format_args!(
            "\"llvm.load\"({address}) <{{alignment = 8 : i64, ordering = 2 : i64}}> : (!llvm.ptr) -> !llvm.ptr"
        ));
        let there = code.is_not_null(&trips);
        code.branch(&there, "trip", "after", (self.mode != Mode::Sampled).then_some(true));
        code.label("trip");
        code.better("ult", "%iterations", &trips, offset_of!(Trips, least));
        code.better("ugt", "%iterations", &trips, offset_of!(Trips, most));
        if self.mode == Mode::Sampled {
            let begun = code.at(entry, offset_of!(Entry, begun));
            let begun = code.load(&begun);
            let first = self.number(code, offset_of!(Module, first));
            let random = code.compare("ugt", &begun, &first);
            let address = code.at(&trips, offset_of!(Trips, first));
            let old = code.load(&address);
            let new = code.value(format_args!("llvm.select {random}, {old}, {sum} : i1, i64"));
            code.store(&new, &address);
        }
        let zeros = code.value(format_args!(
            "\"llvm.intr.ctlz\"(%iterations) <{{is_zero_poison = false}}> : (i64) -> i64"
        ));
        let all = code.number(64);
        let bits = code.binary("sub", &all, &zeros);
        let last = code.number(63);
        let few = code.compare("ult", &bits, &last);
        let bucket = code.value(format_args!("llvm.select {few}, {bits}, {last} : i1, i64"));
        let mask = code.at(&trips, offset_of!(Trips, mask));
        let mask = code.kept(&mask, "i64");
        let bucket = code.binary("and", &bucket, &mask);
        let buckets = code.at(&trips, size_of::<Trips>());
        let own = code.value(format_args!(
            "llvm.getelementptr {buckets}[{bucket}] : (!llvm.ptr, i64) -> !llvm.ptr, i64"
        ));
        code.add(&own, 0, one);
    }
}
