//! Matches the loops of a schedule (of TVM's TIR) with those of a text of LLVM IR that was compiled
//! from it.
//!
//! The compiler of the TIR marks loop N: the name of its variable ends in `__cptN_`, and its
//! statements have the source line `LINE + N`. LLVM's optimiser keeps the names in labels of
//! blocks, and the lines in the locations of instructions. Labels alone would mislead: a header may
//! be named after the loop inside (`for_begin_k__cpt2_.preheader`, `for_body_k__cpt2_.peel.next`).
//! These facts show from which loop of the schedule a loop of the text was compiled, the most
//! reliable first:
//!
//! 1. the branches that are directly in the loop and leave or repeat it: their lines, as far as
//!    known, are all of one loop of the schedule;
//! 2. the header's label names a loop and has no ending such as `.preheader`, which the optimiser
//!    adds to blocks that belong to another loop;
//! 3. in an innermost loop, more than half of the instructions with such a line have the line of
//!    one loop.
//!
//! If two matched loops are not nested as in the schedule, the inner one counts as unknown: a
//! missing row in a report is better than a wrong row.

use serde::{Deserialize, Serialize};

use crate::dominators::NONE;
use crate::function::Body;
use crate::loops::Loops;
use crate::source::Source;
pub use crate::table::ScheduledLoop;
use crate::table::check_parents;

/// The version of the file format, in the field `counterpoint_schedule`.
pub const VERSION: u32 = 1;
/// The source line of loop 0.
pub const LINE: u32 = 1 << 30;
/// The last part of the name of a loop's variable, before the number and `_`.
const MARK: &str = "__cpt";
/// The largest number of loops in a schedule; this many line numbers are reserved for them.
const MOST_LOOPS: usize = 1 << 24;

/// The loops of a schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// [`VERSION`].
    pub counterpoint_schedule: u32,
    /// The text to which the lines refer: TIR as the code generator received it.
    #[serde(default)]
    pub text: String,
    /// That text's name.
    #[serde(default)]
    pub path: String,
    /// The loops. A loop comes before the loops inside of it.
    pub loops: Vec<ScheduledLoop>,
    /// Each function's lines in the text.
    #[serde(default)]
    pub functions: Vec<ScheduledFunction>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledFunction {
    pub name: String,
    /// First and last line in the text, from 1.
    pub lines: [u32; 2],
}

/// Why a file is not a schedule.
#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    /// The file is not the JSON of a schedule.
    #[error("not a schedule of loops: {0}")]
    Json(#[from] serde_json::Error),
    /// The file has another version of the format.
    #[error("schedule of loops has version {found}, this program reads version {VERSION}")]
    Version {
        /// The version in the file.
        found: u32,
    },
    /// There are more loops than reserved line numbers.
    #[error("schedule of loops has {0} loops, more than {MOST_LOOPS}")]
    TooMany(usize),
    /// A loop comes before the loop around it.
    #[error("schedule of loops: loop {0}: the loop around it does not come before it")]
    Parent(usize),
}

impl Schedule {
    /// Reads a schedule.
    ///
    /// # Errors
    /// Fails if the text is not a schedule, has another version or too many loops, or has a loop
    /// before the loop around it.
    pub fn from_json(text: &[u8]) -> Result<Self, ScheduleError> {
        let schedule: Self = serde_json::from_slice(text)?;
        if schedule.counterpoint_schedule != VERSION {
            return Err(ScheduleError::Version { found: schedule.counterpoint_schedule });
        }
        if schedule.loops.len() > MOST_LOOPS {
            return Err(ScheduleError::TooMany(schedule.loops.len()));
        }
        check_parents(&schedule.loops).map_or(Ok(schedule), |at| Err(ScheduleError::Parent(at)))
    }

    /// Returns, for each loop of a function, the loop of the schedule from which it was compiled,
    /// if that is known.
    pub fn match_loops(
        &self,
        text: &[u8],
        body: &Body,
        loops: &Loops,
        source: &mut Source<'_>,
    ) -> Vec<Option<u32>> {
        let mut lines = LinesOf::new(self, text, body, loops, source);
        let mut found: Vec<Option<u32>> = Vec::with_capacity(loops.all.len());
        for (i, one) in loops.all.iter().enumerate() {
            let label = body.blocks[one.header as usize].label.of(text);
            let named = || number_of(label).filter(|n| self.is_left(*n));
            let branches = lines.of_branches(loops, i as u32).or_else(named);
            let innermost = one.height == 0;
            found.push(branches.or_else(|| lines.most(i as u32).filter(|_| innermost)));
        }
        for (i, one) in loops.all.iter().enumerate() {
            let Some(n) = found[i] else { continue };
            // The nearest matched loop around this one.
            let mut above = one.parent;
            while above != NONE && found[above as usize].is_none() {
                above = loops.all[above as usize].parent;
            }
            if above != NONE && !found[above as usize].is_some_and(|a| self.contains(a, n)) {
                found[i] = None;
            }
        }
        found
    }

    /// Returns whether there is a loop `n` that TVM did not unroll or otherwise remove.
    fn is_left(&self, n: u32) -> bool {
        self.loops.get(n as usize).is_some_and(|one| one.gone.is_none())
    }

    /// Returns the loop for which a source line stands.
    fn at_line(&self, line: u32) -> Option<u32> {
        line.checked_sub(LINE).filter(|n| self.is_left(*n))
    }

    fn contains(&self, outer: u32, n: u32) -> bool {
        let mut at = self.loops[n as usize].parent;
        while let Some(now) = at {
            if now == outer {
                return true;
            }
            at = self.loops[now as usize].parent;
        }
        false
    }
}

/// Returns the loop that a header is named after.
fn number_of(label: &[u8]) -> Option<u32> {
    let label = std::str::from_utf8(label).ok()?.trim_matches('"');
    let of_loop = label.strip_prefix("for_body_").or_else(|| label.strip_prefix("for_begin_"))?;
    let (number, ending) = of_loop.rsplit_once(MARK)?.1.split_once('_')?;
    // LLVM adds numbers to labels, and `us`, `epil` and `prol` to the names of copies.
    let known = |part: &str| {
        matches!(part, "us" | "epil" | "prol") || part.bytes().all(|byte| byte.is_ascii_digit())
    };
    ending.split('.').all(known).then(|| number.parse().ok()).flatten()
}

/// Finds the loop of the schedule to which instructions belong, from their source lines.
struct LinesOf<'a, 'b, 'c> {
    schedule: &'a Schedule,
    text: &'a [u8],
    body: &'a Body,
    source: &'b mut Source<'c>,
    /// For each loop, the blocks that are directly in it.
    own: Vec<Vec<u32>>,
}

impl<'a, 'b, 'c> LinesOf<'a, 'b, 'c> {
    fn new(
        schedule: &'a Schedule,
        text: &'a [u8],
        body: &'a Body,
        loops: &Loops,
        source: &'b mut Source<'c>,
    ) -> Self {
        let mut own = vec![Vec::new(); loops.all.len()];
        for (block, l) in (0..).zip(&loops.innermost) {
            if let Some(blocks) = own.get_mut(*l as usize) {
                blocks.push(block);
            }
        }
        Self { schedule, text, body, source, own }
    }

    /// Looks at the branches that are directly in loop `l`, leave or repeat it, and have a line.
    /// Returns the loop of the schedule to which all these lines belong, if there is one.
    fn of_branches(&mut self, loops: &Loops, l: u32) -> Option<u32> {
        let mut found = None;
        for block in &self.own[l as usize] {
            let header = loops.all[l as usize].header;
            let ends = |to: u32| to == header || !loops.contains(l, to);
            if !self.body.leaving(*block).iter().any(|edge| ends(edge.to)) {
                continue;
            }
            let branch = self.body.blocks[*block as usize].terminator;
            for line in self.source.lines(branch.of(self.text)) {
                let n = self.schedule.at_line(line)?;
                if found.is_some_and(|other| other != n) {
                    return None;
                }
                found = Some(n);
            }
        }
        found
    }

    /// Counts the instructions directly in `l` that have the line of a loop of the schedule.
    /// Returns the loop to which more than half of them belong.
    fn most(&mut self, l: u32) -> Option<u32> {
        let mut counts: Vec<(u32, usize)> = Vec::new();
        for block in &self.own[l as usize] {
            let span = self.body.blocks[*block as usize].text;
            for line in self.source.lines(span.of(self.text)) {
                let Some(n) = self.schedule.at_line(line) else { continue };
                match counts.iter_mut().find(|(of, _)| *of == n) {
                    Some((_, count)) => *count += 1,
                    None => counts.push((n, 1)),
                }
            }
        }
        let all: usize = counts.iter().map(|(_, count)| count).sum();
        counts.into_iter().find(|(_, count)| 2 * count > all).map(|(n, _)| n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_called_after_loops() {
        for (label, expected) in [
            ("for_body_k__cpt12_", Some(12)),
            ("for_body_k__cpt1_2", Some(1)),
            ("for_body_k__cpt1_.3.1", Some(1)),
            ("for_begin_i.outer__cpt0_.us", Some(0)),
            ("\"for_body_a b__cpt3_\"", Some(3)),
            ("for_begin_j__cpt1_.preheader", None),
            ("for_body_k__cpt4_.peel.next.1", None),
            ("for_end_j__cpt1_", None),
            ("for_body_k", None),
            ("for_body_k__cpt_", None),
            ("for_body_k__cpt99999999999_", None),
            ("vector.body", None),
        ] {
            assert_eq!(number_of(label.as_bytes()), expected, "{label}");
        }
    }

    #[test]
    fn a_parent_must_come_before_its_children() {
        let one = |parent: &str| {
            format!(r#"{{"function":"f","variable":"i","kind":"serial","depth":0{parent}}}"#)
        };
        let file = |version: u32, loops: &str| {
            format!(r#"{{"counterpoint_schedule":{version},"loops":[{loops}]}}"#)
        };
        let good = file(1, &[one(""), one(r#","parent":0"#)].join(","));
        assert_eq!(Schedule::from_json(good.as_bytes()).expect("good").loops.len(), 2);
        for (bad, why) in [
            (file(2, ""), "version 2, this program reads version 1"),
            (file(1, &one(r#","parent":0"#)), "loop 0: the loop around it does not come before it"),
            ("{".to_owned(), "not a schedule of loops"),
        ] {
            let error = Schedule::from_json(bad.as_bytes()).expect_err("bad").to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
