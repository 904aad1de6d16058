//! Adds up the rows of each op whose calls had different arguments and therefore have several rows.

use std::collections::HashMap;

use profile::{Profile, Role};

use crate::answer::passes;
use crate::estimate::Estimate;
use crate::probe::sum;
use crate::summary::Summary;
use crate::table::{By, Key, Row};

impl Summary {
    /// Considers the ops whose rows have different arguments. For each row of such an op, returns
    /// the sum of the self times of all rows of the op, in ticks. With several passes (repetitions
    /// of the recorded calls), this is the mean over the passes. The map is empty in a run with a
    /// budget (a limit for the cost of recording), because each row's time is estimated separately.
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
            // The errors of the rows do not cancel: if the recorder's time that was subtracted is
            // too large in one row, it is too large in all rows. So `sum` adds the ends of the
            // intervals.
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
        // The call of `mm` that takes 30 ticks is inside of the call of `add`. So the self time of
        // `add` is 20 ticks.
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
