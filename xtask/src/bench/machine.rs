//! Describes the machine on which a result was measured. The description has what a reader needs to
//! judge the result, but no name or address of the machine.

use serde_json::{Value, json};

/// The load averages of one, five and fifteen minutes.
pub fn load() -> String {
    let text = read("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

pub fn describe() -> Value {
    let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let flags = field("flags").unwrap_or_default();
    let has = |flag: &str| flags.split_whitespace().any(|word| word == flag);
    let stepping =
        ["cpu family", "model\t", "stepping"].map(|name| field(name).unwrap_or_default()).join("-");
    json!({
        "cpu": field("model name"),
        "family-model-stepping":
            stepping,
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "memory_kib": memory_kib(),
        "kernel": read("/proc/sys/kernel/osrelease"),
        "architecture": std::env::consts::ARCH,
        "governor": read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "virtualised": has("hypervisor"),
        "clocksource": read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "invariant_tsc": has("constant_tsc") && has("nonstop_tsc"),
        "perf_event_paranoid": read("/proc/sys/kernel/perf_event_paranoid"),
        "pmu": std::path::Path::new("/sys/bus/event_source/devices/cpu").exists(),
    })
}

pub fn line(machine: &Value) -> String {
    let text = |name: &str| machine[name].as_str().unwrap_or("unknown").to_owned();
    let virtualised =
        if machine["virtualised"] == json!(true) { "virtualised" } else { "bare metal" };
    format!(
        "{} ({}), {} cores, {virtualised}, kernel {}, governor {}, clock source {}",
        text("cpu"),
        text("family-model-stepping"),
        machine["cores"],
        text("kernel"),
        text("governor"),
        text("clocksource"),
    )
}

fn memory_kib() -> Option<u64> {
    let text = read("/proc/meminfo")?;
    text.lines().next()?.split_whitespace().nth(1)?.parse().ok()
}

fn read(path: &str) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim_end().to_owned())
}
