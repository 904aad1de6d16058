//! Maps a call of a model's op to its entry, which contains the op's export id (the number that
//! identifies it in a profile).
//!
//! ```text
//!  host, name, for each tensor: type, device, shape ──► words ──► hash ──► table ──► entry
//! ```
//!
//! To find the entry of a known op takes two passes over its name and its arguments: one for the
//! hash and one for the comparison. The search needs no allocation and no lock. If there is no
//! entry for a call, one is created, under the process's lock. At the entry's first call in each
//! part of a profile (the directory of one process), its metadata (a *frame*) is written to this
//! part.

use std::ffi::{CStr, CString, c_char};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use abi::dlpack::{DataType, Device};
use model::Loss;
use record::meta::{Frame, OpExport, Role};

use crate::adapters::op_calls::text;
use crate::adapters::op_calls::vm::Vm;
use crate::os::kept::keep;
use crate::os::sys::{self, ErrnoGuard};
use crate::process::lock::Lock;
use crate::process::panics::guarded_apart;
use crate::process::part::Process;
use crate::process::{losses, names};
use crate::recorder::thread::Thread;
use crate::state::run::Run;

/// Maximum number of words in a signature (the words that identify a call), enough for some sixty
/// tensors.
const WORDS: usize = 256;
/// The largest number of bytes of a name that is stored in a signature.
pub const LONGEST_NAME: usize = 1000;
/// If there are this many entries, further ops are distinguished by name alone.
const MOST_WITH_SHAPES: usize = 1 << 16;
/// Number of slots in the hash table.
const SLOTS: usize = 1 << 17;
/// Maximum number of entries. A quarter of the slots stays free.
const MOST: usize = SLOTS / 4 * 3;
pub const MOST_DIMENSIONS: i32 = 32;
/// Stored instead of the number of dimensions if the shape cannot be read.
pub const NO_SHAPE: u64 = 0xFF;

/// An entry represents the calls of one op with the same tensor types, shapes and devices, or the
/// calls of one run or range.
///
/// The fields that are needed in every call come first and share a cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Entry {
    hash: u64,
    signature: Box<[u64]>,
    pub vm: &'static Vm,
    /// The op's name as a C string, for [`by_c_name`]. Null if the entry is for calls with tensors,
    /// or if the name contains a zero byte.
    c_name: *const c_char,
    /// Export id of the op, run or range. The op's parallel regions have this id plus one, and the
    /// tasks of these regions have this id plus two.
    pub id: u32,
    /// Twice the serial number of the part of the profile to which the entry's frame was last
    /// written, plus 1 if the op's calls are recorded there.
    told: AtomicU32,
    /// Device of the call's last tensor, or the first CPU if the call has no tensor.
    pub device: Device,
    role: Role,
    /// Whether this is the host's op that allocates storage. If so, the op's arguments say how
    /// much.
    pub allocates: bool,
    /// Whether the op only manages the host's data.
    pub bookkeeping: bool,
    asynchronous: bool,
    /// Serial number of the part of the profile that contains the frames of the op's regions and
    /// tasks.
    regions_told: AtomicU32,
    name: String,
    arguments: String,
    device_name: String,
    before: *const Entry,
}

// SAFETY: `before` and `c_name` are set before the entry is shared, and never changed afterwards.
// The memory that they point to is never freed.
unsafe impl Sync for Entry {}

const _: () = assert!(std::mem::offset_of!(Entry, name) == 64);

static LAST: AtomicPtr<Entry> = AtomicPtr::new(std::ptr::null_mut());

/// Hash table of entries with open addressing. Entries are never removed. The table is mapped when
/// the first entry is made.
static TABLE: AtomicPtr<[AtomicPtr<Entry>; SLOTS]> = AtomicPtr::new(std::ptr::null_mut());
static ENTRIES: AtomicUsize = AtomicUsize::new(0);

const RECENT: usize = 512;
/// A cache of the entries that [`by_c_name`] has found, by the address of the name that the host
/// passed.
static RECENTLY: [AtomicPtr<Entry>; RECENT] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; RECENT];

/// Receives the words that identify a call, one after the other. A search for an entry does not
/// store the words, because those of sixty tensors would take 2 KiB of the stack. Instead, they are
/// produced twice: once for the hash, and once for the comparison with an entry.
pub trait Words {
    fn push(&mut self, word: u64);
}

struct Hash {
    hash: u64,
    length: usize,
}

impl Words for Hash {
    #[inline(always)]
    fn push(&mut self, word: u64) {
        let product = u128::from(self.hash ^ word).wrapping_mul(0xA076_1D64_78BD_642F_E703_7ED1);
        self.hash = (product as u64) ^ (product >> 64) as u64;
        self.length += 1;
    }
}

struct Compare<'a> {
    rest: std::slice::Iter<'a, u64>,
    same: bool,
}

impl Words for Compare<'_> {
    #[inline(always)]
    fn push(&mut self, word: u64) {
        self.same &= self.rest.next() == Some(&word);
    }
}

impl Words for Vec<u64> {
    fn push(&mut self, word: u64) {
        self.push(word);
    }
}

#[inline(always)]
fn push_text(to: &mut impl Words, text: &[u8]) {
    to.push(text.len() as u64);
    let mut chunks = text.chunks_exact(8);
    for chunk in &mut chunks {
        to.push(u64::from_le_bytes([
            chunk[0], chunk[1], chunk[2], chunk[3], chunk[4], chunk[5], chunk[6], chunk[7],
        ]));
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        to.push(rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    }
}

/// A list of the tensors of a call. [`Tensors::push`] must push the same words each time.
pub trait Tensors {
    fn push(&self, to: &mut impl Words);
}

struct Nothing;

impl Tensors for Nothing {
    #[inline(always)]
    fn push(&self, _: &mut impl Words) {}
}

struct Wanted<'a, T> {
    vm: &'static Vm,
    role: Role,
    name: &'a [u8],
    tensors: &'a T,
}

impl<T: Tensors> Wanted<'_, T> {
    #[inline(always)]
    fn walk(&self, to: &mut impl Words) {
        to.push(u64::from(self.vm.number) << 8 | self.role as u64);
        push_text(to, self.name);
        self.tensors.push(to);
    }

    #[inline(always)]
    fn hash(&self) -> Hash {
        let mut hash = Hash { hash: 0x9E37_79B9_7F4A_7C15, length: 0 };
        self.walk(&mut hash);
        hash
    }

    #[inline(always)]
    fn find(&self, hash: u64) -> Option<&'static Entry> {
        find(hash, |entry| {
            let mut compare = Compare { rest: entry.signature.iter(), same: true };
            self.walk(&mut compare);
            compare.same && compare.rest.as_slice().is_empty()
        })
    }

    /// Makes the entry, on a separate stack.
    #[cold]
    #[inline(never)]
    fn make(&self, hash: u64) -> Option<&'static Entry> {
        guarded_apart(|| {
            let mut words = Vec::new();
            self.walk(&mut words);
            make(self.vm, self.role, self.name, hash, &words)
        })
        .flatten()
    }
}

/// Returns the entry for a call with these tensors, or makes it. Returns `None` if that is
/// impossible, for example because the table is full.
#[inline(always)]
pub fn of_call(
    vm: &'static Vm,
    role: Role,
    name: &[u8],
    tensors: &impl Tensors,
) -> Option<&'static Entry> {
    let wanted = Wanted { vm, role, name, tensors };
    let Hash { hash, length } = wanted.hash();
    if length > WORDS {
        return without_shapes(vm, name);
    }
    wanted.find(hash).or_else(|| wanted.make(hash))
}

/// Returns the entry for a call that is distinguished by its role and name alone, or makes it. Such
/// a call is a run, a range, or an op whose tensors are not stored in the signature.
pub fn by_name(vm: &'static Vm, role: Role, name: &[u8]) -> Option<&'static Entry> {
    let mut cut = name.len().min(LONGEST_NAME);
    if cut < name.len() {
        losses::lose(Loss::NameTruncated, 1, 0);
        while cut > 0 && name.get(cut).is_some_and(|byte| byte & 0xC0 == 0x80) {
            cut -= 1;
        }
    }
    let name = name.get(..cut).unwrap_or_default();
    let wanted = Wanted { vm, role, name, tensors: &Nothing };
    let hash = wanted.hash().hash;
    wanted.find(hash).or_else(|| wanted.make(hash))
}

/// Does what [`by_name`] does, but faster if the host passes the same address each time it calls an
/// op. The host may use the address for another name later, so the names are compared.
///
/// # Safety
/// `name` must be a C string.
#[inline(always)]
pub unsafe fn by_c_name(
    vm: &'static Vm,
    role: Role,
    name: *const c_char,
) -> Option<&'static Entry> {
    let place = (name as usize as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 55;
    let place = RECENTLY.get(place as usize % RECENT)?;
    // SAFETY: the place contains null or an entry that `make` has made, which is never freed. By
    // contract, `name` is a C string.
    unsafe {
        if let Some(entry) = place.load(Ordering::Acquire).as_ref()
            && std::ptr::eq(entry.vm, vm)
            && entry.role == role
            && !entry.c_name.is_null()
            && libc::strcmp(entry.c_name, name) == 0
        {
            return Some(entry);
        }
        let entry = by_name(vm, role, CStr::from_ptr(name).to_bytes())?;
        place.store(std::ptr::from_ref(entry).cast_mut(), Ordering::Release);
        Some(entry)
    }
}

#[cold]
#[inline(never)]
fn without_shapes(vm: &'static Vm, name: &[u8]) -> Option<&'static Entry> {
    losses::lose(Loss::OpShapesLeftOut, 1, 0);
    by_name(vm, Role::Op, name)
}

#[inline(always)]
fn find(hash: u64, is_wanted: impl Fn(&Entry) -> bool) -> Option<&'static Entry> {
    // SAFETY: `TABLE` is null or memory that `table` has mapped, which is never unmapped.
    let table = unsafe { TABLE.load(Ordering::Acquire).as_ref() }?;
    let mut at = hash as usize % SLOTS;
    loop {
        // SAFETY: a slot contains null or an entry that `make` has made, which is never freed. The
        // loop ends because a quarter of the slots is always free.
        let entry = unsafe { table.get(at)?.load(Ordering::Acquire).as_ref() }?;
        if entry.hash == hash && is_wanted(entry) {
            return Some(entry);
        }
        at = (at + 1) % SLOTS;
    }
}

/// Makes the entry with these words. If the program has changed a shape after the hash was
/// computed, the words do not match the hash; a later call then makes another entry.
fn make(
    vm: &'static Vm,
    role: Role,
    name: &[u8],
    hash: u64,
    words: &[u64],
) -> Option<&'static Entry> {
    let _errno = ErrnoGuard::new();
    point!(OpMake);
    let shaped = words.len() > 2 + name.len().div_ceil(8);
    let full = |most: usize| ENTRIES.load(Ordering::Relaxed) >= most;
    if shaped && full(MOST_WITH_SHAPES) {
        return without_shapes(vm, name);
    }
    let _lock = Lock::take()?;
    // Another thread may have added the entry before this thread got the lock.
    if let Some(entry) = find(hash, |entry| *entry.signature == *words) {
        return Some(entry);
    }
    if full(MOST) {
        losses::lose(Loss::OpShapesLeftOut, 1, 0);
        return None;
    }
    let table = table()?;
    let (arguments, device) = describe(words.get(2 + name.len().div_ceil(8)..).unwrap_or_default());
    let bookkeeping = &vm.host.host.bookkeeping;
    let entry = keep(Entry {
        hash,
        signature: words.into(),
        vm,
        id: names::take_exports(if role == Role::Op { 3 } else { 1 }),
        role,
        name: String::from_utf8_lossy(name).into_owned(),
        c_name: CString::new(name)
            .ok()
            .filter(|_| !shaped)
            .map_or(std::ptr::null(), |name| keep(name).as_ptr()),
        arguments,
        device_name: device.map(text::device).unwrap_or_default(),
        device: device.unwrap_or(Device { kind: 1, id: 0 }),
        asynchronous: device.is_some_and(text::is_asynchronous),
        allocates: role == Role::Op && !name.is_empty() && name == vm.host.allocates,
        bookkeeping: role == Role::Op
            && !bookkeeping.is_empty()
            && name.starts_with(bookkeeping.as_bytes()),
        before: LAST.load(Ordering::Acquire),
        told: AtomicU32::new(0),
        regions_told: AtomicU32::new(0),
    });
    let mut at = hash as usize % SLOTS;
    while let Some(slot) = table.get(at) {
        if slot.load(Ordering::Relaxed).is_null() {
            slot.store(std::ptr::from_ref(entry).cast_mut(), Ordering::Release);
            break;
        }
        at = (at + 1) % SLOTS;
    }
    LAST.store(std::ptr::from_ref(entry).cast_mut(), Ordering::Release);
    ENTRIES.fetch_add(1, Ordering::Relaxed);
    Some(entry)
}

fn table() -> Option<&'static [AtomicPtr<Entry>; SLOTS]> {
    if TABLE.load(Ordering::Acquire).is_null() {
        let memory = sys::map_zeros(size_of::<[AtomicPtr<Entry>; SLOTS]>()).ok()?;
        TABLE.store(memory.cast(), Ordering::Release);
    }
    // SAFETY: the table was mapped above and is never unmapped; its zeros are null pointers.
    unsafe { TABLE.load(Ordering::Acquire).as_ref() }
}

/// Returns the tensors in a signature as text, and the device of the last tensor.
fn describe(mut words: &[u64]) -> (String, Option<Device>) {
    let (mut arguments, mut device) = (String::new(), None);
    while let [kind, place, rest @ ..] = words {
        let dtype =
            DataType { code: *kind as u8, bits: (kind >> 8) as u8, lanes: (kind >> 16) as u16 };
        let ndim = kind >> 32;
        let known = if ndim == NO_SHAPE { 0 } else { (ndim as usize).min(rest.len()) };
        let (shape, after) = rest.split_at(known);
        if !arguments.is_empty() {
            arguments.push_str(", ");
        }
        text::tensor(&mut arguments, dtype, (ndim != NO_SHAPE).then_some(shape));
        device = Some(Device { kind: (place >> 32) as i32, id: *place as i32 });
        words = after;
    }
    (arguments, device)
}

/// Writes the frames of the machine's known ops to the thread's part of the profile, so that later
/// calls of these ops need not do this.
pub fn announce(vm: &'static Vm, thread: &Thread) {
    let _errno = ErrnoGuard::new();
    point!(OpTell);
    let Some(_lock) = Lock::take() else { return };
    let (process, run) = (thread.process(), thread.run);
    let mut frames = Vec::new();
    let mut at: *const Entry = LAST.load(Ordering::Acquire);
    // SAFETY: each pointer in the list is null or an entry that `make` has made, which is never
    // freed.
    while let Some(entry) = unsafe { at.as_ref() } {
        at = entry.before;
        if !std::ptr::eq(entry.vm, vm) {
            continue;
        }
        if entry.told.load(Ordering::Acquire) >> 1 != process.serial() & (u32::MAX >> 1) {
            frames.extend(entry.frame(entry.role, entry.id).to_bytes());
        }
        let regions = entry.regions_told.load(Ordering::Acquire);
        if regions != 0 && regions != process.serial() {
            frames.extend(entry.frame(Role::Region, entry.region()).to_bytes());
            frames.extend(entry.frame(Role::Task, entry.task()).to_bytes());
        }
    }
    vm.tell(process, run);
    process.append_bytes(&frames);
    at = LAST.load(Ordering::Acquire);
    // Mark the frames as written only after they are in the profile.
    // SAFETY: each pointer in the list is null or an entry that `make` has made, which is never
    // freed.
    while let Some(entry) = unsafe { at.as_ref() } {
        at = entry.before;
        if std::ptr::eq(entry.vm, vm) {
            entry.is_told(process, run);
            if entry.regions_told.load(Ordering::Acquire) != 0 {
                entry.regions_told.store(process.serial(), Ordering::Release);
            }
        }
    }
}

impl Entry {
    /// Returns whether the op's calls are recorded: the user's filter may exclude them. Writes the
    /// entry's frame to the thread's part of the profile first, if it is not there yet.
    #[inline(always)]
    pub fn is_recorded(&self, thread: &Thread) -> bool {
        let serial = thread.serial;
        let told = self.told.load(Ordering::Acquire);
        if told >> 1 == serial & (u32::MAX >> 1) {
            return told & 1 == 1;
        }
        self.tell(thread)
    }

    /// Returns a number that says to which part of a profile the op's frame was last written, and
    /// whether the op's calls are recorded there.
    pub fn told(&self) -> u32 {
        self.told.load(Ordering::Acquire)
    }

    /// Returns the value of [`Entry::told`] for an entry whose calls are recorded on this thread.
    #[inline(always)]
    pub fn told_to(thread: &Thread) -> u32 {
        thread.serial << 1 | 1
    }

    #[cold]
    #[inline(never)]
    fn tell(&self, thread: &Thread) -> bool {
        let _errno = ErrnoGuard::new();
        guarded_apart(|| {
            point!(OpTell);
            let Some(_lock) = Lock::take() else { return false };
            let (process, run) = (thread.process(), thread.run);
            self.vm.tell(process, run);
            process.append(&self.frame(self.role, self.id));
            self.is_told(process, run)
        })
        .unwrap_or(false)
    }

    /// Stores that the entry's frame was written to the profile's part for `process`. Returns
    /// whether the op's calls are recorded.
    fn is_told(&self, process: &Process, run: &Run) -> bool {
        let recorded = run.records(&self.name);
        self.told.store(process.serial() << 1 | u32::from(recorded), Ordering::Release);
        recorded
    }

    /// Writes the frames of the op's regions and tasks to the thread's part of the profile, if they
    /// are not there yet. Returns false if they cannot be written now.
    #[inline(always)]
    pub fn tell_regions(&self, thread: &Thread) -> bool {
        self.regions_told.load(Ordering::Acquire) == thread.serial || self.tell_regions_now(thread)
    }

    #[cold]
    #[inline(never)]
    fn tell_regions_now(&self, thread: &Thread) -> bool {
        let _errno = ErrnoGuard::new();
        guarded_apart(|| {
            let Some(_lock) = Lock::take() else { return false };
            let process = thread.process();
            self.vm.tell(process, thread.run);
            process.append(&self.frame(Role::Region, self.region()));
            process.append(&self.frame(Role::Task, self.task()));
            self.regions_told.store(process.serial(), Ordering::Release);
            true
        })
        .unwrap_or(false)
    }

    fn frame(&self, role: Role, id: u32) -> Frame {
        Frame::Op(OpExport {
            id,
            library: self.vm.library,
            role,
            name: self.name.clone(),
            arguments: self.arguments.clone(),
            device: self.device_name.clone(),
            asynchronous: self.asynchronous && role == Role::Op,
        })
    }

    /// Returns whether the entry is for an op, and not for a whole run or a range. Only ops have
    /// regions.
    #[inline(always)]
    pub fn is_op(&self) -> bool {
        self.role == Role::Op
    }

    pub fn region(&self) -> u32 {
        self.id + 1
    }

    pub fn task(&self) -> u32 {
        self.id + 2
    }

    /// Marks the op's calls as recorded without writing a frame, for calibration (which measures
    /// what empty ops cost).
    pub fn rehearse(&self, thread: &Thread) {
        self.told.store(thread.process().serial() << 1 | 1, Ordering::Release);
    }
}
