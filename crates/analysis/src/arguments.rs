//! Adds up the rows of an op that has several because its calls had different arguments.

use std::collections::HashMap;

use profile::{Profile, Role};

use crate::answer::passes;
use crate::estimate::Estimate;
use crate::probe::sum;
use crate::summary::Summary;
use crate::table::{By, Key, Row};

impl Summary {
    /// For each row of an op that has several rows, returns the sum of the self times of all these
    /// rows, in ticks. With several passes, this is the mean over the passes. Empty in a run with a
    /// budget, where each row is an estimate of its own.
    pub fn all_arguments(&self, profile: &Profile) -> HashMap<Key, Estimate> {
        if self.sampled.is_some() {
            return HashMap::new();
        }
        let each = passes(profile, By::Op);
        let mut groups: HashMap<(&str, &str, Role), Vec<&Row>> = HashMap::new();
        for row in self.rows.iter().filter(|row| !row.key.is_apart(profile)) {
            let Key::Op(id) = row.key else { continue };
            let Some(op) = profile.ops.get(id) else { continue };
            groups.entry((&op.library, &op.name, op.role)).or_default().push(row);
        }
        let arguments = |row: &Row| match row.key {
            Key::Op(id) => profile.ops.get(id).map_or("", |op| op.arguments.as_str()),
            _ => "",
        };
        let mut found = HashMap::new();
        for rows in groups.into_values() {
            if rows.iter().all(|row| arguments(row) == arguments(rows[0])) {
                continue;
            }
            // `sum` adds the ends of the intervals: if the subtracted amount is too large in one
            // row, it is too large in all rows.
            let own = sum(rows.iter().map(|row| row.in_pass(each).own));
            found.extend(rows.into_iter().map(|row| (row.key, own)));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use testkit::{CallScript, ProfileScript};

    use super::*;
    use crate::summary::{Options, summarize};

    /// `mm` is called with two shapes, `add` with one.
    #[test]
    fn rows_of_one_op_add_up() {
        let mut script = ProfileScript::monotonic();
        let process = script.process(1);
        let torch = process.machine("torch");
        let [wide, narrow] =
            ["f32[8, 8]", "f32[2, 2]"].map(|shape| process.op(torch, Role::Op, "mm", shape));
        let add = process.op(torch, Role::Op, "add", "f32[2, 2]");
        let thread = process.thread("main");
        // The call that takes 30 is inside of the call of `add`, whose self time is 20.
        for (op, begin, time) in
            [(wide, 1_000, 100), (wide, 2_010, 30), (add, 2_000, 50), (narrow, 3_000, 20)]
        {
            thread.call(CallScript::op(op, begin, time));
        }
        let (_scratch, profile) = script.opened();
        let summary = summarize(&profile, &Options { raw: true, ..Options::default() });
        let all = summary.all_arguments(&profile);
        let name = |key: &Key| match key {
            Key::Op(id) => profile.ops.get(*id).unwrap().name.clone(),
            _ => String::new(),
        };
        assert_eq!(all.len(), 2);
        for (key, own) in all {
            assert_eq!((name(&key).as_str(), own.value), ("mm", 150.0));
        }
    }
}
