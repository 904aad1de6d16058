//! Reads the loops of a profile: those in the files of its parts, and those in the pool.

use std::collections::{BTreeMap, HashMap};
use std::io;

use model::Loss;
use record::loops::{
    CodeFrame, Costs, LoopFrame, LoopFrames, ModuleFrame, Row, Trips, code_name, read_frames, word,
};

use super::pool;
use super::{HitCost, LoopCode, LoopEvent, LoopModule, LoopRow, LoopTrips, Loops};
use crate::error::{Error, Result};
use crate::ledger::{LossCount, merge_losses};
use crate::leftovers::PartId;
use crate::manifest::Clock;
use crate::profile::{Process, Profile};
use crate::sparse::{is_mostly_holes, read_data};

/// The rate of a clock is computed only from two moments (each a pair of ticks and ns) that are at
/// least this far apart.
const SHORTEST_NS: u64 = 1_000_000;

impl Profile {
    /// Reads the counts of instrumented loops. Damage is counted as a loss.
    ///
    /// # Errors
    /// Fails if a file or the pool cannot be read; a refused file counts as a loss instead.
    pub fn loops(&self) -> Result<Loops> {
        let mut loops = Loops::default();
        let mut lost = 0;
        // The pool is read first. If a thread moves a run from the pool to `loops.cps` meanwhile,
        // the run is found twice instead of being missed.
        let mut left = self.left_runs(&mut lost)?;
        let mut moments: BTreeMap<(usize, u32), Vec<(u64, u64)>> = BTreeMap::new();
        for (index, process) in self.processes.iter().enumerate() {
            let mut found = Found::default();
            if let Some(file) = process.open_loops().or_else(|e| match e.is_refused() {
                true => {
                    loops.losses.push(LossCount::new(Loss::FileRefused, 1));
                    Ok(None)
                }
                false => Err(e),
            })? {
                let read = read_frames(&read_data(&file).map_err(Error::on("read", &self.dir))?);
                // The last frame of a live process may be only half written.
                lost += match process.alive {
                    true => u64::from(read.torn > 1),
                    false => read.torn,
                };
                found.take(read);
            }
            for read in left.remove(&index).unwrap_or_default() {
                found.take(read);
            }
            moments.entry((process.member, process.pass)).or_default().append(&mut found.moments);
            let before = loops.events.len();
            lost += found.put(index, process, &mut loops);
            if let Some(map) = &process.clock {
                loops.events[before..].iter_mut().for_each(|one| one.ticks = map.ticks(one.ticks));
            }
        }
        for module in &mut loops.modules {
            if module.ticks_per_second.is_nan() {
                let of = self.processes.get(module.process);
                let of = of.map_or((0, 0), |process| (process.member, process.pass));
                let noted = moments.get(&of).map_or(&[][..], Vec::as_slice);
                module.ticks_per_second = self.loop_rate(noted);
            }
        }
        share_tables(&mut loops.modules);
        if lost > 0 {
            loops.losses.push(LossCount::new(Loss::TornLoops, lost));
        }
        loops.losses = merge_losses(loops.losses.iter());
        Ok(loops)
    }

    /// Returns whether the process's part contains a file for copy `number` of machine code, even
    /// one that cannot be opened.
    pub fn has_kept_code(&self, process: usize, number: u32) -> bool {
        let process = self.processes.get(process);
        let file = process.map(|process| process.open_in_part(&code_name(number)));
        file.is_some_and(|file| !matches!(file, Ok(None)))
    }

    /// Returns the copy of a module's machine code, if there is one.
    ///
    /// # Errors
    /// Fails if the file cannot be read, has more than `most` bytes, or consists mostly of holes.
    pub fn kept_code(&self, module: &LoopModule, most: u64) -> Result<Option<Vec<u8>>> {
        let kept = module.code.as_ref().and_then(|code| code.kept);
        let (Some(number), Some(process)) = (kept, self.processes.get(module.process)) else {
            return Ok(None);
        };
        let Some(file) = process.open_in_part(&code_name(number))? else { return Ok(None) };
        let read = |e| Error::on("read", &self.dir)(e);
        let bytes = file.metadata().map_err(read)?.len();
        if bytes > most {
            let why = format!("{} has {bytes} bytes", code_name(number));
            return Err(read(io::Error::new(io::ErrorKind::FileTooLarge, why)));
        }
        if is_mostly_holes(&file).map_err(read)? {
            let why = format!("{} consists of holes", code_name(number));
            return Err(read(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        let mut code = Vec::with_capacity(bytes as usize);
        io::Read::read_to_end(&mut io::Read::take(file, most), &mut code).map_err(read)?;
        Ok(Some(code))
    }

    /// Returns the runs (pages with counts of loops) that are still in the pools, by the index of
    /// their process.
    fn left_runs(&self, lost: &mut u64) -> Result<HashMap<usize, Vec<LoopFrames>>> {
        let mut left: HashMap<usize, Vec<LoopFrames>> = HashMap::new();
        for (pass, file) in (0u32..).zip(&self.pools) {
            let Some(file) = file else { continue };
            let on_pool = || Error::on("read", self.manifest.pool.as_deref().unwrap_or(&self.dir));
            for run in pool::find(file).map_err(on_pool())? {
                let part = PartId::of_run(&run);
                let of = |process: &Process| process.id == part && process.pass == pass;
                let Some(index) = self.processes.iter().position(of) else {
                    *lost += 1;
                    continue;
                };
                let Some(bytes) = run.read(file).map_err(on_pool())? else { continue };
                let mut all = LoopFrames::default();
                let torn = pool::frames(&bytes, |frame| {
                    all.frames.extend(read_frames(frame).frames);
                    Ok(())
                });
                *lost += u64::from(torn.map_err(on_pool())?);
                left.entry(index).or_default().push(all);
            }
        }
        Ok(left)
    }

    /// Returns the ticks per second of the loops' clock; NaN if unknown. If the profile uses the
    /// same clock and is calibrated, the result is the profile's rate, which is more exact.
    fn loop_rate(&self, moments: &[(u64, u64)]) -> f64 {
        if self.manifest.clock == Clock::Tsc && self.timeline.calibrated {
            return 1e9 / self.timeline.ns_per_tick();
        }
        let first = moments.iter().min_by_key(|(ticks, _)| *ticks);
        let last = moments.iter().max_by_key(|(ticks, _)| *ticks);
        let (Some((from, from_ns)), Some((to, to_ns))) = (first, last) else { return f64::NAN };
        match to_ns.saturating_sub(*from_ns) {
            ns if ns >= SHORTEST_NS => (to - from) as f64 * 1e9 / ns as f64,
            _ => f64::NAN,
        }
    }
}

/// Copies side tables to entries of the same module that lack one.
fn share_tables(modules: &mut [LoopModule]) {
    let known: HashMap<[u8; 16], String> =
        modules.iter().filter_map(|module| Some((module.id, module.table.clone()?))).collect();
    for module in modules.iter_mut().filter(|module| module.table.is_none()) {
        module.table = known.get(&module.id).cloned();
    }
}

/// The number of a run, the number of a block in the run, and the id of a row or the number of an
/// event.
type Key = (u32, u32, u64);

/// The frames of one process. A row that occurs twice is stored once.
#[derive(Default)]
struct Found {
    modules: BTreeMap<u32, ModuleFrame>,
    rows: BTreeMap<Key, (u32, u32, Row)>,
    trips: BTreeMap<Key, Trips>,
    events: BTreeMap<Key, LoopEvent>,
    moments: Vec<(u64, u64)>,
    codes: BTreeMap<u32, CodeFrame>,
    reading: [f64; 3],
}

impl Found {
    fn take(&mut self, read: LoopFrames) {
        for frame in read.frames {
            match frame {
                LoopFrame::Module(module) => {
                    let known = self.modules.entry(module.number).or_default();
                    // A module's frame from the pool contains less than the frame that the process
                    // wrote.
                    let says_less =
                        known.costs.is_none() && known.object.is_empty() && known.table.is_empty();
                    if says_less {
                        *known = module;
                    }
                }
                LoopFrame::Rows(frame) => {
                    for row in frame.rows {
                        let key = (frame.serial, frame.block, u64::from(row.id));
                        // The rows of the file come before those of the pool, and have the thread's
                        // final counts.
                        self.rows.entry(key).or_insert((frame.module, frame.tid, row));
                    }
                }
                LoopFrame::Trips(frame) => {
                    for (id, trips) in frame.rows {
                        let key = (frame.serial, frame.block, u64::from(id));
                        self.trips.entry(key).or_insert(trips);
                    }
                }
                LoopFrame::Events(frame) => {
                    for (i, event) in (0u64..).zip(frame.events) {
                        let key = (frame.serial, frame.block, frame.first.wrapping_add(i));
                        self.events.entry(key).or_insert(LoopEvent {
                            module: frame.module as usize,
                            tid: frame.tid,
                            id: event.id,
                            end: event.end,
                            address: event.address,
                            ticks: event.ticks,
                        });
                    }
                }
                LoopFrame::Moment(ticks, ns) => self.moments.push((ticks, ns)),
                LoopFrame::Reading(ticks) if ticks.iter().all(|one| one.is_finite()) => {
                    self.reading = ticks;
                }
                LoopFrame::Reading(_) => {}
                LoopFrame::Code(code) => drop(self.codes.entry(code.module).or_insert(code)),
            }
        }
    }

    /// Moves the content to `loops`. Returns the number of blocks whose rows or events were left
    /// out because their module is missing.
    fn put(mut self, index: usize, process: &Process, loops: &mut Loops) -> u64 {
        let mut places = BTreeMap::new();
        for (number, module) in self.modules {
            places.insert(number, loops.modules.len());
            let code = self.codes.remove(&number).map(code_of);
            loops.modules.push(LoopModule { code, ..module_of(index, module, self.reading) });
        }
        let mut unknown = BTreeMap::new();
        for (key, (module, tid, row)) in self.rows {
            let (serial, block, _) = key;
            let trips = self.trips.remove(&key).and_then(trips_of);
            match places.get(&module) {
                Some(place) => {
                    loops.rows.push(LoopRow { trips, ..row_of(*place, tid, row, process) });
                }
                None => {
                    unknown.insert((serial, block), ());
                }
            }
        }
        for ((serial, block, _), event) in self.events {
            match u32::try_from(event.module).ok().and_then(|module| places.get(&module)) {
                Some(place) => loops.events.push(LoopEvent { module: *place, ..event }),
                None => {
                    unknown.insert((serial, block), ());
                }
            }
        }
        unknown.len() as u64
    }
}

fn module_of(process: usize, frame: ModuleFrame, reading: [f64; 3]) -> LoopModule {
    let text = |text: String| Some(text).filter(|text| !text.is_empty());
    let rate = frame.ticks_per_second;
    let cost = |at: usize| {
        let Costs { inside, timed, counted } = frame.costs?;
        let one = |ticks: Option<[f64; 3]>| ticks.map_or(0.0, |ticks| ticks[at]);
        let [inside, timed, counted] = [inside, timed, counted].map(one);
        Some(HitCost { inside, timed, counted, reading: reading[at] })
    };
    LoopModule {
        process,
        number: frame.number,
        id: frame.id,
        mode: frame.mode,
        ids: frame.ids,
        table: text(String::from_utf8_lossy(&frame.table).into_owned()),
        object: text(frame.object.clone()),
        export: frame.export,
        ticks_per_second: if rate == 0 { f64::NAN } else { rate as f64 },
        first: frame.first,
        gap_mask: frame.gap_mask,
        cost: cost(1),
        cost_range: cost(0).zip(cost(2)).map(|(low, high)| [low, high]),
        code: None,
    }
}

fn code_of(frame: CodeFrame) -> LoopCode {
    LoopCode {
        descriptor: frame.descriptor,
        machine: frame.machine,
        build_id: Some(frame.build_id).filter(|id| !id.is_empty()),
        file: Some((frame.file_bytes, frame.modified_ns)).filter(|(bytes, _)| *bytes > 0),
        kept: frame.kept,
        pieces: frame.pieces,
        callees: frame.callees,
    }
}

/// Converts the statistics of the iterations per hit. `None` if there was no hit: the smallest
/// number is then above the largest one.
fn trips_of(trips: Trips) -> Option<LoopTrips> {
    let Trips { least, most, first, buckets } = trips;
    (least <= most).then_some(LoopTrips { least, most, first, buckets })
}

fn row_of(module: usize, tid: u32, row: Row, process: &Process) -> LoopRow {
    let at = |word: usize| row.words[word];
    let wide = |word: usize| u128::from(at(word)) | u128::from(at(word + 1)) << 64;
    let (counted, counters) = match row.sums.split_first() {
        Some((counted, sums)) => (*counted, sums.to_vec()),
        None => (0, Vec::new()),
    };
    LoopRow {
        module,
        thread: process.threads.iter().rposition(|thread| thread.tid == tid),
        tid,
        id: row.id,
        hits: at(word::HITS),
        begun: at(word::BEGUN),
        ended: at(word::ENDED),
        ticks: at(word::TICKS),
        squares: wide(word::SQUARES),
        child_ticks: at(word::CHILD_TICKS),
        iterations: at(word::ITERATIONS),
        iterated: at(word::ITERATED),
        first_ended: at(word::FIRST_ENDED),
        first_ticks: at(word::FIRST_TICKS),
        first_squares: wide(word::FIRST_SQUARES),
        counted,
        counters,
        trips: None,
    }
}
