//! "Did you mean": the known names that are closest to a typed one.

/// Up to three of `known`, closest first: few edits away, or containing what was typed.
pub fn closest<'k>(typed: &str, known: impl Iterator<Item = &'k str>) -> Vec<&'k str> {
    let typed = typed.to_ascii_lowercase();
    let far = 2.max(typed.chars().count() / 3);
    let mut near: Vec<(usize, &str)> = known
        .filter_map(|name| {
            let lower = name.to_ascii_lowercase();
            let contains = typed.len() >= 4 && lower.contains(&typed);
            // At least as many edits as the lengths differ.
            if !contains && lower.chars().count().abs_diff(typed.chars().count()) > far {
                return None;
            }
            let edits = distance(&typed, &lower);
            (edits <= far || contains).then_some((edits, name))
        })
        .collect();
    near.sort();
    near.dedup();
    near.into_iter().take(3).map(|(_, name)| name).collect()
}

/// Edits between two strings: insert, delete, replace, or exchange two neighbours (the "optimal
/// string alignment" distance), in one row after another.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replace = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replace.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (a, b, edits) in [
            ("", "", 0),
            ("", "abc", 3),
            ("cycles", "cycles", 0),
            ("cycels", "cycles", 1),
            ("kitten", "sitting", 3),
            ("page-fault", "page-faults", 1),
        ] {
            assert_eq!((distance(a, b), distance(b, a)), (edits, edits), "{a} {b}");
        }
    }

    #[test]
    fn closest_first_and_nothing_far() {
        let known = ["cycles", "cpu-cycles", "ref-cycles", "faults", "page-faults"];
        assert_eq!(closest("cycle", known.into_iter()), ["cycles", "cpu-cycles", "ref-cycles"]);
        assert_eq!(closest("Page-Fualts", known.into_iter()), ["page-faults"]);
        assert!(closest("zzz", known.into_iter()).is_empty());
    }
}
