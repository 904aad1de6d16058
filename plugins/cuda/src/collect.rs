//! Lends buffers to CUPTI, which fills them with records, and reads these records.
//!
//! ```text
//!  CUPTI ─ requested ─► a buffer, or none beyond the limit
//!        ─ completed ─► its records, read ─► Store ─ take ─► output
//! ```
//!
//! CUPTI calls `requested` and `completed` on its own threads and on the program's. `completed`
//! reads the records at once, because the names to which they point may be freed later.

use std::alloc::Layout;
use std::collections::{BTreeSet, HashMap};
use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::cupti::{self, Cupti, NO_MORE};
use crate::functions;
use crate::lock::lock;
use crate::records::{self, Bytes, Record, Unreadable};
use crate::sampler::{self, Value};

/// The size of a buffer in bytes. CUPTI needs a buffer for each thread that calls CUDA, and for
/// each context.
pub const BUFFER: usize = 1 << 20;

/// The number of bytes that a recording may take unless the host says otherwise.
pub const DEFAULT_LIMIT: u64 = 256 << 20;

/// The largest number of addresses for which the name is kept. Records whose names are at further
/// addresses do not share copies of names.
const MOST_NAMES: usize = 100_000;

/// A record, and a copy of the name to which it pointed.
pub type Named = (Record, Option<Arc<str>>);

/// The values of counters that were read around a kernel or an op.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    pub what: What,
    /// Times of CUPTI's clock at the range's begin and end.
    pub times: (u64, u64),
    /// The thread that launched the work.
    pub thread: u32,
    pub device: u32,
    /// CUPTI's number of the call that launched the kernel; 0 for an op.
    pub correlation: u32,
    /// The counters' values, in the order in which the counters were requested.
    pub values: Vec<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum What {
    Kernel(Option<Arc<str>>),
    /// A kernel of a graph, with its position in the launch, from 0.
    OfGraph(u32),
    /// An op, with the id that the host gave it.
    Op(u64),
}

static STORE: Mutex<Store> = Mutex::new(Store::new());

/// The records and values that were not handed over to the host yet.
#[derive(Debug)]
pub struct Store {
    /// The records, in the order in which CUPTI returned their buffers.
    pub records: Vec<Named>,
    values: Vec<Value>,
    ranges: Vec<Range>,
    /// Addresses of the buffers that CUPTI has.
    lent: BTreeSet<usize>,
    limit: u64,
    names: Option<HashMap<usize, Arc<str>>>,
    pub missing: Missing,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Records, samples and ranges that were dropped because of the limit.
    pub beyond: u64,
    /// Records that CUPTI dropped.
    pub dropped: u64,
    /// Records that are too short, buffers that CUPTI returned although they were not lent, and
    /// buffers in which the end of the records could not be found.
    pub damaged: u64,
    pub unknown: u64,
    /// Launches whose counters were not read, and kernels of graphs for whose values CUPTI had no
    /// room.
    pub uncounted: u64,
    /// Ops whose counters were not read.
    pub uncounted_ops: u64,
}

impl Store {
    const fn new() -> Self {
        Self {
            records: Vec::new(),
            values: Vec::new(),
            ranges: Vec::new(),
            lent: BTreeSet::new(),
            limit: DEFAULT_LIMIT,
            names: None,
            missing: Missing {
                beyond: 0,
                dropped: 0,
                damaged: 0,
                unknown: 0,
                uncounted: 0,
                uncounted_ops: 0,
            },
        }
    }

    fn taken(&self) -> u64 {
        (self.lent.len() * BUFFER) as u64 + self.kept()
    }

    /// Returns the number of bytes of the stored records, samples and ranges, without names.
    fn kept(&self) -> u64 {
        let values = self.values.len() * size_of::<Value>();
        let of_range = |range: &Range| size_of::<Range>() + 8 * range.values.len();
        let ranges = self.ranges.first().map_or(0, of_range) * self.ranges.len();
        (self.records.len() * size_of::<Named>() + values + ranges) as u64
    }

    fn push(&mut self, record: Named) {
        if self.kept() >= self.limit {
            self.missing.beyond += 1;
            return;
        }
        self.records.push(record);
    }

    /// Returns a copy of the name at an address. For the first [`MOST_NAMES`] addresses, records
    /// with the same name at the same address share one copy.
    ///
    /// # Safety
    /// `address` must be 0 or the address of a C string.
    unsafe fn name(&mut self, address: usize) -> Option<Arc<str>> {
        if address == 0 {
            return None;
        }
        // SAFETY: by contract, `address` is 0 or the address of a C string, and 0 was handled
        // above.
        let text = unsafe { CStr::from_ptr(address as *const c_char) }.to_string_lossy();
        let names = self.names.get_or_insert_default();
        // The memory of a freed name may contain another name now, so the texts are compared.
        if let Some(known) = names.get(&address).filter(|known| ***known == *text) {
            return Some(Arc::clone(known));
        }
        let name: Arc<str> = Arc::from(&*text);
        if names.len() < MOST_NAMES {
            names.insert(address, Arc::clone(&name));
        }
        Some(name)
    }
}

fn store() -> MutexGuard<'static, Store> {
    lock(&STORE)
}

fn layout() -> Layout {
    // CUPTI requires an alignment of 8.
    const {
        match Layout::from_size_align(BUFFER, 8) {
            Ok(layout) => layout,
            Err(_) => panic!("8 is a power of two"),
        }
    }
}

/// Begins a recording with an empty store. CUPTI may still have buffers of the recording before.
pub fn open() {
    let mut store = store();
    let lent = std::mem::take(&mut store.lent);
    *store = Store { lent, ..Store::new() };
}

/// Sets the largest number of bytes for buffers, records, samples and ranges.
pub fn set_limit(bytes: u64) {
    store().limit = bytes;
}

pub fn add_dropped(count: u64) {
    store().missing.dropped += count;
}

/// Stores a sample, unless the limit is reached.
pub fn add_value(value: Value) {
    let mut store = store();
    if store.kept() >= store.limit {
        store.missing.beyond += 1;
    } else {
        store.values.push(value);
    }
}

/// Stores a range, unless the limit is reached.
pub fn add_range(range: Range) {
    let mut store = store();
    if store.kept() >= store.limit {
        store.missing.beyond += 1;
    } else {
        store.ranges.push(range);
    }
}

pub fn add_uncounted(count: u64) {
    store().missing.uncounted += count;
}

pub fn add_uncounted_op() {
    store().missing.uncounted_ops += 1;
}

/// Returns the id that Linux gave the calling thread.
pub fn own_thread() -> u32 {
    // SAFETY: the system call `gettid` has no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Everything that was collected since the last call of [`take`].
#[derive(Debug)]
pub struct Taken {
    pub records: Vec<Named>,
    pub values: Vec<Value>,
    pub ranges: Vec<Range>,
    pub missing: Missing,
}

pub fn take() -> Taken {
    let mut store = store();
    Taken {
        records: std::mem::take(&mut store.records),
        values: std::mem::take(&mut store.values),
        ranges: std::mem::take(&mut store.ranges),
        missing: std::mem::take(&mut store.missing),
    }
}

/// CUPTI calls this function to get a buffer. If it gets none, it drops records and counts them.
///
/// # Safety
/// Only CUPTI may call this, with three variables of its own.
pub unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
    if buffer.is_null() || size.is_null() || most.is_null() {
        return;
    }
    let given = catch_unwind(AssertUnwindSafe(|| {
        let mut store = store();
        // One buffer is lent even if the limit is smaller, because nothing could be recorded
        // without a buffer.
        if !store.lent.is_empty() && store.taken() + BUFFER as u64 > store.limit {
            return std::ptr::null_mut();
        }
        // SAFETY: the size of the layout is not 0.
        let made = unsafe { std::alloc::alloc_zeroed(layout()) };
        if !made.is_null() {
            store.lent.insert(made as usize);
        }
        made
    }));
    let given = given.unwrap_or(std::ptr::null_mut());
    // SAFETY: CUPTI passes three variables of its own, which may be written to. In `most`, 0 means
    // that a buffer may contain any number of records.
    unsafe {
        *buffer = given;
        *size = if given.is_null() { 0 } else { BUFFER };
        *most = 0;
    }
}

/// CUPTI calls this function to return a buffer, with records in its first `valid` bytes.
///
/// # Safety
/// Only CUPTI may call this, with a buffer that [`requested`] gave it.
pub unsafe extern "C" fn completed(
    _context: *mut c_void,
    _stream: u32,
    buffer: *mut u8,
    _size: usize,
    valid: usize,
) {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        if buffer.is_null() {
            return;
        }
        let mut store = store();
        if !store.lent.remove(&(buffer as usize)) {
            // We did not lend this buffer, so it is neither read nor freed.
            store.missing.damaged += 1;
            return;
        }
        if let Some(cupti) = cupti::in_use() {
            // SAFETY: the buffer was lent by `requested`, so it has BUFFER bytes, and CUPTI has
            // filled the first `valid`.
            unsafe { read(&mut store, cupti, buffer, valid) };
        }
        drop(store);
        // SAFETY: `requested` allocated the buffer with this layout, and it is no longer among the
        // lent ones.
        unsafe { std::alloc::dealloc(buffer, layout()) };
    }));
}

/// Reads the records of a buffer.
///
/// # Safety
/// `buffer` must have [`BUFFER`] bytes, and CUPTI must have written records to the first `valid`.
unsafe fn read(store: &mut Store, cupti: &Cupti, buffer: *mut u8, valid: usize) {
    if valid > BUFFER {
        store.missing.damaged += 1;
        return;
    }
    let begin = buffer as usize;
    let mut record = std::ptr::null_mut();
    let mut before: Option<usize> = None;
    loop {
        // SAFETY: by contract, CUPTI wrote records to the buffer; `record` is null or a record that
        // `next_record` returned.
        let next = unsafe { cupti.next_record(buffer, valid, record) };
        let at = match next {
            Ok(found) => match (found as usize).checked_sub(begin) {
                // A record must begin after the record before it, and inside of the bytes that
                // CUPTI filled.
                Some(at) if at < valid && before.is_none_or(|before| before < at) => Some(at),
                _ => {
                    store.missing.damaged += 1;
                    None
                }
            },
            Err(NO_MORE) => None,
            Err(_) => {
                store.missing.damaged += 1;
                None
            }
        };
        if let Some(before) = before {
            let end = at.unwrap_or(valid);
            // SAFETY: the range is within the buffer, of which the first `valid` bytes are CUPTI's
            // records.
            let bytes = unsafe { std::slice::from_raw_parts(buffer.add(before), end - before) };
            // SAFETY: the bytes are a record of CUPTI's, so the names that it points to are C
            // strings.
            unsafe { keep(store, Bytes(bytes)) };
        }
        let Some(at) = at else { return };
        before = Some(at);
        record = buffer.wrapping_add(at);
    }
}

/// Stores a record, unless it is a successful call of a function that is not recorded (`SMALL_TALK`
/// in `functions`). A record that cannot be read is counted as missing.
///
/// # Safety
/// The record must be one of CUPTI's, so that the names to which it points are C strings.
unsafe fn keep(store: &mut Store, bytes: Bytes<'_>) {
    match records::read(bytes) {
        Ok(record) => {
            let address = match record {
                Record::Kernel { name, .. }
                | Record::Device { name, .. }
                | Record::Marker { name, .. } => name,
                Record::Call(call) if functions::is_small_talk(&call) => return,
                Record::Context { device, .. } => {
                    sampler::used(device);
                    0
                }
                _ => 0,
            };
            // SAFETY: by contract, the record is CUPTI's, so `address` is 0 or the address of a C
            // string.
            let mut name = unsafe { store.name(address) };
            if let Record::Marker { domain, .. } = record {
                // SAFETY: by contract, the record is CUPTI's, so `domain` is 0 or the address of a
                // C string.
                let domain = unsafe { store.name(domain) };
                if let (Some(text), Some(domain)) = (&name, domain) {
                    name = Some(Arc::from(format!("{domain}: {text}")));
                }
            }
            store.push((record, name));
        }
        Err(Unreadable::Unknown(_)) => store.missing.unknown += 1,
        Err(Unreadable::Short) => store.missing.damaged += 1,
    }
}
