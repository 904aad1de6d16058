//! Finds which call launched which activity of a device, and which call waited for which activity.
//! In plugins' events and in traces, a launching call and the launched activity have the same id.
//!
//! The ids are arguments of the events of a plugin or trace. The profile's calls were made from
//! these events, but do not have the ids. So calls and events of the same category and name, sorted
//! by time, are matched one to one. If a category and name do not have as many calls as events
//! (after losses, or with several traces), none of these calls are matched.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use model::activity::{Kind, Registry};
use profile::activities::Activities;
use profile::launches::{Ids, PROCESSES_KEY};
use profile::{Origin, Profile};
use serde_json::Value;

use super::calls::{Calls, Pairs};

/// The argument whose value is the same in a launch and in the activity that it launched.
const CORRELATION: &str = "correlation";
/// The argument that contains the number of the op around a launch. Its value is the same in the
/// launched activity.
const EXTERNAL: &str = "External id";

/// The category and the name of an event.
type Named = (String, String);

struct Seen {
    time_ns: i64,
    duration_ns: i64,
    correlation: Option<u64>,
    external: Option<u64>,
    /// For an activity of a device: the process and the id of the op that launched it, if
    /// Counterpoint's agent (its library in the program) recorded this op.
    live: Option<(usize, u64)>,
    on_device: bool,
}

pub(super) fn pairs(profile: &Profile, calls: &Calls) -> profile::Result<Pairs> {
    let mut pairs = Pairs::default();
    let activities = profile.activities()?;
    if activities.is_empty() {
        return Ok(pairs);
    }
    let mut of_names = by_name(profile, calls);
    for trace in &activities {
        let found = matched(profile, trace, &mut of_names)?;
        link(calls, &found, &mut pairs);
    }
    pairs.launches.sort_unstable();
    pairs.launches.dedup_by_key(|(activity, _)| *activity);
    Ok(pairs)
}

/// Returns the calls that were made from events of plugins or traces, by category and name, sorted
/// by time.
fn by_name(profile: &Profile, calls: &Calls) -> HashMap<Named, Vec<u32>> {
    let imported = profile.manifest.origin == Origin::Import;
    let mut of_names: HashMap<Named, Vec<u32>> = HashMap::new();
    for (at, call) in (0u32..).zip(&calls.all) {
        let (process, _) = calls.lines[call.line as usize];
        if !imported && !profile.processes[process].id.is_of_plugins() {
            continue;
        }
        if let Some(op) = profile.ops.get(call.op) {
            of_names.entry((op.library.to_string(), op.name.clone())).or_default().push(at);
        }
    }
    for list in of_names.values_mut() {
        list.sort_by_key(|at| {
            let call = &calls.all[*at as usize];
            (call.begin, Reverse(call.end), *at)
        });
    }
    of_names
}

/// Returns the events that were matched with a call, each with the index of this call.
fn matched(
    profile: &Profile,
    trace: &Activities,
    of_names: &mut HashMap<Named, Vec<u32>>,
) -> profile::Result<Vec<(u32, Seen)>> {
    let registry = Registry::new();
    let mut devices: HashMap<u32, Option<bool>> = HashMap::new();
    let mut seen: HashMap<Named, Vec<Seen>> = HashMap::new();
    let mut ids = Ids::of(trace);
    let of_plugins = trace.document.get(PROCESSES_KEY).is_some();
    let mut events = trace.events()?;
    while let Some(batch) = events.next_batch()? {
        let Ok(()) = batch.visit(|event| {
            let (Some(name), Some(category), Some(time_ns)) =
                (event.name, event.category, event.time_ns)
            else {
                return Ok::<(), std::convert::Infallible>(());
            };
            if event.form != b'X' {
                return Ok(());
            }
            let args = event.args.unwrap_or_default();
            let has_ids = args.contains(CORRELATION) || args.contains(EXTERNAL);
            let args: Option<Value> = has_ids.then(|| serde_json::from_str(args).ok()).flatten();
            let id = |key: &str| args.as_ref()?.get(key)?.as_u64().filter(|id| *id > 0);
            let text = |id| trace.text(id).unwrap_or_default().to_owned();
            let kind = devices.entry(category.0).or_insert_with(|| {
                match registry.kind(registry.parse(trace.text(category)?)?) {
                    Kind::Generic(generic) => Some(generic.on_device()),
                    Kind::Registered(_) => None,
                }
            });
            let has_stream = || args.as_ref().is_some_and(|args| args.get("stream").is_some());
            let on_device = kind.unwrap_or_else(has_stream);
            let of_op = ids.as_mut().and_then(|ids| ids.of_event(event));
            let live = of_op.and_then(|((member, part), id)| {
                let is = |p: &profile::Process| p.member == member && p.id == part;
                Some((profile.processes.iter().position(is)?, id))
            });
            seen.entry((text(category), text(name))).or_default().push(Seen {
                time_ns,
                duration_ns: event.duration_ns.unwrap_or(0),
                correlation: id(CORRELATION),
                external: id(EXTERNAL).filter(|_| !of_plugins),
                live,
                on_device,
            });
            Ok(())
        });
    }
    let mut found = Vec::new();
    for (named, mut activities) in seen {
        let Some(list) = of_names.get_mut(&named) else { continue };
        activities.sort_by_key(|one| (one.time_ns, Reverse(one.duration_ns)));
        if list.len() == activities.len() {
            found.extend(std::mem::take(list).into_iter().zip(activities));
        }
    }
    found.sort_unstable_by_key(|(call, _)| *call);
    Ok(found)
}

fn link(calls: &Calls, found: &[(u32, Seen)], pairs: &mut Pairs) {
    let call = |at: u32| &calls.all[at as usize];
    let launched: HashSet<u64> =
        found.iter().filter(|(_, s)| s.on_device).filter_map(|(_, s)| s.correlation).collect();
    // Two maps from ids to calls that did not run on a device. The key of the first map is the
    // correlation id of a call, which may have launched an activity. The second map contains the
    // innermost op with an external id, which is the op that began last.
    let (mut launchers, mut ops) = (HashMap::new(), HashMap::new());
    for (at, seen) in found.iter().filter(|(_, seen)| !seen.on_device) {
        launchers.extend(seen.correlation.map(|id| (id, *at)));
        let latest = |id| (id, *at);
        if seen.correlation.is_none() {
            ops.extend(seen.external.map(latest));
        }
    }
    let mut activities: Vec<u32> = Vec::new();
    for (at, seen) in found.iter().filter(|(_, seen)| seen.on_device) {
        let by = seen.correlation.and_then(|id| launchers.get(&id));
        let by = by.or_else(|| seen.external.and_then(|id| ops.get(&id)));
        let by = by.or_else(|| seen.live.and_then(|of| calls.by_id.get(&of)));
        pairs.launches.extend(by.map(|by| (*at, *by)));
        if by.is_some() {
            activities.push(*at);
        }
    }
    activities.sort_by_key(|at| call(*at).end);
    for (at, seen) in found.iter().filter(|(_, seen)| !seen.on_device) {
        if seen.correlation.is_none_or(|id| launched.contains(&id)) {
            continue;
        }
        // The call waited for the last activity that ended before the call's end, if this activity
        // ended after the call's start.
        let of = call(*at);
        let until = activities.partition_point(|activity| call(*activity).end <= of.end);
        let last = until.checked_sub(1).map(|i| activities[i]);
        let during = last.filter(|last| call(*last).end > of.begin);
        pairs.waits.extend(during.map(|activity| (*at, activity)));
    }
}
