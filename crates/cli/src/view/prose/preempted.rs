//! Describes preemption: threads that, during calls, lost their CPU to another thread of this
//! program or of another one.

use analysis::Summary;
use profile::Profile;

use super::overview::Overview;
use crate::view::labels::{process_label, thread_label};
use crate::view::units::{grouped, number, percent, plural, time};

/// Returns a sentence about the thread that lost the most time in calls because it was preempted.
/// `None` if there is no thread that was preempted often and also lost a noticeable part of its
/// time in calls.
pub fn text(overview: &Overview<'_>) -> Option<String> {
    text_of(overview.profile, overview.summary, "durations")
}

/// Like [`text`]. `times` is what the sentence calls the times that became longer through
/// preemption, for example `durations`.
pub fn text_of(profile: &Profile, summary: &Summary, times: &str) -> Option<String> {
    let all = summary.preempted(profile);
    let most = all.first()?;
    let mut who = thread_label(profile, most.thread.process, most.thread.thread);
    if profile.processes.len() > 1 {
        who.push_str(&format!(" of {}", process_label(profile, most.thread.process)));
    }
    let more = match all.len() - 1 {
        0 => String::new(),
        1 => "; 1 further thread was preempted often".to_owned(),
        n => format!("; {} were preempted often", plural(n as u128, "further thread")),
    };
    let rate = number(most.per_second.round());
    Some(format!(
        "other programs, or other threads of this one, took the CPU: {who} was preempted {} times ({rate} times \
         in each second on a CPU), and was off the CPU for at least {} of its time in calls ({}), which \
         {times} include{more}",
        grouped(most.times.into()),
        time(most.in_calls_ns),
        percent(most.in_calls_ns / most.thread.dispatch_ns),
    ))
}
