//! Finds names of counters that are spelled like an unknown name.

use model::suggest;

use crate::source::Entry;

/// Returns up to three names, the nearest first.
pub(crate) fn nearest(name: &str, entries: &[Entry]) -> Vec<String> {
    let counters = entries.iter().filter(|entry| !entry.is_pattern);
    let names = || counters.clone().flat_map(|e| std::iter::once(&e.name).chain(&e.aliases));
    let mut near = Vec::new();
    // For `syscalls:read`, `syscalls:sys_enter_read` is near, because `read` is one of its words.
    if let Some((system, point)) = name.split_once(':').filter(|(_, point)| !point.is_empty()) {
        let within = names().filter(|known| {
            known.split_once(':').is_some_and(|(s, p)| {
                let mut words = p.split('_');
                s == system && words.any(|word| word == point)
            })
        });
        near.extend(within.map(String::as_str));
        near.sort_by_key(|known| known.len());
        near.truncate(3);
    }
    if near.is_empty() {
        near = suggest::closest(name, names().map(String::as_str));
    }
    near.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Unit;

    #[test]
    fn slips_of_the_finger() {
        let entries: Vec<Entry> = [
            "page-faults",
            "context-switches",
            "syscalls:sys_enter_read",
            "syscalls:sys_exit_read",
            "syscalls:sys_enter_readv",
        ]
        .map(|name| Entry::new(name, "test", Unit::Count, ""))
        .into();
        let both = ["syscalls:sys_exit_read", "syscalls:sys_enter_read"];
        assert_eq!(nearest("syscalls:read", &entries), both);
        assert_eq!(nearest("pf", &entries), ["page-faults"]);
        assert!(nearest("zzzzzz", &entries).is_empty());
    }
}
