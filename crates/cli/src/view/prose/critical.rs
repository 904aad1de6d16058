//! Makes a table of the critical path, for `critical-path` and for the HTML page.

use analysis::{CriticalPath, CriticalRow, Key};
use profile::{Profile, Role};

use crate::view::labels::{labels, thread_label};
use crate::view::table::{Column, Table, Value};
use crate::view::units::{grouped, percent, plural, time};

/// At most this many threads are named.
const THREADS: usize = 4;

/// The names of columns, with their labels and explanations.
const EXPLAINED: [(&str, &str, &str); 4] = [
    (
        "on_path_ns",
        "on the path: ",
        "the op's own time in calls that the end waited for, on whichever thread",
    ),
    (
        "gain_ns",
        "at most: ",
        "how much sooner the end would be if the op took no time, with the same order and the same \
         gaps. Other paths limit it",
    ),
    ("gaps_ns", "gap before: ", "time before these calls in which the path was in no call"),
    (
        "own_ns",
        "own time: ",
        "in all calls of the op, on the path or not. It differs from self in a report: it is as recorded, it \
         has the op's parallel regions and what other threads did in them, and it has no waiting for other \
         threads or for a device",
    ),
];
/// The name of the row that has the path's time between calls.
const NO_CALL: &str = "(in no call)";

/// Returns the explanations of columns, and of the row for time in no call.
pub fn explained(profile: &Profile, path: &CriticalPath) -> Vec<(&'static str, String, String)> {
    let is_range =
        |row: &CriticalRow| profile.ops.get(row.op).map(|op| op.role) == Some(Role::Range);
    let has_ranges = path.rows.iter().any(is_range);
    let known = EXPLAINED.map(|(name, label, text)| {
        let of_range = match name {
            "gain_ns" if has_ranges => "; of a range, if nothing inside of it took any",
            "on_path_ns" if has_ranges => "; of a range, without the calls inside of it",
            _ => "",
        };
        let bound = match name {
            "gain_ns" if path.without_gain > 0 => {
                "; ≤: this was not computed, and it is at most what is on the path"
            }
            _ => "",
        };
        (name, label.to_owned(), format!("{text}{of_range}{bound}"))
    });
    let between = "the parts of the path that are in no call, on whichever threads these parts are. between in a \
                   report is another time: all that one thread was in no call";
    let no_call = ("on_path_ns", format!("{NO_CALL}: "), between.to_owned());
    known.into_iter().chain((path.between > 0).then_some(no_call)).collect()
}

pub fn head(profile: &Profile, path: &CriticalPath) -> Vec<String> {
    let ns = |ticks: u64| ticks as f64 * profile.timeline.ns_per_tick();
    let in_calls = path.length - path.between;
    let share = match path.length {
        0 => String::new(),
        length => format!(" ({})", percent(in_calls as f64 / length as f64)),
    };
    let passes = if path.first_pass { ", in the first pass" } else { "" };
    let mut lines = vec![format!(
        "{} from the start of the first call to the end of the last one{passes}: the critical path was in calls for \
         {}{share}",
        time(ns(path.length)),
        time(ns(in_calls)),
    )];
    let named = path.threads.iter().take(THREADS).map(|one| {
        let thread = thread_label(profile, one.process, one.thread);
        format!("{} on {thread}", time(ns(one.on_path)))
    });
    let more = path.threads.len().saturating_sub(THREADS);
    let named: Vec<String> = named.collect();
    if path.threads.len() > 1 {
        let more = if more > 0 { format!(", and {more} more threads") } else { String::new() };
        lines.push(format!("{}{more}", named.join(", ")));
    }
    let links = path.links;
    let known = [
        (links.dispatches, "dispatch after others", "dispatches after others"),
        (links.tasks, "task on another thread", "tasks on other threads"),
        (links.launches, "launch", "launches"),
        (links.waits, "wait for a device", "waits for a device"),
    ];
    let known: Vec<String> = known
        .iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, one, many)| {
            format!("{} {}", grouped((*count).into()), if *count == 1 { one } else { many })
        })
        .collect();
    if known.is_empty() && path.threads.len() <= 1 {
        lines.push("nothing recorded says that threads waited for one another".to_owned());
    } else if !known.is_empty() {
        let known = known.join(", ");
        lines.push(format!("the recording says what waited for what in these cases: {known}"));
    }
    if path.without_gain > 0 {
        lines.push(format!(
            "what {} with less on the path would gain was not computed, because there are too many \
             ops and calls",
            plural(path.without_gain as u128, "op"),
        ));
    }
    lines.push("times are as recorded, with what recording added to each call".to_owned());
    lines
}

/// Returns the table of the ops on the critical path. With `whole`, the last row is the time
/// between calls.
pub fn columns(
    profile: &Profile,
    path: &CriticalPath,
    rows: &[&CriticalRow],
    whole: bool,
) -> Table {
    let keys: Vec<Key> = rows.iter().map(|row| Key::Op(row.op)).collect();
    let labels = labels(profile, &keys).into_iter().map(|label| Some(Value::Text(label)));
    let column = |rank, name: &str, title: &str, cell: &dyn Fn(&CriticalRow) -> Option<Value>| {
        Column::new(rank, name, title, rows.iter().map(|row| cell(row)).collect())
    };
    let to_ns = profile.timeline.ns_per_tick();
    let ns = |ticks: u64| Some(Value::Ns(ticks as f64 * to_ns));
    let part =
        |ticks: u64| (path.length > 0).then(|| Value::Part(ticks as f64 / path.length as f64));
    let columns = vec![
        Column::new(0, "op", "op", labels.collect()),
        column(1, "gain_ns", "at most", &|row| match row.gain {
            Some(gain) => ns(gain),
            None => Some(Value::AtMostNs(row.inside as f64 * to_ns)),
        }),
        column(1, "gain_share", "of all", &|row| row.gain.and_then(part)),
        column(2, "on_path_ns", "on the path", &|row| ns(row.on_path)),
        column(3, "share", "share", &|row| part(row.on_path)),
        column(5, "steps", "steps", &|row| Some(Value::Count(row.steps.into()))),
        column(6, "gaps_ns", "gap before", &|row| ns(row.gaps)),
        column(4, "own_ns", "own time", &|row| ns(row.own)),
    ];
    let mut table = Table::new(columns, (0..rows.len()).collect());
    if whole {
        table.add_rest(|column| match column {
            "op" => Some(Value::Text(NO_CALL.to_owned())),
            "on_path_ns" => ns(path.between),
            "share" => part(path.between),
            _ => None,
        });
    }
    table
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "this is a test")]
mod tests {
    use analysis::critical::Links;
    use testkit::{CallScript, ProfileScript};

    use super::*;
    use crate::view::text::{cell_text, marks};

    /// The path contains 100 ns of each of two ops. The gain of only one of them was computed.
    #[test]
    fn a_gain_that_was_not_computed_is_a_bound() {
        let mut script = ProfileScript::monotonic();
        let process = script.process(1);
        process.library("m", &["f", "g"]);
        process.thread("main").call(CallScript::new(0, 0, 100)).call(CallScript::new(1, 100, 100));
        let (_scratch, profile) = script.opened();
        let row = |op, gain| CriticalRow {
            op,
            own: 100,
            on_path: 100,
            steps: 1,
            gaps: 0,
            inside: 100,
            gain,
        };
        let path = CriticalPath {
            length: 200,
            between: 0,
            rows: vec![row(0, Some(90)), row(1, None)],
            without_gain: 1,
            threads: Vec::new(),
            links: Links::default(),
            first_pass: false,
        };
        let table = columns(&profile, &path, &path.rows.iter().collect::<Vec<_>>(), true);
        let gains = table.columns.iter().find(|column| column.name == "gain_ns").unwrap();
        assert_eq!([0, 1].map(|at| cell_text(gains, at)), ["90.0 ns", "≤ 100 ns"]);
        // No line below this table explains `≤`: the text above the table does it.
        assert!(marks(&table, &[]).is_empty());
        let said = head(&profile, &path).join("\n");
        assert!(
            said.contains("what 1 op with less on the path would gain was not computed"),
            "{said}"
        );
        let known = explained(&profile, &path);
        assert!(known.iter().any(|(name, _, text)| *name == "gain_ns" && text.contains("; ≤: ")));
    }
}
