//! Probes that call a plugin's functions in different orders, and from several threads.

use abi::kineto::{CreateParams, TraceBuilder};

use super::clauses::{CORRELATION, OVERLAP, RESULT, ROBUST, TYPES};
use super::{Findings, Level, Plugin, Probe, Raw, call, supported};
use crate::event_checks::{Asked, Builder};
use crate::problem::Problems;
use crate::sink::{Counter, Event, Metadata, Sink};

pub(super) const PROBES: &[Probe] = &[
    Probe::published("it records once", RESULT, once),
    Probe::published("it records three times", RESULT, again),
    Probe::published("each of its types is requested alone", TYPES, each_type),
    Probe::published("it is destroyed without having started", RESULT, never_started),
    Probe::published("ids are pushed and popped by eight threads", CORRELATION, threads),
    Probe::beyond("it is created without any requested type", ROBUST, no_types),
    Probe::beyond("it is destroyed while it records", ROBUST, never_stopped),
    Probe::beyond("it is stopped without having started", ROBUST, stop_first),
    Probe::beyond("it is started twice and stopped twice", ROBUST, twice),
    Probe::beyond("events are processed twice", ROBUST, processed_twice),
    Probe::beyond("two recordings overlap", OVERLAP, overlap),
    Probe::beyond("ids are popped that nobody pushed", ROBUST, pop_first),
];

struct Nothing;

impl Sink for Nothing {
    fn event(&mut self, _: &Event, _: &[u8], _: &Metadata) {}
    fn device(&mut self, _: i64, _: i64, _: Option<&[u8]>, _: &[u8]) {}
    fn resource(&mut self, _: i32, _: i32, _: i32, _: Option<&[u8]>) {}
    fn thread_name(&mut self, _: i32, _: i32, _: &[u8]) {}
    fn counter(&mut self, _: &Counter<'_>) {}
}

static NO_OWN: std::sync::atomic::AtomicU32 =
    std::sync::atomic::AtomicU32::new(abi::kineto::FIRST_OWN_TYPE);

pub(super) fn with_builder<T>(body: impl FnOnce(*const TraceBuilder) -> T) -> T {
    let problems = std::sync::Arc::new(Problems::of(std::path::Path::new("")));
    let builder = Builder::leak(problems, &NO_OWN);
    let everything = Asked::of(&abi::kineto::EVENT_TYPES.map(|known| known.number));
    builder.with(&mut Nothing, &everything, body)
}

fn process(raw: &Raw<'_>) -> i32 {
    with_builder(|builder| raw.process(builder))
}

/// Starts and ends a created recording, and reports calls that fail.
fn record(raw: Raw<'_>, findings: &mut Findings) {
    let code = raw.start();
    findings.check(code == 0, RESULT, || format!("profilerStart returned {code}"));
    finish(raw, findings);
}

/// Ends a started recording, and reports calls that fail.
fn finish(raw: Raw<'_>, findings: &mut Findings) {
    let codes = [
        ("profilerStop", raw.stop()),
        ("profilerProcessEvents", process(&raw)),
        ("profilerDestroy", raw.destroy()),
    ];
    for (name, code) in codes {
        findings.check(code == 0, RESULT, || format!("{name} returned {code}"));
    }
}

pub(super) fn created<'i>(
    interface: &'i abi::kineto::ProfilerInterface,
    findings: &mut Findings,
) -> Option<Raw<'i>> {
    match Raw::create(interface) {
        Ok(raw) => Some(raw),
        Err(code) => {
            findings.violation(RESULT, format!("profilerCreate returned {code}"));
            None
        }
    }
}

fn once(plugin: &mut Plugin, findings: &mut Findings) {
    for interface in plugin.profilers() {
        if let Some(raw) = created(&interface, findings) {
            record(raw, findings);
        }
    }
}

fn again(plugin: &mut Plugin, findings: &mut Findings) {
    for interface in plugin.profilers() {
        for _ in 0..3 {
            if let Some(raw) = created(&interface, findings) {
                record(raw, findings);
            }
        }
    }
}

fn each_type(plugin: &mut Plugin, findings: &mut Findings) {
    for interface in plugin.profilers() {
        for number in supported(&interface) {
            match Raw::create_for(&interface, &mut [number]) {
                Ok(raw) => record(raw, findings),
                Err(code) => findings.violation(
                    TYPES,
                    format!(
                        "profilerCreate returned {code} for event type {number} alone, which it \
                         supports"
                    ),
                ),
            }
        }
    }
}

fn no_types(plugin: &mut Plugin, findings: &mut Findings) {
    for interface in plugin.profilers() {
        let mut params = CreateParams {
            size: CreateParams::SIZE,
            profiler: std::ptr::null_mut(),
            types: std::ptr::null_mut(),
            types_length: 0,
        };
        // The plugin may refuse an empty list of types. If the plugin accepts the list, the
        // recording should work.
        if call(interface.create, &mut params) == Some(0) {
            record(Raw { interface: &interface, handle: params.profiler }, findings);
            findings.at_most(Level::Fragile);
        }
    }
}

fn never_started(plugin: &mut Plugin, findings: &mut Findings) {
    for interface in plugin.profilers() {
        let Some(raw) = created(&interface, findings) else { continue };
        let code = raw.destroy();
        findings.check(code == 0, RESULT, || format!("profilerDestroy returned {code}"));
    }
}

fn never_stopped(plugin: &mut Plugin, findings: &mut Findings) {
    for interface in plugin.profilers() {
        let Some(raw) = created(&interface, findings) else { continue };
        raw.start();
        // Any result is fine.
        raw.destroy();
    }
}

/// Makes calls in an order that no host should use. Any result is fine.
fn stop_first(plugin: &mut Plugin, findings: &mut Findings) {
    for interface in plugin.profilers() {
        let Some(raw) = created(&interface, findings) else { continue };
        raw.stop();
        process(&raw);
        raw.destroy();
    }
}

fn twice(plugin: &mut Plugin, findings: &mut Findings) {
    for interface in plugin.profilers() {
        let Some(raw) = created(&interface, findings) else { continue };
        raw.start();
        raw.start();
        raw.stop();
        raw.stop();
        process(&raw);
        raw.destroy();
    }
}

fn processed_twice(plugin: &mut Plugin, findings: &mut Findings) {
    for interface in plugin.profilers() {
        let Some(raw) = created(&interface, findings) else { continue };
        raw.start();
        raw.stop();
        process(&raw);
        process(&raw);
        raw.destroy();
    }
}

fn overlap(plugin: &mut Plugin, findings: &mut Findings) {
    for interface in plugin.profilers() {
        let Some(first) = created(&interface, findings) else { continue };
        first.start();
        match Raw::create(&interface) {
            Ok(second) => {
                second.start();
                first.stop();
                process(&first);
                first.destroy();
                second.stop();
                process(&second);
                second.destroy();
            }
            // PyTorch needs only one recording at a time, so the plugin is still valid.
            Err(code) => {
                findings.style(
                    OVERLAP,
                    format!("profilerCreate returned {code} while another recording was open"),
                );
                first.stop();
                first.destroy();
            }
        }
    }
}

fn pop_first(plugin: &mut Plugin, findings: &mut Findings) {
    for interface in plugin.profilers() {
        let Some(raw) = created(&interface, findings) else { continue };
        raw.start();
        raw.pop();
        call(interface.pop_user_correlation, &mut raw.params());
        finish(raw, findings);
        findings.at_most(Level::Fragile);
    }
}

fn threads(plugin: &mut Plugin, findings: &mut Findings) {
    struct Shared(usize);
    for interface in plugin.profilers() {
        let Some(raw) = created(&interface, findings) else { continue };
        raw.start();
        let handle = Shared(raw.handle as usize);
        let failed = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8_u64)
                .map(|thread| {
                    let handle = &handle;
                    scope.spawn(move || {
                        let raw = Raw { interface: &interface, handle: handle.0 as *mut _ };
                        let mut failed = false;
                        for id in 0..2_000 {
                            failed |= raw.push(thread << 32 | id).is_some_and(|code| code != 0);
                            failed |= raw.pop().is_some_and(|code| code != 0);
                        }
                        failed
                    })
                })
                .collect();
            threads.into_iter().any(|thread| thread.join().unwrap_or(true))
        });
        findings
            .check(!failed, CORRELATION, || "pushing or popping an id returned an error".into());
        finish(raw, findings);
    }
}
