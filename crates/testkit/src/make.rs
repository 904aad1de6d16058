//! Writes a profile directory from a script. The recorder's own code writes the pages (blocks of
//! recorded calls), the pool (the shared memory with pages that are not in a file yet) and the
//! frames of the metadata.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use model::{Counter, PerfAttr, SimScript, Source};
use profile::Profile;
use profile::pools::{POOL_NAME, owner};
use record::counts::{
    COUNTS_NAME, CountsFrame, ENTRY_BYTES, TABLE_HEADER_BYTES, TABLE_MAGIC, TABLE_VERSION,
    entries_in,
};
use record::meta::{Frame, META_NAME, PAGES_NAME, PARTS_NAME, Process, part_name};
use record::page::{HEADER_BYTES, OwnedPage, PAGE_BYTES, PageStart};
use record::pool::{Owner, ProfileId};
use record::run_file::RUN_FILE_NAME;
use record::{Pool, RunFile, Usage, pool};

use crate::hosts;
use crate::scratch::Scratch;
use crate::script::{CallScript, Item, ProcessScript, ProfileScript, ThreadScript};

/// A page: a block of memory with the recorded calls of one thread.
#[derive(Debug)]
pub struct PageMaker(OwnedPage);

impl PageMaker {
    /// Creates a page with the header that `start` describes.
    pub fn new(start: PageStart) -> Self {
        Self(OwnedPage::new(start))
    }

    /// Returns whether the page has room for another record.
    pub fn has_room(&self) -> bool {
        self.0.has_room()
    }

    /// Records a call.
    ///
    /// # Panics
    /// Panics if the page is full.
    pub fn call(&mut self, script: &CallScript) {
        let scaled = script.groups.iter().any(|g| g.enabled.is_some_and(|e| e != g.running));
        let mut fields = Vec::new();
        for group in &script.groups {
            match group.enabled {
                None => fields.push(0),
                Some(enabled) => {
                    fields.push(enabled + 1);
                    fields.extend(scaled.then_some(group.running));
                    fields.extend(&group.values);
                }
            }
        }
        match &script.drawn {
            Some(drawn) => self.0.drawn_call(&script.call, scaled, drawn, fields),
            None => self.0.call(&script.call, scaled, fields),
        }
        if !script.values.is_empty() {
            self.0.values(&script.values);
        }
    }

    /// Records a reading of the thread's clocks.
    ///
    /// # Panics
    /// Panics if the page is full.
    pub fn clock(&mut self, ticks: u64, cpu_ns: u64, monotonic_ns: u64) {
        self.0.thread_clock(ticks, cpu_ns, monotonic_ns);
    }

    /// Stores the number of calls in progress, and the id of the exported function that the
    /// outermost of them calls.
    pub fn open(&mut self, depth: u32, export: u32) {
        self.0.set_open(depth, export);
    }

    /// Stores what the thread has used (CPU time, page faults and so on) until the end of the page.
    pub fn end(&mut self, usage: Usage) {
        self.0.set_end(usage);
    }

    /// Completes the page, and returns the bytes to append to a file of pages. `last` says whether
    /// this is the thread's last page.
    pub fn seal(&mut self, last: bool) -> Vec<u8> {
        self.0.seal(last).to_vec()
    }

    /// Starts the thread's next page in the same memory.
    pub fn next(&mut self, start: PageStart) {
        self.0.next(start);
    }

    /// Returns the bytes of the whole page, as they would be in the pool while the page is not in a
    /// file yet.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.bytes()
    }
}

/// Returns the path of the pool of the scripted profile `dir`.
pub fn pool_path(dir: &Path) -> PathBuf {
    dir.join(POOL_NAME).join(POOL_NAME)
}

impl ProfileScript {
    /// Writes the profile as `x.cpt` to a new temporary directory, and returns both paths.
    ///
    /// # Panics
    /// Panics on any error of the file system.
    pub fn written(&self) -> (Scratch, PathBuf) {
        let scratch = Scratch::new();
        let dir = scratch.join("x.cpt");
        self.write(&dir);
        (scratch, dir)
    }

    /// Writes the profile and opens it. The profile exists on disk until the returned directory is
    /// dropped.
    ///
    /// # Panics
    /// Panics if the profile cannot be written or opened.
    pub fn opened(&self) -> (Scratch, Profile) {
        let (scratch, dir) = self.written();
        (scratch, Profile::open(&dir).expect("open the scripted profile"))
    }

    /// Writes the profile to `dir`, which must not exist.
    ///
    /// # Panics
    /// Panics on any error of the file system.
    pub fn write(&self, dir: &Path) {
        fs::create_dir_all(dir.join(PARTS_NAME)).expect("create the profile");
        let mut manifest = self.manifest.clone();
        let pool_path = pool_path(dir);
        let id = ProfileId(*b"a scripted one\0\0");
        if self.pool {
            manifest.id = id.to_string();
        }
        let pool = self.pool.then(|| make_pool(&pool_path, &owner(dir, id).expect("just made")));
        manifest.pool = self.pool.then(|| pool_path.clone());
        manifest.write(dir).expect("write the manifest");
        let run = self.run_file(dir, &pool_path, id);
        fs::write(dir.join(RUN_FILE_NAME), run.to_bytes()).expect("write the run file");
        for process in &self.processes {
            self.write_process(dir, process, pool.as_ref().map(|pool| (pool, pool_path.as_path())));
        }
    }

    fn run_file(&self, dir: &Path, pool: &Path, id: ProfileId) -> RunFile {
        let counters = self.manifest.counters.iter().map(|info| {
            let source = match info.simulated {
                true => Source::Sim(SimScript::default()),
                false => Source::Perf(PerfAttr::default()),
            };
            Counter::new(&*info.name, info.unit(), info.group, source)
        });
        RunFile {
            profile: dir.display().to_string(),
            pool: pool.display().to_string(),
            id,
            clock: self.clock(),
            counters: counters.collect(),
            filters: self.manifest.filters.clone(),
            bookkeeping: false,
            budget: self.manifest.budget,
            exact_counts: self.manifest.exact_counts,
            loops: None,
            plugins: None,
            snapshots: self.manifest.snapshots.iter().map(|s| (*s).into()).collect(),
        }
    }

    fn write_process(&self, dir: &Path, process: &ProcessScript, pool: Option<(&Pool, &Path)>) {
        let name = part_name(process.pid, process.start_time, process.generation);
        let part = dir.join(PARTS_NAME).join(name);
        fs::create_dir_all(&part).expect("create the part");
        if !process.without_metadata {
            let frames = process.frames(self);
            let bytes: Vec<u8> = frames.iter().flat_map(Frame::to_bytes).collect();
            fs::write(part.join(META_NAME), bytes).expect("write the metadata");
        }
        let row = pool.map(|(pool, _)| claim_row(pool, process));
        let (mut file, mut counts) = (Vec::new(), Vec::new());
        for thread in &process.threads {
            let last = self.write_thread(process, thread, &mut file);
            if let (Some(last), Some(((pool, path), row))) = (last, pool.zip(row)) {
                leave(pool, path, row, &last);
            }
        }
        for thread in &process.threads {
            let frame = counts_frame(thread);
            if frame == CountsFrame::default() || thread.counted.is_empty() {
                continue;
            }
            match (thread.unflushed, pool.zip(row)) {
                (true, Some(((pool, path), row))) => {
                    leave(pool, path, row, &counts_table(process, &frame));
                }
                _ => counts.extend(frame.to_bytes()),
            }
        }
        if !counts.is_empty() {
            fs::write(part.join(COUNTS_NAME), counts).expect("write the counts");
        }
        if !file.is_empty() {
            fs::write(part.join(PAGES_NAME), file).expect("write the pages");
        }
        if pool.is_none() && !process.losses.is_empty() {
            let losses = process.losses.iter().map(|(loss, count, errno)| {
                format!(
                    r#"{{"name":"{}","count":{count},"errno":{}}}"#,
                    loss.name(),
                    if *errno > 0 { errno.to_string() } else { "null".into() }
                )
            });
            let losses: Vec<String> = losses.collect();
            let text = format!(
                r#"{{"schema":"counterpoint.ledger/1","pid":{},"start_time":{},"losses":[{}]}}"#,
                process.pid,
                process.start_time,
                losses.join(",")
            );
            fs::write(part.join("ledger.json"), text).expect("write the ledger");
        }
    }

    /// Appends the thread's flushed pages to `file`. If the last page is to stay in the pool,
    /// returns its bytes and does not append it.
    fn write_thread(
        &self,
        process: &ProcessScript,
        thread: &ThreadScript,
        file: &mut Vec<u8>,
    ) -> Option<Vec<u8>> {
        let mut thread_name = [0u8; 16];
        let kept = thread.name.len().min(15);
        thread_name[..kept].copy_from_slice(&thread.name[..kept]);
        let all = (1u64 << self.manifest.counters.len()) - 1;
        let mut start = PageStart {
            pid: process.pid,
            generation: process.generation,
            start_time: process.start_time,
            thread_uid: thread.uid,
            tid: thread.tid,
            thread_name,
            counters: thread.mask & all as u32,
            base_ticks: thread.base.0,
            base_cpu_ns: thread.base.1,
            base_monotonic_ns: thread.base.2,
            attach_ns: thread.attach_ns,
            usage: thread.usages.first().and_then(|(begin, _)| *begin),
            ..PageStart::default()
        };
        let mut usages = thread.usages.iter();
        let mut end = usages.next().and_then(|(_, end)| *end);
        let mut page = PageMaker::new(start);
        for item in &thread.items {
            match item {
                Item::Call(call) => page.call(call),
                Item::Clock(ticks, cpu, monotonic) => page.clock(*ticks, *cpu, *monotonic),
                Item::NextPage(ticks, cpu, monotonic) | Item::LostPage(ticks, cpu, monotonic) => {
                    end.iter().for_each(|end| page.end(*end));
                    if matches!(item, Item::NextPage(..)) {
                        file.extend(page.seal(false));
                    }
                    start.sequence += 1;
                    (start.base_ticks, start.base_cpu_ns) = (*ticks, *cpu);
                    start.base_monotonic_ns = *monotonic;
                    start.flush_ticks = thread.flush_ticks;
                    start.attach_ns = 0;
                    (start.usage, end) = usages.next().copied().unwrap_or_default();
                    page.next(start);
                }
            }
        }
        page.open(thread.open.0, thread.open.1);
        end.iter().for_each(|end| page.end(*end));
        if thread.unflushed && self.pool {
            return Some(page.bytes());
        }
        let sealed = page.seal(thread.open.0 == 0);
        assert!(sealed.len() >= HEADER_BYTES);
        file.extend(sealed);
        None
    }
}

impl ProcessScript {
    fn frames(&self, profile: &ProfileScript) -> Vec<Frame> {
        let process = Process {
            pid: self.pid,
            parent: 1,
            start_time: self.start_time,
            generation: self.generation,
            clock: profile.clock(),
            program: "/opt/model/bin/model".into(),
            arguments: profile.manifest.command.clone(),
        };
        let mut frames = vec![Frame::Process(process)];
        frames.extend(self.snapshots.iter().map(|s| Frame::Snapshot(*s)));
        frames.extend(self.calibrations.iter().cloned().map(Frame::Calibration));
        let hosts = hosts::known().into_iter().chain(self.hosts.iter().cloned());
        let is_used = |number: u8| self.libraries.iter().any(|library| library.host == number);
        let used = hosts.filter(|(number, _)| is_used(*number));
        frames.extend(used.map(|(number, host)| Frame::Host(number, Box::new(host))));
        frames.extend(self.libraries.iter().cloned().map(Frame::Library));
        frames.extend(self.op_exports.iter().cloned().map(Frame::Op));
        frames.extend(self.value_keys.iter().cloned().map(Frame::Value));
        frames.extend(self.texts.iter().cloned().map(Frame::Text));
        frames.extend(self.leaving.map(Frame::Leaving));
        frames.extend(self.clock_steps.map(Frame::Clock));
        frames.extend(self.brackets.iter().cloned().map(Frame::Brackets));
        frames.extend(self.announced.iter().cloned().map(Frame::Announced));
        frames.extend(self.cost.map(Frame::Cost));
        frames.extend(self.job.map(Frame::Job));
        frames.extend(self.job_name.clone().map(Frame::JobName));
        frames.extend(self.thread_times.clone().map(Frame::Threads));
        frames
    }
}

fn make_pool(path: &Path, owner: &Owner) -> Pool {
    fs::create_dir_all(path.parent().expect("in a directory")).expect("create the pool's place");
    pool::create(path, owner).expect("create the pool");
    Pool::open(&c_path(path)).expect("open the pool")
}

fn leave(pool: &Pool, path: &Path, row: u32, bytes: &[u8]) {
    let number = pool.claim_page(row, 0).expect("the pool has room");
    pool.populate(number, &c_path(path)).expect("there is memory");
    assert!(bytes.len() <= PAGE_BYTES);
    // SAFETY: the page was just claimed and mapped, has room for `bytes`, and is never unmapped.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pool.page(number), bytes.len()) };
}

fn counts_frame(thread: &ThreadScript) -> CountsFrame {
    let (thread_uid, tid) = (thread.uid, thread.tid);
    CountsFrame {
        thread_uid,
        tid,
        spent: thread.spent,
        rows: thread.counted.clone(),
        steps: thread.steps.clone(),
    }
}

/// Returns a table of counts in one page; docs/file-format.md describes the layout.
fn counts_table(process: &ProcessScript, frame: &CountsFrame) -> Vec<u8> {
    let mut page = vec![0u8; PAGE_BYTES];
    let mut put = |at: usize, value: u64| page[at..at + 8].copy_from_slice(&value.to_le_bytes());
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    put(0, TABLE_MAGIC);
    put(8, pair(TABLE_VERSION, 1));
    put(16, pair(process.pid, process.generation));
    put(24, process.start_time);
    put(32, pair(frame.thread_uid, frame.tid));
    put(40, entries_in(1) as u64);
    put(48, frame.spent.cpu_ns);
    put(56, frame.spent.price_ns);
    for row in &frame.rows {
        let at = TABLE_HEADER_BYTES + row.export as usize * ENTRY_BYTES;
        put(at, row.calls);
        put(at + 32, row.timed);
        put(at + 40, row.counted);
    }
    page
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no zero byte")
}

fn claim_row(pool: &Pool, process: &ProcessScript) -> u32 {
    let number = pool.claim_row();
    let row = pool.row(number);
    row.generation.store(process.generation, Ordering::Relaxed);
    row.start_time.store(process.start_time, Ordering::Relaxed);
    row.threads.store(process.threads.len() as u32, Ordering::Relaxed);
    row.pid.store(process.pid, Ordering::Release);
    for (loss, count, errno) in &process.losses {
        row.lose(*loss, *count, *errno);
    }
    number
}
