//! Writes the JSON of speedscope.app, according to its published schema
//! (`file-format-schema.json`): one profile of type `sampled` for each kind of value, with shared
//! frames.

use std::io::{self, Write};

use serde::Serialize;

use super::{StackUnit, Stacks};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: &'a str,
    name: &'a str,
    active_profile_index: usize,
    shared: Shared<'a>,
    profiles: Vec<Sampled<'a>>,
}

#[derive(Serialize)]
struct Shared<'a> {
    frames: Vec<Frame<'a>>,
}

#[derive(Serialize)]
struct Frame<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    file: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    line: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sampled<'a> {
    r#type: &'static str,
    name: &'a str,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    samples: Vec<Vec<usize>>,
    weights: Vec<u64>,
}

fn is_zero(line: &u32) -> bool {
    *line == 0
}

pub fn write(out: &mut impl Write, stacks: &Stacks) -> io::Result<()> {
    let frames = stacks.frames.iter().map(|frame| Frame {
        name: if frame.name.is_empty() { "(no name)" } else { &frame.name },
        file: &frame.file,
        line: frame.line,
    });
    let profile = |kind: usize| {
        let (name, unit) = &stacks.kinds[kind];
        let of_kind: Vec<_> = stacks.with(kind).collect();
        let samples = of_kind.iter().map(|(path, _)| path.iter().map(|node| node.frame).collect());
        let weights: Vec<u64> = of_kind.iter().map(|(_, value)| *value).collect();
        let (samples, unit) = (samples.collect(), named(*unit));
        let end_value = weights.iter().fold(0, |sum: u64, value| sum.saturating_add(*value));
        Sampled { r#type: "sampled", name, unit, start_value: 0, end_value, samples, weights }
    };
    let file = File {
        schema: "https://www.speedscope.app/file-format-schema.json",
        exporter: &stacks.exporter,
        name: &stacks.title,
        active_profile_index: stacks.main,
        shared: Shared { frames: frames.collect() },
        profiles: (0..stacks.kinds.len()).map(profile).collect(),
    };
    serde_json::to_writer(&mut *out, &file)?;
    writeln!(out)
}

/// Returns the schema's name for the unit.
fn named(unit: StackUnit) -> &'static str {
    match unit {
        StackUnit::Nanoseconds => "nanoseconds",
        StackUnit::Bytes => "bytes",
        StackUnit::Count | StackUnit::Other(_) => "none",
    }
}
