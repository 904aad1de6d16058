//! Which side table a module has, and the order of its rows.

use ir::table::SideTable;
use profile::loops::LoopModule;

use super::identity;

/// Where the side table of a module is from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TableChoice {
    /// There is none: functions and loops have numbers only.
    #[default]
    Missing,
    /// It was embedded in the module.
    Embedded,
    /// It was given as a file.
    File,
    /// The embedded one cannot be used, for this reason.
    Unusable(String),
}

/// Why a side table was not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnfitTable {
    /// No module of the profile has its identity.
    #[error("the side table is of module {table}, and the profile has {}", listed(.modules))]
    OtherModule {
        /// The identity in the table.
        table: String,
        /// Those in the profile, each once.
        modules: Vec<String>,
    },
    /// The module of its identity has another number of ids.
    #[error(
        "the side table of module {module} has {entries} entries, and the module has {ids} ids"
    )]
    OtherIds {
        /// The identity of both.
        module: String,
        /// How many entries the table has.
        entries: usize,
        /// How many ids the module has.
        ids: u32,
    },
}

/// How the modules of a profile are named in an error.
fn listed(modules: &[String]) -> String {
    if modules.is_empty() { "no module".to_owned() } else { modules.join(", ") }
}

/// Whether a side table belongs to a module of the profile.
///
/// # Errors
/// It does not.
pub fn fits(table: &SideTable, modules: &[LoopModule]) -> Result<(), UnfitTable> {
    let mut known: Vec<String> = Vec::new();
    for module in modules {
        let id = identity(&module.id);
        if id == table.module {
            return of_module(table, &id, module.ids);
        }
        if !known.contains(&id) {
            known.push(id);
        }
    }
    Err(UnfitTable::OtherModule { table: table.module.clone(), modules: known })
}

fn of_module(table: &SideTable, module: &str, ids: u32) -> Result<(), UnfitTable> {
    match table.entries.len() == ids as usize {
        true => Ok(()),
        false => {
            let (module, entries) = (module.to_owned(), table.entries.len());
            Err(UnfitTable::OtherIds { module, entries, ids })
        }
    }
}

/// The side table of a module: one of the files, else the first embedded one that can be used.
pub(super) fn choose_for<'a>(
    id: &[u8; 16],
    ids: u32,
    registrations: impl Iterator<Item = &'a LoopModule>,
    files: &[SideTable],
) -> (Option<SideTable>, TableChoice) {
    let id = identity(id);
    let fitting = |table: &SideTable| table.module == id && of_module(table, &id, ids).is_ok();
    if let Some(table) = files.iter().find(|table| fitting(table)) {
        return (Some(table.clone()), TableChoice::File);
    }
    let mut choice = TableChoice::Missing;
    for text in registrations.filter_map(|module| module.table.as_deref()) {
        let unusable = match SideTable::from_json(text.as_bytes()) {
            Ok(table) if table.module != id => {
                format!("it is of module {}", table.module)
            }
            Ok(table) => match of_module(&table, &id, ids) {
                Ok(()) => return (Some(table), TableChoice::Embedded),
                Err(unfit) => unfit.to_string(),
            },
            Err(error) => error.to_string(),
        };
        if choice == TableChoice::Missing {
            choice = TableChoice::Unusable(unusable);
        }
    }
    (None, choice)
}

/// Ids in the order of a tree, each with the number of ids around it: parents before their children,
/// siblings in ascending order. `parents` is indexed by id.
pub(super) fn order(ids: &[u32], parents: &[Option<u32>]) -> Vec<(u32, u32)> {
    let mut children: Vec<Vec<u32>> = vec![Vec::new(); parents.len()];
    let mut stack = Vec::new();
    // From the last to the first, so that the first is on top of the stack.
    for id in ids.iter().rev() {
        match parents.get(*id as usize).copied().flatten() {
            Some(parent) => children[parent as usize].push(*id),
            None => stack.push((*id, 0)),
        }
    }
    let mut ordered = Vec::with_capacity(ids.len());
    while let Some((id, level)) = stack.pop() {
        ordered.push((id, level));
        if let Some(inner) = children.get_mut(id as usize) {
            stack.extend(inner.drain(..).map(|child| (child, level + 1)));
        }
    }
    ordered
}
