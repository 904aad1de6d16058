//! Advice for words that people type as counters but that name no counter, such as words for times,
//! memory, energy and metrics.

use model::metric::all_builtins;

const WANTED: &[(&[&str], &str)] = &[
    (
        &[
            "duration",
            "duration_ns",
            "time",
            "wall",
            "wall-clock",
            "wall-time",
            "walltime",
            "elapsed",
            "latency",
            "seconds",
            "ns",
        ],
        "the duration of each call is always recorded; -e none records nothing else. The time on a \
         processor is task-clock",
    ),
    (
        &["cpu-time", "cpu_time", "cputime", "user-time", "utime"],
        "task-clock is the time on a processor, in nanoseconds",
    ),
    (
        &["memory", "rss", "mem", "heap", "maxrss"],
        "no counter says how much memory a program has; page-faults counts the first touches of pages",
    ),
    (
        &["energy", "power", "rapl", "watts", "joules"],
        "power/energy-pkg/ where the processor has it (counterpoint list energy); run samples it for \
         the whole machine",
    ),
    (
        &["flops", "flop", "fp-ops", "gflops"],
        "PAPI_FP_OPS on AMD's Zen; elsewhere the processor's own counters (docs/counters.md, PAPI's \
         names); of PyTorch's ops, `report --by shape` has them",
    ),
    (&["r", "raw"], "rNNNN is a hardware counter by its number in hexadecimal, as in r01c2"),
];

/// Returns what to type instead of `name`, which is in no catalogue of counters.
pub fn instead_of(name: &str) -> Option<String> {
    if name.contains(';') {
        return Some(format!("commas separate counters: -e {}", name.replace(';', ",")));
    }
    let is = |known: &&str| known.eq_ignore_ascii_case(name);
    if let Some((_, advice)) = WANTED.iter().find(|(words, _)| words.iter().any(is)) {
        return Some((*advice).to_owned());
    }
    if let Some(metric) = all_builtins().find(|metric| is(&metric.name)) {
        let (expression, _) =
            metric.expression.split_once(" in ").unwrap_or((metric.expression, ""));
        let counters: Vec<&str> = expression
            .split(|c: char| c.is_whitespace() || "*/+()".contains(c))
            .filter(|word| word.starts_with(|c: char| c.is_alphabetic()) && *word != "duration")
            .collect();
        return Some(format!(
            "{} is a metric, which is computed from counters: -e '{{{}}}' --metric {}",
            metric.name,
            counters.join(","),
            metric.name
        ));
    }
    let digits = name.strip_prefix("0x").unwrap_or(name);
    if digits.len() >= 2 && u64::from_str_radix(digits, 16).is_ok() {
        return Some(format!("a hardware counter by its number: r{digits}"));
    }
    match name.split_once(':') {
        Some((kind @ ("kprobe" | "kretprobe"), function)) => {
            let end = if kind == "kretprobe" { "%return" } else { "" };
            let tracepoint = if end.is_empty() { "" } else { "__return" };
            Some(format!(
                "make a tracepoint of the kernel's function, then count it: sudo perf probe --add \
                 '{function}{end}'; -e probe:{function}{tracepoint}"
            ))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_want() {
        for (typed, expected) in [
            ("ipc", "-e '{instructions,cycles}' --metric ipc"),
            ("IPC", "--metric ipc"),
            ("branch-mpki", "-e '{branch-misses,instructions}' --metric branch-mpki"),
            ("fault-rate", "-e '{page-faults}' --metric fault-rate"),
            ("duration", "is always recorded"),
            ("r", "as in r01c2"),
            ("0x1c2", ": r1c2"),
            ("a;b", "commas separate counters: -e a,b"),
            ("kprobe:do_exit", "perf probe --add 'do_exit'; -e probe:do_exit"),
            ("kretprobe:do_exit", "--add 'do_exit%return'; -e probe:do_exit__return"),
        ] {
            let advice = instead_of(typed).unwrap_or_default();
            assert!(advice.contains(expected), "{typed}: {advice}");
        }
        assert_eq!(instead_of("zzzzzz"), None);
    }
}
