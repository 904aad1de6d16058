//! Reads one table: a list of objects, or in Intel's layout `{"Header": …, "Events": […]}`.
//!
//! | key | becomes |
//! |---|---|
//! | `EventCode`, `ExtSel` | `event=`; the first code, if there are several (the kernel may use another of them) |
//! | `UMask`, `UMaskExt` | `umask=`, with the extension above its eight bits |
//! | `CounterMask`, `Invert`, `EdgeDetect`, `AnyThread` | `cmask=`, `inv=`, `edge=`, `any=` |
//! | `MSRIndex`, `MSRValue` | `offcore_rsp=`, `ldlat=` or `frontend=`, which depends on the register |
//! | `ConfigCode`, `EventidCode` | `config=`, `eventid=` in place of `event=` |
//! | `PortMask`, `FCMask`, `NodeType`, `EnAllCores`, `EnAllSlices`, `SliceId`, `ThreadMask`, `RdWrMask` | terms of uncore units |
//! | `Filter` | its pieces of the form `name=number`, unchanged |
//! | `Unit` | the PMU |
//! | `ScaleUnit` | unit and scale |
//! | `ArchStdEvent` | the event of that name, changed by the other keys of the object |

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use model::{Scale, Unit};
use serde_json::{Map, Value};

use super::VendorEvent;
use crate::parse::number;
use crate::units::unit_and_scale;

type Object = Map<String, Value>;

/// Events to which others refer (`ArchStdEvent`), by name in lower case.
pub(super) struct Standard(HashMap<String, Object>);

impl Standard {
    pub(super) fn read(files: &[PathBuf], problems: &mut Vec<String>) -> Self {
        let mut known = HashMap::new();
        for file in files {
            for object in objects(file, problems) {
                if let Some(name) = text(&object, "EventName") {
                    known.insert(name.to_ascii_lowercase(), object);
                }
            }
        }
        Self(known)
    }
}

/// Adds the events in `file`. Events without `Unit` belong to `pmu`. The reasons why events are
/// left out go to `problems`.
pub(super) fn read(
    file: &Path,
    pmu: &str,
    standard: &Standard,
    events: &mut Vec<VendorEvent>,
    problems: &mut Vec<String>,
) {
    for object in objects(file, problems) {
        match event(object, pmu, standard) {
            Ok(found) => events.extend(found),
            Err(problem) => problems.push(format!("{}: {problem}", file.display())),
        }
    }
}

/// Returns the event of an object; `None` for other objects, such as a metric.
fn event(
    mut object: Object,
    pmu: &str,
    standard: &Standard,
) -> Result<Option<VendorEvent>, String> {
    if let Some(name) = text(&object, "ArchStdEvent") {
        let Some(base) = standard.0.get(&name.to_ascii_lowercase()) else {
            return Err(format!("no ArchStdEvent {name:?}"));
        };
        let mut merged = base.clone();
        merged.extend(object);
        object = merged;
    }
    let Some(name) = text(&object, "EventName") else { return Ok(None) };
    let terms = terms(&object, &name).map_err(|e| format!("{name}: {e}"))?;
    let pmu = text(&object, "Unit").map_or_else(|| pmu.to_owned(), |unit| pmu_of(&unit));
    let (unit, scale) = text(&object, "ScaleUnit")
        .and_then(|s| unit_and_scale(&s))
        .unwrap_or((Unit::Count, Scale::ONE));
    let brief = text(&object, "BriefDescription");
    let description = brief.or_else(|| text(&object, "PublicDescription")).unwrap_or_default();
    let deprecated = text(&object, "Deprecated").is_some_and(|d| d == "1");
    Ok(Some(VendorEvent { name, pmu, terms, unit, scale, description, deprecated }))
}

/// Returns the objects of `file`. If the file cannot be read, or is no table, the reason goes to
/// `problems`. A file that is a JSON object without a list `Events` yields no objects, and is no
/// problem.
fn objects(file: &Path, problems: &mut Vec<String>) -> Vec<Object> {
    list(file).unwrap_or_else(|problem| {
        problems.push(problem);
        Vec::new()
    })
}

fn list(file: &Path) -> Result<Vec<Object>, String> {
    let wrong = |e: &dyn std::fmt::Display| format!("read {}: {e}", file.display());
    let bytes = fs::read(file).map_err(|e| wrong(&e))?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|e| wrong(&e))?;
    let list = match value {
        Value::Array(list) => list,
        Value::Object(mut object) => match object.remove("Events") {
            Some(Value::Array(list)) => list,
            _ => return Ok(Vec::new()),
        },
        _ => return Err(wrong(&"not a list of events")),
    };
    Ok(list
        .into_iter()
        .filter_map(|value| match value {
            Value::Object(object) => Some(object),
            _ => None,
        })
        .collect())
}

/// Returns the value of `key` as text, if it is a text or a number. Returns `None` for an empty
/// text, and for other values.
fn text(object: &Object, key: &str) -> Option<String> {
    match object.get(key)? {
        Value::String(text) if !text.trim().is_empty() => Some(text.trim().to_owned()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Returns the first number of a value such as `0xB7,0xBB`.
fn first(object: &Object, key: &str) -> Result<Option<u64>, String> {
    let Some(text) = text(object, key) else { return Ok(None) };
    let one = text.split(',').next().unwrap_or("").trim();
    number(one).map(Some).ok_or_else(|| format!("{key} {text:?} is not a number"))
}

const TERMS: [(&str, &str); 12] = [
    ("CounterMask", "cmask"),
    ("Invert", "inv"),
    ("EdgeDetect", "edge"),
    ("AnyThread", "any"),
    ("PortMask", "ch_mask"),
    ("FCMask", "fc_mask"),
    ("NodeType", "type"),
    ("RdWrMask", "rdwrmask"),
    ("EnAllCores", "enallcores"),
    ("EnAllSlices", "enallslices"),
    ("SliceId", "sliceid"),
    ("ThreadMask", "threadmask"),
];

/// Intel's fixed counters, which count one event each. Tables have pseudo codes for these events.
/// The kernel uses the codes of the architectural events with the same meaning (SDM volume 3, table
/// of fixed counters).
const FIXED: [(&str, &str); 5] = [
    ("inst_retired.any", "event=0xc0"),
    ("cpu_clk_unhalted.thread", "event=0x3c"),
    ("cpu_clk_unhalted.core", "event=0x3c"),
    ("cpu_clk_unhalted.thread_any", "event=0x3c,any=1"),
    ("cpu_clk_unhalted.ref", "event=0x0,umask=0x03"),
];

fn terms(object: &Object, name: &str) -> Result<String, String> {
    if let Some((_, terms)) = FIXED.iter().find(|(fixed, _)| fixed.eq_ignore_ascii_case(name)) {
        return Ok((*terms).to_owned());
    }
    let mut terms = Vec::new();
    if let Some(config) = first(object, "ConfigCode")? {
        terms.push(format!("config={config:#x}"));
    } else if let Some(id) = first(object, "EventidCode")? {
        terms.push(format!("eventid={id:#x}"));
    } else {
        let code = first(object, "EventCode")?.ok_or("no EventCode")?;
        let more = first(object, "ExtSel")?.unwrap_or(0);
        terms.push(format!("event={:#x}", code | more << 8));
    }
    let umask = first(object, "UMask")?.unwrap_or(0);
    let umask = umask | first(object, "UMaskExt")?.unwrap_or(0) << 8;
    if umask != 0 {
        terms.push(format!("umask={umask:#x}"));
    }
    for (key, term) in TERMS {
        if let Some(value) = first(object, key)?.filter(|value| *value != 0) {
            terms.push(format!("{term}={value:#x}"));
        }
    }
    if let Some(register) = first(object, "MSRIndex")?.filter(|register| *register != 0) {
        let term = match register {
            0x1a6 | 0x1a7 => "offcore_rsp",
            0x3f6 => "ldlat",
            0x3f7 => "frontend",
            _ => return Err(format!("MSRIndex {register:#x} is not known")),
        };
        let value = first(object, "MSRValue")?.unwrap_or(0);
        terms.push(format!("{term}={value:#x}"));
    }
    // In Intel's tables, `Filter` can be a sentence, so only pieces like `name=number` are taken.
    if let Some(filter) = text(object, "Filter") {
        let is_term = |piece: &str| {
            piece.split_once('=').is_some_and(|(_, value)| number(value.trim()).is_some())
        };
        terms.extend(filter.split(',').filter(|piece| is_term(piece)).map(str::to_owned));
    }
    Ok(terms.join(","))
}

/// Returns the PMU that `Unit` in a table stands for.
fn pmu_of(unit: &str) -> String {
    match unit {
        "CBO" => "uncore_cbox".into(),
        "SBO" => "uncore_sbox".into(),
        "QPI LL" => "uncore_qpi".into(),
        "UPI LL" => "uncore_upi".into(),
        "iMPH-U" => "uncore_arb".into(),
        "CPU-M-CF" => "cpum_cf".into(),
        "CPU-M-SF" => "cpum_sf".into(),
        "PAI-CRYPTO" => "pai_crypto".into(),
        "DFPMC" => "amd_df".into(),
        "L3PMC" => "amd_l3".into(),
        "UMCPMC" => "amd_umc".into(),
        "cpu_core" | "cpu_atom" => unit.into(),
        other if other.contains(',') => other.to_ascii_lowercase().replace(',', "_"),
        other => format!("uncore_{}", other.to_ascii_lowercase()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_become_terms() {
        for (json, expected) in [
            (r#"{"EventCode": "0xC0", "UMask": "0x01"}"#, Ok("event=0xc0,umask=0x1")),
            (
                r#"{"EventCode": "0xB7, 0xBB", "UMask": "1", "MSRIndex": "0x1a6,0x1a7", "MSRValue": "0x10001"}"#,
                Ok("event=0xb7,umask=0x1,offcore_rsp=0x10001"),
            ),
            (
                r#"{"EventCode": "0xCD", "MSRIndex": "0x3F6", "MSRValue": "0x80"}"#,
                Ok("event=0xcd,ldlat=0x80"),
            ),
            (
                r#"{"EventCode": "0x0E", "CounterMask": "1", "Invert": "1", "EdgeDetect": 0, "AnyThread": "1"}"#,
                Ok("event=0xe,cmask=0x1,inv=0x1,any=0x1"),
            ),
            (
                r#"{"EventCode": "0x35", "UMask": "0x21", "UMaskExt": "0xC001FE"}"#,
                Ok("event=0x35,umask=0xc001fe21"),
            ),
            (
                r#"{"EventCode": "0x34", "ExtSel": "1", "Filter": "filter_state=0x1,CBoFilter0[23:17]"}"#,
                Ok("event=0x134,filter_state=0x1"),
            ),
            (r#"{"ConfigCode": "0x2c"}"#, Ok("config=0x2c")),
            (r#"{"EventidCode": 7}"#, Ok("eventid=0x7")),
            (r#"{}"#, Err("no EventCode")),
            (r#"{"EventCode": "xyz"}"#, Err("EventCode \"xyz\" is not a number")),
            (r#"{"EventCode": "1", "MSRIndex": "0x99"}"#, Err("MSRIndex 0x99 is not known")),
        ] {
            let object: Object = serde_json::from_str(json).unwrap();
            let got = terms(&object, "some.name");
            assert_eq!(got, expected.map(str::to_owned).map_err(str::to_owned), "{json}");
        }
    }
}
