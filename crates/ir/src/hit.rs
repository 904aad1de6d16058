//! The code that runs when a hit (a call of a function, or an execution of a loop) begins and ends,
//! for both languages in which hooks are written: [`crate::hooks`] prints LLVM IR, and
//! [`crate::mlir`] the `llvm` dialect. `loops.h` explains the numbers of an entry (one function or
//! loop on one thread).
//!
//! The methods of [`Print`] get and return values and addresses as operands of the printed text,
//! mostly names. Numbers have 64 bits.

use std::mem::offset_of;

use abi::loops::{Entry, Mode, Module, Trips};

/// Prints single operations, and returns the names of their results.
pub trait Print {
    /// Computes the address of a field.
    fn at(&mut self, pointer: &str, offset: usize) -> String;
    /// Reads a word of an entry or of its statistics in one access.
    fn load(&mut self, address: &str) -> String;
    /// Writes a word of an entry or of its statistics in one access.
    fn store(&mut self, value: &str, address: &str);
    /// Reads a pointer of an entry in one access.
    fn load_pointer(&mut self, address: &str) -> String;
    /// Reads a word that does not change while hooks use it.
    fn load_constant(&mut self, address: &str) -> String;
    /// Reads a 32-bit field of the descriptor.
    fn setting(&mut self, offset: usize) -> String;
    /// Returns a number as an operand.
    fn number(&mut self, number: u64) -> String;
    /// Computes a number from `a` and `b` with LLVM's instruction
    /// `op`.
    fn binary(&mut self, op: &str, a: &str, b: &str) -> String;
    /// Compares two numbers. `how` is LLVM's condition.
    fn compare(&mut self, how: &str, a: &str, b: &str) -> String;
    /// Returns `a` if the condition holds, and `b` otherwise.
    fn select(&mut self, condition: &str, a: &str, b: &str) -> String;
    /// Converts a condition to 1 or 0.
    fn flag(&mut self, condition: &str) -> String;
    /// Computes the condition that a pointer is not null.
    fn is_there(&mut self, pointer: &str) -> String;
    /// Computes the low and the high word of a number's square.
    fn square(&mut self, number: &str) -> [String; 2];
    /// Computes how many leading zeros a number has: 64 for 0.
    fn leading_zeros(&mut self, number: &str) -> String;
    /// Computes the address of a word in an array.
    fn element(&mut self, array: &str, index: &str) -> String;
    /// Returns a new name for a block.
    fn new_block(&mut self) -> String;
    /// Begins a block.
    fn label(&mut self, block: String);
    /// Prints a branch. `rare` says whether `then` is rarely taken (true) or nearly always taken
    /// (false), if that is known.
    fn branch(&mut self, condition: &str, then: &str, otherwise: &str, rare: Option<bool>);
    /// Jumps to `block` and begins it.
    fn join(&mut self, block: String);

    /// Adds `value` to a field of an entry. Returns the field's old and new value.
    fn add(&mut self, entry: &str, offset: usize, value: &str) -> (String, String) {
        let address = self.at(entry, offset);
        let old = self.load(&address);
        let new = self.binary("add", &old, value);
        self.store(&new, &address);
        (old, new)
    }

    /// Adds 1 to a field of an entry or to a word of its statistics. Returns the field's old and
    /// new value.
    fn count(&mut self, entry: &str, offset: usize) -> (String, String) {
        let one = self.number(1);
        self.add(entry, offset, &one)
    }

    /// Replaces the number in a field by `new` if `new` compares to it as `how` says.
    fn better(&mut self, how: &str, new: &str, pointer: &str, offset: usize) {
        let address = self.at(pointer, offset);
        let old = self.load(&address);
        let is_better = self.compare(how, new, &old);
        let value = self.select(&is_better, new, &old);
        self.store(&value, &address);
    }

    /// In mode sampled, chooses the next timed hit. `next` is the address of that hit's number.
    fn draw(&mut self, entry: &str, hits: &str, next: &str) {
        let (begun, _) = self.count(entry, offset_of!(Entry, begun));
        let first = self.setting(offset_of!(Module, first));
        let random = self.compare("eq", &begun, &first);
        let (copy, gap) = (self.new_block(), self.new_block());
        self.branch(&random, &copy, &gap, None);
        self.label(copy);
        let [squares, first_squares] =
            [offset_of!(Entry, squares), offset_of!(Entry, first_squares)];
        for (from, to) in [
            (offset_of!(Entry, ended), offset_of!(Entry, first_ended)),
            (offset_of!(Entry, ticks), offset_of!(Entry, first_ticks)),
            (squares, first_squares),
            (squares + 8, first_squares + 8),
        ] {
            let from = self.at(entry, from);
            let value = self.load(&from);
            let to = self.at(entry, to);
            self.store(&value, &to);
        }
        self.join(gap);
        let state = self.at(entry, offset_of!(Entry, random));
        let mut x = self.load(&state);
        for (shift, bits) in [("shl", 13), ("lshr", 7), ("shl", 17)] {
            let bits = self.number(bits);
            let shifted = self.binary(shift, &x, &bits);
            x = self.binary("xor", &x, &shifted);
        }
        self.store(&x, &state);
        let mask = self.setting(offset_of!(Module, gap_mask));
        let gap = self.binary("and", &x, &mask);
        let early = self.compare("ult", hits, &first);
        let (zero, one) = (self.number(0), self.number(1));
        let gap = self.select(&early, &zero, &gap);
        let after = self.binary("add", hits, &one);
        let due = self.binary("add", &after, &gap);
        self.store(&due, next);
    }

    /// Adds the time of a timed hit to its entry.
    fn book(&mut self, entry: &str, ticks: &str, mode: Mode) {
        self.count(entry, offset_of!(Entry, ended));
        self.add(entry, offset_of!(Entry, ticks), ticks);
        let [low, high] = self.square(ticks);
        let squares = offset_of!(Entry, squares);
        let (_, sum) = self.add(entry, squares, &low);
        let over = self.compare("ult", &sum, &low);
        let carry = self.flag(&over);
        let high = self.binary("add", &high, &carry);
        self.add(entry, squares + 8, &high);
        // In mode sampled, the field `child_ticks` has the longest time of a hit.
        if mode == Mode::Sampled {
            self.better("ugt", ticks, entry, offset_of!(Entry, child_ticks));
        }
    }

    /// Adds the iterations of a hit to its entry.
    fn iterated(&mut self, entry: &str, iterations: &str, mode: Mode) {
        let (_, sum) = self.add(entry, offset_of!(Entry, iterations), iterations);
        self.count(entry, offset_of!(Entry, iterated));
        if mode != Mode::Log {
            self.trip(entry, iterations, &sum, mode);
        }
    }

    /// Adds the iterations of a hit to the entry's statistics, if the entry points to some. `sum`
    /// is the number of iterations of all hits. An entry without statistics costs a load and a
    /// test.
    fn trip(&mut self, entry: &str, iterations: &str, sum: &str, mode: Mode) {
        let address = self.at(entry, offset_of!(Entry, trips));
        let trips = self.load_pointer(&address);
        let there = self.is_there(&trips);
        let (on, join) = (self.new_block(), self.new_block());
        self.branch(&there, &on, &join, (mode != Mode::Sampled).then_some(true));
        self.label(on);
        self.better("ult", iterations, &trips, offset_of!(Trips, least));
        self.better("ugt", iterations, &trips, offset_of!(Trips, most));
        if mode == Mode::Sampled {
            let begun = self.at(entry, offset_of!(Entry, begun));
            let begun = self.load(&begun);
            let first = self.setting(offset_of!(Module, first));
            let random = self.compare("ugt", &begun, &first);
            let address = self.at(&trips, offset_of!(Trips, first));
            let old = self.load(&address);
            let new = self.select(&random, &old, sum);
            self.store(&new, &address);
        }
        let zeros = self.leading_zeros(iterations);
        let (all, last) = (self.number(64), self.number(63));
        let bits = self.binary("sub", &all, &zeros);
        let few = self.compare("ult", &bits, &last);
        let bucket = self.select(&few, &bits, &last);
        let mask = self.at(&trips, offset_of!(Trips, mask));
        let mask = self.load_constant(&mask);
        let bucket = self.binary("and", &bucket, &mask);
        let buckets = self.at(&trips, size_of::<Trips>());
        let own = self.element(&buckets, &bucket);
        self.count(&own, 0);
        self.join(join);
    }
}
