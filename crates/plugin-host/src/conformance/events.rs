//! Probes of the events that a plugin hands over.

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use abi::kineto::{
    FIRST_OWN_TYPE, ProfileDeviceInfo, ProfileEvent, ProfileEventFlow, ProfileResourceInfo,
    TraceBuilder,
};

use super::clauses::{
    BUILDER, Clause, ENABLED, FLOW, METADATA, NAMES, RESULT, TIMES, TYPES, WRITERS,
};
use super::{Findings, Level, Plugin, Probe, Raw, supported};
use crate::event_checks::{Asked, Builder};
use crate::problem::{Problem, Problems};
use crate::sink::{Counter, Event, Metadata, Sink};

pub(super) const PROBES: &[Probe] = &[
    Probe::published("it hands over the events of half a second", BUILDER, half_a_second),
    Probe::published("the trace builder declines every call", BUILDER, declined),
];

static NO_OWN: AtomicU32 = AtomicU32::new(FIRST_OWN_TYPE);

struct Judge {
    is_json: fn(&[u8]) -> bool,
    begin_ns: i64,
    end_ns: i64,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    events: u64,
    outside: u64,
    hours_off: u64,
    wide_id: u64,
    not_ascii: u64,
    quotes: u64,
    not_json: u64,
    example: String,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Judge {
    fn name(&mut self, name: &[u8]) {
        self.counts.not_ascii +=
            u64::from(!name.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' '));
        self.counts.quotes += u64::from(name.contains(&b'"') || name.contains(&b'\\'));
    }
}

impl Sink for Judge {
    fn event(&mut self, event: &Event, name: &[u8], metadata: &Metadata) {
        self.counts.events += 1;
        // A device's clock may be slightly off.
        let slack = Duration::from_secs(1).as_nanos() as i64;
        let inside = self.begin_ns.saturating_sub(slack)..=self.end_ns.saturating_add(slack);
        self.counts.outside +=
            u64::from(!inside.contains(&event.start_ns) || !inside.contains(&event.end_ns));
        let hour = Duration::from_secs(3600).as_nanos() as i64;
        let near = self.begin_ns.saturating_sub(hour)..=self.end_ns.saturating_add(hour);
        self.counts.hours_off += u64::from(!near.contains(&event.start_ns));
        self.counts.wide_id += u64::from(i32::try_from(event.id).is_err());
        self.name(name);
        for (key, value) in metadata.iter() {
            self.name(key);
            if !(self.is_json)(value) {
                self.counts.not_json += 1;
                if self.counts.example.is_empty() {
                    self.counts.example = format!("{} = {}", text(key), text(value));
                }
            }
        }
    }
    fn device(&mut self, _: i64, _: i64, name: Option<&[u8]>, label: &[u8]) {
        self.name(name.unwrap_or_default());
        self.name(label);
    }
    fn resource(&mut self, _: i32, _: i32, _: i32, name: Option<&[u8]>) {
        self.name(name.unwrap_or_default());
    }
    fn thread_name(&mut self, _: i32, _: i32, _: &[u8]) {}
    fn counter(&mut self, _: &Counter<'_>) {}
}

fn unix_ns() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_nanos() as i64
}

fn half_a_second(plugin: &mut Plugin, findings: &mut Findings) {
    for interface in plugin.profilers() {
        let types = supported(&interface);
        let Ok(raw) = Raw::create(&interface) else { continue };
        let begin_ns = unix_ns();
        raw.start();
        std::thread::sleep(Duration::from_millis(500));
        raw.stop();
        let mut judge = Judge {
            is_json: plugin.is_json,
            begin_ns,
            end_ns: unix_ns(),
            counts: Counts::default(),
        };
        let problems = Arc::new(Problems::of(Path::new("")));
        let builder = Builder::leak(Arc::clone(&problems), &NO_OWN);
        let asked = Asked::of(&types);
        let code = builder.with(&mut judge, &asked, |builder| raw.process(builder));
        findings.check(code == 0, RESULT, || format!("profilerProcessEvents returned {code}"));
        // If the plugin still uses the builder during this wait, after its call, `problems` gets an
        // entry.
        std::thread::sleep(Duration::from_millis(50));
        raw.destroy();
        for (problem, count) in problems.all() {
            let times = if count == 1 { String::new() } else { format!(" ({count} times)") };
            let (level, clause) = weigh(&problem);
            findings.add(level, clause, format!("{problem}{times}"));
        }
        say(&judge.counts, findings);
    }
}

fn weigh(problem: &Problem) -> (Level, &'static Clause) {
    match problem {
        Problem::UnknownType(_) => (Level::Violation, TYPES),
        Problem::UnknownFlow(_) => (Level::Violation, TYPES),
        Problem::ZeroFlow => (Level::Violation, FLOW),
        Problem::Backwards => (Level::Violation, TIMES),
        Problem::Unnamed => (Level::Fragile, NAMES),
        // The published host writes events of types that were not asked for, so they are not a
        // violation.
        Problem::NotAsked(_) => (Level::Fragile, ENABLED),
        Problem::MuchMetadata => (Level::Fragile, METADATA),
        _ => (Level::Violation, BUILDER),
    }
}

fn say(counts: &Counts, findings: &mut Findings) {
    let of = counts.events;
    let many = |count: u64| format!("{count} of {of} events");
    if counts.hours_off > 0 && counts.hours_off == of {
        findings.violation(
            TIMES,
            "no event is within an hour of the recording: times are not ns since 1970 UTC",
        );
    } else if counts.outside > 0 {
        findings.fragile(
            TIMES,
            format!("{} lie more than a second outside of the recording", many(counts.outside)),
        );
    }
    if counts.wide_id > 0 {
        findings.fragile(
            WRITERS,
            format!(
                "{} have ids of more than 32 bits, of which Kineto keeps 32",
                many(counts.wide_id)
            ),
        );
    }
    if counts.not_json > 0 {
        findings.violation(
            METADATA,
            format!(
                "{} values of metadata are not JSON, which breaks Kineto's files: {}",
                counts.not_json, counts.example
            ),
        );
    }
    if counts.not_ascii > 0 {
        findings.fragile(
            WRITERS,
            format!(
                "{} names or keys are not printable ASCII; PyTorch writes such a name as \"unknown\"",
                counts.not_ascii
            ),
        );
    }
    if counts.quotes > 0 {
        findings.fragile(
            WRITERS,
            format!(
                "{} names or keys have a quote or a backslash, which breaks files of some hosts",
                counts.quotes
            ),
        );
    }
}

/// A builder that declines calls and counts them.
pub(super) struct Declining {
    pub builder: TraceBuilder,
    calls: Box<AtomicUsize>,
}

impl Declining {
    /// Returns how many calls the builder got.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

fn decline(calls: *mut c_void) -> c_int {
    // SAFETY: `calls` points to the number in a `Declining`, if the plugin passes the builder's
    // handle unchanged, as it must.
    if let Some(calls) = unsafe { calls.cast::<AtomicUsize>().as_ref() } {
        calls.fetch_add(1, Ordering::Relaxed);
    }
    -1
}

unsafe extern "C" fn no_event(handle: *mut c_void, _: *const ProfileEvent) -> c_int {
    decline(handle)
}
unsafe extern "C" fn no_name(handle: *mut c_void, _: *const c_char) -> c_int {
    decline(handle)
}
unsafe extern "C" fn no_flow(handle: *mut c_void, _: *const ProfileEventFlow) -> c_int {
    decline(handle)
}
unsafe extern "C" fn no_metadata(handle: *mut c_void, _: *const c_char, _: *const c_char) -> c_int {
    decline(handle)
}
unsafe extern "C" fn no_device(handle: *mut c_void, _: *const ProfileDeviceInfo) -> c_int {
    decline(handle)
}
unsafe extern "C" fn no_resource(handle: *mut c_void, _: *const ProfileResourceInfo) -> c_int {
    decline(handle)
}

pub(super) fn declining(size: usize) -> Declining {
    let calls = Box::new(AtomicUsize::new(0));
    let builder = TraceBuilder {
        size,
        handle: std::ptr::from_ref::<AtomicUsize>(&calls).cast_mut().cast(),
        add_event: Some(no_event),
        set_last_name: Some(no_name),
        set_last_flow: Some(no_flow),
        add_last_metadata: Some(no_metadata),
        add_device: Some(no_device),
        add_resource: Some(no_resource),
    };
    Declining { builder, calls }
}

fn declined(plugin: &mut Plugin, _: &mut Findings) {
    for interface in plugin.profilers() {
        let Ok(raw) = Raw::create(&interface) else { continue };
        raw.start();
        raw.stop();
        // Any result is fine.
        raw.process(&declining(TraceBuilder::SIZE).builder);
        raw.destroy();
    }
}
