//! Makes keys of ops: the same op has the same key in all ranks.
//!
//! A key is a hash of the op's name, library and role, and of the types and shapes of its
//! arguments. The device is not part of the key, because ranks use different devices. The source
//! location is not part of it either, because it contains a path on one machine. If several ops of
//! a process have the same key, only the first op keeps it. Each later op gets another key: a hash
//! of this key and of the number of earlier ops with it.

use std::collections::{BTreeMap, HashMap};

use analysis::Key;
use profile::Profile;
use sha2::{Digest, Sha256};

use crate::file::in_digits;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OpName {
    /// 16 hexadecimal digits.
    pub key: String,
    pub name: String,
    pub role: &'static str,
    pub library: Option<String>,
    pub arguments: Option<String>,
    pub device: Option<String>,
    pub source: Option<String>,
}

/// Returns a hash of texts. The lengths are hashed, too, so that different lists are hashed as
/// different bytes.
pub(crate) fn hash_of(texts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    }
    in_digits(&hash.finalize())
}

/// Returns the key, the name and other texts for the op of each of `rows`, and for all other ops of
/// the profile. With `redacted`, names are made of keys, and libraries, arguments and source
/// locations are left out.
pub(crate) fn names(
    profile: &Profile,
    rows: impl Iterator<Item = Key>,
    redacted: bool,
) -> BTreeMap<Key, OpName> {
    let processes = profile.processes.iter().enumerate();
    // The calls that plugins recorded are in a process of their own, which needs no rows: the calls
    // are in the rows of the process in which the plugins ran.
    let told = processes.filter(|(_, process)| !process.id.is_of_plugins()).flat_map(|(at, _)| {
        let ops = &profile.ops;
        ops.of_process(at).map(move |op| Key::OpIn(at, ops.row_of(op)))
    });
    let mut rows: Vec<Key> = rows.chain(told).collect();
    rows.sort_unstable();
    rows.dedup();
    let mut seen: HashMap<(usize, String), u32> = HashMap::new();
    let named = rows.into_iter().filter_map(|row| {
        let (process, mut op) = match row {
            Key::OpIn(process, op) => (process, of_op(profile.ops.get(op)?)),
            Key::Unknown(process, export) => {
                let name = profile::batch::unknown_op(export);
                (process, OpName { name, role: "unknown", ..OpName::default() })
            }
            _ => return None,
        };
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (library, arguments) = (text(&op.library), text(&op.arguments));
        let content = [&*op.name, &*library, op.role, &*arguments];
        let key = hash_of(&content);
        let before = seen.entry((process, key.clone())).or_default();
        op.key = match *before {
            0 => key,
            before => hash_of(&[&key, &before.to_string()]),
        };
        *before += 1;
        Some((row, if redacted { without_texts(op) } else { op }))
    });
    named.collect()
}

fn of_op(op: &profile::Op) -> OpName {
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    OpName {
        key: String::new(),
        name: op.shown_name().to_owned(),
        role: op.role.name(),
        library: some(&op.library),
        arguments: some(&op.arguments),
        device: some(&op.device),
        source: op.source(),
    }
}

fn without_texts(op: OpName) -> OpName {
    OpName {
        name: format!("op {}", op.key),
        key: op.key,
        role: op.role,
        device: op.device,
        ..OpName::default()
    }
}
