//! Computes the lengths of a recording that views show, such as the time from the first to the last
//! call. [`LengthOf`] lists the lengths and what each of them measures.

use profile::{Manifest, Origin, Profile, State};

use crate::summary::Summary;
use crate::threads::{ThreadTime, threads_of_program};

/// What a length measures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LengthOf {
    /// The whole recording. The recording begins before the program starts, or when a running
    /// program begins to be recorded.
    Recording {
        /// Whether the command `counterpoint run` made the recording. If not, it was made by
        /// `counterpoint env`, by a program's own session, or by IREE's hook.
        is_run: bool,
    },
    /// From the begin of the first call of any thread to the end of the last call.
    Calls,
    /// The life of the thread with the most time in calls: from its first call to its last known
    /// moment.
    Busiest(ThreadTime),
    /// The sum of the lives of all threads of the program, as for [`Self::Busiest`]. The value is
    /// the number of threads.
    Threads(usize),
    /// The sum of the self times of all calls of threads.
    InCalls {
        /// Whether there are also calls on devices. If so, the percentages in a report refer to the
        /// time in calls plus the time on devices.
        is_part: bool,
    },
    /// For this many streams of devices, the sum of the times in which each stream did something.
    OnDevices(usize),
    /// The processor time of this many threads since their first calls.
    OnCpu(usize),
}

/// A length of the recording.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Length {
    /// What the length measures.
    pub of: LengthOf,
    /// The length in ns.
    pub ns: f64,
}

/// The time in ns between the first and the last snapshot of the machine's state. `None` if the
/// recording did not finish, or if the snapshots do not show how long it took.
pub fn recorded_ns(manifest: &Manifest) -> Option<u64> {
    if manifest.state != State::Finished {
        return None;
    }
    let times = || manifest.snapshots.iter().map(|s| s.monotonic_ns);
    times().max()?.checked_sub(times().min()?).filter(|ns| *ns > 0)
}

impl Summary {
    /// Returns the lengths that are known. A recording with passes (repetitions of the program) has
    /// none. Streams of devices do not count as threads of the program.
    pub fn lengths(&self, profile: &Profile) -> Vec<Length> {
        let manifest = &profile.manifest;
        if manifest.passes > 0 {
            return Vec::new();
        }
        let threads: Vec<&ThreadTime> = threads_of_program(profile, &self.threads).collect();
        let of_run = recorded_ns(manifest).filter(|_| manifest.origin != Origin::Import);
        let is_run = manifest.origin == Origin::Run;
        let recording = of_run.map(|ns| (LengthOf::Recording { is_run }, ns as f64));
        let begin = threads.iter().map(|thread| thread.begin).min();
        let end = threads.iter().map(|thread| thread.end).max();
        let calls = begin.zip(end).map(|(begin, end)| {
            (LengthOf::Calls, profile.timeline.duration_ns(end.saturating_sub(begin)))
        });
        let busiest = self.busiest(profile);
        let busiest = busiest.map(|(thread, _)| (LengthOf::Busiest(*thread), thread.wall_ns));
        let lives: f64 = threads.iter().map(|thread| thread.wall_ns).sum();
        let lives = (threads.len() > 1).then_some((LengthOf::Threads(threads.len()), lives));
        let times_known = self.sampled.is_none() && self.calls > 0;
        let sum: f64 = threads.iter().map(|thread| thread.dispatch_ns).sum();
        let streams = self.threads.len() - threads.len();
        let is_part = streams > 0;
        let in_calls =
            (times_known && !threads.is_empty()).then_some((LengthOf::InCalls { is_part }, sum));
        let all: f64 = self.threads.iter().map(|time| time.dispatch_ns).sum();
        let on_devices =
            (times_known && is_part).then_some((LengthOf::OnDevices(streams), all - sum));
        let on_cpu: Vec<f64> = threads.iter().filter_map(|thread| thread.cpu_ns).collect();
        let on_cpu = (!on_cpu.is_empty())
            .then(|| (LengthOf::OnCpu(on_cpu.len()), on_cpu.iter().sum::<f64>()));
        let all = [recording, calls, busiest, lives, in_calls, on_devices, on_cpu];
        all.into_iter().flatten().map(|(of, ns)| Length { of, ns }).collect()
    }
}

#[cfg(test)]
mod tests {
    use testkit::{CallScript, ProfileScript};

    use super::*;
    use crate::summary::{Options, summarize};

    /// Two threads live from 1,000 to 1,400 and from 1,100 to 1,250.
    #[test]
    fn lengths_on_paper() {
        let mut script = ProfileScript::monotonic();
        let process = script.process(1);
        process.library("m", &["f"]);
        let main = process.thread("main");
        for (begin, time) in [(1_000, 100), (1_300, 100)] {
            main.call(CallScript::new(0, begin, time));
        }
        process.thread("worker").call(CallScript::new(0, 1_100, 150));
        let (_scratch, profile) = script.opened();
        let summary = summarize(&profile, &Options { raw: true, ..Options::default() });
        let found = summary.lengths(&profile);
        let of = |wanted: fn(&LengthOf) -> bool| {
            found.iter().find(|length| wanted(&length.of)).map(|length| length.ns)
        };
        assert_eq!(of(|of| matches!(of, LengthOf::Recording { is_run: true })), Some(1e9));
        assert_eq!(of(|of| matches!(of, LengthOf::Calls)), Some(400.0));
        assert_eq!(of(|of| matches!(of, LengthOf::Busiest(_))), Some(400.0));
        assert_eq!(of(|of| matches!(of, LengthOf::Threads(2))), Some(550.0));
        assert_eq!(of(|of| matches!(of, LengthOf::InCalls { is_part: false })), Some(350.0));
        assert_eq!(of(|of| matches!(of, LengthOf::OnDevices(_))), None);
    }

    /// The two streams are busy for 400 ns and 70 ns.
    #[test]
    fn streams_of_devices_are_no_threads() {
        let mut script = ProfileScript::monotonic();
        let process = script.process(1);
        process.library("m", &["launch"]);
        let main = process.thread("main");
        for (begin, time) in [(1_000, 100), (1_200, 50)] {
            main.call(CallScript::new(0, begin, time));
        }
        let device = script.process(2);
        device.library("kernel", &["k"]);
        for (name, begin, time) in [("stream 7", 1_050, 400), ("stream 8", 1_060, 70)] {
            device.thread(name).call(CallScript::new(0, begin, time));
        }
        let (_scratch, profile) = script.opened();
        let summary = summarize(&profile, &Options { raw: true, ..Options::default() });
        let found = summary.lengths(&profile);
        let ns = |wanted: LengthOf| found.iter().find(|one| one.of == wanted).map(|one| one.ns);
        assert_eq!(ns(LengthOf::Calls), Some(250.0));
        assert_eq!(ns(LengthOf::InCalls { is_part: true }), Some(150.0));
        assert_eq!(ns(LengthOf::OnDevices(2)), Some(470.0));
        assert_eq!(summary.total.unwrap().value, 620.0);
        assert!(!found.iter().any(|one| matches!(one.of, LengthOf::Threads(_))));
    }
}
