//! The tables in which a thread counts the hits (executions of functions and loops) of instrumented
//! modules. They are in contiguous pages of the pool (memory that `counterpoint run` shares with
//! recorded processes), which the thread gives back when it ends.
//!
//! A forked child continues in the middle of functions that use the addresses of its parent's
//! tables. Before the fork returns in the child, a handler replaces the child's tables by private
//! memory at the same addresses ([`crate::recorder::handler_fork`]). When the process ends, the
//! tables of the thread that ends it are replaced in the same way. Tables of an earlier session are
//! replaced when their thread needs a table in a later one. Functions that a thread entered before
//! its tables were replaced continue to count, but these counts are not recorded.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use abi::loops::{Entry, Mode, TRIP_BUCKETS, Trips};
use model::Loss;
use record::loops::{
    BLOCK_BYTES, BlockHeader, EVENT_BYTES, RUN_HEADER_BYTES, RUN_MAGIC, RUN_VERSION, RunHeader,
    Shape,
};
use record::page::PAGE_BYTES;

use super::local::{NOTHING, Places, count_in};
use super::modules::{self, Known};
use super::open_hits::OpenHits;
use super::{counters, local};
use crate::os::exit_key::ExitKey;
use crate::os::sys::{self, AppendError, ErrnoGuard, SignalsBlocked};
use crate::process::losses;
use crate::process::panics::guarded_apart;
use crate::process::part::Process;
use crate::recorder::handler_fork;
use crate::state::epoch;
use crate::state::run::Run;

/// How many times one thread may get its first table. When a thread exits, its tables are freed,
/// but destructors of its thread-local data may still enter instrumented functions. The thread then
/// gets a first table again.
const MOST_LIVES: u32 = 3;
/// Mode log: the largest size in bytes of the recorded starts and ends of one thread and module.
const MOST_LOG_BYTES: usize = 1 << 20;
/// The number of bytes that are collected before they are appended to the file of loops in the
/// process's part of the profile.
const CHUNK_BYTES: usize = 1 << 20;

struct Piece {
    first: usize,
    pages: usize,
    at: *mut u8,
    /// Whether this memory still belongs to the pool. Otherwise, private memory has replaced it.
    shared: bool,
}

impl Piece {
    fn bytes(&self) -> usize {
        self.pages * PAGE_BYTES
    }

    fn header(&self) -> &RunHeader {
        // SAFETY: a piece is mapped and never smaller than a page, and the header consists of
        // integers.
        unsafe { &*self.at.cast::<RunHeader>() }
    }

    fn room(&self) -> usize {
        self.bytes() - self.header().used.load(Ordering::Relaxed) as usize
    }

    /// Replaces the piece by private memory at the same address.
    fn part(&mut self) {
        if std::mem::replace(&mut self.shared, false)
            && sys::map_private_at(self.at as usize, self.bytes()).is_err()
        {
            // The replacement failed, so functions continue to write to the pool's pages, which
            // another process may claim. Switching the agent off at least prevents the use of
            // further tables.
            epoch::switch_off();
        }
    }
}

/// The tables of a thread. A forked child has a copy of this struct.
pub struct Owned {
    process: Process,
    run: &'static Run,
    epoch: u32,
    pid: u32,
    places_bytes: usize,
    pieces: Vec<Piece>,
    open: Option<OpenHits>,
}

/// Makes the table of a module for the calling thread. If that fails, counts a loss.
pub fn make(known: &Known, epoch: u32, run: &'static Run, process: Process) -> Option<*mut Entry> {
    let local = local::get();
    // SAFETY: the thread-local is the calling thread's own. The caller is in `guarded_apart`, which
    // blocks signals, so no signal handler of the program uses the thread-local meanwhile.
    unsafe {
        if (*local).lives >= MOST_LIVES {
            losses::lose(Loss::ThreadGone, 1, 0);
            return None;
        }
        if (*local).owned.is_null() {
            let fresh = Owned {
                process,
                run,
                epoch: 0,
                pid: sys::process_id(),
                places_bytes: 0,
                pieces: Vec::new(),
                open: None,
            };
            (*local).owned = Box::into_raw(Box::new(fresh)).cast();
            EXIT.register((*local).owned);
            handler_fork::watch();
            handler_fork::call_in_child(in_child);
        }
        let owned = &mut *(*local).owned.cast::<Owned>();
        owned.begin(epoch, run, process);
        (*local).places = owned.make_places((*local).places, known.number as usize)?;
        let places = &*(*local).places;
        places.epoch.store(epoch, Ordering::Relaxed);
        let table = owned.make_table(known).unwrap_or(NOTHING as *mut Entry);
        places.first.as_ptr().cast_mut().add(known.number as usize).write(table);
        (table as usize != NOTHING).then_some(table)
    }
}

/// Returns the calling thread's open hits (hits that have not ended), if the thread has made a
/// table of a module in mode log.
///
/// # Safety
/// No other reference to the open hits may be in use on this thread.
pub unsafe fn open_hits<'a>() -> Option<&'a mut OpenHits> {
    // SAFETY: `owned` is null or this thread's own; by contract, no other reference to its open
    // hits is in use.
    unsafe { (*local::get()).owned.cast::<Owned>().as_mut() }?.open.as_mut()
}

impl Owned {
    /// Prepares for tables of this process and epoch (number of the recording). Replaces tables of
    /// another process or epoch by private memory.
    fn begin(&mut self, epoch: u32, run: &'static Run, process: Process) {
        let pid = sys::process_id();
        if self.pid != pid || self.epoch != epoch {
            if self.pid == pid && self.epoch != 0 {
                self.run.threads.fetch_sub(1, Ordering::SeqCst);
            }
            self.part();
            run.threads.fetch_add(1, Ordering::SeqCst);
            (self.pid, self.epoch, self.run, self.process) = (pid, epoch, run, process);
        }
    }

    fn part(&mut self) {
        self.pieces.iter_mut().for_each(Piece::part);
    }

    /// Returns memory for the addresses of the thread's tables, with an element for module
    /// `number`. Clears addresses of another epoch.
    ///
    /// # Safety
    /// `old` must be null or the thread's [`Places`], which are `places_bytes` bytes long.
    unsafe fn make_places(&mut self, old: *mut Places, number: usize) -> Option<*mut Places> {
        let enough = size_of::<Places>() + (number + 1) * size_of::<*mut Entry>();
        // SAFETY: by contract, `old` is null or the thread's [`Places`]. Nobody else has the
        // address of the new memory before it is stored.
        unsafe {
            let stale = !old.is_null() && (*old).epoch.load(Ordering::Relaxed) != self.epoch;
            if !old.is_null() && enough <= self.places_bytes {
                if stale {
                    old.cast::<u8>().write_bytes(0, self.places_bytes);
                    (*old).count = count_in(self.places_bytes);
                }
                return Some(old);
            }
            let bytes = enough.next_multiple_of(4096).max(2 * self.places_bytes);
            let fresh = match sys::map_wiped_on_fork(bytes) {
                Ok(fresh) => fresh.cast::<Places>(),
                Err(errno) => {
                    self.process.lose(Loss::LoopNoRoom, 1, errno);
                    return None;
                }
            };
            if !old.is_null() {
                if !stale {
                    fresh.cast::<u8>().copy_from_nonoverlapping(old.cast(), self.places_bytes);
                }
                sys::unmap(old.cast(), self.places_bytes);
            }
            (*fresh).count = count_in(bytes);
            self.places_bytes = bytes;
            Some(fresh)
        }
    }

    fn make_table(&mut self, known: &Known) -> Option<*mut Entry> {
        let counters = counters::count(self.run, known.mode);
        if counters > 0 {
            counters::prepare();
            counters::tell(&self.process, counters);
        }
        let options = self.run.loops.unwrap_or_default();
        let logged = options.logged;
        if known.mode == Mode::Log {
            self.open.get_or_insert_with(OpenHits::new);
        }
        let events = match known.mode {
            Mode::Log => (known.ids as usize)
                .saturating_mul(2)
                .saturating_mul(logged as usize)
                .min(MOST_LOG_BYTES / EVENT_BYTES),
            _ => 0,
        };
        let buckets = match known.mode {
            Mode::Log => 0,
            _ if options.trips => TRIP_BUCKETS as u32,
            // Sampled mode needs [`Trips::first`] (the iterations before the first randomly chosen
            // hit), but no histogram, so one bucket is enough.
            Mode::Sampled => 1,
            Mode::Timed | Mode::Count => 0,
        };
        let shape = Shape { ids: known.ids, counters, events: events as u32, buckets };
        let bytes = shape.bytes();
        let fits = |piece: &&Piece| piece.shared && piece.room() >= bytes;
        if self.pieces.last().as_ref().filter(|piece| fits(piece)).is_none() {
            match self.claim(RUN_HEADER_BYTES + bytes) {
                Ok(piece) => self.pieces.push(piece),
                Err(errno) => {
                    self.process.lose(Loss::LoopNoRoom, 1, errno);
                    return None;
                }
            }
        }
        let piece = self.pieces.last()?;
        let used = piece.header().used.load(Ordering::Relaxed) as usize;
        let seed = super::ticks::now() ^ u64::from(sys::thread_id()) << 40;
        // SAFETY: after `used`, the piece has at least `bytes` bytes of zeroed memory, which nobody
        // else uses. The block is written before `used` is increased, so nobody reads half a block.
        unsafe {
            let block = piece.at.add(used);
            block.cast::<BlockHeader>().write(BlockHeader {
                module: known.number,
                ids: known.ids,
                counters,
                events: events as u32,
                bytes: bytes as u64,
                logged: AtomicU64::new(0),
                unlogged: AtomicU64::new(0),
                base: known.base,
                logged_first: logged.into(),
                id: known.id,
                mode: known.mode as u32,
                gap_mask: options.gap_mask,
                ticks_per_second: super::ticks::per_second(),
                first: options.first,
                buckets,
                reserved: [0; 8],
            });
            let table = block.add(BLOCK_BYTES).cast::<Entry>();
            for id in 0..known.ids as usize {
                let entry = &*table.add(id);
                entry.next.store(1, Ordering::Relaxed);
                entry.random.store(random(seed.wrapping_add(id as u64)), Ordering::Relaxed);
                if buckets > 0 {
                    let trips = block.add(shape.trips_offset() + id * shape.trip_bytes());
                    let trips = trips.cast::<Trips>();
                    (*trips).least.store(u64::MAX, Ordering::Relaxed);
                    (*trips).mask = u64::from(buckets) - 1;
                    entry.trips.store(trips as u64, Ordering::Relaxed);
                }
            }
            piece.header().used.store((used + bytes) as u64, Ordering::Release);
            Some(table)
        }
    }

    /// Claims pages of the pool for this many bytes. The error is 0 if the pool has not enough free
    /// pages.
    fn claim(&self, bytes: usize) -> Result<Piece, i32> {
        let (run, pages) = (self.run, bytes.div_ceil(PAGE_BYTES));
        let row = self.process.row_number();
        let first = run.pool.claim_run(row, pages).ok_or(0)?;
        let at = match run.pool.map_run(first, pages, &run.pool_path) {
            Ok(at) => at,
            Err(errno) => {
                (first..first + pages).for_each(|page| run.pool.release_page(page));
                return Err(errno);
            }
        };
        let (pid, start_time, generation) = self.process.identity();
        let (ticks, monotonic_ns) = modules::now();
        let header = RunHeader {
            magic: AtomicU64::new(0),
            version: RUN_VERSION,
            pages: pages as u32,
            pid,
            generation,
            start_time,
            tid: sys::thread_id(),
            serial: self.process.next_loops(),
            thread_name: sys::thread_name(),
            used: AtomicU64::new(RUN_HEADER_BYTES as u64),
            ticks,
            monotonic_ns,
            reserved: [0; 22],
        };
        // SAFETY: `map_run` has just mapped `pages` pages at `at`. The magic number is stored last,
        // so a reader finds either no header or a whole one.
        unsafe {
            at.write_bytes(0, pages * PAGE_BYTES);
            at.cast::<RunHeader>().write(header);
            (*at.cast::<RunHeader>()).magic.store(RUN_MAGIC, Ordering::Release);
        }
        Ok(Piece { first, pages, at, shared: true })
    }

    /// Appends the counts to a file of the process's part of the profile, and gives the pages back.
    /// If that fails, pages stay in the pool, from which `profile::collect` takes them.
    fn flush(&mut self) {
        let (process, run) = (self.process, self.run);
        for piece in self.pieces.iter_mut().filter(|piece| piece.shared) {
            if write(piece, &process).is_err() {
                continue;
            }
            piece.header().magic.store(0, Ordering::Release);
            piece.part();
            (piece.first..piece.first + piece.pages).for_each(|page| run.pool.release_page(page));
        }
    }

    /// Returns whether these tables belong to this process and to the present recording. If the
    /// agent has switched itself off, tables of an earlier recording are accepted, too.
    fn is_current(&self) -> bool {
        let recorded = self.epoch == epoch::current() || epoch::is_off();
        self.pid == sys::process_id() && self.epoch != 0 && recorded
    }
}

fn write(piece: &Piece, process: &Process) -> Result<(), AppendError> {
    // SAFETY: the piece is mapped, and only the calling thread, which is in this function, writes
    // to it.
    let bytes = unsafe { std::slice::from_raw_parts(piece.at, piece.bytes()) };
    // If the program has damaged the tables, they stay in the pool, and the reader of the pool
    // reports them.
    let damaged = |_| AppendError::Errno(libc::EIO);
    let run = record::loops::Run::parse(bytes).map_err(damaged)?;
    let mut chunk = modules::moment();
    for block in run.blocks() {
        block.map_err(damaged)?.write(|frame| {
            chunk.extend_from_slice(frame);
            match chunk.len() < CHUNK_BYTES {
                true => Ok(()),
                false => process.append_loops(&std::mem::take(&mut chunk)),
            }
        })?;
    }
    process.append_loops(&chunk)
}

/// Computes a number other than 0 from `seed`, by splitmix64.
fn random(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).max(1)
}

fn in_child() {
    // SAFETY: `owned` is null or the calling thread's own.
    if let Some(owned) = unsafe { (*local::get()).owned.cast::<Owned>().as_mut() } {
        owned.part();
    }
}

static EXIT: ExitKey = ExitKey::new(leave_c);

/// Appends the counts of a thread that exits, and frees its tables. The thread has left all
/// functions that use these tables.
unsafe extern "C" fn leave_c(owned: *mut c_void) {
    let _errno = ErrnoGuard::new();
    let _calm = SignalsBlocked::new();
    let local = local::get();
    // SAFETY: `owned` is the box that this thread registered for its exit, and no other pointer to
    // it is used after this.
    unsafe {
        let places = std::mem::replace(&mut (*local).places, std::ptr::null_mut());
        (*local).owned = std::ptr::null_mut();
        (*local).lives = (*local).lives.saturating_add(1);
        let mut owned = Box::from_raw(owned.cast::<Owned>());
        // If there is no memory for the separate stack of `guarded_apart`, the pages stay in the
        // pool, from which `profile::collect` takes them.
        guarded_apart(|| {
            point!(LoopThreadEnd);
            if owned.is_current() {
                owned.flush();
                owned.run.threads.fetch_sub(1, Ordering::SeqCst);
            }
        });
        counters::forget(local);
        owned.pieces.iter().for_each(|piece| sys::unmap(piece.at, piece.bytes()));
        if !places.is_null() {
            sys::unmap(places.cast(), owned.places_bytes);
        }
    }
}

/// Appends the counts of the thread that ends the process. The tables of other threads stay in the
/// pool.
pub fn at_process_exit() {
    let _calm = SignalsBlocked::new();
    let local = local::get();
    // SAFETY: `owned` is null or the calling thread's own. The thread's tables stay mapped, because
    // a handler of `atexit` may jump back into functions that the thread has entered.
    unsafe {
        let owned = (*local).owned.cast::<Owned>().as_mut();
        let Some(owned) = owned.filter(|owned| owned.is_current()) else {
            return;
        };
        guarded_apart(|| owned.flush());
        if let Some(places) = (*local).places.as_ref() {
            places.epoch.store(0, Ordering::Relaxed);
        }
    }
}
