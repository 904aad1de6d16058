//! Makes the second pass over the pages, which are blocks of recorded calls. The calls of each
//! thread become trees, and each tree is visited as soon as it is complete.

use profile::Drawn;
use profile::columns::{
    Columns, FIRST_USER_KEY, KEY_CORRELATION, KEY_FAILED, KEY_FAILED_OP, KEY_FORWARD,
    KEY_STORAGE_BYTES, KEY_WORKSPACE_BYTES,
};
use profile::{OpId, PageDecoder, PageKey, Role};

use crate::amounts::{parts, ticks};

use super::tasks::counters_of;
use super::{Amount, OpCall, OpFilter, OpTrees, OpVisitor, Region, RunCall};

/// A recorded call in memory. Each pair, such as `children`, is a range of indices in the list of
/// the same name in the [`Arena`].
#[derive(Clone, Debug)]
struct Node {
    op: OpId,
    role: Role,
    begin: u64,
    end: u64,
    known: u32,
    children: (usize, usize),
    users: (usize, usize),
    region: Option<u64>,
    storage: Option<u64>,
    workspace: Option<u64>,
    failed: bool,
    failed_op: Option<OpId>,
    forward: Option<OpId>,
    drawn: Drawn,
    class: Option<u32>,
    /// The time that the recorder added to the node's duration, in units of
    /// 1/[`crate::amounts::PARTS`] tick.
    taken: u64,
}

impl Node {
    fn duration(&self) -> u64 {
        self.end - self.begin
    }
}

/// The calls of a thread that have not been visited yet.
#[derive(Debug, Default)]
struct Arena {
    nodes: Vec<Node>,
    /// The counter values of all calls, as many for each as the profile has counters.
    values: Vec<u64>,
    children: Vec<usize>,
    users: Vec<(u32, u64)>,
    /// Calls that are not inside of another call so far, sorted by end.
    open: Vec<usize>,
    last_end: u64,
}

impl Arena {
    fn clear(&mut self) {
        self.nodes.clear();
        self.values.clear();
        self.children.clear();
        self.users.clear();
        self.open.clear();
        self.last_end = 0;
    }

    /// Returns the time that the recorder added to a call whose children begin at index `from` of
    /// `children`; see [`crate::forest`].
    fn taken(&self, trees: &OpTrees<'_>, class: Option<u32>, duration: u64, from: usize) -> u64 {
        let children = || self.children[from..].iter().map(|child| &self.nodes[*child]);
        let inner = children().map(Node::duration).fold(0, u64::saturating_add);
        let outside: u64 = children().map(|child| trees.brackets.outside(child.class)).sum();
        let own = parts(duration.saturating_sub(inner));
        let own_taken = (trees.brackets.in_duration(class) + outside).min(own);
        let inside = children().map(|child| child.taken).fold(0, u64::saturating_add);
        own_taken.saturating_add(inside).min(parts(duration))
    }

    fn add(&mut self, trees: &OpTrees<'_>, columns: &Columns, i: usize) {
        let ops = &trees.profile.ops;
        let Some(op) = ops.of(columns.process, columns.export[i]) else { return };
        let role = ops.get(op).map_or(Role::Workgroup, |op| op.role);
        if !role.is_of_machine() {
            return;
        }
        let begin = columns.start_ticks[i];
        let end = begin.saturating_add(columns.duration(i));
        let inside = self.open.iter().rposition(|at| self.nodes[*at].begin < begin);
        let inside = inside.map_or(0, |last| last + 1);
        let children = self.children.len();
        self.children.extend(self.open.drain(inside..));
        let class = trees.brackets.page(columns).of(columns, i);
        let taken = self.taken(trees, class, end - begin, children);
        let users = self.users.len();
        let mut node = Node {
            op,
            role,
            begin,
            end,
            known: counters_of(trees.profile, columns, i, &mut self.values),
            children: (children, self.children.len()),
            users: (users, users),
            region: None,
            storage: None,
            workspace: None,
            failed: false,
            failed_op: None,
            forward: None,
            drawn: columns.drawn(i),
            class,
            taken,
        };
        for extra in columns.extras_of(i) {
            match extra.key {
                KEY_CORRELATION => node.region = Some(extra.bits),
                KEY_STORAGE_BYTES => node.storage = Some(extra.bits),
                KEY_WORKSPACE_BYTES => node.workspace = Some(extra.bits),
                KEY_FAILED => node.failed = extra.bits != 0,
                KEY_FAILED_OP | KEY_FORWARD => {
                    let export = u32::try_from(extra.bits).ok();
                    let op = export.and_then(|e| ops.of(columns.process, e));
                    match extra.key {
                        KEY_FORWARD => node.forward = op,
                        _ => node.failed_op = op,
                    }
                }
                FIRST_USER_KEY.. => self.users.push((extra.key, extra.bits)),
                _ => {}
            }
        }
        node.users.1 = self.users.len();
        self.open.push(self.nodes.len());
        self.nodes.push(node);
        self.last_end = self.last_end.max(end);
    }
}

struct Shower<'a, 'p, V> {
    trees: &'a OpTrees<'p>,
    filter: &'a OpFilter,
    visitor: &'a mut V,
    process: usize,
    thread: usize,
    counters: usize,
    runs: u64,
    ops: u64,
    /// Calls that must still be visited, each with the run and the op around it.
    next: Vec<(usize, Inside)>,
    inner: Vec<usize>,
    regions: Vec<Region>,
    walk: Vec<usize>,
    /// The counters of the call that is being visited.
    all: Vec<Option<u64>>,
    /// The counters of the visited call without the calls inside.
    own: Vec<Option<u64>>,
    /// The counters of the visited call's tasks on other threads.
    workers: Vec<Option<u64>>,
}

#[derive(Clone, Copy, Default)]
struct Inside {
    run: Option<u64>,
    op: Option<u64>,
    depth: u32,
}

pub(super) fn visit(trees: &OpTrees<'_>, filter: &OpFilter, visitor: &mut impl OpVisitor) {
    let profile = trees.profile;
    if !profile.ops.all().iter().any(|op| op.role.is_of_machine()) {
        return;
    }
    let mut shower = Shower {
        trees,
        filter,
        visitor,
        process: 0,
        thread: 0,
        counters: profile.groups.counters(),
        runs: 0,
        ops: 0,
        next: Vec::new(),
        inner: Vec::new(),
        regions: Vec::new(),
        walk: Vec::new(),
        all: Vec::new(),
        own: Vec::new(),
        workers: Vec::new(),
    };
    let mut decoder = PageDecoder::new(profile);
    let mut arena = Arena::default();
    let mut later: Vec<u64> = Vec::new();
    for (process, p) in profile.processes.iter().enumerate() {
        for (thread, t) in p.threads.iter().enumerate() {
            (shower.process, shower.thread) = (process, thread);
            for page in 0..t.headers().len() {
                let columns = decoder.decode(PageKey { process, thread, page });
                // For each call, the earliest start of the calls after it.
                later.clear();
                let mut earliest = trees.later[process][thread][page];
                for begin in columns.start_ticks.iter().rev() {
                    later.push(earliest);
                    earliest = earliest.min(*begin);
                }
                for (i, later) in later.iter().rev().enumerate() {
                    arena.add(trees, columns, i);
                    if *later >= arena.last_end {
                        shower.show(&mut arena);
                    }
                }
            }
            shower.show(&mut arena);
        }
    }
}

impl<V: OpVisitor> Shower<'_, '_, V> {
    fn show(&mut self, arena: &mut Arena) {
        for root in &arena.open {
            if self.wants(&arena.nodes[*root]) {
                self.tree(arena, *root);
            }
        }
        arena.clear();
    }

    fn wants(&self, root: &Node) -> bool {
        let OpFilter { machine, since, until } = self.filter;
        let of = || self.trees.profile.ops.get(root.op).map(|op| &*op.library);
        since.is_none_or(|since| root.begin >= since)
            && until.is_none_or(|until| root.begin < until)
            && machine.as_deref().is_none_or(|machine| of() == Some(machine))
    }

    fn tree(&mut self, arena: &Arena, root: usize) {
        self.next.push((root, Inside::default()));
        while let Some((at, inside)) = self.next.pop() {
            let node = &arena.nodes[at];
            self.look_inside(arena, at);
            let regions = std::mem::take(&mut self.regions);
            let below = match node.role {
                Role::Run => self.run(arena, at, inside, &regions),
                Role::Op | Role::Range => self.op(arena, at, inside, &regions),
                Role::Region | Role::Task | Role::Workgroup | Role::Span | Role::Bookkeeping => {
                    for region in &regions {
                        self.visitor.region(self.process, self.thread, region);
                    }
                    inside
                }
            };
            self.regions = regions;
            self.next.extend(self.inner.iter().rev().map(|child| (*child, below)));
        }
    }

    /// Finds the ops and runs directly inside of a call, sorted by start, and its regions. If the
    /// call is itself a region, the list of its regions includes the call.
    fn look_inside(&mut self, arena: &Arena, at: usize) {
        self.inner.clear();
        self.regions.clear();
        let node = &arena.nodes[at];
        let children = |node: &Node| arena.children[node.children.0..node.children.1].iter().rev();
        // The end of the region that was found last and is not inside of another one. The nodes are
        // in the order of their starts.
        let mut end = 0;
        if node.role == Role::Region {
            self.regions.push(self.region(node, &mut end));
        }
        self.walk.clear();
        self.walk.extend(children(node));
        while let Some(child) = self.walk.pop() {
            let node = &arena.nodes[child];
            match node.role {
                Role::Op | Role::Run | Role::Range => self.inner.push(child),
                Role::Region => {
                    self.regions.push(self.region(node, &mut end));
                    self.walk.extend(children(node));
                }
                Role::Task | Role::Workgroup | Role::Span | Role::Bookkeeping => {
                    self.walk.extend(children(node));
                }
            }
        }
    }

    /// `end` is the end of the latest region around others; the function updates it.
    fn region(&self, node: &Node, end: &mut u64) -> Region {
        let inner = node.begin < *end;
        if !inner {
            *end = node.begin.saturating_add(node.duration());
        }
        let base = Region {
            op: node.op,
            start: node.begin,
            duration: node.duration(),
            inner,
            of: None,
            tasks: Vec::new(),
            imbalance: None,
            serial: None,
        };
        let cpus = self.trees.profile.manifest.logical_cpus;
        self.trees.tasks.region(self.process, node.region, base, cpus)
    }

    /// Computes the counters of a call, with and without those of the calls inside of it. If the
    /// counters of a call inside are not known, the difference is not known either. Book-keeping
    /// ops around which the recorder read no counters are an exception. Their counts are included
    /// in the counts of the call around them, except for the counts of ops that they call.
    fn read_counters(&mut self, arena: &Arena, at: usize) {
        let values = |at: usize| {
            let (known, from) = (arena.nodes[at].known, at * self.counters);
            let value = move |i: usize| (known >> i & 1 == 1).then(|| arena.values[from + i]);
            (0..self.counters).map(value)
        };
        self.all.clear();
        self.all.extend(values(at));
        self.own.clear();
        self.own.extend_from_slice(&self.all);
        self.walk.clear();
        self.walk.extend_from_slice(&self.inner);
        while let Some(child) = self.walk.pop() {
            let node = &arena.nodes[child];
            let is_call = matches!(node.role, Role::Op | Role::Run | Role::Range);
            if !is_call || node.known == 0 && self.is_bookkeeping(node.op) {
                self.walk.extend_from_slice(&arena.children[node.children.0..node.children.1]);
                continue;
            }
            for (own, value) in self.own.iter_mut().zip(values(child)) {
                *own = own.zip(value).and_then(|(own, value)| own.checked_sub(value));
            }
        }
    }

    fn is_bookkeeping(&self, op: OpId) -> bool {
        let op = self.trees.profile.ops.get(op);
        op.is_some_and(|op| op.bookkeeping)
    }

    /// Returns the time that is subtracted from a call but not from the ops and runs directly
    /// inside of it, in units of 1/[`crate::amounts::PARTS`] tick. Also returns the number of calls
    /// directly inside for which counters were read.
    fn own_taken(&self, arena: &Arena, at: usize) -> (u64, u32) {
        let inner = || self.inner.iter().map(|child| &arena.nodes[*child]);
        let taken = inner().map(|child| child.taken).fold(0, u64::saturating_add);
        let read = inner().filter(|child| child.known != 0).count() as u32;
        (arena.nodes[at].taken.saturating_sub(taken), read)
    }

    fn amount(&self, duration: u64, class: Option<u32>, taken: u64) -> Amount {
        let taken = taken.min(parts(duration));
        let ticks = ticks((parts(duration) - taken).into());
        Amount { ticks, taken: self.trees.brackets.doubt(class, taken) }
    }

    fn run(&mut self, arena: &Arena, at: usize, inside: Inside, regions: &[Region]) -> Inside {
        let node = &arena.nodes[at];
        let (mut between, mut cursor, mut first) = (0u64, None::<u64>, None);
        for child in &self.inner {
            let child = &arena.nodes[*child];
            first = first.or(Some(child.begin));
            let gap = cursor.map_or(0, |end| child.begin.saturating_sub(end));
            between = between.saturating_add(gap);
            cursor = Some(cursor.unwrap_or(0).max(child.end));
        }
        let own = match first.zip(cursor) {
            Some((first, last)) => {
                (first - node.begin).saturating_add(node.end.saturating_sub(last))
            }
            None => node.duration(),
        };
        self.read_counters(arena, at);
        // The run's own bracket (the recorder's work for the run) is before its first op and after
        // its last op. The parts of the ops' brackets that are outside of the ops' durations are
        // mostly between the ops.
        let (taken, read_inside) = self.own_taken(arena, at);
        let of_entry = self.trees.brackets.in_duration(node.class).min(taken);
        let of_between = (taken - of_entry).min(parts(between));
        let of_entry = taken - of_between;
        let number = self.runs;
        self.runs += 1;
        self.visitor.run(&RunCall {
            number,
            parent: inside.run,
            process: self.process,
            thread: self.thread,
            op: node.op,
            failed: node.failed,
            failed_op: node.failed_op,
            start: node.begin,
            duration: node.duration(),
            first_op: first.map(|first| first - node.begin),
            time: self.amount(node.duration(), node.class, node.taken),
            between,
            own,
            between_time: self.amount(between, None, of_between),
            own_time: self.amount(own, node.class, of_entry),
            read_inside,
            own_counters: &self.own,
            counters: &self.all,
            regions,
            drawn: node.drawn,
        });
        Inside { run: Some(number), ..inside }
    }

    fn op(&mut self, arena: &Arena, at: usize, inside: Inside, regions: &[Region]) -> Inside {
        let node = &arena.nodes[at];
        let inner = self.inner.iter().map(|child| arena.nodes[*child].duration());
        let children = inner.fold(0u64, u64::saturating_add);
        self.read_counters(arena, at);
        self.add_workers(regions);
        let (own_taken, read_inside) = self.own_taken(arena, at);
        let self_ticks = node.duration().saturating_sub(children);
        let number = self.ops;
        self.ops += 1;
        self.visitor.op(&OpCall {
            number,
            run: inside.run,
            parent: inside.op,
            depth: inside.depth,
            process: self.process,
            thread: self.thread,
            op: node.op,
            is_range: node.role == Role::Range,
            forward: node.forward,
            start: node.begin,
            duration: node.duration(),
            self_ticks,
            time: self.amount(node.duration(), node.class, node.taken),
            own_time: self.amount(self_ticks, node.class, own_taken),
            read_inside,
            storage: node.storage,
            workspace: node.workspace,
            self_counters: &self.own,
            counters: &self.all,
            workers: &self.workers,
            values: &arena.users[node.users.0..node.users.1],
            regions,
            drawn: node.drawn,
        });
        Inside { op: Some(number), depth: inside.depth + 1, ..inside }
    }

    fn add_workers(&mut self, regions: &[Region]) {
        self.workers.clear();
        if regions.is_empty() {
            return;
        }
        let whole = regions.iter().all(Region::is_whole);
        self.workers.resize(self.counters, whole.then_some(0u64));
        let tasks = regions.iter().flat_map(|region| &region.tasks);
        for task in tasks.filter(|task| task.thread != self.thread) {
            for (sum, value) in self.workers.iter_mut().zip(&task.counters) {
                let value = value.filter(|_| !task.nested);
                *sum = sum.zip(value).map(|(sum, value)| sum.saturating_add(value));
            }
        }
    }
}
