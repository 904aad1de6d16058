//! Matches the rows of A with the rows of B.
//!
//! ```text
//!  1. name and shapes, equally often on both sides         the same, or renamed
//!  2. everything is equal                                  the same
//!  3. the name is equal, and is so once on each side       the same, with other shapes
//!  4. the name without its numbers is equal                renamed, split or joined
//!  5. the source location is equal, and of no other row    renamed, split or joined
//!  6. the only ones between the same two neighbours        renamed
//!  7. the others                                           new, gone
//! ```
//!
//! A compiler numbers the functions that it generates. If a dispatch is added at the beginning, all
//! dispatches after it get other names (`main_dispatch_3_matmul_64x64` becomes
//! `main_dispatch_4_matmul_64x64`). The first step therefore compares names without these numbers.
//! Rows that then have the same name are matched by library and source location, and otherwise in
//! the order of the program. Two rows with equal full names need not be the same, because their
//! numbers can be equal by chance.

use std::collections::{BTreeMap, BTreeSet};

use super::recorded::Identity;

/// The relation between the rows of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// A row of A and a row of B have the same name, arguments and device.
    Same,
    /// A row of A and a row of B have the same name, but different arguments or devices.
    Changed,
    /// Both sides have the row, but with different names.
    Renamed,
    /// One row of A corresponds to several rows of B.
    Split,
    /// Several rows of A correspond to one row of B.
    Joined,
    /// Only B has the row.
    New,
    /// Only A has the row.
    Gone,
}

/// Rows of A and of B that correspond to each other, as indices into the two lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    pub relation: Relation,
    /// Rows of A; several if B joins them in one row.
    pub a: Vec<usize>,
    /// Rows of B; several if a row of A is split in B.
    pub b: Vec<usize>,
}

/// Matches rows. Each row is in exactly one match. `in_order` is, for each side, the number of rows
/// at the beginning of the list that are in the order of the program. Other rows are not matched by
/// their neighbours.
pub fn matches(a: &[Identity], b: &[Identity], in_order: [usize; 2]) -> Vec<Match> {
    let mut all =
        Matching { free_a: vec![true; a.len()], free_b: vec![true; b.len()], found: vec![] };
    let role = |one: &Identity| one.role.clone();
    let shapes = |one: &Identity| (one.arguments.clone(), one.device.clone());
    let short = |one: &Identity| stem(&one.name).unwrap_or_else(|| one.name.clone());
    all.grouped(a, b, Only::AsMany, |one| Some((short(one), shapes(one), role(one))));
    all.grouped(a, b, Only::Pairs, |one| Some(one.clone()));
    all.grouped(a, b, Only::Pairs, |one| Some((one.name.clone(), role(one))));
    all.grouped(a, b, Only::Any, |one| stem(&one.name).map(|name| (name, role(one))));
    all.grouped(a, b, Only::Specific, |one| one.source.clone().map(|at| (at, role(one))));
    all.between_neighbours(in_order);
    all.rest();
    all.found
}

/// Returns the name of a compiled dispatch without the name of the function that contains it, and
/// without the number that the compiler assigned: `main_dispatch_3_matmul_64x64` becomes
/// `matmul_64x64`. `None` if the name does not have this form, or if nothing is left. Other numbers
/// stay, because they describe the function.
pub fn stem(name: &str) -> Option<String> {
    const MARK: &str = "_dispatch_";
    let at = name.rfind(MARK)?;
    let after = &name[at + MARK.len()..];
    let digits = after.bytes().take_while(u8::is_ascii_digit).count();
    let rest = after[digits..].strip_prefix('_').filter(|rest| !rest.is_empty())?;
    (digits > 0).then(|| rest.to_owned())
}

fn relation(a: &Identity, b: &Identity) -> Relation {
    let shapes = |one: &Identity| (one.arguments.clone(), one.device.clone());
    match (a.name == b.name, shapes(a) == shapes(b)) {
        (true, true) => Relation::Same,
        (true, false) => Relation::Changed,
        (false, _) => Relation::Renamed,
    }
}

/// Matches `rows` of A with `others` of B, which have the same key and are equally many. Rows with
/// the same library and source location are matched first, then those with the same library, then
/// the others in their order. Source locations are used only if both sides have the same ones:
/// after a line was inserted, a function can have the location that another function had before.
fn alike(
    a: &[Identity],
    b: &[Identity],
    rows: Vec<usize>,
    others: Vec<usize>,
) -> Vec<(usize, usize)> {
    let place = |one: &Identity| (one.library.clone(), one.source.clone());
    let places = |side: &[Identity], rows: &[usize]| {
        let mut all: Vec<_> = rows.iter().map(|row| place(&side[*row])).collect();
        all.sort();
        all
    };
    let same_places = places(a, &rows) == places(b, &others);
    let (mut rows, mut others) = (rows, others);
    let mut found = Vec::new();
    let mut pair = |agree: &dyn Fn(&Identity, &Identity) -> bool| {
        rows.retain(|row| {
            let other = others.iter().position(|other| agree(&a[*row], &b[*other]));
            found.extend(other.map(|at| (*row, others.remove(at))));
            other.is_none()
        });
    };
    if same_places {
        pair(&|one, other| place(one) == place(other));
    }
    pair(&|one, other| one.library == other.library);
    pair(&|_, _| true);
    found
}

/// Says how many rows of A and of B with an equal key can be matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Only {
    /// One row of A and one row of B.
    Pairs,
    /// Any number of rows of A and the same number of rows of B.
    AsMany,
    /// The same number of rows on both sides, or one row on one side and several on the other.
    Any,
    /// As `Any`, but not if a matched row has this key.
    Specific,
}

struct Matching {
    free_a: Vec<bool>,
    free_b: Vec<bool>,
    found: Vec<Match>,
}

impl Matching {
    /// Returns the indices of the rows that are not matched yet, in order, by key.
    fn free<K: Ord>(
        free: &[bool],
        rows: &[Identity],
        key: impl Fn(&Identity) -> Option<K>,
    ) -> BTreeMap<K, Vec<usize>> {
        let mut by_key: BTreeMap<K, Vec<usize>> = BTreeMap::new();
        for (row, one) in rows.iter().enumerate().filter(|(row, _)| free[*row]) {
            if let Some(key) = key(one) {
                by_key.entry(key).or_default().push(row);
            }
        }
        by_key
    }

    fn add(&mut self, relation: Relation, a: Vec<usize>, b: Vec<usize>) {
        a.iter().for_each(|row| self.free_a[*row] = false);
        b.iter().for_each(|row| self.free_b[*row] = false);
        self.found.push(Match { relation, a, b });
    }

    /// Groups the unmatched rows by key. If `only` allows it, matches equally large groups (with
    /// `alike`), and one row with several.
    fn grouped<K: Ord>(
        &mut self,
        a: &[Identity],
        b: &[Identity],
        only: Only,
        key: impl Fn(&Identity) -> Option<K>,
    ) {
        let taken: BTreeSet<K> = match only {
            Only::Specific => {
                let of = |rows: &[Identity], free: &[bool]| {
                    let taken = rows.iter().zip(free).filter(|(_, free)| !**free);
                    taken.filter_map(|(one, _)| key(one)).collect::<Vec<_>>()
                };
                of(a, &self.free_a).into_iter().chain(of(b, &self.free_b)).collect()
            }
            _ => BTreeSet::new(),
        };
        let mut in_b = Self::free(&self.free_b, b, &key);
        for (key, rows) in Self::free(&self.free_a, a, &key) {
            let Some(others) = in_b.remove(&key) else { continue };
            if taken.contains(&key) {
                continue;
            }
            let several = matches!(only, Only::Any | Only::Specific);
            match (rows.len(), others.len()) {
                (n, m) if n == m && (n == 1 || only != Only::Pairs) => {
                    for (row, other) in alike(a, b, rows, others) {
                        self.add(relation(&a[row], &b[other]), vec![row], vec![other]);
                    }
                }
                _ if !several => {}
                (1, _) => self.add(Relation::Split, rows, others),
                (_, 1) => self.add(Relation::Joined, rows, others),
                // If both sides have several rows but not equally many, it is not known which rows
                // correspond.
                _ => {}
            }
        }
    }

    /// Matches a single unmatched row between two matched neighbours with the single unmatched row
    /// between the same neighbours on the other side. The start and the end of the program count as
    /// neighbours, but at least one of the two neighbours must be a row.
    fn between_neighbours(&mut self, in_order: [usize; 2]) {
        let gaps = |free: &[bool], of: &dyn Fn(usize) -> usize| {
            let mut gaps: BTreeMap<(Option<usize>, Option<usize>), Vec<usize>> = BTreeMap::new();
            let matched = |row: &usize| !free[*row];
            for row in (0..free.len()).filter(|row| free[*row]) {
                let before = (0..row).rev().find(|row| matched(row)).map(of);
                let after = (row + 1..free.len()).find(|row| matched(row)).map(of);
                gaps.entry((before, after)).or_default().push(row);
            }
            gaps
        };
        let number = |side: fn(&Match) -> &Vec<usize>, found: &[Match]| {
            let mut numbers = BTreeMap::new();
            for (number, one) in found.iter().enumerate() {
                numbers.extend(side(one).iter().map(|row| (*row, number)));
            }
            numbers
        };
        let (of_a, of_b) = (number(|one| &one.a, &self.found), number(|one| &one.b, &self.found));
        let [free_a, free_b] = [&self.free_a[..in_order[0]], &self.free_b[..in_order[1]]];
        let in_a = gaps(free_a, &|row| of_a.get(&row).copied().unwrap_or(usize::MAX));
        let mut in_b = gaps(free_b, &|row| of_b.get(&row).copied().unwrap_or(usize::MAX));
        for (neighbours, rows) in in_a {
            let Some(others) = in_b.remove(&neighbours) else { continue };
            let known = neighbours.0.is_some() || neighbours.1.is_some();
            if known && rows.len() == 1 && others.len() == 1 {
                self.add(Relation::Renamed, rows, others);
            }
        }
    }

    fn rest(&mut self) {
        let free = |free: &[bool]| (0..free.len()).filter(|row| free[*row]).collect::<Vec<_>>();
        for row in free(&self.free_a) {
            self.add(Relation::Gone, vec![row], vec![]);
        }
        for row in free(&self.free_b) {
            self.add(Relation::New, vec![], vec![row]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> Vec<Identity> {
        let of = |name: &&str| {
            // Tests write a row as `name@source` or `name(arguments`, without a closing
            // parenthesis.
            let (name, source) = name.split_once('@').map_or((*name, None), |(n, s)| (n, Some(s)));
            let (name, arguments) = name.split_once('(').unwrap_or((name, ""));
            Identity {
                name: name.to_owned(),
                arguments: arguments.to_owned(),
                source: source.map(str::to_owned),
                ..Identity::default()
            }
        };
        names.iter().map(of).collect()
    }

    fn found(a: &[&str], b: &[&str]) -> Vec<String> {
        let join = |side: &[&str], rows: &[usize]| {
            rows.iter().map(|row| side[*row]).collect::<Vec<_>>().join("+")
        };
        let mut lines: Vec<String> = matches(&named(a), &named(b), [a.len(), b.len()])
            .iter()
            .map(|one| format!("{:?} {} {}", one.relation, join(a, &one.a), join(b, &one.b)))
            .collect();
        lines.sort();
        lines
    }

    #[test]
    fn numbers_of_a_compiler_say_nothing() {
        assert_eq!(stem("main_dispatch_3_matmul_64x64").as_deref(), Some("matmul_64x64"));
        assert_eq!(stem("f$async_dispatch_12_softmax_8xf32").as_deref(), Some("softmax_8xf32"));
        for none in ["matmul_64", "main_dispatch_3", "main_dispatch_x_y", "_dispatch_1_"] {
            assert_eq!(stem(none), None, "{none}");
        }
        let a = ["m_dispatch_0_matmul_8", "m_dispatch_1_add_8", "m_dispatch_2_matmul_8"];
        let b = [
            "m_dispatch_0_pack",
            "m_dispatch_1_matmul_8",
            "m_dispatch_2_add_8",
            "m_dispatch_3_matmul_8",
        ];
        let expected = [
            "New  m_dispatch_0_pack",
            "Renamed m_dispatch_0_matmul_8 m_dispatch_1_matmul_8",
            "Renamed m_dispatch_1_add_8 m_dispatch_2_add_8",
            "Renamed m_dispatch_2_matmul_8 m_dispatch_3_matmul_8",
        ];
        assert_eq!(found(&a, &b), expected);
    }

    /// By chance, the second matrix product of A has the same full name as the first one of B.
    #[test]
    fn the_order_of_the_program_counts_more_than_a_number() {
        let a = ["m_dispatch_0_matmul_8", "m_dispatch_1_matmul_8"];
        let b = ["m_dispatch_0_pack", "m_dispatch_1_matmul_8", "m_dispatch_2_matmul_8"];
        let expected = [
            "New  m_dispatch_0_pack",
            "Renamed m_dispatch_0_matmul_8 m_dispatch_1_matmul_8",
            "Renamed m_dispatch_1_matmul_8 m_dispatch_2_matmul_8",
        ];
        assert_eq!(found(&a, &b), expected);
    }

    /// Of rows with the same key, those with the same library are matched first. Of those with the
    /// same library, too, the rows with the same source location are matched first, unless lines
    /// have moved.
    #[test]
    fn libraries_and_places_count_more_than_the_order() {
        let of = |rows: &[(&str, &str)]| -> Vec<Identity> {
            let one = |(library, source): &(&str, &str)| Identity {
                name: "add".to_owned(),
                library: (*library).to_owned(),
                source: Some((*source).to_owned()),
                ..Identity::default()
            };
            rows.iter().map(one).collect()
        };
        let pairs = |a: &[(&str, &str)], b: &[(&str, &str)]| {
            let mut found: Vec<(usize, usize)> = matches(&of(a), &of(b), [a.len(), b.len()])
                .iter()
                .map(|one| (one.a[0], one.b[0]))
                .collect();
            found.sort_unstable();
            found
        };
        let crossed = [(0, 1), (1, 0)];
        assert_eq!(pairs(&[("x", "f:1"), ("y", "f:1")], &[("y", "f:1"), ("x", "f:1")]), crossed);
        assert_eq!(pairs(&[("x", "f:1"), ("x", "f:2")], &[("x", "f:2"), ("x", "f:1")]), crossed);
        let moved = pairs(&[("x", "f:1"), ("x", "f:2")], &[("x", "f:2"), ("x", "f:3")]);
        assert_eq!(moved, [(0, 0), (1, 1)]);
    }

    #[test]
    fn without_an_order_nothing_is_renamed() {
        let (a, b) = (named(&["a", "x", "b"]), named(&["a", "y", "b"]));
        let renamed = |in_order| {
            let found = matches(&a, &b, in_order);
            found.iter().filter(|one| one.relation == Relation::Renamed).count()
        };
        assert_eq!((renamed([3, 3]), renamed([0, 0]), renamed([3, 1])), (1, 0, 0));
    }

    #[test]
    fn a_shared_source_is_no_evidence() {
        let expected = ["Gone x@f:1 ", "New  y@f:1", "New  z@f:1", "Same a@f:1 a@f:1"];
        assert_eq!(found(&["a@f:1", "x@f:1"], &["a@f:1", "y@f:1", "z@f:1"]), expected);
    }

    #[test]
    fn shapes_sources_and_places() {
        let changed = ["Changed add(2x2 add(4x4", "Same mul(2x2 mul(2x2"];
        assert_eq!(found(&["add(2x2", "mul(2x2"], &["add(4x4", "mul(2x2"]), changed);
        let split = ["Split one@f:3 two@f:3+three@f:3"];
        assert_eq!(found(&["one@f:3"], &["two@f:3", "three@f:3"]), split);
        let joined = ["Joined two@f:3+three@f:3 one@f:3"];
        assert_eq!(found(&["two@f:3", "three@f:3"], &["one@f:3"]), joined);
        let place = ["Renamed x y", "Same a a", "Same b b"];
        assert_eq!(found(&["a", "x", "b"], &["a", "y", "b"]), place);
        // B has two unmatched rows between the same neighbours, so it is not known which one
        // corresponds to `x`.
        let unknown = ["Gone x ", "New  y", "New  z", "Same a a", "Same b b"];
        assert_eq!(found(&["a", "x", "b"], &["a", "y", "z", "b"]), unknown);
        // Without any other row, nothing shows that these two correspond.
        assert_eq!(found(&["x"], &["y"]), ["Gone x ", "New  y"]);
        assert_eq!(found(&[], &[]), Vec::<String>::new());
    }
}
