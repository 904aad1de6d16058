//! What an export calls the activities that are not Kineto's: one row for each role of a call whose
//! kind an adapter defines. A further adapter adds its rows here; the writers, the importer's
//! vocabulary and the description of the trace all read this table.

use model::activity::{Generic, Label, RegisterError, Registry, Vocabulary};
use profile::{Profile, Role};
use serde_json::{Value, json};

/// A kind of activity that an adapter defines.
struct Defined {
    role: Role,
    /// Who defines it, and its name in their words.
    producer: &'static str,
    name: &'static str,
}

const DEFINED: [Defined; 3] = [
    Defined { role: Role::Workgroup, producer: "iree", name: "workgroup" },
    Defined { role: Role::Region, producer: "tvm", name: "region" },
    Defined { role: Role::Task, producer: "tvm", name: "task" },
];

/// What Kineto calls each of them.
const KINETO: &str = "cpu_op";

/// Registers the kinds of [`DEFINED`], in its order.
///
/// # Errors
/// Another producer took a name.
pub(crate) fn register(registry: &mut Registry) -> Result<Vec<(Role, Label)>, RegisterError> {
    let mut labels = Vec::new();
    for Defined { role, producer, name } in DEFINED {
        let producer = registry.producer(producer)?;
        labels.push((role, registry.register(producer, name, Some(KINETO))?));
    }
    Ok(labels)
}

/// The kinds that a trace of `profile` has, as the object `counterpoint` lists them.
pub(crate) fn listed(profile: &Profile) -> Vec<Value> {
    let machines = profile.processes.iter().any(|process| !process.op_exports.is_empty());
    DEFINED
        .iter()
        .filter(|kind| machines || !kind.role.is_of_machine())
        .map(|kind| json!({ "producer": kind.producer, "name": kind.name, "kineto": KINETO }))
        .collect()
}

/// The category of calls, by their role, in the vocabulary of one output.
#[derive(Clone, Debug)]
pub(crate) struct Categories([String; Role::ALL.len()]);

impl Categories {
    /// In this vocabulary.
    ///
    /// # Errors
    /// As [`register`].
    pub(crate) fn new(
        registry: &mut Registry,
        vocabulary: Vocabulary,
    ) -> Result<Self, RegisterError> {
        let defined = register(registry)?;
        Ok(Self(Role::ALL.map(|role| {
            let label = match defined.iter().find(|(of, _)| *of == role) {
                Some((_, label)) => *label,
                None if matches!(role, Role::Run | Role::Range) => Generic::UserAnnotation.into(),
                None => Generic::CpuOp.into(),
            };
            registry.name(label, vocabulary).to_owned()
        })))
    }

    /// The category of calls of this role.
    pub(crate) fn of(&self, role: Role) -> &str {
        &self.0[role as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kineto's words (its `ActivityType`), and ours where the vocabulary has them.
    #[test]
    fn categories_by_role() {
        for (vocabulary, role, expected) in [
            (Vocabulary::Kineto, Role::Workgroup, "cpu_op"),
            (Vocabulary::Kineto, Role::Run, "user_annotation"),
            (Vocabulary::Kineto, Role::Op, "cpu_op"),
            (Vocabulary::Kineto, Role::Task, "cpu_op"),
            (Vocabulary::Kineto, Role::Range, "user_annotation"),
        ] {
            let categories = Categories::new(&mut Registry::new(), vocabulary).unwrap();
            assert_eq!(categories.of(role), expected, "{role:?}");
        }
    }
}
