//! Probes of the order of calls, their sizes and nulls, and of threads.

use abi::kineto::{CreateParams, Function, HandleParams, ProcessParams, PushParams};

use super::{Findings, Plugin, Probe, Raw, call, call_null, supported};
use crate::builder::{Asked, Builder};
use crate::problem::Problems;
use crate::sink::{Counter, Event, Metadata, Sink};

pub(super) const PROBES: &[Probe] = &[
    Probe { name: "it records once", run: once },
    Probe { name: "it records three times", run: again },
    Probe { name: "each of its types is requested alone", run: each_type },
    Probe { name: "it is created with null or too small arguments", run: bad_create },
    Probe { name: "it is created without any requested type", run: no_types },
    Probe { name: "its functions get null arguments", run: null_arguments },
    Probe { name: "its functions get arguments that are too small", run: small_arguments },
    Probe { name: "its functions get arguments of a later version", run: large_arguments },
    Probe { name: "its functions get a null handle", run: null_handle },
    Probe { name: "it is destroyed without having started", run: never_started },
    Probe { name: "it is destroyed while it records", run: never_stopped },
    Probe { name: "it is stopped without having started", run: stop_first },
    Probe { name: "it is started twice and stopped twice", run: twice },
    Probe { name: "events are processed twice", run: processed_twice },
    Probe { name: "two recordings overlap", run: overlap },
    Probe { name: "ids are popped that nobody pushed", run: pop_first },
    Probe { name: "eight threads push and pop ids", run: threads },
];

/// Takes everything and keeps nothing.
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

/// Processes with a builder that takes everything.
fn process(raw: &Raw<'_>) -> i32 {
    let problems = std::sync::Arc::new(Problems::of(std::path::Path::new("")));
    let builder = Builder::leak(problems, &NO_OWN);
    let everything = Asked::of(&abi::kineto::EVENT_TYPES.map(|known| known.number));
    builder.with(&mut Nothing, &everything, |builder| raw.process(builder))
}

/// All calls of a recording; says which of them fails.
fn record(raw: Raw<'_>, findings: &mut Findings) {
    let code = raw.start();
    findings.check(code == 0, || format!("profilerStart returned {code}"));
    finish(raw, findings);
}

/// The calls after it has started.
fn finish(raw: Raw<'_>, findings: &mut Findings) {
    let codes = [
        ("profilerStop", raw.stop()),
        ("profilerProcessEvents", process(&raw)),
        ("profilerDestroy", raw.destroy()),
    ];
    for (name, code) in codes {
        findings.check(code == 0, || format!("{name} returned {code}"));
    }
}

fn created<'i>(
    interface: &'i abi::kineto::ProfilerInterface,
    findings: &mut Findings,
) -> Option<Raw<'i>> {
    match Raw::create(interface) {
        Ok(raw) => Some(raw),
        Err(code) => {
            findings.error(format!("profilerCreate returned {code}"));
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
                Err(code) => findings.error(format!(
                    "profilerCreate returned {code} for event type {number} alone, which it \
                     supports"
                )),
            }
        }
    }
}

fn bad_create(plugin: &mut Plugin, findings: &mut Findings) {
    for interface in plugin.profilers() {
        findings.check(call_null(interface.create) != Some(0), || {
            "profilerCreate returned 0 for null arguments".into()
        });
        let mut types = supported(&interface);
        let mut params = CreateParams {
            size: 8,
            profiler: std::ptr::null_mut(),
            types: types.as_mut_ptr(),
            types_length: types.len(),
        };
        findings.check(call(interface.create, &mut params) != Some(0), || {
            "profilerCreate returned 0 for arguments whose size is too small".into()
        });
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
        // It may decline; if it does not, the recording has to work.
        if call(interface.create, &mut params) == Some(0) {
            record(Raw { interface: &interface, handle: params.profiler }, findings);
        }
    }
}

/// The functions of a recording that take a handle.
fn with_handle(
    interface: &abi::kineto::ProfilerInterface,
) -> [(&'static str, Function<HandleParams>); 5] {
    [
        ("profilerStart", interface.start),
        ("profilerStop", interface.stop),
        ("profilerPopCorrelationId", interface.pop_correlation),
        ("profilerPopUserCorrelationId", interface.pop_user_correlation),
        ("profilerDestroy", interface.destroy),
    ]
}

fn pushes(interface: &abi::kineto::ProfilerInterface) -> [(&'static str, Function<PushParams>); 2] {
    [
        ("profilerPushCorrelationId", interface.push_correlation),
        ("profilerPushUserCorrelationId", interface.push_user_correlation),
    ]
}

fn null_arguments(plugin: &mut Plugin, findings: &mut Findings) {
    for interface in plugin.profilers() {
        for (name, function) in with_handle(&interface) {
            findings.check(call_null(function) != Some(0), || {
                format!("{name} returned 0 for null arguments")
            });
        }
        for (name, function) in pushes(&interface) {
            findings.check(call_null(function) != Some(0), || {
                format!("{name} returned 0 for null arguments")
            });
        }
        findings.check(call_null(interface.process_events) != Some(0), || {
            "profilerProcessEvents returned 0 for null arguments".into()
        });
        let Some(raw) = created(&interface, findings) else { continue };
        raw.start();
        raw.stop();
        findings.check(raw.process(std::ptr::null()) != 0, || {
            "profilerProcessEvents returned 0 for a null trace builder".into()
        });
        raw.destroy();
    }
}

fn small_arguments(plugin: &mut Plugin, findings: &mut Findings) {
    for interface in plugin.profilers() {
        let Some(raw) = created(&interface, findings) else { continue };
        for (name, function) in with_handle(&interface) {
            let mut params = HandleParams { size: 8, profiler: raw.handle };
            findings.check(call(function, &mut params) != Some(0), || {
                format!("{name} returned 0 for arguments whose size is too small")
            });
        }
        for (name, function) in pushes(&interface) {
            let mut params = PushParams { size: 16, id: 1, profiler: raw.handle };
            findings.check(call(function, &mut params) != Some(0), || {
                format!("{name} returned 0 for arguments whose size is too small")
            });
        }
        // Whether destroy went through with it is not known: the handle is left alone.
    }
}

fn large_arguments(plugin: &mut Plugin, findings: &mut Findings) {
    /// A struct with a field of a later version at its end.
    #[repr(C)]
    struct Later<P> {
        known: P,
        later: [u64; 4],
    }
    for interface in plugin.profilers() {
        let mut types = supported(&interface);
        let mut create = Later {
            known: CreateParams {
                size: CreateParams::SIZE + 32,
                profiler: std::ptr::null_mut(),
                types: types.as_mut_ptr(),
                types_length: types.len(),
            },
            later: [u64::MAX; 4],
        };
        let code = call(interface.create, &mut create.known);
        findings.check(code == Some(0), || {
            format!("profilerCreate returned {code:?} for arguments of a later version")
        });
        findings.check(create.later == [u64::MAX; 4], || {
            "profilerCreate wrote into a field that it cannot know".into()
        });
        if code != Some(0) {
            continue;
        }
        let handle = create.known.profiler;
        for (name, function) in with_handle(&interface) {
            let mut later = Later {
                known: HandleParams { size: HandleParams::SIZE + 32, profiler: handle },
                later: [u64::MAX; 4],
            };
            // Popping an id that nobody pushed may fail; that is another probe.
            if name.contains("Pop") {
                continue;
            }
            if name == "profilerDestroy" {
                let mut process = Later {
                    known: ProcessParams {
                        size: ProcessParams::SIZE + 32,
                        profiler: handle,
                        builder: std::ptr::null(),
                    },
                    later: [u64::MAX; 4],
                };
                call(interface.process_events, &mut process.known);
            }
            let code = call(function, &mut later.known);
            findings.check(code == Some(0), || {
                format!("{name} returned {code:?} for arguments of a later version")
            });
        }
    }
}

fn null_handle(plugin: &mut Plugin, findings: &mut Findings) {
    for interface in plugin.profilers() {
        let raw = Raw { interface: &interface, handle: std::ptr::null_mut() };
        let mut codes = vec![
            ("profilerStart", Some(raw.start())),
            ("profilerStop", Some(raw.stop())),
            ("profilerProcessEvents", Some(process(&raw))),
            ("profilerPushCorrelationId", raw.push(1)),
            ("profilerPopCorrelationId", raw.pop()),
        ];
        codes.push(("profilerDestroy", Some(raw.destroy())));
        // A plugin without state may give out null as its handle.
        let stateless = Raw::create(&interface).is_ok_and(|made| {
            let stateless = made.handle.is_null();
            made.destroy();
            stateless
        });
        for (name, code) in codes {
            findings.check(stateless || code != Some(0), || {
                format!("{name} returned 0 for a null handle")
            });
        }
    }
}

fn never_started(plugin: &mut Plugin, findings: &mut Findings) {
    for interface in plugin.profilers() {
        let Some(raw) = created(&interface, findings) else { continue };
        let code = raw.destroy();
        findings.check(code == 0, || format!("profilerDestroy returned {code}"));
    }
}

fn never_stopped(plugin: &mut Plugin, findings: &mut Findings) {
    for interface in plugin.profilers() {
        let Some(raw) = created(&interface, findings) else { continue };
        raw.start();
        let code = raw.destroy();
        findings.check(code == 0, || format!("profilerDestroy returned {code}"));
    }
}

/// Orders that no host should use. The plugin may decline each call, but not crash.
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
            // One at a time is all that PyTorch needs.
            Err(code) => {
                findings.warning(format!(
                    "profilerCreate returned {code} while another recording was open"
                ));
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
        findings.check(!failed, || "pushing or popping an id returned an error".into());
        finish(raw, findings);
    }
}
