//! Adds up the activities (kernels, copies and the like) that ops launched on devices. The plugins
//! that recorded the activities must have got an id for each op (`run --plugin-ids`): the event of
//! an activity then contains its op's id.

use std::collections::HashMap;

use profile::Profile;
use profile::activities::Activities;
use profile::launches::{Ids, Launches};

/// The activities with one name that were launched by calls of one op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchRow {
    pub op: String,
    /// The name of the activities, for example of a kernel or a copy.
    pub activity: String,
    /// The activity's kind, as the plugin calls it.
    pub kind: String,
    /// Number of activities.
    pub calls: u64,
    /// The sum of the durations of the activities.
    pub total_ns: i64,
    /// The shortest duration of the activities.
    pub min_ns: i64,
    /// The longest duration of the activities.
    pub max_ns: i64,
}

/// The activities that ops launched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launched {
    /// Rows, grouped by op. The op whose activities took the most time is first. Within an op, the
    /// activity that took the most time is first.
    pub rows: Vec<LaunchRow>,
    /// Sum of the durations of all activities that have the id of a recorded op.
    pub total_ns: i64,
    /// Number of activities with the id of an op which was not recorded, because it did not end or
    /// was lost.
    pub of_no_op: u64,
}

/// Adds up the activities on devices by their name and by the op that launched them.
pub fn by_launch(profile: &Profile, all: &[Activities]) -> profile::Result<Launched> {
    let launches = Launches::read(profile, all)?;
    let mut found: HashMap<(String, String, String), LaunchRow> = HashMap::new();
    let mut of_no_op = 0;
    for trace in all {
        let Some(mut ids) = Ids::of(trace) else { continue };
        let text = |id: Option<_>| id.and_then(|id| trace.text(id)).unwrap_or_default().to_owned();
        let mut events = trace.events()?;
        while let Some(batch) = events.next_batch()? {
            let Ok(()) = batch.visit(|event| {
                let Some((process, id)) = ids.of_event(event) else {
                    return Ok::<(), std::convert::Infallible>(());
                };
                let Some(launcher) = launches.launcher(process, id) else {
                    of_no_op += 1;
                    return Ok(());
                };
                let op = profile.ops.of(launcher.process, launcher.export);
                let op = op.and_then(|op| profile.ops.get(op)).map(|op| op.name.clone());
                let op =
                    op.unwrap_or_else(|| profile::batch::unknown_op(launcher.export).to_string());
                let (activity, kind) = (text(event.name), text(event.category));
                let duration = event.duration_ns.unwrap_or(0);
                let key = (op.clone(), activity.clone(), kind.clone());
                let row = found.entry(key).or_insert_with(|| LaunchRow {
                    op,
                    activity,
                    kind,
                    calls: 0,
                    total_ns: 0,
                    min_ns: i64::MAX,
                    max_ns: 0,
                });
                row.calls += 1;
                row.total_ns = row.total_ns.saturating_add(duration);
                row.min_ns = row.min_ns.min(duration);
                row.max_ns = row.max_ns.max(duration);
                Ok(())
            });
        }
    }
    let mut rows: Vec<LaunchRow> = found.into_values().collect();
    let mut of_op: HashMap<String, i64> = HashMap::new();
    for row in &rows {
        let sum = of_op.entry(row.op.clone()).or_default();
        *sum = sum.saturating_add(row.total_ns);
    }
    rows.sort_by(|a, b| {
        let of = |row: &LaunchRow| of_op.get(&row.op).copied();
        let names = |row: &LaunchRow| (row.activity.clone(), row.kind.clone());
        (of(b).cmp(&of(a)).then_with(|| a.op.cmp(&b.op)))
            .then_with(|| b.total_ns.cmp(&a.total_ns).then_with(|| names(a).cmp(&names(b))))
    });
    let total_ns = rows.iter().fold(0i64, |sum, row| sum.saturating_add(row.total_ns));
    Ok(Launched { rows, total_ns, of_no_op })
}
