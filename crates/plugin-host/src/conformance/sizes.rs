//! Probes of a plugin with arguments of other sizes than the published ones, and with null
//! pointers. No published host makes these calls, so a wrong answer is not a violation.

use abi::kineto::{
    CreateParams, Function, HandleParams, ProcessParams, ProfilerInterface, PushParams,
    TraceBuilder,
};

use super::calls::{created, with_builder};
use super::clauses::{HANDLE, ROBUST, SIZES};
use super::events::{Declining, declining};
use super::{Findings, Plugin, Probe, Raw, call, call_null, supported};

pub(super) const PROBES: &[Probe] = &[
    Probe::beyond("it is created with null arguments", ROBUST, null_create),
    Probe::beyond("it is created with arguments that are too small", SIZES, small_create),
    Probe::beyond("its functions get null arguments", ROBUST, null_arguments),
    Probe::beyond("it gets a null trace builder", ROBUST, null_builder),
    Probe::beyond("its functions get arguments that are too small", SIZES, small_arguments),
    Probe::beyond("its functions get arguments of a later version", SIZES, large_arguments),
    Probe::beyond("its functions get a null handle", ROBUST, null_handle),
    Probe::beyond("ids are pushed and popped with a null handle", HANDLE, null_ids),
    Probe::beyond("the trace builder is too small", SIZES, small_builder),
    Probe::beyond("the trace builder is of a later version", SIZES, large_builder),
];

/// Adds one finding that names all of `functions`, which returned 0; none if the list is empty.
fn advise(findings: &mut Findings, clause: &'static super::Clause, functions: &[&str], with: &str) {
    if !functions.is_empty() {
        findings.style(clause, format!("{} returned 0 for {with}", functions.join(", ")));
    }
}

fn with_handle(interface: &ProfilerInterface) -> [(&'static str, Function<HandleParams>); 5] {
    [
        ("profilerStart", interface.start),
        ("profilerStop", interface.stop),
        ("profilerPopCorrelationId", interface.pop_correlation),
        ("profilerPopUserCorrelationId", interface.pop_user_correlation),
        ("profilerDestroy", interface.destroy),
    ]
}

fn pushes(interface: &ProfilerInterface) -> [(&'static str, Function<PushParams>); 2] {
    [
        ("profilerPushCorrelationId", interface.push_correlation),
        ("profilerPushUserCorrelationId", interface.push_user_correlation),
    ]
}

fn null_create(plugin: &mut Plugin, findings: &mut Findings) {
    for interface in plugin.profilers() {
        if call_null(interface.create) == Some(0) {
            advise(findings, ROBUST, &["profilerCreate"], "null arguments");
        }
    }
}

fn small_create(plugin: &mut Plugin, findings: &mut Findings) {
    for interface in plugin.profilers() {
        let mut types = supported(&interface);
        let mut params = CreateParams {
            size: 8,
            profiler: std::ptr::null_mut(),
            types: types.as_mut_ptr(),
            types_length: types.len(),
        };
        if call(interface.create, &mut params) == Some(0) {
            advise(findings, SIZES, &["profilerCreate"], "arguments that are too small");
        }
    }
}

fn null_arguments(plugin: &mut Plugin, findings: &mut Findings) {
    for interface in plugin.profilers() {
        let mut accepted = Vec::new();
        for (name, function) in with_handle(&interface) {
            accepted.extend((call_null(function) == Some(0)).then_some(name));
        }
        for (name, function) in pushes(&interface) {
            accepted.extend((call_null(function) == Some(0)).then_some(name));
        }
        let processed = call_null(interface.process_events) == Some(0);
        accepted.extend(processed.then_some("profilerProcessEvents"));
        advise(findings, ROBUST, &accepted, "null arguments");
    }
}

fn null_builder(plugin: &mut Plugin, findings: &mut Findings) {
    for interface in plugin.profilers() {
        let Some(raw) = created(&interface, findings) else { continue };
        raw.start();
        raw.stop();
        if raw.process(std::ptr::null()) == 0 {
            advise(findings, ROBUST, &["profilerProcessEvents"], "a null trace builder");
        }
        raw.destroy();
    }
}

fn small_arguments(plugin: &mut Plugin, findings: &mut Findings) {
    for interface in plugin.profilers() {
        let Some(raw) = created(&interface, findings) else { continue };
        let mut accepted = Vec::new();
        for (name, function) in pushes(&interface) {
            let mut params = PushParams { size: 16, id: 1, profiler: raw.handle };
            accepted.extend((call(function, &mut params) == Some(0)).then_some(name));
        }
        // The last function is profilerDestroy, so the handle is not used after this loop.
        for (name, function) in with_handle(&interface) {
            let mut params = HandleParams { size: 8, profiler: raw.handle };
            accepted.extend((call(function, &mut params) == Some(0)).then_some(name));
        }
        advise(findings, SIZES, &accepted, "arguments that are too small");
    }
}

/// A struct with an additional field, as a later version of the interface may have.
#[repr(C)]
struct Later<P> {
    known: P,
    later: [u64; 4],
}

const LATER: [u64; 4] = [u64::MAX; 4];

/// Calls a function with arguments of a later version. Adds a finding if the function returns an
/// error or overwrites the later field.
fn later<P>(
    name: &'static str,
    function: Function<P>,
    known: P,
    findings: &mut Findings,
) -> (bool, P) {
    let mut later = Later { known, later: LATER };
    let code = call(function, &mut later.known);
    if let Some(code) = code.filter(|code| *code != 0) {
        findings.fragile(SIZES, format!("{name} returned {code} for arguments of a later version"));
    }
    if later.later != LATER {
        findings.fragile(SIZES, format!("{name} wrote into a field that it cannot know"));
    }
    (code == Some(0), later.known)
}

fn large_arguments(plugin: &mut Plugin, findings: &mut Findings) {
    for interface in plugin.profilers() {
        let mut types = supported(&interface);
        let create = CreateParams {
            size: CreateParams::SIZE + 32,
            profiler: std::ptr::null_mut(),
            types: types.as_mut_ptr(),
            types_length: types.len(),
        };
        let (succeeded, create) = later("profilerCreate", interface.create, create, findings);
        if !succeeded {
            continue;
        }
        let profiler = create.profiler;
        let handle = || HandleParams { size: HandleParams::SIZE + 32, profiler };
        let push = || PushParams { size: PushParams::SIZE + 32, id: 1, profiler };
        later("profilerStart", interface.start, handle(), findings);
        for (name, function) in pushes(&interface) {
            later(name, function, push(), findings);
        }
        later("profilerPopUserCorrelationId", interface.pop_user_correlation, handle(), findings);
        later("profilerPopCorrelationId", interface.pop_correlation, handle(), findings);
        later("profilerStop", interface.stop, handle(), findings);
        with_builder(|builder| {
            let process = ProcessParams { size: ProcessParams::SIZE + 32, profiler, builder };
            later("profilerProcessEvents", interface.process_events, process, findings);
        });
        later("profilerDestroy", interface.destroy, handle(), findings);
    }
}

fn null_handle(plugin: &mut Plugin, findings: &mut Findings) {
    for interface in plugin.profilers() {
        if is_stateless(&interface) {
            continue;
        }
        let raw = Raw { interface: &interface, handle: std::ptr::null_mut() };
        let codes = [
            ("profilerStart", raw.start()),
            ("profilerStop", raw.stop()),
            ("profilerProcessEvents", with_builder(|builder| raw.process(builder))),
            ("profilerDestroy", raw.destroy()),
        ];
        let accepted: Vec<&str> =
            codes.into_iter().filter(|(_, code)| *code == 0).map(|(name, _)| name).collect();
        advise(findings, ROBUST, &accepted, "a null handle");
    }
}

/// Calls the functions that push and pop ids, with a null handle. The published host ignores their
/// results, so only a call that does not return is a mistake.
fn null_ids(plugin: &mut Plugin, _: &mut Findings) {
    for interface in plugin.profilers() {
        if is_stateless(&interface) {
            continue;
        }
        let raw = Raw { interface: &interface, handle: std::ptr::null_mut() };
        raw.push(1);
        raw.pop();
        let mut push = PushParams { size: PushParams::SIZE, id: 1, profiler: std::ptr::null_mut() };
        call(interface.push_user_correlation, &mut push);
        call(interface.pop_user_correlation, &mut raw.params());
    }
}

/// Returns whether the plugin uses null as its handle, as a plugin without state may.
fn is_stateless(interface: &ProfilerInterface) -> bool {
    Raw::create(interface).is_ok_and(|made| {
        let stateless = made.handle.is_null();
        made.destroy();
        stateless
    })
}

/// Lets the plugin hand over a recording to a builder that states this size and declines
/// everything. Returns the result of `profilerProcessEvents`, and how many calls the builder got.
fn with_size(
    interface: &ProfilerInterface,
    size: usize,
    findings: &mut Findings,
) -> Option<(i32, usize)> {
    let raw = created(interface, findings)?;
    raw.start();
    raw.stop();
    let declining: Declining = declining(size);
    let code = raw.process(&declining.builder);
    let calls = declining.calls();
    raw.destroy();
    Some((code, calls))
}

fn small_builder(plugin: &mut Plugin, findings: &mut Findings) {
    for interface in plugin.profilers() {
        if let Some((_, calls @ 1..)) = with_size(&interface, 16, findings) {
            findings.style(
                SIZES,
                format!(
                    "called functions of a trace builder whose size does not cover them ({calls})"
                ),
            );
        }
    }
}

fn large_builder(plugin: &mut Plugin, findings: &mut Findings) {
    for interface in plugin.profilers() {
        let published = with_size(&interface, TraceBuilder::SIZE, findings);
        let later = with_size(&interface, TraceBuilder::SIZE + 64, findings);
        if let (Some((_, 1..)), Some((_, 0))) = (published, later) {
            findings.fragile(SIZES, "hands nothing over to a trace builder of a later version");
        }
    }
}
