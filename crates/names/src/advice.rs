//! What to type instead of an unknown name: advice where the wish is common and has another answer
//! (not a counter, or a counter under another kind of name), otherwise the nearest names of all
//! catalogues.

use model::metric::BUILTINS;
use model::suggest;

use crate::source::Entry;

/// Words for which there is no counter, and what gives what they ask for.
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
         names)",
    ),
    (&["r", "raw"], "rNNNN is a hardware counter by its number in hexadecimal, as in r01c2"),
];

/// Advice about `name`, which no source knows.
pub(crate) fn about(name: &str, entries: &[Entry]) -> Option<String> {
    wanted(name).or_else(|| nearest(name, entries))
}

fn wanted(name: &str) -> Option<String> {
    if name.contains(';') {
        return Some(format!("commas separate counters: -e {}", name.replace(';', ",")));
    }
    let is = |known: &&str| known.eq_ignore_ascii_case(name);
    if let Some((_, advice)) = WANTED.iter().find(|(words, _)| words.iter().any(is)) {
        return Some((*advice).to_owned());
    }
    if let Some(metric) = BUILTINS.iter().find(|metric| is(&metric.name)) {
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

fn nearest(name: &str, entries: &[Entry]) -> Option<String> {
    let counters = entries.iter().filter(|entry| !entry.is_pattern);
    let names = || counters.clone().flat_map(|e| std::iter::once(&e.name).chain(&e.aliases));
    let mut near = Vec::new();
    // A tracepoint's second half alone: `syscalls:read`.
    if let Some((system, point)) = name.split_once(':').filter(|(_, point)| !point.is_empty()) {
        let within = names().filter(|known| {
            known.split_once(':').is_some_and(|(s, p)| {
                let mut words = p.split('_');
                s == system && words.any(|word| word == point)
            })
        });
        near.extend(within.map(String::as_str));
        near.sort_by_key(|known| known.len());
        near.truncate(3);
    }
    if near.is_empty() {
        near = suggest::closest(name, names().map(String::as_str));
    }
    (!near.is_empty()).then(|| format!("did you mean {}?", near.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Unit;

    #[test]
    fn what_people_want() {
        let entries: Vec<Entry> = [
            "page-faults",
            "context-switches",
            "syscalls:sys_enter_read",
            "syscalls:sys_exit_read",
            "syscalls:sys_enter_readv",
        ]
        .map(|name| Entry::new(name, "test", Unit::Count, ""))
        .into();
        for (typed, expected) in [
            ("ipc", "-e '{instructions,cycles}' --metric ipc"),
            ("IPC", "--metric ipc"),
            ("branch-mpki", "-e '{branch-misses,instructions}' --metric branch-mpki"),
            ("fault-rate", "-e '{page-faults}' --metric fault-rate"),
            ("duration", "is always recorded"),
            ("r", "as in r01c2"),
            ("0x1c2", ": r1c2"),
            ("pf", "did you mean page-faults?"),
            ("a;b", "commas separate counters: -e a,b"),
            ("kprobe:do_exit", "perf probe --add 'do_exit'; -e probe:do_exit"),
            ("kretprobe:do_exit", "--add 'do_exit%return'; -e probe:do_exit__return"),
            ("syscalls:read", "did you mean syscalls:sys_exit_read, syscalls:sys_enter_read?"),
        ] {
            let advice = about(typed, &entries).unwrap_or_default();
            assert!(advice.ends_with(expected) || advice.contains(expected), "{typed}: {advice}");
        }
        assert_eq!(about("zzzzzz", &entries), None);
    }
}
