//! Writes, in MLIR, the functions that hooks call. `loops.h` explains the numbers.
//!
//! ```text
//!  enter()                                                            → table
//!  begin(table, id, kept, child, counters)
//!  end(table, id, kept, child, parent, iterations, counters)
//! ```
//!
//! `kept` points at three words of the caller's stack: the time stamp (0 if the hit is not timed),
//! what `begin` of the descriptor returned, and the `end` function to call. In mode timed, `child`
//! points at the word to which the loops directly inside add their times. `parent` points at the
//! word to which this loop adds its own time. Both are null where there is no such word.
//! `iterations` is negative if the number of iterations is not known. Passing the arguments costs
//! nothing, because LLVM must inline the functions (`alwaysinline`).
//!
//! Fields of the descriptor are read as volatile: no code of the module writes them, so LLVM would
//! otherwise replace them by their initial values. Atomic accesses are in MLIR's generic form,
//! whose syntax does not change between versions.

use std::fmt::{Arguments, Write};

use abi::loops::{Entry, Mode, Module};
use std::mem::offset_of;

use crate::hit::Print;
use crate::hooks::Clock;

const ENTRY_BYTES: usize = size_of::<Entry>();

/// Attributes of functions that are inlined.
const INLINED: &str = "attributes {passthrough = [\"alwaysinline\", \"nounwind\"]}";

/// Writes functions.
#[derive(Debug)]
pub struct Code {
    /// The text so far.
    pub out: String,
    next: u32,
    /// The descriptor's name, with `@`.
    descriptor: String,
}

impl Code {
    /// Makes an empty writer. `descriptor` is the descriptor's name, with `@`.
    pub fn new(descriptor: String) -> Self {
        Self { out: String::new(), next: 0, descriptor }
    }

    /// Adds an operation without a result.
    pub fn line(&mut self, operation: Arguments) {
        let _ = writeln!(self.out, "    {operation} loc(unknown)");
    }

    /// Adds an operation with a new name for its result, and returns the name.
    pub fn value(&mut self, operation: Arguments) -> String {
        self.next += 1;
        let name = format!("%v{}", self.next);
        let _ = writeln!(self.out, "    {name} = {operation} loc(unknown)");
        name
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

    fn address_of_descriptor(&mut self) -> String {
        let descriptor = self.descriptor.clone();
        self.value(format_args!("llvm.mlir.addressof {descriptor} : !llvm.ptr"))
    }

    fn field(&mut self, offset: usize) -> String {
        let descriptor = self.address_of_descriptor();
        self.at(&descriptor, offset)
    }

    fn null(&mut self) -> String {
        self.value(format_args!("llvm.mlir.zero : !llvm.ptr"))
    }

    fn kept(&mut self, address: &str, kind: &str) -> String {
        self.value(format_args!("llvm.load {address} : !llvm.ptr -> {kind}"))
    }

    fn keep(&mut self, value: &str, kind: &str, address: &str) {
        self.line(format_args!("llvm.store {value}, {address} : {kind}, !llvm.ptr"));
    }

    fn go(&mut self, block: &str) {
        self.line(format_args!("llvm.br ^{block}"));
    }
}

impl Print for Code {
    fn at(&mut self, pointer: &str, offset: usize) -> String {
        self.value(format_args!(
            "llvm.getelementptr {pointer}[{offset}] : (!llvm.ptr) -> !llvm.ptr, i8"
        ))
    }

    fn load(&mut self, address: &str) -> String {
        self.value(format_args!(
            "\"llvm.load\"({address}) <{{alignment = 8 : i64, ordering = 2 : i64}}> : (!llvm.ptr) -> i64"
        ))
    }

    fn store(&mut self, value: &str, address: &str) {
        self.line(format_args!(
            "\"llvm.store\"({value}, {address}) <{{alignment = 8 : i64, ordering = 2 : i64}}> : (i64, !llvm.ptr) -> ()"
        ));
    }

    fn load_pointer(&mut self, address: &str) -> String {
        self.value(format_args!(
            "\"llvm.load\"({address}) <{{alignment = 8 : i64, ordering = 2 : i64}}> : (!llvm.ptr) -> !llvm.ptr"
        ))
    }

    fn load_constant(&mut self, address: &str) -> String {
        self.kept(address, "i64")
    }

    fn setting(&mut self, offset: usize) -> String {
        let address = self.field(offset);
        let narrow = self.value(format_args!("llvm.load volatile {address} : !llvm.ptr -> i32"));
        self.value(format_args!("llvm.zext {narrow} : i32 to i64"))
    }

    fn number(&mut self, number: u64) -> String {
        self.constant(number as i64, 64)
    }

    fn binary(&mut self, op: &str, a: &str, b: &str) -> String {
        self.value(format_args!("llvm.{op} {a}, {b} : i64"))
    }

    fn compare(&mut self, how: &str, a: &str, b: &str) -> String {
        self.value(format_args!("llvm.icmp \"{how}\" {a}, {b} : i64"))
    }

    fn select(&mut self, condition: &str, a: &str, b: &str) -> String {
        self.value(format_args!("llvm.select {condition}, {a}, {b} : i1, i64"))
    }

    fn flag(&mut self, condition: &str) -> String {
        self.value(format_args!("llvm.zext {condition} : i1 to i64"))
    }

    fn is_there(&mut self, pointer: &str) -> String {
        let null = self.null();
        self.value(format_args!("llvm.icmp \"ne\" {pointer}, {null} : !llvm.ptr"))
    }

    fn square(&mut self, number: &str) -> [String; 2] {
        let wide = self.value(format_args!("llvm.zext {number} : i64 to i128"));
        let square = self.value(format_args!("llvm.mul {wide}, {wide} : i128"));
        let low = self.value(format_args!("llvm.trunc {square} : i128 to i64"));
        let bits = self.constant(64, 128);
        let high = self.value(format_args!("llvm.lshr {square}, {bits} : i128"));
        [low, self.value(format_args!("llvm.trunc {high} : i128 to i64"))]
    }

    fn leading_zeros(&mut self, number: &str) -> String {
        self.value(format_args!(
            "\"llvm.intr.ctlz\"({number}) <{{is_zero_poison = false}}> : (i64) -> i64"
        ))
    }

    fn element(&mut self, array: &str, index: &str) -> String {
        self.value(format_args!(
            "llvm.getelementptr {array}[{index}] : (!llvm.ptr, i64) -> !llvm.ptr, i64"
        ))
    }

    fn new_block(&mut self) -> String {
        self.next += 1;
        format!("b{}", self.next)
    }

    fn label(&mut self, block: String) {
        let _ = writeln!(self.out, "  ^{block}:");
    }

    fn branch(&mut self, condition: &str, then: &str, otherwise: &str, rare: Option<bool>) {
        let weights = match rare {
            None => "",
            Some(true) => " weights([1, 1000])",
            Some(false) => " weights([1000, 1])",
        };
        self.line(format_args!("llvm.cond_br {condition}{weights}, ^{then}, ^{otherwise}"));
    }

    fn join(&mut self, block: String) {
        self.go(&block);
        self.label(block);
    }
}

/// The settings and names on which the functions that hooks call depend.
#[derive(Clone, Debug)]
pub struct Hooks {
    /// How hits are recorded.
    pub mode: Mode,
    /// The target's clock.
    pub clock: Clock,
    /// The function that asks the runtime for the thread's table, with `@`.
    pub enter: String,
    /// The function that begins a hit, with `@`.
    pub begin: String,
    /// The function that ends a hit, with `@`.
    pub end: String,
}

impl Hooks {
    pub fn write(&self, code: &mut Code) {
        self.write_enter(code);
        self.write_begin(code);
        self.write_end(code);
    }

    /// Reads the pointer in a field of the descriptor.
    fn pointer(code: &mut Code, offset: usize, acquire: bool) -> String {
        let address = code.field(offset);
        let ordering = if acquire { 4 } else { 2 };
        code.value(format_args!(
            "\"llvm.load\"({address}) <{{alignment = 8 : i64, ordering = {ordering} : i64, volatile_}}> : (!llvm.ptr) -> !llvm.ptr"
        ))
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
        let enter = Self::pointer(code, offset_of!(Module, enter), true);
        let there = code.is_there(&enter);
        code.branch(&there, "ask", "none", Some(false));
        code.label("ask".to_owned());
        let descriptor = code.address_of_descriptor();
        let table = code.value(format_args!(
            "llvm.call {enter}({descriptor}) : !llvm.ptr, (!llvm.ptr) -> !llvm.ptr"
        ));
        code.line(format_args!("llvm.return {table} : !llvm.ptr"));
        code.label("none".to_owned());
        let null = code.null();
        code.line(format_args!("llvm.return {null} : !llvm.ptr"));
        code.close();
    }

    /// Computes the address of the entry of `%id` in `%table`.
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
        let there = code.is_there("%table");
        code.branch(&there, "on", "out", Some(false));
        code.label("on".to_owned());
        let entry = Self::entry(code);
        match self.mode {
            Mode::Log => {
                self.write_log(code, &entry, 0);
                code.go("out");
            }
            Mode::Count => {
                code.count(&entry, offset_of!(Entry, hits));
                code.go("out");
            }
            Mode::Sampled => {
                let (_, hits) = code.count(&entry, offset_of!(Entry, hits));
                let next = code.at(&entry, offset_of!(Entry, next));
                let due = code.load(&next);
                let now = code.compare("eq", &hits, &due);
                code.branch(&now, "cold", "out", Some(true));
                code.label("cold".to_owned());
                code.draw(&entry, &hits, &next);
                self.start(code, &entry);
            }
            Mode::Timed => {
                code.count(&entry, offset_of!(Entry, hits));
                code.count(&entry, offset_of!(Entry, begun));
                let has_child = code.is_there("%child");
                code.branch(&has_child, "clear", "cleared", None);
                code.label("clear".to_owned());
                let zero = code.number(0);
                code.keep(&zero, "i64", "%child");
                code.go("cleared");
                code.label("cleared".to_owned());
                self.start(code, &entry);
            }
        }
        code.label("out".to_owned());
        code.line(format_args!("llvm.return"));
        code.close();
    }

    /// Reads the counters, if the runtime wants them, and then the clock. Ends the block.
    fn start(&self, code: &mut Code, entry: &str) {
        let end_at = code.at("%kept", 16);
        let null = code.null();
        code.keep(&null, "!llvm.ptr", &end_at);
        code.branch("%counters", "wanted", "stamp", None);
        code.label("wanted".to_owned());
        let begin = Self::pointer(code, offset_of!(Module, begin), false);
        let there = code.is_there(&begin);
        code.branch(&there, "count", "stamp", Some(true));
        code.label("count".to_owned());
        let began = code.value(format_args!(
            "llvm.call {begin}({entry}, %id) : !llvm.ptr, (!llvm.ptr, i32) -> i64"
        ));
        let began_at = code.at("%kept", 8);
        code.keep(&began, "i64", &began_at);
        let end = Self::pointer(code, offset_of!(Module, end), false);
        code.keep(&end, "!llvm.ptr", &end_at);
        code.go("stamp");
        code.label("stamp".to_owned());
        let now = self.now(code);
        code.keep(&now, "i64", "%kept");
        code.go("out");
    }

    fn write_log(&self, code: &mut Code, entry: &str, end: i64) {
        let log = Self::pointer(code, offset_of!(Module, log), false);
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
            code.label("on".to_owned());
            let now = self.now(code);
            let entry = Self::entry(code);
            self.book(code, &entry, &now, &stamp);
        } else {
            let there = code.is_there("%table");
            code.branch(&there, "on", "out", Some(false));
            code.label("on".to_owned());
            let entry = Self::entry(code);
            if self.mode == Mode::Log {
                self.write_log(code, &entry, 1);
            }
            self.iterated(code, &entry);
            code.go("out");
        }
        code.label("out".to_owned());
        code.line(format_args!("llvm.return"));
        code.close();
    }

    /// Adds a timed hit, which ends at time `now`, to its entry, and in mode timed its time to
    /// `%parent`. Ends the block.
    fn book(&self, code: &mut Code, entry: &str, now: &str, stamp: &str) {
        let ticks = code.binary("sub", now, stamp);
        code.book(entry, &ticks, self.mode);
        if self.mode == Mode::Timed {
            let has_child = code.is_there("%child");
            code.branch(&has_child, "children", "inside", None);
            code.label("children".to_owned());
            let inside = code.kept("%child", "i64");
            code.add(entry, offset_of!(Entry, child_ticks), &inside);
            code.go("inside");
            code.label("inside".to_owned());
            let has_parent = code.is_there("%parent");
            code.branch(&has_parent, "around", "iterations", None);
            code.label("around".to_owned());
            let sum = code.kept("%parent", "i64");
            let sum = code.binary("add", &sum, &ticks);
            code.keep(&sum, "i64", "%parent");
            code.go("iterations");
            code.label("iterations".to_owned());
        }
        self.iterated(code, entry);
        code.branch("%counters", "wanted", "out", None);
        code.label("wanted".to_owned());
        let end_at = code.at("%kept", 16);
        let end = code.kept(&end_at, "!llvm.ptr");
        let there = code.is_there(&end);
        code.branch(&there, "count", "out", Some(true));
        code.label("count".to_owned());
        let began_at = code.at("%kept", 8);
        let began = code.kept(&began_at, "i64");
        code.line(format_args!(
            "llvm.call {end}({entry}, %id, {began}) : !llvm.ptr, (!llvm.ptr, i32, i64) -> ()"
        ));
        code.go("out");
    }

    /// Adds the iterations of a hit to its entry, if they are known. Begins a new block.
    fn iterated(&self, code: &mut Code, entry: &str) {
        let zero = code.number(0);
        let known = code.compare("sge", "%iterations", &zero);
        code.branch(&known, "iterated", "after", None);
        code.label("iterated".to_owned());
        code.iterated(entry, "%iterations", self.mode);
        code.go("after");
        code.label("after".to_owned());
    }
}
