//! Chooses the side table of each module, and sorts the rows of the module's tree. A side table
//! describes the function or loop of each id.

use std::collections::HashMap;

use ir::table::SideTable;
use profile::loops::LoopModule;

use super::identity;

/// The source of a module's side table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TableChoice {
    /// There is no side table, so functions and loops have only numbers.
    #[default]
    Missing,
    /// The side table was embedded in the module.
    Embedded,
    /// The side table was given as a file.
    File,
    /// The module has embedded side tables, but none that can be used. The text is the reason.
    Unusable(String),
}

/// The reason why a side table was not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnfitTable {
    /// No module of the profile has the table's identity.
    #[error("the side table is of module {table}, and the profile has {}", listed(.modules))]
    OtherModule {
        /// The module identity that the table contains.
        table: String,
        /// The identities of the profile's modules, each once.
        modules: Vec<String>,
    },
    /// The module with the table's identity has more or fewer ids than the table has entries.
    #[error(
        "the side table of module {module} has {entries} entries, and the module has {ids} ids"
    )]
    OtherIds {
        /// The identity of the table and of the module.
        module: String,
        /// Number of entries in the table.
        entries: usize,
        /// Number of ids in the module.
        ids: u32,
    },
    /// Another side table with the same identity describes the ids differently.
    #[error(transparent)]
    Differs(Box<Difference>),
}

/// The first difference between two side tables with the same identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "module {module} has two side tables that differ: id {id} is {one} in {first}, and {other} in \
     {second}"
)]
pub struct Difference {
    /// The identity of both tables.
    pub module: String,
    /// The first id whose entries differ.
    pub id: usize,
    /// The first table's entry for `id`, as text; `nothing` if there is no entry.
    pub one: String,
    /// The second table's entry for `id`, as text; `nothing` if there is no entry.
    pub other: String,
    /// Where the first table comes from.
    pub first: String,
    /// Where the second table comes from.
    pub second: String,
}

fn listed(modules: &[String]) -> String {
    if modules.is_empty() { "no module".to_owned() } else { modules.join(", ") }
}

/// Checks that a side table belongs to a module of the profile.
///
/// # Errors
/// Fails if no module has the table's identity, if the module with this identity has a different
/// number of ids, or if the table that is embedded in the module differs.
pub fn fits(table: &SideTable, modules: &[LoopModule]) -> Result<(), UnfitTable> {
    let mut known: Vec<String> = Vec::new();
    for module in modules {
        let id = identity(&module.id);
        if id == table.module {
            of_module(table, &id, module.ids)?;
            return match embedded(module) {
                Some(own) => same(&own, &place(module), table, "the file"),
                None => Ok(()),
            };
        }
        if !known.contains(&id) {
            known.push(id);
        }
    }
    Err(UnfitTable::OtherModule { table: table.module.clone(), modules: known })
}

/// Checks that modules with the same identity do not contain different side tables. Each table is
/// compared with the first one of the same identity that can be read. Tables that cannot be read
/// are skipped. Different tables were made from different instrumented texts or by different
/// versions of the instrumentation. Adding up the numbers of such modules would mix different
/// loops.
///
/// # Errors
/// Fails with [`UnfitTable::Differs`] if two tables differ.
pub fn agree<'a>(modules: impl Iterator<Item = &'a LoopModule>) -> Result<(), UnfitTable> {
    let mut known: HashMap<[u8; 16], (&LoopModule, Option<SideTable>)> = HashMap::new();
    for module in modules.filter(|module| module.table.is_some()) {
        let (first, table) = known.entry(module.id).or_insert((module, None));
        if first.table == module.table {
            continue;
        }
        match table.take().or_else(|| embedded(first)).filter(|table| !table.entries.is_empty()) {
            // The first table cannot be read, so the next ones are compared with this one.
            None => *first = module,
            Some(of_first) => {
                if let Some(other) = embedded(module) {
                    same(&of_first, &place(first), &other, &place(module))?;
                }
                *table = Some(of_first);
            }
        }
    }
    Ok(())
}

/// Returns the table that is embedded in a module. `None` if there is no readable table, or if the
/// table belongs to another module.
fn embedded(module: &LoopModule) -> Option<SideTable> {
    let table = SideTable::from_json(module.table.as_deref()?.as_bytes()).ok()?;
    (table.module == identity(&module.id)).then_some(table)
}

/// Returns the object file of a module, for errors.
fn place(module: &LoopModule) -> String {
    module.object.clone().unwrap_or_else(|| "code without a file".to_owned())
}

/// Checks that two tables describe each id in the same way.
fn same(
    first: &SideTable,
    of_first: &str,
    second: &SideTable,
    of_second: &str,
) -> Result<(), UnfitTable> {
    let most = first.entries.len().max(second.entries.len());
    let differs = |id: &usize| first.entries.get(*id) != second.entries.get(*id);
    let Some(id) = (0..most).find(differs) else { return Ok(()) };
    let shown = |table: &SideTable| match table.entries.get(id) {
        None => "nothing".to_owned(),
        Some(entry) => {
            let label = entry.label.as_ref().map_or(String::new(), |label| format!(":{label}"));
            let trips = entry.trip_count.map(|trips| format!(", {trips} iterations"));
            let ([from, to], trips) = (entry.text, trips.unwrap_or_default());
            format!("{}{label} (lines {from} to {to}{trips})", entry.function)
        }
    };
    Err(UnfitTable::Differs(Box::new(Difference {
        module: first.module.clone(),
        id,
        one: shown(first),
        other: shown(second),
        first: of_first.to_owned(),
        second: of_second.to_owned(),
    })))
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

/// Chooses the side table of a module: one from a file, or else the first embedded one that can be
/// used. If embedded tables differ, none of them is used.
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
    let registrations: Vec<&LoopModule> = registrations.collect();
    if let Err(differs) = agree(registrations.iter().copied()) {
        return (None, TableChoice::Unusable(differs.to_string()));
    }
    let mut choice = TableChoice::Missing;
    for text in registrations.iter().filter_map(|module| module.table.as_deref()) {
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

/// Returns, for each id in a schedule, the index of the first scheduled loop that has this id.
pub(super) fn scheduled(table: &SideTable) -> HashMap<u32, usize> {
    let mut found = HashMap::new();
    for (number, one) in table.schedule.iter().enumerate() {
        for id in &one.ids {
            found.entry(*id).or_insert(number);
        }
    }
    found
}

/// Returns the ids in tree order: parents before their children, and siblings in ascending order.
/// With each id, returns the number of ids around it. `parents` is indexed by id.
pub(super) fn order(ids: &[u32], parents: &[Option<u32>]) -> Vec<(u32, u32)> {
    let mut children: Vec<Vec<u32>> = vec![Vec::new(); parents.len()];
    let mut stack = Vec::new();
    // Ids are pushed in descending order, so that the first one is on top of the stack.
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

#[cfg(test)]
mod tests {
    use ir::table::{Entry, Kind};

    use super::*;

    fn table(trip_count: Option<u64>) -> SideTable {
        let entry = Entry {
            id: 0,
            kind: Kind::Loop,
            function: "f".to_owned(),
            parent: None,
            depth: Some(0),
            height: 0,
            siblings: 0,
            label: Some("bb1".to_owned()),
            variable: None,
            file: None,
            line: None,
            column: None,
            text: [3, 9],
            trip_count,
            places: Vec::new(),
        };
        SideTable {
            counterpoint_loops: ir::table::VERSION,
            module: identity(&[7; 16]),
            mode: "timed".to_owned(),
            entries: vec![entry],
            ..SideTable::default()
        }
    }

    fn module(object: &str, table: &SideTable) -> LoopModule {
        LoopModule {
            id: [7; 16],
            ids: 1,
            table: Some(table.to_json().expect("a table")),
            object: Some(object.to_owned()),
            ..LoopModule::default()
        }
    }

    #[test]
    fn equal_identities_with_different_tables_are_refused() {
        let (one, other) = (table(None), table(Some(7)));
        let modules = [module("a.so", &one), module("b.so", &one), module("c.so", &other)];
        assert_eq!(agree(modules[..2].iter()), Ok(()));
        let why = agree(modules.iter()).unwrap_err().to_string();
        let expected = "module 07070707070707070707070707070707 has two side tables that differ: \
                        id 0 is f:bb1 (lines 3 to 9) in a.so, and f:bb1 (lines 3 to 9, 7 iterations) \
                        in c.so";
        assert_eq!(why, expected);
        // A first table that cannot be read does not hide the difference.
        let mut broken = module("z.so", &one);
        broken.table = Some("{".into());
        let with_broken = [&[broken.clone(), broken][..], &modules[..]].concat();
        assert_eq!(agree(with_broken.iter()).unwrap_err().to_string(), why);
        // No embedded table is chosen, because either could give wrong names to loops of another
        // module.
        let (chosen, choice) = choose_for(&[7; 16], 1, modules.iter(), &[]);
        assert_eq!((chosen, choice), (None, TableChoice::Unusable(why)));
        // A table from a file must agree with the embedded table, too.
        assert_eq!(fits(&one, &modules[..1]), Ok(()));
        let differs = fits(&other, &modules[..1]).unwrap_err();
        assert!(matches!(differs, UnfitTable::Differs(ref why) if why.second == "the file"));
    }
}
