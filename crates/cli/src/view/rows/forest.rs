//! Chooses the shown rows of a table and their order. The rows form trees.

use crate::failure::Failure;
use crate::view::table::Table;

pub struct Choice<'a> {
    /// For each row, the index of the row above it in the tree; `None` for a root.
    pub parents: &'a [Option<usize>],
    /// For each row, whether the row itself matches the filter.
    pub is_match: &'a [bool],
    /// The weight of each row. `top` keeps the rows with the greatest weights.
    pub weights: &'a [f64],
    /// The column by which the rows directly below the same row are sorted. `None` keeps the order
    /// of the table.
    pub sort: Option<&'a str>,
    /// How many rows are chosen by weight; `None` for all.
    pub top: Option<usize>,
}

/// Keeps the rows that match, and the rows above and below them. If `top` is set, keeps only that
/// many of these rows (those with the greatest weights), and all rows above them. A row comes
/// before the rows below it.
pub fn choose(table: &mut Table, choice: &Choice<'_>) -> Result<(), Failure> {
    if let Some(sort) = choice.sort {
        table.sort(sort)?;
    }
    let above = |row: usize| choice.parents.get(row).copied().flatten();
    let shown = with_around_and_inside(choice.parents, choice.is_match);
    let mut by_weight: Vec<usize> = (0..shown.len()).filter(|row| shown[*row]).collect();
    let all = by_weight.len();
    let weight = |row: usize| choice.weights.get(row).copied().unwrap_or(0.0);
    by_weight.sort_by(|a, b| weight(*b).total_cmp(&weight(*a)).then(a.cmp(b)));
    by_weight.truncate(choice.top.unwrap_or(usize::MAX));
    let mut kept = vec![false; shown.len()];
    for row in by_weight {
        let mut at = Some(row);
        while let Some(row) = at.filter(|row| !kept[*row]) {
            kept[row] = true;
            at = above(row);
        }
    }
    // The rows directly below each row, in reverse order. Index 0 is for the roots, which are below
    // no row. Index n + 1 is for the rows directly below row n.
    let mut below: Vec<Vec<usize>> = vec![Vec::new(); shown.len() + 1];
    for row in table.order.iter().rev().copied().filter(|row| kept[*row]) {
        below[above(row).map_or(0, |parent| parent + 1)].push(row);
    }
    let mut open = std::mem::take(&mut below[0]);
    table.order.clear();
    while let Some(row) = open.pop() {
        table.order.push(row);
        open.append(&mut below[row + 1]);
    }
    table.left_out = all - table.order.len();
    Ok(())
}

/// Returns for each row whether this row, or a row above or below it, matches.
pub fn with_around_and_inside(parents: &[Option<usize>], is_match: &[bool]) -> Vec<bool> {
    let mut shown = is_match.to_vec();
    for row in 0..shown.len() {
        shown[row] |= parents[row].is_some_and(|parent| shown[parent]);
    }
    for row in (0..shown.len()).rev() {
        if let (true, Some(parent)) = (shown[row], parents[row]) {
            shown[parent] = true;
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::table::{Column, Value};

    /// The trees: `b` and `d` are below `a`, `c` is below `b`, and `e` is alone.
    fn chosen(matching: &str, sort: Option<&str>, top: Option<usize>) -> (String, usize) {
        let names = ["a", "b", "c", "d", "e"];
        let parents = [None, Some(0), Some(1), Some(0), None];
        let weights = [9.0, 2.0, 1.0, 5.0, 20.0];
        let is_match = names.map(|name| matching.contains(name));
        let name = names.map(|name| Some(Value::Text(name.to_owned())));
        let number = weights.map(|weight| Some(Value::Number(weight)));
        let columns = vec![
            Column::new(0, "name", "name", name.to_vec()),
            Column::new(1, "ns", "time", number.to_vec()),
        ];
        let mut table = Table::new(columns, (0..names.len()).collect());
        let choice =
            Choice { parents: &parents, is_match: &is_match, weights: &weights, sort, top };
        choose(&mut table, &choice).unwrap();
        (table.order.iter().map(|row| names[*row]).collect(), table.left_out)
    }

    #[test]
    fn rows_keep_what_is_around_and_inside_of_them() {
        assert_eq!(chosen("abcde", None, None), ("abcde".to_owned(), 0));
        assert_eq!(chosen("abcde", Some("ns"), None), ("eadbc".to_owned(), 0));
        assert_eq!(chosen("abcde", Some("time"), None), ("eadbc".to_owned(), 0));
        assert_eq!(chosen("b", None, None), ("abc".to_owned(), 0));
        assert_eq!(chosen("b", None, Some(1)), ("a".to_owned(), 2));
        assert_eq!(chosen("abcde", None, Some(3)), ("ade".to_owned(), 2));
        assert_eq!(chosen("", None, None), (String::new(), 0));
    }
}
