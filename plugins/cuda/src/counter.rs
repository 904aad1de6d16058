//! Finds the unit of a CUPTI counter from the counter's name.

pub fn is_percent(counter: &str) -> bool {
    counter.split('.').any(|part| part == "pct" || part.starts_with("pct_of_"))
}

/// Returns the unit of the counter's values. It is empty if the unit does not follow from the name.
pub fn unit_of(counter: &str) -> &'static str {
    match counter {
        _ if is_percent(counter) => "%",
        _ if counter.contains("bytes") && counter.ends_with(".per_second") => "B/s",
        _ if counter.ends_with(".per_second") => "/s",
        _ if counter.contains("bytes") => "B",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_in_the_names_of_counters() {
        for (counter, unit) in [
            ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "%"),
            ("sm__inst_executed.avg.pct", "%"),
            ("dram__bytes_read.sum.per_second", "B/s"),
            ("dram__bytes_read.sum", "B"),
            ("sm__inst_executed.sum.per_second", "/s"),
            ("sm__cycles_active.avg", ""),
        ] {
            assert_eq!(unit_of(counter), unit, "{counter}");
        }
    }
}
