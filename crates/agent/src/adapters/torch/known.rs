//! Finds the entry of an op: the agent's data about the op. The shim (the library that connects
//! PyTorch to the agent) passes the address of PyTorch's schema of the op, or a name.
//!
//! Between two ops, the program displaces the recorder's data from the caches. To find an entry by
//! its name in the table of all entries, the processor must load four cache lines, one after the
//! other. They contain the place in the table, the entry, the entry's name, and the name that the
//! shim passes. *Measured* in a training loop on a busy machine: waiting for these lines took more
//! than half of the recorder's time for an op. A look-up by schema in the tables of this file needs
//! only one cache line. This line also contains a copy of the data that most ops need from their
//! entry.
//!
//! ```text
//!  schema ─► place: version, export, told, entry, schema      the shim passes no name
//!  name   ─► place: version, export, told, entry, the name
//!     └─(not there)──► name ──► table of all entries ──► place
//! ```
//!
//! PyTorch may remove an op and later make another op whose schema has the same address. Before
//! PyTorch removes an op, the shim calls [`forget`].

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use crate::adapters::op_calls::op::Entry;

/// Number of places for schemas. A training loop calls about a hundred different ops; PyTorch has
/// some thousands.
const SCHEMAS: usize = 1024;
/// Number of places for names. Names are used for the nodes of autograd, which have no schemas.
const NAMES: usize = 256;
/// Length in bytes of the longest name that a place can contain. With this length, a place takes
/// two cache lines.
const LONGEST: usize = 96;
const WORDS: usize = LONGEST / 8;

/// Number of times that [`forget`] tries to change a place that another thread is changing. The
/// other thread needs some nanoseconds for the change. But in a forked child, the other thread may
/// exist only in the parent process. The change then never ends, and no op is found in this place
/// any more.
const TRIES: u32 = 1000;

#[derive(Clone, Copy, Debug)]
pub struct Known {
    pub entry: &'static Entry,
    pub export: u32,
    /// The result of [`Entry::told`] when the op was stored. Because of this copy, most calls need
    /// not load the entry's cache line.
    pub told: u32,
}

/// The part of a place that identifies the stored op.
trait Key {
    /// The data by which an op is looked up.
    type Wanted<'a>: Copy;
    /// Returns whether the place contains the wanted op. The answer is used only if no thread
    /// changed the place at the same time.
    fn is(&self, wanted: Self::Wanted<'_>) -> bool;
    fn set(&self, wanted: Self::Wanted<'_>);
}

/// The address of a schema; 0 if no op is stored.
type Schema = AtomicUsize;

impl Key for Schema {
    type Wanted<'a> = usize;

    #[inline(always)]
    fn is(&self, wanted: usize) -> bool {
        self.load(Ordering::Relaxed) == wanted
    }

    fn set(&self, wanted: usize) {
        self.store(wanted, Ordering::Relaxed);
    }
}

/// The bytes of a name. Unused bytes of the last word are zero.
struct Name {
    length: AtomicUsize,
    words: [AtomicU64; WORDS],
}

impl Key for Name {
    type Wanted<'a> = &'a [u8];

    #[inline(always)]
    fn is(&self, wanted: &[u8]) -> bool {
        self.length.load(Ordering::Relaxed) == wanted.len()
            && words(wanted).zip(&self.words).all(|(word, own)| own.load(Ordering::Relaxed) == word)
    }

    fn set(&self, wanted: &[u8]) {
        self.length.store(wanted.len(), Ordering::Relaxed);
        words(wanted).zip(&self.words).for_each(|(word, own)| own.store(word, Ordering::Relaxed));
    }
}

#[inline(always)]
fn words(name: &[u8]) -> impl Iterator<Item = u64> {
    let (whole, rest) = name.as_chunks::<8>();
    let last = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let last = (!rest.is_empty()).then_some(last);
    whole.iter().map(|word| u64::from_le_bytes(*word)).chain(last)
}

/// A place for the data of one op. Any thread may read the place, even while another thread changes
/// it. `version` is odd during a change.
#[repr(C, align(32))]
struct Place<K> {
    version: AtomicU32,
    export: AtomicU32,
    told: AtomicU32,
    entry: AtomicPtr<Entry>,
    key: K,
}

impl<K> Place<K> {
    const fn empty(key: K) -> Self {
        Self {
            version: AtomicU32::new(0),
            export: AtomicU32::new(0),
            told: AtomicU32::new(0),
            entry: AtomicPtr::new(std::ptr::null_mut()),
            key,
        }
    }
}

impl<K: Key> Place<K> {
    #[inline(always)]
    fn find(&self, wanted: K::Wanted<'_>) -> Option<Known> {
        let version = self.version.load(Ordering::Acquire);
        let is_it = self.key.is(wanted);
        let entry = self.entry.load(Ordering::Relaxed);
        let export = self.export.load(Ordering::Relaxed);
        let told = self.told.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let is_whole = version & 1 == 0 && self.version.load(Ordering::Relaxed) == version;
        if !is_whole || !is_it {
            return None;
        }
        // SAFETY: `entry` is null or an entry, and entries are never freed.
        unsafe { entry.as_ref() }.map(|entry| Known { entry, export, told })
    }

    /// Calls `change`, unless another thread is changing the place at this moment. Returns whether
    /// `change` was called.
    fn change(&self, change: impl FnOnce(&Self)) -> bool {
        let version = self.version.load(Ordering::Relaxed);
        let (odd, even) = (version.wrapping_add(1), version.wrapping_add(2));
        let order = (Ordering::Acquire, Ordering::Relaxed);
        if version & 1 == 1
            || self.version.compare_exchange(version, odd, order.0, order.1).is_err()
        {
            return false;
        }
        fence(Ordering::Release);
        change(self);
        self.version.store(even, Ordering::Release);
        true
    }

    fn set(&self, wanted: K::Wanted<'_>, entry: &'static Entry) {
        self.key.set(wanted);
        self.entry.store(std::ptr::from_ref(entry).cast_mut(), Ordering::Relaxed);
        self.export.store(entry.id, Ordering::Relaxed);
        self.told.store(entry.told(), Ordering::Relaxed);
    }
}

const _: () = assert!(size_of::<Place<Schema>>() == 32 && size_of::<Place<Name>>() == 128);

static BY_SCHEMA: [Place<Schema>; SCHEMAS] = [const { Place::empty(AtomicUsize::new(0)) }; SCHEMAS];
static BY_NAME: [Place<Name>; NAMES] = [const {
    Place::empty(Name { length: AtomicUsize::new(0), words: [const { AtomicU64::new(0) }; WORDS] })
}; NAMES];

#[inline(always)]
fn schema_place(schema: usize) -> &'static Place<Schema> {
    let hash = (schema as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    &BY_SCHEMA[(hash >> 54) as usize % SCHEMAS]
}

#[inline(always)]
fn name_place(name: &[u8]) -> &'static Place<Name> {
    let hash = words(name).fold(name.len() as u64, |hash, word| {
        (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
    });
    &BY_NAME[hash as usize % NAMES]
}

#[inline(always)]
pub fn with_schema(schema: *const c_void) -> Option<Known> {
    schema_place(schema as usize).find(schema as usize)
}

#[inline(always)]
pub fn with_name(name: &[u8]) -> Option<Known> {
    (name.len() <= LONGEST).then(|| name_place(name).find(name)).flatten()
}

/// Stores the entry of an op, by its schema or, if the schema is null, by its name. Does nothing
/// for bookkeeping ops (which only manage the host's data), or if another thread is changing the
/// same place. A name that is empty or longer than [`LONGEST`] is not stored.
#[inline(never)]
pub fn put(schema: *const c_void, name: &[u8], entry: &'static Entry) {
    if entry.bookkeeping {
        return;
    }
    if !schema.is_null() {
        schema_place(schema as usize).change(|place| place.set(schema as usize, entry));
    } else if !name.is_empty() && name.len() <= LONGEST {
        name_place(name).change(|place| place.set(name, entry));
    }
}

/// Removes the op with this schema from its place, because PyTorch is about to remove the op, too.
pub fn forget(schema: *const c_void) {
    let place = schema_place(schema as usize);
    let clear = |place: &Place<Schema>| {
        if place.key.is(schema as usize) {
            place.entry.store(std::ptr::null_mut(), Ordering::Relaxed);
        }
    };
    let mut left = TRIES;
    while left > 0 && !place.change(clear) {
        left -= 1;
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use record::meta::Role;

    use super::*;
    use crate::adapters::op_calls::nowhere::Nowhere;
    use crate::adapters::op_calls::op;
    use crate::adapters::torch::HOST;

    fn entry(name: &str) -> &'static Entry {
        static MACHINE: Nowhere = Nowhere::new(&HOST);
        op::by_name(MACHINE.machine(), Role::Op, name.as_bytes()).expect("room in the table")
    }

    fn at(address: usize) -> *const c_void {
        std::ptr::without_provenance(address)
    }

    fn is(found: Option<Known>, entry: &'static Entry) -> bool {
        found.is_some_and(|found| {
            std::ptr::eq(found.entry, entry)
                && (found.export, found.told) == (entry.id, entry.told())
        })
    }

    #[test]
    fn an_op_is_found_until_its_schema_is_forgotten() {
        let (one, other) = (entry("known::one"), entry("known::other"));
        let schema = at(0x1000);
        assert!(with_schema(std::ptr::null()).is_none() && with_schema(schema).is_none());
        put(schema, b"known::one", one);
        assert!(is(with_schema(schema), one));
        assert!(with_name(b"known::one").is_none(), "only what has no schema is found by its name");
        forget(schema);
        assert!(with_schema(schema).is_none());
        put(schema, b"known::other", other);
        assert!(is(with_schema(schema), other));
    }

    #[test]
    fn forgetting_leaves_another_op_in_the_same_place() {
        let one = entry("known::third");
        let first = 0x5000;
        let same = |address: &usize| std::ptr::eq(schema_place(first), schema_place(*address));
        let second = (1..).map(|i| first + 64 * i).find(same).expect("places are few");
        put(at(second), b"", one);
        forget(at(first));
        assert!(is(with_schema(at(second)), one));
    }

    #[test]
    fn names_of_all_lengths_are_told_apart() {
        let text = "autograd::engine::evaluate_function: ".repeat(4);
        for length in 1..text.len() {
            // The two names differ in their middle byte.
            let mut names = [text[..length].to_owned(), text[..length].to_owned()];
            names[1].replace_range(length / 2..=length / 2, "#");
            let entries = names.each_ref().map(|name| entry(name));
            for (name, entry) in names.iter().zip(entries) {
                put(std::ptr::null(), name.as_bytes(), entry);
                assert_eq!(is(with_name(name.as_bytes()), entry), length <= LONGEST, "{length}");
            }
            let found = with_name(names[0].as_bytes());
            assert!(found.is_none() || is(found, entries[0]), "{length}");
        }
        assert!(with_name(b"").is_none());
    }

    #[test]
    fn a_reader_never_sees_a_mixture() {
        let names = ["known::even", "known::odd, which is longer than the other"];
        let entries = names.map(entry);
        let key = Name { length: AtomicUsize::new(0), words: Default::default() };
        let place = Place::empty(key);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for own in 0..2 {
                let (place, over) = (&place, &over);
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        place.change(|place| place.set(names[own].as_bytes(), entries[own]));
                    }
                });
            }
            let mut seen = 0;
            for turn in 0.. {
                let own = turn % 2;
                let found = place.find(names[own].as_bytes());
                assert!(found.is_none() || is(found, entries[own]));
                seen += usize::from(found.is_some());
                if turn >= 100_000 && seen > 0 {
                    break;
                }
                if turn % 1024 == 0 {
                    std::thread::yield_now();
                }
            }
            over.store(true, Ordering::Relaxed);
        });
    }
}
