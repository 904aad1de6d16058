//! Makes one slice of the timeline from one recorded call.

use std::borrow::Cow;

use model::activity::Value;
use profile::columns::{cpu_of, node_of};
use profile::{Columns, Status};

use super::ProcessExport;
use crate::export::relay::{CounterNames, Gone, SliceHead};
use crate::timeline::{Arg, ArgValue, KeysId, TextId};

#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub start_ns: i64,
    pub end_ns: i64,
    /// The start, in raw ticks.
    ticks: u64,
}

pub(super) struct What<'a> {
    pub category: &'a str,
    pub name: Cow<'a, str>,
    pub shape: Option<KeysId>,
    pub label: Option<TextId>,
}

impl<'a> ProcessExport<'a, '_> {
    pub(super) fn times(&self, columns: &Columns, i: usize) -> Times {
        let timeline = &self.profile.timeline;
        let ticks = columns.start_ticks[i];
        let start_ns = timeline.realtime_ns(ticks);
        let end_ns = timeline.realtime_ns(ticks.saturating_add(columns.duration(i))).max(start_ns);
        Times { start_ns, end_ns, ticks }
    }

    /// Adds where the call ran: its workgroup and worker if they are known, its CPU, and its NUMA
    /// node unless the node is 0.
    pub(super) fn push_place(&mut self, columns: &Columns, i: usize) {
        let args = self.relay.args();
        if columns.knows_workgroup(i) {
            let [x, y, z] = &columns.workgroup;
            args.push(Arg::triple("workgroup", [x[i], y[i], z[i]]));
            args.push(Arg::uint("worker", columns.worker[i].into()));
        }
        let location = columns.location[i];
        args.push(Arg::uint("cpu", cpu_of(location).into()));
        if node_of(location) != 0 {
            args.push(Arg::uint("node", node_of(location).into()));
        }
    }

    /// Adds the call's ticks, sampling and counters, where they are wanted, and passes the slice of
    /// call `i` to the writer. `series` says whether its counters are also points of time series.
    ///
    /// # Errors
    /// Fails if the thread that writes has ended.
    pub(super) fn slice(
        &mut self,
        columns: &Columns,
        i: usize,
        times: Times,
        values: &[Option<u64>],
        series: bool,
        what: What<'a>,
    ) -> Result<(), Gone> {
        let Times { start_ns, end_ns, ticks } = times;
        if self.ticks && self.arguments {
            let args = self.relay.args();
            args.push(Arg::uint("start_ticks", ticks));
            args.push(Arg::uint("duration_ticks", columns.duration_ticks[i]));
        }
        if columns.sampled && self.arguments {
            self.push_drawn(columns, i);
        }
        if self.arguments {
            self.push_counters(values);
        }
        if series {
            self.push_series(columns.thread, values);
        }
        self.relay.slice(SliceHead {
            process: self.process.id.pid.into(),
            thread: self.tid(columns.thread),
            category: what.category,
            name: what.name,
            start_ns,
            duration_ns: end_ns.abs_diff(start_ns),
            shape: what.shape,
            label: what.label,
        })
    }

    /// Adds how the call was sampled (docs/sampling.md). Slices must have the same keys, so
    /// `counter_weight` is null if no counter of the call was read.
    fn push_drawn(&mut self, columns: &Columns, i: usize) {
        let args = self.relay.args();
        args.push(Arg::uint("weight", columns.weight(i)));
        args.push(Arg::uint("skipped", columns.drawn(i).skipped));
        if !columns.groups.is_empty() {
            let mut statuses = columns.groups.iter().filter_map(|group| group.status.get(i));
            let weight = match statuses.any(|status| *status != Status::NotRead) {
                true => Value::Uint(columns.counter_weight(i)),
                false => Value::Null,
            };
            args.push(Arg { key: "counter_weight", value: ArgValue::Plain(weight) });
        }
    }

    /// Reads the counters of a call into `values`. A count that is not known becomes `None`.
    pub(super) fn read_counters(&self, columns: &Columns, i: usize, values: &mut [Option<u64>]) {
        for (g, group) in self.profile.groups.all().iter().enumerate() {
            columns.group_values(g, group.counters.clone(), i, values);
        }
    }

    pub(super) fn push_counters(&mut self, values: &[Option<u64>]) {
        let counters = self.profile.manifest.counters.iter().zip(values);
        self.relay.args().extend(counters.map(|(info, value)| {
            let value = ArgValue::Plain(value.map_or(Value::Null, Value::Uint));
            Arg { key: &info.name, value }
        }));
    }

    /// Adds the call's known counters to the time series of each group.
    fn push_series(&mut self, thread: usize, values: &[Option<u64>]) {
        let counters = &self.profile.manifest.counters;
        for (number, group) in self.profile.groups.all().iter().enumerate() {
            let labels = &self.labels[thread];
            let label = CounterNames {
                category: self.counter_kind,
                name: &labels.groups[number],
                label: labels.alone.then_some(TextId(number as u32)),
                units: &self.units[number],
            };
            let of_group = group.counters.clone();
            let known = counters[of_group.clone()].iter().zip(&values[of_group]);
            let known = known.filter_map(|(info, value)| Some(Arg::uint(&info.name, (*value)?)));
            self.relay.counter(label, known);
        }
    }
}
