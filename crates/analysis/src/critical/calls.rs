//! Reads the calls of a profile into memory, with their dispatches (of IREE) and their parallel
//! regions.

use std::cmp::Reverse;
use std::collections::HashMap;

use model::Severity;
use profile::columns::{KEY_CORRELATION, KEY_PLUGIN_ID};
use profile::dispatch::{Assembler, Workgroup};
use profile::{Columns, OpId, Origin, PageDecoder, Profile, Role};

/// The index that stands for no call, no dispatch or no region.
pub(super) const NO: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub begin: u64,
    pub end: u64,
    /// The thread or stream on which the call ran, as an index in [`Calls::lines`].
    pub line: u32,
    pub op: OpId,
    pub role: Role,
    /// For a workgroup, the index of its dispatch. For a task, the index of its region. For a
    /// region, its own index in the list of regions. [`NO`] for other calls, or if it is not known.
    pub of: u32,
    /// Index of the call that launched this one, or [`NO`].
    pub launched_by: u32,
    /// Sorts calls with equal times so that the outer call comes first.
    order: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Dispatch {
    pub process: u32,
    pub begin: u64,
    pub end: u64,
}

#[derive(Debug, Default)]
pub(super) struct Calls {
    /// Sorted by line and start.
    pub all: Vec<Call>,
    /// The process and thread of each line.
    pub lines: Vec<(usize, usize)>,
    pub dispatches: Vec<Dispatch>,
    /// For each region, the call that is the region itself, if it was recorded.
    pub regions: Vec<u32>,
    /// For each call that waited for an activity (work of a device): this activity.
    pub waits: HashMap<u32, u32>,
    /// Calls of ops whose ids were given to the plugins, by process and id.
    pub by_id: HashMap<(usize, u64), u32>,
}

/// Relations between activities and calls, as indices of calls. `launches` has pairs (activity,
/// call that launched it), `waits` has pairs (call, activity that it waited for).
#[derive(Debug, Default)]
pub(super) struct Pairs {
    pub launches: Vec<(u32, u32)>,
    pub waits: Vec<(u32, u32)>,
}

/// What a workgroup's record contains about its dispatch: the workgroup's id, the number of
/// workgroups, and the function.
struct Grid {
    id: [u32; 3],
    count: [u32; 3],
    export: u32,
}

impl Calls {
    /// Returns the number of activities whose launch is known.
    pub fn launches(&self) -> u64 {
        self.all.iter().filter(|call| call.launched_by != NO).count() as u64
    }

    pub fn link(&mut self, pairs: &Pairs) {
        for (activity, by) in &pairs.launches {
            self.all[*activity as usize].launched_by = *by;
        }
        self.waits.extend(pairs.waits.iter().copied());
    }
}

/// Reads all calls that belong to a thread. Of several passes (repetitions of the recorded calls),
/// reads the first one.
pub(super) fn collect(profile: &Profile) -> Calls {
    let homes = profile.homes();
    let mut calls = Calls::default();
    let mut lines: HashMap<(usize, usize), u32> = HashMap::new();
    let mut regions: HashMap<(usize, u64), u32> = HashMap::new();
    // The keys are indices of calls. They are valid only until the calls are sorted below.
    let mut grids: HashMap<u32, Grid> = HashMap::new();
    let mut ids: Vec<(usize, u64, u32)> = Vec::new();
    let mut decoder = PageDecoder::new(profile);
    for key in profile.pages() {
        let process = &profile.processes[key.process];
        if process.pass != 0 {
            continue;
        }
        let outer_is_first =
            profile.manifest.origin == Origin::Import || process.id.is_of_plugins();
        let home = homes.of((key.process, key.thread));
        let columns = decoder.decode(key);
        for i in 0..columns.len() {
            let Some(op) = profile.ops.of(key.process, columns.export[i]) else { continue };
            let role = profile.ops.get(op).map_or(Role::Workgroup, |op| op.role);
            if role.is_apart() {
                continue;
            }
            let number = calls.all.len() as u32;
            let of = match role {
                Role::Region | Role::Task => region(columns, i, key.process, &mut regions),
                _ => NO,
            };
            if role == Role::Workgroup && columns.knows_workgroup(i) {
                grids.insert(number, Grid::of(columns, i));
            }
            if let Some(id) = columns.extra(i, KEY_PLUGIN_ID) {
                ids.push((key.process, id, number));
            }
            let line = *lines.entry(home).or_insert_with(|| {
                calls.lines.push(home);
                calls.lines.len() as u32 - 1
            });
            let order = (key.page as u64) << 32 | i as u64;
            let begin = columns.start_ticks[i];
            calls.all.push(Call {
                begin,
                end: begin.saturating_add(columns.duration(i)),
                line,
                op,
                role,
                of,
                launched_by: NO,
                order: if outer_is_first { order } else { !order },
            });
        }
    }
    dispatches(profile, &mut calls, &grids);
    let mut order: Vec<u32> = (0..calls.all.len() as u32).collect();
    order.sort_by_key(|at| {
        let call = &calls.all[*at as usize];
        (call.line, call.begin, Reverse(call.end), call.order)
    });
    let mut places = vec![NO; order.len()];
    for (place, at) in (0u32..).zip(&order) {
        places[*at as usize] = place;
    }
    calls.all = order.iter().map(|at| calls.all[*at as usize]).collect();
    calls.by_id = ids.into_iter().map(|(p, id, at)| ((p, id), places[at as usize])).collect();
    calls.regions = vec![NO; regions.len()];
    for (at, call) in (0u32..).zip(&calls.all) {
        if call.role == Role::Region && call.of != NO {
            calls.regions[call.of as usize] = at;
        }
    }
    calls
}

impl Grid {
    fn of(columns: &Columns, i: usize) -> Self {
        let at = |axes: &[Vec<u32>; 3]| [axes[0][i], axes[1][i], axes[2][i]];
        Self { id: at(&columns.workgroup), count: at(&columns.count), export: columns.export[i] }
    }
}

/// Call `i` must be a region or a task (the work of a parallel region on one thread). Returns the
/// index of this region, or of the region to which the task belongs. [`NO`] if the call has no
/// region number.
fn region(
    columns: &Columns,
    i: usize,
    process: usize,
    regions: &mut HashMap<(usize, u64), u32>,
) -> u32 {
    let Some(number) = columns.extra(i, KEY_CORRELATION) else { return NO };
    let next = regions.len() as u32;
    *regions.entry((process, number)).or_insert(next)
}

fn dispatches(profile: &Profile, calls: &mut Calls, grids: &HashMap<u32, Grid>) {
    let mut of_process: HashMap<usize, Vec<u32>> = HashMap::new();
    for at in grids.keys() {
        let (process, _) = calls.lines[calls.all[*at as usize].line as usize];
        of_process.entry(process).or_default().push(*at);
    }
    let mut processes: Vec<(usize, Vec<u32>)> = of_process.into_iter().collect();
    processes.sort_unstable_by_key(|(process, _)| *process);
    for (process, mut workgroups) in processes {
        // Of workgroups that begin at the same time on several threads, that of the first thread
        // comes first.
        workgroups.sort_by_key(|at| {
            let call = &calls.all[*at as usize];
            (call.begin, calls.lines[call.line as usize], Reverse(call.end), call.order)
        });
        let losses = &profile.processes[process].losses;
        let lost = losses.iter().any(|loss| loss.severity() == Severity::Missing);
        let mut assembler = Assembler::new(lost, 0);
        let before = calls.dispatches.len();
        for at in workgroups {
            let (grid, call) = (&grids[&at], &mut calls.all[at as usize]);
            // The assembler uses times only to choose the row of a dispatch in a picture, so they
            // may be 0 here.
            let workgroup = Workgroup {
                export: grid.export,
                id: grid.id,
                count: grid.count,
                start_ns: 0,
                end_ns: 0,
                counters: &[],
            };
            let Some(placed) = assembler.add(&workgroup) else { continue };
            // Dispatches are numbered from 1, without gaps.
            let index = before + placed.id as usize - 1;
            if placed.first {
                let (begin, end) = (call.begin, call.end);
                calls.dispatches.push(Dispatch { process: process as u32, begin, end });
            }
            let dispatch = &mut calls.dispatches[index];
            dispatch.end = dispatch.end.max(call.end);
            call.of = index as u32;
        }
    }
}
