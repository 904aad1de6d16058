//! Advice for a metric that cannot be used.

use model::metric::{MetricCause, MetricError, MetricErrorKind};

/// Returns what to type instead; `None` if the error message is enough.
pub fn for_metric(error: &MetricError) -> Option<String> {
    let advice = match (&error.kind, &error.cause) {
        (MetricErrorKind::UnknownCounter { name }, _) if is_work(name) => {
            format!("{name} is known in `report --roofline`, where ops have known work")
        }
        (MetricErrorKind::UnknownCounter { name }, _) if name == "flops" => {
            "flops is known in `report --by shape`, for ops of PyTorch".into()
        }
        (_, Some(cause)) => for_cause(cause),
        (MetricErrorKind::Function { .. }, None) => "there are min(…) and max(…)".into(),
        (MetricErrorKind::Ambiguous { .. }, None) => "write it with its modifiers".into(),
        (MetricErrorKind::Modes { .. }, None) => {
            "if that is what you want, write them with their modifiers".into()
        }
        _ => return None,
    };
    Some(advice)
}

/// Whether `name` is a quantity that Counterpoint computes from an op's shapes (docs/roofline.md).
fn is_work(name: &str) -> bool {
    matches!(name, "flop" | "bytes")
}

fn for_cause(cause: &MetricCause) -> String {
    match cause {
        MetricCause::UnquotedName => {
            "put names with slashes, commas or spaces in quotes: \"msr/tsc/\" / duration".into()
        }
        MetricCause::Units(units) => format!("units: {units}"),
        MetricCause::Minus { left, right } => {
            format!("a minus needs spaces around it: {left} - {right}")
        }
        MetricCause::Near(names) => format!("did you mean {}?", names.join(", ")),
        MetricCause::Counters(names) if names.is_empty() => "this recording has no counters".into(),
        MetricCause::Counters(names) => {
            format!("this recording has the counters {}", names.join(", "))
        }
        MetricCause::OneGroup(names) => {
            format!("count them in one group: -e '{{{}}}'", names.join(","))
        }
        MetricCause::PlainNumber => "numbers can have a unit: 5ms, 64B, 1kHz".into(),
    }
}
