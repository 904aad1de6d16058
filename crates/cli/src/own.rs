//! Finds the counters that also count the recorder's own `read` system calls, if the number of
//! these system calls is known exactly.
//!
//! ```text
//!  begin of a call                      end of it
//!  read(2) of group 1 … of group N      read(2) of group 1 … of group N
//!     │ enters, takes values, leaves
//! ```
//!
//! The kernel takes the values of a group in the middle of the system call `read` of this group. So
//! at the start of a recorded call, a group also counts the rest of its own `read` and the reads of
//! all later groups. At the end of the call, it counts the reads of all earlier groups and the
//! first part of its own `read`. So in each recorded call, a counter of a tracepoint at the entry
//! or exit of system calls counts one extra `read` per group. The profile contains the values that
//! an empty call reads, and `report` subtracts them.

use model::{Counter, Source};

/// The tracepoints that each `read(2)` passes exactly once.
const OF_READ: [&str; 4] = [
    "raw_syscalls:sys_enter",
    "raw_syscalls:sys_exit",
    "syscalls:sys_enter_read",
    "syscalls:sys_exit_read",
];

pub fn notes(counters: &[Counter]) -> Vec<String> {
    let mut groups: Vec<u16> = counters.iter().map(|counter| counter.group).collect();
    groups.sort_unstable();
    groups.dedup();
    let each = groups.len();
    let about = |counter: &Counter| {
        let Source::Perf(attr) = &counter.source else { return None };
        let point = OF_READ.iter().find(|point| {
            let rest = counter.name.strip_prefix(**point);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '/']))
        })?;
        let more = if each == 1 { "1 more".into() } else { format!("up to {each} more") };
        let way_out = match (&attr.filter, point.starts_with("raw_")) {
            (Some(_), _) => ", unless its filter leaves them out".to_owned(),
            (None, true) => format!(
                "; {point}/filter=\"id != {}\"/ leaves out every read; report subtracts only ours",
                libc::SYS_read
            ),
            (None, false) => "; report subtracts them".to_owned(),
        };
        Some(format!(
            "{} counts the recorder's own readings too, {more} in each call{way_out}",
            counter.name
        ))
    };
    counters.iter().filter(|counter| counter.scope.is_thread()).filter_map(about).collect()
}

#[cfg(test)]
mod tests {
    use model::{PerfAttr, Unit};

    use super::*;

    #[test]
    fn which_counters_see_a_read() {
        let counter = |name: &str, group| {
            Counter::new(name, Unit::Count, group, Source::Perf(PerfAttr::default()))
        };
        let said = |names: &[(&str, u16)]| {
            notes(&names.iter().map(|(name, group)| counter(name, *group)).collect::<Vec<_>>())
        };
        assert!(said(&[("page-faults", 0), ("syscalls:sys_enter_readv", 0)]).is_empty());
        let one = said(&[("raw_syscalls:sys_enter", 0), ("task-clock", 0)]);
        assert!(one[0].contains(", 1 more in each call; raw_syscalls:sys_enter/filter"), "{one:?}");
        let two = said(&[("syscalls:sys_exit_read:u", 0), ("task-clock", 1)]);
        assert!(two[0].contains("up to 2 more in each call; report"), "{two:?}");
    }
}
