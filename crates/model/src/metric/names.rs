//! Determines when two spellings mean the same counter. Counters keep the names that the user
//! typed, so a metric that uses `cycles` must find `cpu-cycles`.

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spelling {
    /// The counter's name in lower case, with aliases replaced by perf's generic name.
    pub base: String,
    /// The letters of the modifiers.
    pub modifiers: String,
}

impl Spelling {
    pub fn of(name: &str) -> Self {
        let (base, modifiers) = split(name);
        let lower = base.to_ascii_lowercase();
        let lower = lower.strip_prefix("perf::").unwrap_or(&lower);
        let first = ALIASES.iter().find(|(alias, _)| *alias == lower).map_or(lower, |(_, n)| *n);
        Self { base: first.to_owned(), modifiers: modifiers.to_owned() }
    }

    /// Returns the modifiers that select the modes in which the counter counts (user, kernel, …),
    /// in a fixed order.
    pub fn modes(&self) -> String {
        "ukhGH".chars().filter(|c| self.modifiers.contains(*c)).collect()
    }
}

/// Splits at the last colon, or after the last slash, if only modifier letters follow.
fn split(name: &str) -> (&str, &str) {
    let letters = |text: &str| !text.is_empty() && text.chars().all(|c| "ukhGHIpPD".contains(c));
    for (at, sign) in [(name.rfind(':'), 0), (name.rfind('/'), 1)] {
        let Some(at) = at else { continue };
        if at > 0 && letters(&name[at + 1..]) {
            return (&name[..at + sign], &name[at + 1..]);
        }
    }
    (name, "")
}

/// Other spellings of perf's generic names (tools/perf/util/parse-events.c, perf-list(1)), and
/// PAPI's presets with the same meaning.
const ALIASES: &[(&str, &str)] = &[
    ("cpu-cycles", "cycles"),
    ("papi_tot_cyc", "cycles"),
    ("papi_tot_ins", "instructions"),
    ("branches", "branch-instructions"),
    ("papi_br_ins", "branch-instructions"),
    ("papi_br_msp", "branch-misses"),
    ("idle-cycles-frontend", "stalled-cycles-frontend"),
    ("idle-cycles-backend", "stalled-cycles-backend"),
    ("faults", "page-faults"),
    ("cs", "context-switches"),
    ("migrations", "cpu-migrations"),
    ("l1-dcache-load", "l1-dcache-loads"),
    ("llc-load", "llc-loads"),
    ("dtlb-load", "dtlb-loads"),
];

#[cfg(test)]
mod tests {
    use super::Spelling;

    #[test]
    fn spellings() {
        for (name, base, modifiers) in [
            ("cycles", "cycles", ""),
            ("CPU-Cycles:u", "cycles", "u"),
            ("perf::CYCLES", "cycles", ""),
            ("perf::CYCLES:k", "cycles", "k"),
            ("PAPI_TOT_INS", "instructions", ""),
            ("cpu/event=0x3c/u", "cpu/event=0x3c/", "u"),
            ("cpu/event=0x3c/:uk", "cpu/event=0x3c/", "uk"),
            ("syscalls:sys_enter_openat", "syscalls:sys_enter_openat", ""),
            ("mem:0x401000/8:w", "mem:0x401000/8:w", ""),
            (":u", ":u", ""),
        ] {
            let spelling = Spelling::of(name);
            let got = (spelling.base.as_str(), spelling.modifiers.as_str());
            assert_eq!(got, (base, modifiers), "{name}");
        }
        assert_eq!(Spelling::of("cycles:pukD").modes(), "uk");
    }
}
