//! Resolves simulated counters: `sim/NAME,readings=0:5:0:7x3/`.
//!
//! ```text
//!  readings := step { ":" step }
//!  step     := [add] [ "@" running ] [ "!" ] [ "x" times ]
//! ```
//!
//! Each step is one reading of the counter by a thread, or as many readings as `times` says. A
//! thread reads at the beginning of a call, at its end, at the beginning of the next call, and so
//! on. After the last step, the script starts again. Numbers are decimal. `add` is the amount by
//! which the counter advanced after the previous reading. `running` is the number of nanoseconds of
//! this reading in which the counter's group was counting (default: all of them). Each reading
//! stands for 1000 nanoseconds, unless the term `enabled=` gives another number. `!` makes the
//! reading fail. `unit=` gives the unit, for example `ns`.

use model::{SimReading, SimScript, Source, Unit};

use crate::cause::NameCause;
use crate::error::NameErrorKind;
use crate::parse::number;
use crate::source::{Called, Entry, NameSource, Resolved, Trouble};
use crate::syntax::{Head, Term};

/// The largest number of readings in a script. The limit keeps the file with a recording's counters
/// small, and a typing error cannot allocate much memory.
const MOST_READINGS: usize = 65_536;

pub(crate) struct Scripts;

impl NameSource for Scripts {
    fn resolve(&self, head: &Head) -> Option<Result<Vec<Resolved>, Trouble>> {
        match head {
            Head::Pmu { pmu, terms } if pmu == "sim" => Some(script(terms).map(|one| vec![one])),
            _ => None,
        }
    }

    fn entries(&self) -> Vec<Entry> {
        vec![Entry::pattern(
            "sim/NAME,readings=0:5/",
            "simulated",
            "values that you type in, for trying things out (docs/counters.md)",
        )]
    }
}

fn script(terms: &[Term]) -> Result<Resolved, Trouble> {
    let value_error = |term: &Term, text: &str, problem: &str| {
        let kind = NameErrorKind::Value { text: text.into(), problem: problem.into() };
        Trouble::new(kind).at(term.at)
    };
    let Some((Term { name, value: None, .. }, options)) = terms.split_first() else {
        let problem = "a simulated counter begins with its name".into();
        let text = terms.first().map_or_else(String::new, Term::to_string);
        let trouble = Trouble::new(NameErrorKind::Value { text, problem });
        return Err(trouble.because(NameCause::ScriptIncomplete));
    };
    let (mut unit, mut enabled, mut readings) = (Unit::Count, 1000, None);
    for term in options {
        let value = term.value.as_deref().unwrap_or("");
        match term.name.as_str() {
            "unit" => {
                let known = (0..=u8::MAX).map_while(Unit::from_u8).find(|u| u.name() == value);
                let problem = "a unit is count, ns, bytes, cycles, J or other";
                unit = known.ok_or_else(|| value_error(term, value, problem))?;
            }
            "enabled" => {
                let problem = "nanoseconds of each reading are a number";
                enabled = number(value).ok_or_else(|| value_error(term, value, problem))?;
            }
            "readings" => readings = Some(term),
            _ => {
                let (pmu, term_name) = ("sim".into(), term.name.clone());
                let kind = NameErrorKind::UnknownTerm { pmu, term: term_name };
                return Err(Trouble::new(kind).at(term.at).because(NameCause::ScriptTerm));
            }
        }
    }
    let Some(term) = readings else {
        let problem = "a simulated counter needs readings=".into();
        let kind = NameErrorKind::Value { text: name.clone(), problem };
        return Err(Trouble::new(kind).because(NameCause::ScriptIncomplete));
    };
    let mut script = SimScript::default();
    let value = term.value.as_deref().unwrap_or("");
    for text in value.split(':') {
        let (reading, times) = step(text, enabled).ok_or_else(|| {
            value_error(term, text, "a reading is ADD[@RUNNING][!][xTIMES], as in 7, 7@400, !, 7x3")
        })?;
        if times > MOST_READINGS - script.readings.len() {
            let problem = format!("a script has at most {MOST_READINGS} readings");
            return Err(value_error(term, text, &problem));
        }
        script.readings.extend(std::iter::repeat_n(reading, times));
    }
    let mut resolved = Resolved::new(Source::Sim(script), unit);
    resolved.name = Called::Exactly(name.clone());
    Ok(resolved)
}

fn step(text: &str, enabled: u64) -> Option<(SimReading, usize)> {
    if text.is_empty() {
        return None;
    }
    // "0x3" means 0, three times. So numbers in scripts cannot be hexadecimal.
    let (text, times) = match text.split_once('x') {
        Some((before, times)) => (before, number(times)?.try_into().ok()?),
        None => (text, 1),
    };
    let (text, fails) = match text.strip_suffix('!') {
        Some(text) => (text, true),
        None => (text, false),
    };
    let (add, running) = match text.split_once('@') {
        Some((add, running)) => (add, number(running)?),
        None => (text, enabled),
    };
    let add = if add.is_empty() && (fails || text.contains('@')) { 0 } else { number(add)? };
    (times > 0).then_some((SimReading { add, enabled, running, fails }, times))
}
