//! `pmu/term=value,…/` by what sysfs says about the PMUs of this machine.
//!
//! ```text
//!  /sys/bus/event_source/devices/<pmu>/type            perf_event_attr.type
//!                                     /format/<term>   "config:0-7,32-35": where its bits go
//!                                     /events/<name>   "event=0x3c,umask=0x00": terms by a name
//!                                     /events/<name>.scale, .unit
//!                                     /cpumask         there: counts a whole package, not a thread
//! ```
//!
//! Source: Documentation/ABI/testing/sysfs-bus-event_source-devices-{format,events}.

use model::{PerfAttr, Scale, Scope, Source, Unit};

use super::error::NameErrorKind;
use super::parse::number;
use super::resolve::{Entry, NameSource, Resolved, Trouble};
use super::suggest;
use super::syntax::{Head, Term};
use crate::machine::Machine;

/// Where PMUs are described.
pub(crate) const DEVICES: &str = "sys/bus/event_source/devices";

/// [`NameSource`] of the machine's PMUs.
pub(super) struct Pmus(pub Machine);

/// PMUs whose numbers are named otherwise (`page-faults`, `system:name`, `mem:…`), or that need
/// more than numbers (a uprobe needs a path).
const NAMED_OTHERWISE: [&str; 5] = ["software", "tracepoint", "breakpoint", "uprobe", "kprobe"];

impl NameSource for Pmus {
    fn resolve(&self, head: &Head) -> Option<Result<Resolved, Trouble>> {
        match head {
            Head::Pmu { pmu, terms } => Some(self.look_up(pmu, terms)),
            _ => None,
        }
    }

    fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        for pmu in self.0.list(DEVICES) {
            if NAMED_OTHERWISE.contains(&pmu.as_str()) {
                continue;
            }
            for event in self.events(&pmu) {
                let head = Term { at: 0, name: event.clone(), value: None };
                if self.look_up(&pmu, &[head]).is_err() {
                    continue;
                }
                entries.push(Entry {
                    name: format!("{pmu}/{event}/"),
                    aliases: vec![],
                    source: format!("pmu {pmu}"),
                    unit: Unit::Count,
                    description: self.event(&pmu, &event).unwrap_or_default(),
                    is_pattern: false,
                });
            }
        }
        entries.push(Entry {
            name: "PMU/TERM=VALUE,…/".into(),
            aliases: vec![],
            source: "pmu".into(),
            unit: Unit::Count,
            description: "any counter of a PMU by its terms, as in cpu/event=0x3c,umask=0x1/"
                .into(),
            is_pattern: true,
        });
        entries
    }
}

impl Pmus {
    fn events(&self, pmu: &str) -> Vec<String> {
        let mut names = self.0.list(&format!("{DEVICES}/{pmu}/events"));
        names.retain(|n| !n.contains('.'));
        names
    }

    fn event(&self, pmu: &str, event: &str) -> Option<String> {
        self.0.read_trimmed(&format!("{DEVICES}/{pmu}/events/{event}"))
    }

    fn look_up(&self, pmu: &str, terms: &[Term]) -> Result<Resolved, Trouble> {
        let dir = format!("{DEVICES}/{pmu}");
        let all = self.0.list(DEVICES);
        if !all.iter().any(|p| p == pmu) {
            let near = suggest::closest(pmu, all.iter().map(String::as_str)).join(", ");
            let hint = match (all.is_empty(), near.as_str()) {
                (true, _) => "this machine describes no PMU in sysfs".into(),
                (false, "") => format!("PMUs of this machine: {}", all.join(", ")),
                (false, near) => format!("did you mean {near}?"),
            };
            let problem = format!("this machine has no PMU {pmu:?}");
            return Err(Trouble::new(NameErrorKind::Machine { problem }).hint(hint));
        }
        if pmu == "uprobe" || pmu == "kprobe" {
            let what = format!("a {pmu} as a counter");
            return Err(Trouble::new(NameErrorKind::Unsupported { what }));
        }
        let machine = |problem: String| Trouble::new(NameErrorKind::Machine { problem });
        let kind = self
            .0
            .read_trimmed(&format!("{dir}/type"))
            .and_then(|t| t.parse().ok())
            .ok_or_else(|| machine(format!("/{dir}/type holds no number")))?;
        let mut resolved = Resolved::new(Source::Perf(PerfAttr::default()), Unit::Count);
        if let Some(cpus) = self.0.read_trimmed(&format!("{dir}/cpumask")) {
            let problem = || machine(format!("/{dir}/cpumask: {cpus:?} names no processors"));
            resolved.scope = Scope::Cpus(parse_cpus(&cpus).ok_or_else(problem)?);
        }
        let mut attr = PerfAttr { kind, ..PerfAttr::default() };
        for term in terms {
            self.apply(pmu, term, &mut attr, &mut resolved, true)?;
        }
        if resolved.scope.is_thread() && resolved.scale != Scale::ONE {
            let what = format!("{pmu}, a counter of threads whose values have a scale");
            return Err(Trouble::new(NameErrorKind::Unsupported { what }));
        }
        resolved.source = Source::Perf(attr);
        Ok(resolved)
    }

    /// Puts one term into the attributes; a name from `events` stands for terms of its own.
    fn apply(
        &self,
        pmu: &str,
        term: &Term,
        attr: &mut PerfAttr,
        resolved: &mut Resolved,
        names_allowed: bool,
    ) -> Result<(), Trouble> {
        if let ("name", Some(name)) = (term.name.as_str(), &term.value) {
            resolved.name = Some(name.clone());
            return Ok(());
        }
        let format = match term.name.as_str() {
            whole @ ("config" | "config1" | "config2") => Some(format!("{whole}:0-63")),
            name => self.0.read_trimmed(&format!("{DEVICES}/{pmu}/format/{name}")),
        };
        if let (None, None, true) = (&format, &term.value, names_allowed)
            && let Some(terms) = self.event(pmu, &term.name)
        {
            (resolved.unit, resolved.scale) = self.unit(pmu, term)?;
            for piece in terms.split(',') {
                let (name, value) = match piece.split_once('=') {
                    Some((name, value)) => (name, Some(value.into())),
                    None => (piece, None),
                };
                let inner = Term { at: term.at, name: name.into(), value };
                self.apply(pmu, &inner, attr, resolved, false)?;
            }
            return Ok(());
        }
        let Some(format) = format else {
            return Err(self.unknown(pmu, term));
        };
        let value_error = |text: &str, problem: String| {
            Trouble::new(NameErrorKind::Value { text: text.into(), problem }).at(term.at)
        };
        let text = term.value.as_deref().unwrap_or("1");
        if text == "?" {
            let what = format!("{pmu}: leaving out the value of {}", term.name);
            return Err(Trouble::new(NameErrorKind::Unsupported { what }).at(term.at));
        }
        let value = number(text)
            .ok_or_else(|| value_error(text, "not a number (0x… or decimal)".into()))?;
        let (field, bits) = parse_format(&format).ok_or_else(|| {
            let problem = format!("/{DEVICES}/{pmu}/format/{}: {format:?}", term.name);
            Trouble::new(NameErrorKind::Machine { problem }).at(term.at)
        })?;
        if bits.len() < 64 && value >> bits.len() != 0 {
            return Err(value_error(text, format!("{} has {} bits", term.name, bits.len())));
        }
        let word = match field {
            Field::Config => &mut attr.config,
            Field::Config1 => &mut attr.config1,
            Field::Config2 => &mut attr.config2,
        };
        for (i, bit) in bits.into_iter().enumerate() {
            *word = *word & !(1 << bit) | (value >> i & 1) << bit;
        }
        Ok(())
    }

    /// What a name from `events` is measured in.
    fn unit(&self, pmu: &str, term: &Term) -> Result<(Unit, Scale), Trouble> {
        let file = |ending| format!("{DEVICES}/{pmu}/events/{}.{ending}", term.name);
        let (unit, more) =
            self.0.read_trimmed(&file("unit")).map_or((Unit::Count, 1.0), |word| unit_of(&word));
        let text = self.0.read_trimmed(&file("scale"));
        let factor = text.as_deref().map_or(Some(1.0), |text| text.parse::<f64>().ok());
        let scale = factor.and_then(|factor| Scale::new(factor * more)).ok_or_else(|| {
            let problem = format!("/{}: {:?} is no scale", file("scale"), text.unwrap_or_default());
            Trouble::new(NameErrorKind::Machine { problem }).at(term.at)
        })?;
        Ok((unit, scale))
    }

    fn unknown(&self, pmu: &str, term: &Term) -> Trouble {
        let mut known = self.events(pmu);
        known.extend(self.0.list(&format!("{DEVICES}/{pmu}/format")));
        let near = suggest::closest(&term.name, known.iter().map(String::as_str));
        let kind = NameErrorKind::UnknownTerm { pmu: pmu.into(), term: term.name.clone() };
        let trouble = Trouble::new(kind).at(term.at);
        if near.is_empty() {
            known.truncate(12);
            return trouble.hint(format!("some of {pmu}'s: {}", known.join(", ")));
        }
        trouble.hint(format!("did you mean {}?", near.join(", ")))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Config,
    Config1,
    Config2,
}

/// The kernel's words for units (its drivers write `Joules`, `MiB`, `Bytes`; perf's tables
/// `MiB`, `64Bytes`), and how many of ours one of them is.
pub(super) fn unit_of(word: &str) -> (Unit, f64) {
    match word.to_ascii_lowercase().as_str() {
        "" => (Unit::Count, 1.0),
        "joules" | "j" => (Unit::Joules, 1.0),
        "bytes" | "b" => (Unit::Bytes, 1.0),
        "kib" => (Unit::Bytes, 1024.0),
        "mib" => (Unit::Bytes, 1024.0 * 1024.0),
        "gib" => (Unit::Bytes, 1024.0 * 1024.0 * 1024.0),
        "kb" => (Unit::Bytes, 1e3),
        "mb" => (Unit::Bytes, 1e6),
        "gb" => (Unit::Bytes, 1e9),
        "ns" => (Unit::Nanoseconds, 1.0),
        "us" => (Unit::Nanoseconds, 1e3),
        "ms" => (Unit::Nanoseconds, 1e6),
        "s" | "secs" | "seconds" => (Unit::Nanoseconds, 1e9),
        "cycles" => (Unit::Cycles, 1.0),
        _ => (Unit::Other, 1.0),
    }
}

/// `0,18-19` to processors; `None` if it names none.
pub(crate) fn parse_cpus(text: &str) -> Option<Vec<u32>> {
    /// Bounds what a damaged file makes us allocate.
    const MOST: u32 = 65_536;
    let mut cpus = Vec::new();
    for range in text.split(',') {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let (from, to): (u32, u32) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
        if from > to || to >= MOST {
            return None;
        }
        cpus.extend(from..=to);
    }
    (!cpus.is_empty()).then_some(cpus)
}

/// `config:0-7,32-35` to the bits in the order of the value's own, least significant first.
fn parse_format(text: &str) -> Option<(Field, Vec<u32>)> {
    let (field, ranges) = text.split_once(':')?;
    let field = match field {
        "config" => Field::Config,
        "config1" => Field::Config1,
        "config2" => Field::Config2,
        _ => return None,
    };
    let mut bits = Vec::new();
    for range in ranges.split(',') {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let (from, to): (u32, u32) = (from.parse().ok()?, to.parse().ok()?);
        if from > to || to > 63 {
            return None;
        }
        bits.extend(from..=to);
    }
    (bits.len() <= 64).then_some((field, bits))
}
