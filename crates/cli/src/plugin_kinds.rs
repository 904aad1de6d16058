//! Converts between the words that people use for types of plugins' events and the numbers in
//! Kineto's plugin interface. Also determines which messages of plugins are shown.

use model::activity::{Generic, Kind, Registry};

use crate::failure::Failure;

/// Returns the name of an event type of Kineto's, or of one that a plugin declared. For another
/// number, returns a text with the number.
pub fn name(number: u32, declared: &[(String, u32)]) -> String {
    if let Some(known) = abi::kineto::event_type(number) {
        return known.name.to_owned();
    }
    let own = number.checked_sub(abi::kineto::FIRST_OWN_TYPE).map(|index| index as usize);
    match own.and_then(|index| declared.get(index)) {
        Some((name, _)) => name.clone(),
        None => format!("type {number}"),
    }
}

/// Returns the numbers of the Kineto event types that a list of words names. A generic word
/// (`runtime`, `kernel`, `counter`) means all types of that kind. The name of one type means only
/// this type. Any other known word means all types of its kind, but `cuda_event` is refused,
/// because plugins have no type for it.
pub fn parse(list: &str) -> Result<Vec<u32>, Failure> {
    let registry = Registry::new();
    let labels = registry.parse_list(list).map_err(|unknown| {
        let names = abi::kineto::EVENT_TYPES.map(|known| known.name).join(", ");
        Failure::new(format!("{:?} is not a kind of events", unknown.name)).hint(format!(
            "kinds: kernel, runtime, driver, memcpy, memset, sync, counter, collective, {names}"
        ))
    })?;
    let mut numbers = Vec::new();
    for label in labels {
        let (kind, word) = (registry.kind(label), registry.original(label));
        let exactly = abi::kineto::EVENT_TYPES.iter().any(|known| known.name == word);
        // `kernel` is the name of a type and also the word for all kernels.
        let generic = matches!(kind, Kind::Generic(generic) if generic.name() == word);
        // The only Kineto type of the same kind as `cuda_event` is `cuda_profiler_range` (ranges of
        // CUPTI's profiler), which is not what this word means.
        if kind == Kind::Generic(Generic::DeviceEvent) && !exactly && !generic {
            return Err(Failure::new(format!("plugins cannot give {word} events"))
                .hint("the plugin interface has no such type; kernels and copies have types"));
        }
        for known in abi::kineto::EVENT_TYPES {
            let same = registry.parse(known.name).map(|label| registry.kind(label)) == Some(kind);
            let wanted = if exactly && !generic { known.name == word } else { same };
            if wanted && !numbers.contains(&known.number) {
                numbers.push(known.number);
            }
        }
    }
    if numbers.is_empty() {
        return Err(Failure::new(format!("no type of the plugin interface is of kind {list:?}")));
    }
    Ok(numbers)
}

/// Returns the lowest level of plugins' messages that is shown: KINETO_LOG_LEVEL, or 2 (warnings).
pub fn log_level() -> u32 {
    std::env::var("KINETO_LOG_LEVEL").ok().and_then(|level| level.trim().parse().ok()).unwrap_or(2)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_generic_word_means_all_types_of_its_kind() {
        // The expected numbers come from the header file of Kineto's plugin interface.
        let of = |list: &str| parse(list).expect("known");
        assert_eq!(of("runtime"), [8, 13, 17, 19, 20, 23]);
        assert_eq!(of("cuda_runtime"), [8]);
        assert_eq!(of("kernel"), [6, 14]);
        assert_eq!(of("counter, kernel"), [22, 6, 14]);
        assert_eq!(of("gpu_memcpy"), [4]);
        // A type that only later versions of Kineto have stands for the known types of its kind.
        assert_eq!(of("xpu_scope_profiler"), [22]);
        assert!(parse("runtimes").is_err());
        // The ranges of CUPTI's profiler are not CUDA's events.
        assert_eq!(of("cuda_profiler_range"), [18]);
        let refused = parse("kernel,cuda_event").expect_err("no such type");
        assert_eq!(refused.messages()[0], "plugins cannot give cuda_event events");
    }
}
