//! Writes the format of pprof: `profile.proto`, compressed with gzip.
//!
//! There is one location for each frame. Texts are in a table, whose first text is empty. Fields
//! are in the order of their numbers where this is easy; readers accept any order.

use std::collections::HashMap;
use std::io::{self, Write};

use flate2::{Compression, GzBuilder};

use super::{StackNode, Stacks};
use crate::perfetto::encode::Encoder;

mod field {
    pub const SAMPLE_TYPE: u32 = 1;
    pub const SAMPLE: u32 = 2;
    pub const LOCATION: u32 = 4;
    pub const FUNCTION: u32 = 5;
    pub const STRING_TABLE: u32 = 6;
    pub const TIME_NANOS: u32 = 9;
    pub const COMMENT: u32 = 13;
    pub const DEFAULT_SAMPLE_TYPE: u32 = 14;
}

#[derive(Default)]
struct Texts<'a> {
    numbers: HashMap<&'a str, u64>,
    all: Vec<&'a str>,
}

impl<'a> Texts<'a> {
    fn number(&mut self, text: &'a str) -> u64 {
        *self.numbers.entry(text).or_insert_with(|| {
            self.all.push(text);
            self.all.len() as u64 - 1
        })
    }
}

/// Writes the file. Stacks whose values are all 0 are left out.
pub fn write(out: &mut impl Write, stacks: &Stacks) -> io::Result<()> {
    let mut texts = Texts::default();
    texts.number("");
    let mut all = Encoder::default();
    for (name, unit) in &stacks.kinds {
        let (name, unit) = (texts.number(name), texts.number(unit.name()));
        all.message(field::SAMPLE_TYPE, |m| {
            m.uint(1, name);
            m.uint(2, unit);
        });
    }
    for node in stacks.nodes.iter().filter(|node| node.values.iter().any(|value| *value > 0)) {
        let path = stacks.path(node);
        let numbers = path.iter().flat_map(|node: &&StackNode| &node.numbers);
        let labels: Vec<(u64, u64)> =
            numbers.map(|(name, number)| (texts.number(name), *number)).collect();
        all.message(field::SAMPLE, |m| {
            // The innermost frame comes first.
            path.iter().rev().for_each(|node| m.uint(1, location(node)));
            node.values
                .iter()
                .for_each(|value| m.int(2, i64::try_from(*value).unwrap_or(i64::MAX)));
            for (name, number) in labels {
                m.message(3, |m| {
                    m.uint(1, name);
                    m.uint(3, number);
                });
            }
        });
    }
    for (id, frame) in (1..).zip(&stacks.frames) {
        all.message(field::LOCATION, |m| {
            m.uint(1, id);
            m.message(4, |m| {
                m.uint(1, id);
                m.uint(2, frame.line.into());
            });
        });
    }
    for (id, frame) in (1..).zip(&stacks.frames) {
        let name = texts.number(if frame.name.is_empty() { "(no name)" } else { &frame.name });
        let file = texts.number(&frame.file);
        all.message(field::FUNCTION, |m| {
            m.uint(1, id);
            m.uint(2, name);
            m.uint(3, name);
            m.uint(4, file);
            m.uint(5, frame.line.into());
        });
    }
    all.uint(field::TIME_NANOS, stacks.begin_unix_ns);
    stacks.comments.iter().for_each(|text| all.uint(field::COMMENT, texts.number(text)));
    if let Some((name, _)) = stacks.kinds.get(stacks.main) {
        all.uint(field::DEFAULT_SAMPLE_TYPE, texts.number(name));
    }
    texts.all.iter().for_each(|text| all.bytes(field::STRING_TABLE, text.as_bytes()));
    // The header of gzip gets neither a time nor a name, so that the same stacks give the same
    // file.
    let mut gzip = GzBuilder::new().mtime(0).write(out, Compression::default());
    gzip.write_all(&all.bytes)?;
    gzip.finish()?;
    Ok(())
}

/// Returns the id of the location of a node's frame. The id of a location must not be 0.
fn location(node: &StackNode) -> u64 {
    node.frame as u64 + 1
}
