//! What an export calls the activities that are not Kineto's: one row for each role of a call whose
//! kind an adapter defines. A further adapter adds its rows here; the writers, the importer's
//! vocabulary and the description of the trace all read this table.

use model::activity::{Generic, Label, RegisterError, Registry, Vocabulary};
use profile::{LibraryKind, Profile, Role};
use serde_json::{Value, json};

/// A kind of activity that an adapter defines.
struct Defined {
    role: Role,
    /// The kinds of libraries whose calls have this role.
    of: &'static [LibraryKind],
    /// Who defines it, and its name in their words. Names are unique: one that another producer has
    /// already gets the producer in front.
    producer: &'static str,
    name: &'static str,
}

const EXECUTABLES: &[LibraryKind] =
    &[LibraryKind::EmbeddedElf, LibraryKind::SystemLibrary, LibraryKind::Hooked];
const TVM: &[LibraryKind] = &[LibraryKind::RelaxVm];
const TORCH: &[LibraryKind] = &[LibraryKind::Torch];

/// The first row of a role is also used for libraries of other kinds.
const DEFINED: [Defined; 5] = [
    Defined { role: Role::Workgroup, of: EXECUTABLES, producer: "iree", name: "workgroup" },
    Defined { role: Role::Region, of: TVM, producer: "tvm", name: "region" },
    Defined { role: Role::Task, of: TVM, producer: "tvm", name: "task" },
    Defined { role: Role::Region, of: TORCH, producer: "torch", name: "torch.region" },
    Defined { role: Role::Task, of: TORCH, producer: "torch", name: "torch.task" },
];

/// What Kineto calls each of them.
const KINETO: &str = "cpu_op";

/// Registers the kinds of [`DEFINED`], and returns their labels in its order.
///
/// # Errors
/// Another producer took a name.
pub(crate) fn register(registry: &mut Registry) -> Result<Vec<Label>, RegisterError> {
    let mut labels = Vec::new();
    for Defined { producer, name, .. } in DEFINED {
        let producer = registry.producer(producer)?;
        labels.push(registry.register(producer, name, Some(KINETO))?);
    }
    Ok(labels)
}

/// The kinds that a trace of `profile` has, as the object `counterpoint` lists them.
pub(crate) fn listed(profile: &Profile) -> Vec<Value> {
    let has = |kinds: &[LibraryKind]| {
        let mut libraries = profile.processes.iter().flat_map(|process| &process.libraries);
        libraries.any(|library| kinds.contains(&library.kind))
    };
    DEFINED
        .iter()
        .filter(|kind| has(kind.of))
        .map(|kind| json!({ "producer": kind.producer, "name": kind.name, "kineto": KINETO }))
        .collect()
}

/// The category of calls, by the kind of their library and their role, in the vocabulary of one
/// output.
#[derive(Clone, Debug)]
pub(crate) struct Categories([[String; Role::ALL.len()]; LibraryKind::ALL.len()]);

impl Categories {
    /// In this vocabulary.
    ///
    /// # Errors
    /// As [`register`].
    pub(crate) fn new(
        registry: &mut Registry,
        vocabulary: Vocabulary,
    ) -> Result<Self, RegisterError> {
        let labels = register(registry)?;
        let defined = |library: LibraryKind, role: Role| {
            let rows = || DEFINED.iter().zip(&labels).filter(|(row, _)| row.role == role);
            let own = rows().find(|(row, _)| row.of.contains(&library));
            own.or_else(|| rows().next()).map(|(_, label)| *label)
        };
        Ok(Self(LibraryKind::ALL.map(|library| {
            Role::ALL.map(|role| {
                let label = match defined(library, role) {
                    Some(label) => label,
                    None if matches!(role, Role::Run | Role::Range) => {
                        Generic::UserAnnotation.into()
                    }
                    None => Generic::CpuOp.into(),
                };
                registry.name(label, vocabulary).to_owned()
            })
        })))
    }

    /// The category of calls of this role into libraries of this kind.
    pub(crate) fn of(&self, library: LibraryKind, role: Role) -> &str {
        &self.0[library as usize][role as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kineto's words (its `ActivityType`), and ours where the vocabulary has them.
    #[test]
    fn categories_by_library_and_role() {
        use LibraryKind::{EmbeddedElf, Hooked, RelaxVm, SystemLibrary, Torch};
        for (library, role, kineto, generic) in [
            (EmbeddedElf, Role::Workgroup, "cpu_op", "workgroup"),
            (SystemLibrary, Role::Workgroup, "cpu_op", "workgroup"),
            (Hooked, Role::Workgroup, "cpu_op", "workgroup"),
            (RelaxVm, Role::Run, "user_annotation", "user_annotation"),
            (RelaxVm, Role::Op, "cpu_op", "cpu_op"),
            (RelaxVm, Role::Region, "cpu_op", "region"),
            (RelaxVm, Role::Task, "cpu_op", "task"),
            (Torch, Role::Range, "user_annotation", "user_annotation"),
            (Torch, Role::Op, "cpu_op", "cpu_op"),
            (Torch, Role::Region, "cpu_op", "torch.region"),
            (Torch, Role::Task, "cpu_op", "torch.task"),
        ] {
            for (vocabulary, expected) in
                [(Vocabulary::Kineto, kineto), (Vocabulary::Generic, generic)]
            {
                let categories = Categories::new(&mut Registry::new(), vocabulary).unwrap();
                assert_eq!(categories.of(library, role), expected, "{library:?} {role:?}");
            }
        }
    }
}
