//! The columns of profiles with calls of virtual machines. The column `role` also exists in
//! profiles with calls that belong to no thread.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{
    ArrayBuilder, BooleanBuilder, Float64Builder, Int64Builder, StringDictionaryBuilder,
    UInt64Builder,
};
use arrow_array::types::Int32Type;
use arrow_schema::{DataType, Field};
use record::meta::{Role, ValueKind};

use crate::columns::{
    Columns, KEY_CORRELATION, KEY_FAILED, KEY_STORAGE_BYTES, KEY_WORKSPACE_BYTES,
};
use crate::ops::Op;
use crate::profile::Profile;

fn has_machines(profile: &Profile) -> bool {
    profile.ops.all().iter().any(|op| op.role.is_of_machine())
}

fn has_apart(profile: &Profile) -> bool {
    profile.ops.all().iter().any(|op| op.role.is_apart())
}

/// The name and kind of each key under which processes record values, without duplicates. `places`
/// maps a process's index and a key's number to the index in `names`.
#[derive(Clone, Debug, Default)]
struct Values {
    names: Vec<(String, ValueKind)>,
    places: HashMap<(usize, u32), usize>,
}

impl Values {
    fn of(profile: &Profile) -> Self {
        let mut all = Self::default();
        for (process, p) in profile.processes.iter().enumerate() {
            for key in &p.value_keys {
                let named = (key.name.clone(), key.kind);
                let known = all.names.iter().position(|known| *known == named);
                let place = known.unwrap_or_else(|| {
                    all.names.push(named);
                    all.names.len() - 1
                });
                all.places.insert((process, key.id), place);
            }
        }
        all
    }
}

/// Returns the fields of the columns that this profile needs. The list may be empty.
pub(super) fn fields(profile: &Profile) -> Vec<Field> {
    let role_alone = !has_machines(profile);
    if role_alone && !has_apart(profile) {
        return Vec::new();
    }
    let text = || DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let mut fields: Vec<Field> =
        ["role", "arguments", "device"].map(|name| Field::new(name, text(), true)).into();
    if role_alone {
        fields.truncate(1);
        return fields;
    }
    let numbers = ["region", "storage_bytes", "workspace_bytes"];
    fields.extend(numbers.map(|name| Field::new(name, DataType::UInt64, true)));
    fields.push(Field::new("failed", DataType::Boolean, true));
    fields.extend(Values::of(profile).names.into_iter().map(|(name, kind)| {
        let kind = match kind {
            ValueKind::Count => DataType::Int64,
            ValueKind::Duration | ValueKind::Percent | ValueKind::Ratio => DataType::Float64,
            ValueKind::Text => text(),
        };
        Field::new(name, kind, true)
    }));
    fields
}

enum ValueColumn {
    Whole(Int64Builder),
    Number(Float64Builder),
    Text(StringDictionaryBuilder<Int32Type>),
}

pub(super) struct MachineRows {
    texts: [StringDictionaryBuilder<Int32Type>; 3],
    numbers: [UInt64Builder; 3],
    failed: BooleanBuilder,
    values: Values,
    columns: Vec<ValueColumn>,
    /// The values of the current row.
    row: Vec<Option<u64>>,
    role_alone: bool,
}

impl MachineRows {
    /// Returns `None` if [`fields`] returns no fields.
    pub fn new(profile: &Profile) -> Option<Self> {
        let role_alone = !has_machines(profile);
        if role_alone && !has_apart(profile) {
            return None;
        }
        let values = Values::of(profile);
        let columns = values.names.iter().map(|(_, kind)| match kind {
            ValueKind::Count => ValueColumn::Whole(Int64Builder::new()),
            ValueKind::Duration | ValueKind::Percent | ValueKind::Ratio => {
                ValueColumn::Number(Float64Builder::new())
            }
            ValueKind::Text => ValueColumn::Text(StringDictionaryBuilder::new()),
        });
        Some(Self {
            texts: Default::default(),
            numbers: Default::default(),
            failed: BooleanBuilder::new(),
            columns: columns.collect(),
            row: Vec::new(),
            values,
            role_alone,
        })
    }

    /// Adds call `i`. Workgroups have no arguments and no device.
    pub fn append(&mut self, profile: &Profile, columns: &Columns, i: usize, op: Option<&Op>) {
        let called = op.filter(|op| op.role != Role::Workgroup);
        let texts = [
            op.map(|op| op.role.name()),
            called.map(|op| &*op.arguments),
            called.map(|op| &*op.device),
        ];
        for (builder, text) in self.texts.iter_mut().zip(texts) {
            builder.append_option(text.filter(|text| !text.is_empty()));
        }
        if self.role_alone {
            return;
        }
        let (mut numbers, mut failed) = ([None; 3], None);
        self.row.clear();
        self.row.resize(self.columns.len(), None);
        for extra in columns.extras_of(i) {
            match extra.key {
                KEY_CORRELATION => numbers[0] = Some(extra.bits),
                KEY_STORAGE_BYTES => numbers[1] = Some(extra.bits),
                KEY_WORKSPACE_BYTES => numbers[2] = Some(extra.bits),
                KEY_FAILED => failed = Some(extra.bits != 0),
                key => {
                    if let Some(place) = self.values.places.get(&(columns.process, key)) {
                        self.row[*place] = Some(extra.bits);
                    }
                }
            }
        }
        for (builder, number) in self.numbers.iter_mut().zip(numbers) {
            builder.append_option(number);
        }
        let is_run = called.is_some_and(|op| op.role == Role::Run);
        self.failed.append_option(failed.or(is_run.then_some(false)));
        let texts = profile.processes.get(columns.process).map(|process| &process.texts);
        for (column, bits) in self.columns.iter_mut().zip(&self.row) {
            match column {
                ValueColumn::Whole(builder) => builder.append_option(bits.map(|bits| bits as i64)),
                ValueColumn::Number(builder) => builder.append_option(bits.map(f64::from_bits)),
                ValueColumn::Text(builder) => {
                    let number = bits.and_then(|bits| u32::try_from(bits).ok());
                    builder.append_option(number.and_then(|number| texts?.get(&number)));
                }
            }
        }
    }

    pub fn finish(&mut self) -> Vec<ArrayRef> {
        let mut arrays: Vec<ArrayRef> = Vec::new();
        arrays.extend(self.texts.iter_mut().map(|b| ArrayBuilder::finish(b)));
        if self.role_alone {
            arrays.truncate(1);
            return arrays;
        }
        arrays.extend(self.numbers.iter_mut().map(|b| ArrayBuilder::finish(b)));
        arrays.push(Arc::new(self.failed.finish()));
        arrays.extend(self.columns.iter_mut().map(|column| match column {
            ValueColumn::Whole(builder) => ArrayBuilder::finish(builder),
            ValueColumn::Number(builder) => ArrayBuilder::finish(builder),
            ValueColumn::Text(builder) => ArrayBuilder::finish(builder),
        }));
        arrays
    }
}
