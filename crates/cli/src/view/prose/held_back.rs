//! Describes what limits a program's speed, for `explain`, for reports, and for HTML pages.

use analysis::{Before, By, Fired, Rule, Sites, Summary, rules, sites_as};
use profile::Profile;

use super::overview::Overview;
use crate::view::labels::labels;
use crate::view::units::{grouped, number, percent, plural, shorten, time};

/// Longer names of ops are shortened, so that a sentence fits into two lines of 80 columns.
const NAME: usize = 40;
/// If a profile has more calls than this, a report does not read them a second time to analyse
/// dispatches.
const MOST_CALLS: u64 = 2_000_000;

/// Returns the rules (about what limits a program) that hold for this profile. The rule with the
/// most time at stake comes first. To analyse dispatches, all calls may be read a second time.
/// `summary` must have one row per op, and must not be filtered.
pub fn fired(profile: &Profile, summary: &Summary) -> Vec<Fired> {
    let dispatches = summary.dispatches.is_some_and(|n| n > 0)
        || summary.rows.iter().any(|row| row.dispatches.is_some());
    let several = profile.processes.iter().any(|process| process.threads.len() > 1);
    let worth = dispatches && several && profile.calls() <= MOST_CALLS && !profile.is_sampled();
    let sites: Option<Sites> = if worth { sites_as(profile, summary.raw) } else { None };
    rules(profile, summary, sites.as_ref())
}

/// Whether a report contains all ops and all of their calls.
pub fn is_whole(overview: &Overview<'_>) -> bool {
    overview.by == By::Op
        && overview.filter.is_none()
        && overview.places == [None; 3]
        && overview.skip_ms == 0.0
}

/// Returns what the rule with the most time at stake found. `None` if no rule holds, if the report
/// is not by op, or if it leaves out calls.
pub fn most(overview: &Overview<'_>) -> Option<String> {
    if !is_whole(overview) || overview.summary.calls == 0 {
        return None;
    }
    let all = fired(overview.profile, overview.summary);
    all.first().map(|first| finding(overview.profile, first))
}

/// Returns what a rule found, without advice: `…; changing that can save at most 31 % of the wall
/// time (52.0 ms of 168 ms)`.
pub fn finding(profile: &Profile, fired: &Fired) -> String {
    let what = match fired.rule {
        Rule::Between { dispatches, before, mean_ns } => format!(
            "most of the time is between dispatches, in {}; a dispatch takes {} (mean of {})",
            gaps(before),
            time(mean_ns),
            grouped(dispatches.into())
        ),
        Rule::BetweenRuns { runs, before, mean_ns } => format!(
            "most of the time is between runs of the model, in {}; a run takes {} (mean of {})",
            gaps(before),
            time(mean_ns),
            grouped(runs.into())
        ),
        Rule::WorkersWait { site, efficiency } => format!(
            "workers wait inside of dispatches: during those of {}, the workers are busy for {} of the time",
            op(profile, analysis::Key::Op(site)),
            percent(efficiency)
        ),
        Rule::FewWorkgroups { site, workgroups, workers } => format!(
            "the workers wait: a dispatch of {} has {} for {workers} workers",
            op(profile, analysis::Key::Op(site)),
            workgroups_of(workgroups)
        ),
        Rule::SmallWorkgroups { site, mean_ns, efficiency } => format!(
            "workgroups are too small: those of {} take {} each, and the workers are busy for {} of the time",
            op(profile, analysis::Key::Op(site)),
            time(mean_ns),
            percent(efficiency)
        ),
        Rule::Imbalance { site, imbalance } => format!(
            "one worker does the most: in dispatches of {}, the busiest takes {imbalance:.1} times its share",
            op(profile, analysis::Key::Op(site))
        ),
        Rule::MemoryBound { op: key, counter, stalled } => format!(
            "{} waits for memory in {} of its cycles ({})",
            op(profile, key),
            percent(stalled),
            counter_name(profile, counter)
        ),
        Rule::FreshMemory { op: key, counter, mean, calls, part, of_cpu } => {
            let which = match calls >= 0.995 {
                true => "each call".to_owned(),
                false => format!("{} of the calls", percent(calls)),
            };
            let time = if of_cpu { "processor time" } else { "time" };
            format!(
                "{which} of {} touch{} fresh memory: {} {} for each call on average, which take at least {} of its {time}, and {} of the wall time",
                op(profile, key),
                if calls >= 0.995 { "es" } else { "" },
                number(mean),
                counter_name(profile, counter),
                percent(part),
                percent(fired.share)
            )
        }
        Rule::DataLoader { op: _, calls, mean_ns } => format!(
            "the program waits for its data loader: {} times, {} each time",
            grouped(calls.into()),
            time(mean_ns)
        ),
        Rule::Items { op: _, calls, mean_ns, around_ns } => {
            let gaps = match around_ns >= 0.5 {
                true => format!(", and the gaps right around its calls take {}", time(around_ns)),
                false => String::new(),
            };
            let calls = grouped(calls.into());
            format!(
                ".item() is called {calls} times, and a call takes {} on average{gaps}",
                time(mean_ns)
            )
        }
    };
    match fired.rule {
        // The time at stake comes from the smallest possible cost of page faults, so it is no upper
        // limit of what can be saved.
        Rule::FreshMemory { .. } => what,
        _ => format!(
            "{what}; changing that can save at most {} of the wall time ({} of {})",
            percent(fired.share),
            time(fired.at_stake_ns()),
            time(fired.wall_ns)
        ),
    }
}

pub fn advice(rule: &Rule) -> &'static str {
    match rule {
        Rule::Between { .. } => {
            "fuse dispatches, run several invocations at once, or look at what the caller does between them (report --by between)"
        }
        Rule::BetweenRuns { .. } => {
            "look at what the program does between its runs (report --by between) and whether other programs use the CPUs, or run several at once"
        }
        Rule::WorkersWait { .. } => {
            "look at when its workgroups begin (trace export), and whether other programs use the CPUs"
        }
        Rule::FewWorkgroups { .. } => "smaller tiles, or fewer workers for this model",
        Rule::SmallWorkgroups { .. } => "larger tiles, fusion, or fewer workers",
        Rule::Imbalance { .. } => {
            "tiles of equal work, and more workgroups than workers; if it has both, look at whether other programs use the CPUs (report --by cpu)"
        }
        Rule::MemoryBound { .. } => "smaller types, fusion, or tiles that fit into a cache",
        Rule::FreshMemory { .. } => {
            "keep buffers between calls, or an allocator that does not return memory to the system"
        }
        Rule::DataLoader { .. } => {
            "more workers of the loader, larger prefetch, or less work in it"
        }
        Rule::Items { .. } => "keep values in tensors, or read them once for many steps",
    }
}

pub fn rule_name(rule: &Rule) -> &'static str {
    match rule {
        Rule::Between { .. } => "between_dispatches",
        Rule::BetweenRuns { .. } => "between_runs",
        Rule::WorkersWait { .. } => "workers_wait",
        Rule::FewWorkgroups { .. } => "few_workgroups",
        Rule::SmallWorkgroups { .. } => "small_workgroups",
        Rule::Imbalance { .. } => "imbalance",
        Rule::MemoryBound { .. } => "memory_bound",
        Rule::FreshMemory { .. } => "fresh_memory",
        Rule::DataLoader { .. } => "data_loader",
        Rule::Items { .. } => "items",
    }
}

/// Formats gaps, from ns: `49 gaps (median 114 µs, mean 2.74 ms, longest 14.6 ms)`. The text has
/// the median as well, because a few long gaps can dominate the mean.
pub fn gaps(of: Before) -> String {
    format!(
        "{} (median {}, mean {}, longest {})",
        plural(of.times.into(), "gap"),
        time(of.median),
        time(of.mean),
        time(of.longest)
    )
}

fn workgroups_of(mean: f64) -> String {
    match mean.fract() == 0.0 {
        true => plural(mean as u128, "workgroup"),
        false => format!("{} workgroups", number(mean)),
    }
}

fn op(profile: &Profile, key: analysis::Key) -> String {
    shorten(&labels(profile, &[key]).concat(), NAME)
}

fn counter_name(profile: &Profile, counter: usize) -> &str {
    profile.manifest.counters.get(counter).map_or("", |counter| &counter.name)
}
