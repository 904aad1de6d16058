//! Probes that register a plugin and query its profilers.

use std::ffi::c_char;

use abi::kineto::{NAME_BYTES, ProfilerInterface, QueryParams, Registry};

use super::clauses::{ENTRY, PYTORCH, QUERY, ROBUST, SIZES, STATE, TABLE, TYPES, WRITERS};
use super::{Findings, Plugin, Probe, ROOM, call, call_null, returned, supported};
use crate::catch;
use crate::problem::Problem;

pub(super) const PROBES: &[Probe] = &[
    Probe::published("it is registered", ENTRY, registers),
    Probe::published("it is queried", QUERY, query),
    Probe::published("it is queried with little room", QUERY, little_room),
    Probe::beyond("it is registered with a null registry", ROBUST, null_registry),
    Probe::beyond("it is registered with a registry that is too small", SIZES, small_registry),
    Probe::beyond("it is registered with a registry of a later version", SIZES, large_registry),
    Probe::beyond("it is queried with null arguments", ROBUST, null_query),
    Probe::beyond("it is queried with arguments that are too small", SIZES, small_query),
];

fn registers(plugin: &mut Plugin, findings: &mut Findings) {
    let code = plugin.register(Registry::SIZE);
    if let Some(size) = plugin.small {
        let older = abi::kineto::OLDER.iter().any(|older| older.interface_bytes == size);
        let what = match size {
            0 => Problem::NullInterface,
            size => Problem::SmallInterface(size),
        };
        return findings.violation(if older { STATE } else { TABLE }, what.to_string());
    }
    match code {
        None => findings.violation(ENTRY, "does not export KinetoPlugin_register"),
        Some(0) if plugin.interfaces.is_empty() => {
            findings.violation(ENTRY, "registered no profiler");
        }
        Some(0) => {}
        Some(code) => {
            findings.violation(ENTRY, format!("KinetoPlugin_register returned {code}"));
        }
    }
    for interface in &plugin.interfaces {
        functions(interface, findings);
    }
}

fn functions(interface: &ProfilerInterface, findings: &mut Findings) {
    let needed = [
        ("profilerCreate", interface.create.is_some()),
        ("profilerDestroy", interface.destroy.is_some()),
        ("profilerQuery", interface.query.is_some()),
        ("profilerStart", interface.start.is_some()),
        ("profilerStop", interface.stop.is_some()),
        ("profilerProcessEvents", interface.process_events.is_some()),
    ];
    for (name, there) in needed {
        findings.check(there, TABLE, || format!("its interface has no {name}"));
    }
    let pairs = [
        ("profilerPushCorrelationId", interface.push_correlation.is_some()),
        ("profilerPopCorrelationId", interface.pop_correlation.is_some()),
        ("profilerPushUserCorrelationId", interface.push_user_correlation.is_some()),
        ("profilerPopUserCorrelationId", interface.pop_user_correlation.is_some()),
    ];
    for pair in pairs.chunks(2) {
        if pair[0].1 != pair[1].1 {
            let (has, lacks) = if pair[0].1 { (pair[0], pair[1]) } else { (pair[1], pair[0]) };
            findings.style(TABLE, format!("its interface has {} and no {}", has.0, lacks.0));
        }
    }
}

fn null_registry(plugin: &mut Plugin, findings: &mut Findings) {
    let Some(register) = plugin.library.symbol(abi::kineto::REGISTER_SYMBOL) else { return };
    // SAFETY: by the interface's definition, a function with this name takes a registry. The probe
    // asks whether the plugin copes with null; a fault ends this process, which only runs one
    // probe.
    let end = unsafe { catch::call(register.as_ptr(), std::ptr::null(), std::ptr::null()) };
    let code = returned(end.map(|code| code as i32));
    if code == 0 {
        findings.style(ROBUST, "KinetoPlugin_register returned 0 for a null registry");
    }
}

fn small_registry(plugin: &mut Plugin, findings: &mut Findings) {
    // A registry of this size has no registerProfiler.
    if plugin.register(16) == Some(0) && !plugin.interfaces.is_empty() {
        findings.style(SIZES, "used registerProfiler of a registry whose size does not cover it");
    }
}

fn large_registry(plugin: &mut Plugin, findings: &mut Findings) {
    if let Some(code) = plugin.register(Registry::SIZE + 64).filter(|code| *code != 0) {
        findings.fragile(
            SIZES,
            format!("KinetoPlugin_register returned {code} for a registry of a later version"),
        );
    }
}

/// The value of the bytes behind the room that a query may fill, so that a write there is noticed.
const GUARD: u8 = 0xa5;

struct Query {
    name: [u8; 128],
    types: [u32; 128],
}

impl Query {
    fn new() -> Self {
        Self { name: [GUARD; 128], types: [u32::from_ne_bytes([GUARD; 4]); 128] }
    }

    fn params(&mut self, name_length: usize, types_length: usize) -> QueryParams {
        QueryParams {
            size: QueryParams::SIZE,
            profiler: std::ptr::null_mut(),
            name: self.name.as_mut_ptr().cast::<c_char>(),
            name_length,
            types: self.types.as_mut_ptr(),
            types_length,
        }
    }

    fn kept(&self, name_length: usize, types_length: usize) -> bool {
        let guard = u32::from_ne_bytes([GUARD; 4]);
        self.name[name_length + 1..].iter().all(|byte| *byte == GUARD)
            && self.types[types_length..].iter().all(|number| *number == guard)
    }
}

fn query(plugin: &mut Plugin, findings: &mut Findings) {
    for interface in plugin.profilers() {
        let mut query = Query::new();
        // Hosts fill the list of types with zeros, so a plugin need not write a zero after its
        // types.
        query.types[..ROOM].fill(0);
        let code = call(interface.query, &mut query.params(NAME_BYTES, ROOM)).unwrap_or(-1);
        if code != 0 {
            // If the query fails, the published host knows no types of the profiler and never
            // starts it.
            findings.violation(QUERY, format!("profilerQuery returned {code}"));
            continue;
        }
        findings.check(query.kept(NAME_BYTES, ROOM), QUERY, || {
            "profilerQuery wrote outside of the host's room".into()
        });
        let end = query.name[..=NAME_BYTES].iter().position(|byte| *byte == 0);
        match end {
            None if query.name[..=NAME_BYTES].iter().all(|byte| *byte == GUARD) => {
                findings.violation(QUERY, "profilerQuery gave no name");
            }
            None => findings
                .violation(QUERY, "profilerQuery wrote a name without a zero byte at its end"),
            Some(0) => findings.fragile(QUERY, "profilerQuery gave an empty name"),
            Some(length) if !query.name[..length].is_ascii() => {
                findings
                    .fragile(WRITERS, "its name is not ASCII, which PyTorch writes as \"unknown\"");
            }
            Some(_) => {}
        }
        let types: Vec<u32> =
            query.types[..ROOM].iter().copied().take_while(|number| *number != 0).collect();
        findings.check(!types.is_empty(), TYPES, || {
            "supports no type of events, so that no host starts it".into()
        });
        for number in &types {
            findings.check(abi::kineto::event_type(*number).is_some(), TYPES, || {
                format!("profilerQuery listed event type {number}, which does not exist")
            });
        }
        if !types.is_empty() && !types.iter().any(|number| [1, 8, 9, 23, 24].contains(number)) {
            findings.style(
                PYTORCH,
                "supports no type that PyTorch requests for CPU activity (cpu_op, \
                 privateuse1_runtime and others), so that PyTorch's own host does not start it",
            );
        }
        if supported(&interface) != types && !types.is_empty() {
            findings.fragile(QUERY, "profilerQuery gave other types when it was called again");
        }
    }
}

fn little_room(plugin: &mut Plugin, findings: &mut Findings) {
    for interface in plugin.profilers() {
        let mut query = Query::new();
        call(interface.query, &mut query.params(3, 1));
        findings.check(query.kept(3, 1), QUERY, || {
            "profilerQuery wrote more than the host has room for".into()
        });
    }
}

fn null_query(plugin: &mut Plugin, findings: &mut Findings) {
    for interface in plugin.profilers() {
        if call_null(interface.query) == Some(0) {
            findings.style(ROBUST, "profilerQuery returned 0 for null arguments");
        }
    }
}

fn small_query(plugin: &mut Plugin, findings: &mut Findings) {
    for interface in plugin.profilers() {
        let mut query = Query::new();
        let mut params = query.params(NAME_BYTES, ROOM);
        params.size = 16;
        if call(interface.query, &mut params) == Some(0) {
            findings.style(SIZES, "profilerQuery returned 0 for arguments that are too small");
        }
    }
}
