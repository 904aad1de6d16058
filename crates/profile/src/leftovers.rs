//! Reads what is still in the pool (shared memory with the records): pages, counts of loops and
//! calls, and the process table.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use model::Loss;
use record::PageHeader;
use record::meta::{FIRST_PLUGIN_GENERATION, part_name};
use record::page::PageError;
use record::pool::PoolFile;

use crate::counts::{self, LeftTable};
use crate::ledger::{Ledger, LossCount, merge_losses};
use crate::live::{ProcessId, boot_id};
use crate::loops::{self, LoopRun};
use crate::manifest::Manifest;

/// The largest number of parts that one generation of a process can have for its plugins' events.
pub const PLUGIN_PARTS: u32 = 1 << 14;

/// One generation of a process of a run (`exec` begins a new generation), or a part for events of
/// its plugins. Its part is `processes/PID-START-GENERATION`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartId {
    /// Start time in clock ticks since boot. It is the first field, so that parts are sorted by
    /// age.
    pub start_time: u64,
    /// Process id.
    pub pid: u32,
    /// Number of earlier parts of the same process, for example from before an `exec`; in a part
    /// for plugins' events, a number from [`PartId::of_plugins`].
    pub generation: u32,
}

impl PartId {
    pub(crate) fn of(header: &PageHeader) -> Self {
        let s = &header.start;
        Self { start_time: s.start_time, pid: s.pid, generation: s.generation }
    }

    pub(crate) fn of_run(run: &LoopRun) -> Self {
        let (pid, start_time, generation) = run.process;
        Self { start_time, pid, generation }
    }

    pub(crate) fn of_table(table: &LeftTable) -> Self {
        let (pid, start_time, generation) = table.process;
        Self { start_time, pid, generation }
    }

    /// Returns the id of a part for events of profiler plugins in this process. `number`
    /// distinguishes several such parts. Such parts are sorted after the parts that the process
    /// itself made.
    pub fn of_plugins(self, number: u32) -> Self {
        let after = self.generation.saturating_mul(PLUGIN_PARTS).saturating_add(number);
        Self { generation: FIRST_PLUGIN_GENERATION.saturating_add(after), ..self }
    }

    /// Returns whether this is a part for the events of plugins.
    pub fn is_of_plugins(self) -> bool {
        self.generation >= FIRST_PLUGIN_GENERATION
    }

    /// Returns the part of the process whose plugins handed over the events of this part; `None`
    /// for other parts.
    pub fn owner(self) -> Option<Self> {
        let after = self.generation.checked_sub(FIRST_PLUGIN_GENERATION)?;
        Some(Self { generation: after / PLUGIN_PARTS, ..self })
    }

    /// Returns the number that [`PartId::of_plugins`] got; `None` for other parts.
    pub fn plugins_number(self) -> Option<u32> {
        Some(self.generation.checked_sub(FIRST_PLUGIN_GENERATION)? % PLUGIN_PARTS)
    }

    /// For a part with the events of plugins, returns the part of their process; else returns this
    /// part.
    pub fn of_process(self) -> Self {
        self.owner().unwrap_or(self)
    }

    /// Returns the name of the part's directory.
    pub fn name(self) -> String {
        part_name(self.pid, self.start_time, self.generation)
    }

    /// Parses the name of a part's directory.
    pub fn parse(name: &str) -> Option<Self> {
        let mut fields = name.splitn(3, '-');
        let pid = fields.next()?.parse().ok()?;
        let start_time = fields.next()?.parse().ok()?;
        let generation = fields.next()?.parse().ok()?;
        Some(Self { start_time, pid, generation }).filter(|id| id.name() == name)
    }
}

/// A page with a valid header that a thread has claimed in the pool.
#[derive(Debug)]
pub(crate) struct LeftPage {
    /// The page's number in the pool.
    pub number: usize,
    pub header: PageHeader,
    /// A copy of the page's bytes, because a live process may continue to write to the page. `None`
    /// if the process is dead or has ended its recording session.
    pub copy: Option<Vec<u8>>,
}

/// The content of a pool at one moment.
#[derive(Debug)]
pub(crate) struct Leftovers {
    pub file: PoolFile,
    pub pages: Vec<LeftPage>,
    pub loops: Vec<LoopRun>,
    /// Tables of counts of calls.
    pub tables: Vec<LeftTable>,
    pub ledgers: BTreeMap<PartId, Ledger>,
    /// The losses that belong to no recorded process.
    pub run_ledger: Ledger,
    alive: BTreeMap<ProcessId, u32>,
}

impl Leftovers {
    pub fn read(file: PoolFile, manifest: &Manifest) -> io::Result<Self> {
        let same_boot = manifest.boot_id.is_empty() || manifest.boot_id == boot_id();
        let mut ledgers = BTreeMap::new();
        let mut rows = BTreeMap::new();
        // Parts of processes that have ended their recording sessions.
        let mut left = BTreeSet::new();
        // The last generation of a process may be alive; `exec` has ended the others.
        let mut newest: BTreeMap<ProcessId, u32> = BTreeMap::new();
        let mut meet = |id: PartId| {
            let process = ProcessId { pid: id.pid, start_time: id.start_time };
            let known = newest.entry(process).or_insert(id.generation);
            *known = id.generation.max(*known);
        };
        for row in file.processes()?.iter().filter(|row| row.pid != 0) {
            let id =
                PartId { start_time: row.start_time, pid: row.pid, generation: row.generation };
            meet(id);
            if row.left {
                left.insert(id);
            }
            rows.insert(row.row, id);
            let ledger = Ledger::of(row);
            ledgers.entry(id).and_modify(|l: &mut Ledger| l.add(&ledger)).or_insert(ledger);
        }
        let run_ledger = Ledger::of(&file.run_row()?);
        let mut pages = Vec::new();
        for (number, row) in file.claimed() {
            match read_page(&file, number)? {
                Ok((header, bytes)) => {
                    meet(PartId::of(&header));
                    pages.push(LeftPage { number, header, copy: Some(bytes) });
                }
                // The page's thread has not written to the page yet, or the page was already
                // cleared.
                Err(PageError::NoMagic) => {}
                Err(_) => {
                    let owner = rows.get(&row).and_then(|id| ledgers.get_mut(id));
                    let Some(ledger) = owner else { continue };
                    let torn = LossCount::new(Loss::TornPage, 1);
                    ledger.losses = merge_losses(ledger.losses.iter().chain([&torn]));
                }
            }
            // Bytes that do not change any more need no copy.
            if let Some(page) = pages.last_mut()
                && page.number == number
                && (!same_boot
                    || left.contains(&PartId::of(&page.header))
                    || !process_of(PartId::of(&page.header)).is_alive())
            {
                page.copy = None;
            }
        }
        let loops = loops::find(&file)?;
        loops.iter().for_each(|run| meet(PartId::of_run(run)));
        let tables = counts::find(&file)?;
        tables.iter().for_each(|table| meet(PartId::of_table(table)));
        if same_boot {
            newest.retain(|process, generation| {
                let id = PartId {
                    start_time: process.start_time,
                    pid: process.pid,
                    generation: *generation,
                };
                !left.contains(&id) && process.is_alive()
            });
        } else {
            newest.clear();
        }
        Ok(Self { file, pages, loops, tables, ledgers, run_ledger, alive: newest })
    }

    /// Whether this generation of the process may still write.
    pub fn is_alive(&self, id: PartId) -> bool {
        self.alive.get(&process_of(id)) == Some(&id.generation)
    }

    pub fn alive(&self) -> Vec<ProcessId> {
        self.alive.keys().copied().collect()
    }
}

fn process_of(id: PartId) -> ProcessId {
    ProcessId { pid: id.pid, start_time: id.start_time }
}

type PageBytes = Result<(PageHeader, Vec<u8>), PageError>;

/// Reads a page that may be written meanwhile. The bytes belong to the header if a second reading
/// of the header still identifies the same page.
pub(crate) fn read_page(pool: &PoolFile, number: usize) -> io::Result<PageBytes> {
    for _ in 0..16 {
        let bytes = pool.page(number)?;
        let header = match PageHeader::parse(&bytes) {
            Ok(header) => header,
            Err(error) => return Ok(Err(error)),
        };
        let after = pool.page(number)?;
        let same = PageHeader::parse(&after).is_ok_and(|later| {
            let key = |h: &PageHeader| (PartId::of(h), h.start.thread_uid, h.start.sequence);
            key(&later) == key(&header) && later.committed >= header.committed
        });
        if same {
            return Ok(Ok((header, bytes)));
        }
    }
    // In each of the sixteen attempts, the page was cleared or reused between the two readings. A
    // page's records are appended to a file of the profile before the page is cleared, so they are
    // not needed here.
    Ok(Err(PageError::NoMagic))
}
