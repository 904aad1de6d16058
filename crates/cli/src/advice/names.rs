//! Advice for a counter list that cannot be used.

use machine::Machine;
use names::{NameCause, NameError, NameErrorKind};

use super::{OPEN_TRACEFS, devices, mount_tracefs, wanted};

/// Returns what to type or change so that the list can be used; `None` if the error message is
/// enough.
pub fn for_name(error: &NameError, machine: &Machine) -> Option<String> {
    let kind = &error.kind;
    match (kind, &error.cause) {
        (NameErrorKind::Unknown { name }, cause) => {
            let known = || cause.as_ref().map(|cause| for_cause(cause, kind, machine));
            Some(wanted::instead_of(name).or_else(known).unwrap_or_else(|| unknown(name)))
        }
        (_, Some(cause)) => Some(for_cause(cause, kind, machine)),
        (NameErrorKind::UnknownModifier { .. }, None) => Some(
            "u user, k kernel, h hypervisor, G guest, H host, I not idle, D pinned, e exclusive"
                .into(),
        ),
        (NameErrorKind::NoSource { device, .. }, None) => {
            devices::for_device(device).map(str::to_owned)
        }
        _ => None,
    }
}

fn unknown(name: &str) -> String {
    match name.contains('.') {
        true => {
            "a processor's own names need its tables (--events-dir DIR) or an installed perf of \
             Linux 6.2 or later"
                .into()
        }
        false => "counterpoint list shows every name".into(),
    }
}

fn for_cause(cause: &NameCause, kind: &NameErrorKind, machine: &Machine) -> String {
    let pmu = match kind {
        NameErrorKind::UnknownTerm { pmu, .. } => pmu,
        _ => "the PMU",
    };
    match cause {
        NameCause::Near(names) => format!("did you mean {}?", names.join(", ")),
        NameCause::Instead(counter) => format!("type {counter}"),
        NameCause::OpenedAt(byte) => format!("the first one is at byte {byte}"),
        NameCause::SeparatedModifiers => "as in page-faults:uk".into(),
        NameCause::AddressExpected => {
            "a breakpoint is at an address (nm PROGRAM shows them); to count \
             calls of a function: uprobe:PATH:FUNCTION"
                .into()
        }
        NameCause::OneFilter => "a tracepoint takes one filter: /filter=\"count > 100\"/".into(),
        NameCause::TooMany => {
            "that is what one profile holds; record the others in another run".into()
        }
        NameCause::Tables(problem) => problem.clone(),
        NameCause::TableRow(row) => format!("the processor's table has {row}"),
        NameCause::OtherProcessor => "perf's own names work on every processor".into(),

        NameCause::ScriptIncomplete => "for example sim/NAME,readings=0:5/".into(),
        NameCause::ScriptTerm => "the terms are readings=, enabled= and unit=".into(),

        NameCause::NoPmus => "sysfs describes no PMU of this machine".into(),
        NameCause::Pmus(all) => format!("PMUs of this machine: {}", all.join(", ")),
        NameCause::Terms(some) => format!("some of {pmu}'s: {}", some.join(", ")),
        NameCause::Capability(value) => format!("caps/{value} says what {pmu} can do"),
        NameCause::UprobePmu => "type uprobe:PATH:FUNCTION".into(),
        NameCause::KprobePmu => "a probe made with perf probe is a tracepoint: probe:NAME".into(),

        NameCause::TracepointPattern(pattern) => {
            format!("counterpoint list '{pattern}' shows them; name those that you want")
        }
        NameCause::ClosedTracefs => OPEN_TRACEFS.into(),
        NameCause::NoTracefs => mount_tracefs(machine),
        NameCause::Fields(fields) => format!("its fields: {}", fields.join(", ")),

        NameCause::NoUprobes => "use a kernel with CONFIG_UPROBE_EVENTS".into(),
        NameCause::NotInPath => "a library needs its whole path; ldd PROGRAM shows it".into(),
        NameCause::NotAnEntry => {
            "a return probe replaces the return address, which is in its place at \
             the entry of a function only; count the entries: uprobe:PATH:FUNCTION"
                .into()
        }
        NameCause::OffsetIntoIndirect => {
            "leave the offset out, or probe one implementation by its own name".into()
        }
        NameCause::ChoosingCode(counter) => format!("type the function's name: {counter}"),
        NameCause::Versions(versions) => format!("it has {}", versions.join(", ")),
        NameCause::NoDefaultVersion(versions) => format!("choose one: {}", versions.join(", ")),
        NameCause::Places(places) => format!("choose one by its offset: {}", places.join(", ")),
        NameCause::Imported(file) => {
            format!("{file} only calls it; probe the library that has it (ldd PROGRAM lists them)")
        }
        NameCause::NoSymbols => {
            "the file has no symbols; type an offset: uprobe:PATH:0x1234".into()
        }
        NameCause::NoSuchSymbol => "nm -D and nm show what a file defines".into(),
        NameCause::Implementations(names) if names.is_empty() => {
            "probe the implementation that is chosen, by its own name or offset: a debugger shows \
             it in the disassembly when the program calls the function"
                .into()
        }
        NameCause::Implementations(names) => {
            format!(
                "probe the implementation that this machine chooses, one of {}",
                names.join(", ")
            )
        }

        NameCause::NoSuchPreset => "docs/counters.md lists the presets that exist here".into(),
        NameCause::NearestPreset(near) => format!("the nearest: {near}"),
        NameCause::VendorOnly => {
            "a vendor's name for it, with --events-dir or an installed perf".into()
        }
        NameCause::VendorSpelling => "perf's spelling of a vendor's name (inst_retired.any), with \
             --events-dir or an installed perf"
            .into(),
        NameCause::NoSuchPerfName => {
            "counterpoint list shows perf's own names, which also work after perf::".into()
        }
        NameCause::PerfAttribute => {
            "u user, k kernel, h hypervisor, mg guest, mh host, pinned, excl".into()
        }
        NameCause::Precisions(presets) => {
            format!("single and double precision are a sum each: {} say which", presets.join(", "))
        }
        NameCause::WeightedSum(parts) => weighted_sum(parts),

        NameCause::NoComponent => "the processor's counters have no component: perf::CYCLES".into(),
        NameCause::Components(all) => format!("components: {}", all.join(", ")),
    }
}

/// Returns advice with the options of `run` that count `parts` (weights and counters) and compute
/// their weighted sum.
fn weighted_sum(parts: &[(u32, &str)]) -> String {
    let names: Vec<&str> = parts.iter().map(|(_, name)| *name).collect();
    let terms: Vec<String> =
        parts.iter().map(|(weight, name)| format!("{weight} * {name}")).collect();
    format!(
        "on Intel it is a weighted sum: -e '{{{}}}' --metric 'flops = {}', with --events-dir or an \
         installed perf",
        names.join(","),
        terms.join(" + ")
    )
}
