//! Decides which types of events the agent requests from a plugin. This depends on PyTorch's
//! request and on the user's settings.
//!
//! With `activities=[ProfilerActivity.CPU]`, PyTorch requests only types of events on the CPU, so
//! no kernels, copies or counters. So a plugin that supports only types of events on a device would
//! not be started. Therefore, if PyTorch requests `cpu_op`, the agent requests every type that the
//! plugin supports, with one exception: types that describe the program are requested only if
//! PyTorch requests them. If the user gives a list of kinds (`SETTING` or `VARIABLE` below), the
//! agent instead requests the supported types in this list.

use std::ffi::CStr;

use model::activity::{Kind, Registry};

use super::variable;

/// Types that describe the program and not a device.
const OF_THE_PROGRAM: [&str; 6] = [
    "cpu_op",
    "user_annotation",
    "external_correlation",
    "cpu_instant_event",
    "python_function",
    "overhead",
];
const CPU_OP: u32 = 1;

const SETTING: &str = "COUNTERPOINT_KINDS";
const VARIABLE: &CStr = c"COUNTERPOINT_TORCH_KINDS";

/// Returns the types to request from a plugin that supports `supported`, and a line for the user if
/// there is a mistake in the list of kinds. A type that the plugin has `declared` is treated like
/// the published type that is its base.
pub fn wanted(
    requested: &[u32],
    configuration: &[u8],
    supported: &[u32],
    declared: &[(String, u32)],
) -> (Vec<u32>, Option<String>) {
    let published = |number: u32| {
        let own = number.checked_sub(abi::kineto::FIRST_OWN_TYPE).map(|index| index as usize);
        own.and_then(|index| declared.get(index)).map_or(number, |(_, base)| *base)
    };
    let everything = requested.contains(&CPU_OP);
    let of_the_program = |number: u32| {
        abi::kineto::event_type(number).is_some_and(|known| OF_THE_PROGRAM.contains(&known.name))
    };
    let those = |wants: &dyn Fn(u32) -> bool| -> Vec<u32> {
        supported.iter().copied().filter(|number| wants(published(*number))).collect()
    };
    let wanted =
        those(&|number| requested.contains(&number) || everything && !of_the_program(number));
    let list = setting(configuration, SETTING, SETTING).or_else(|| variable(VARIABLE));
    let Some(list) = list.filter(|list| !list.is_empty()) else { return (wanted, None) };
    match parse(&String::from_utf8_lossy(list)) {
        Ok(listed) => (those(&|number| listed.contains(&number)), None),
        Err(unknown) => (
            wanted,
            Some(format!("{SETTING}: {unknown:?} is not a kind of events; all are recorded")),
        ),
    }
}

/// Returns the value of the last line `key=value` of PyTorch's configuration, or else of the last
/// line with `other` as its key.
pub fn setting<'a>(configuration: &'a [u8], key: &str, other: &str) -> Option<&'a [u8]> {
    let find = |key: &str| {
        configuration
            .split(|byte| *byte == b'\n')
            .filter_map(|line| line.trim_ascii().strip_prefix(key.as_bytes()))
            .filter_map(|rest| rest.trim_ascii_start().strip_prefix(b"="))
            .next_back()
            .map(<[u8]>::trim_ascii)
    };
    find(key).or_else(|| find(other))
}

/// Returns the published types that a list of words selects. A generic word such as `kernel`
/// selects all published types of that kind. The name of a published type selects this type.
/// Another known name selects the published types of the same kind.
fn parse(list: &str) -> Result<Vec<u32>, String> {
    let registry = Registry::new();
    let labels = registry.parse_list(list).map_err(|unknown| unknown.name)?;
    let mut numbers = Vec::new();
    for label in labels {
        let (kind, word) = (registry.kind(label), registry.original(label));
        let generic = matches!(kind, Kind::Generic(generic) if generic.name() == word);
        let exactly = abi::kineto::EVENT_TYPES.iter().any(|known| known.name == word) && !generic;
        for known in abi::kineto::EVENT_TYPES {
            let same = registry.parse(known.name).map(|label| registry.kind(label)) == Some(kind);
            if if exactly { known.name == word } else { same } {
                numbers.push(known.number);
            }
        }
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::{parse, setting, wanted};

    // The numbers are those in Kineto's plugin header (`kineto_plugin.h`).
    const KERNEL: u32 = 6;
    const CUDA_RUNTIME: u32 = 8;
    const COUNTER: u32 = 22;
    const PRIVATE_RUNTIME: u32 = 23;

    #[test]
    fn work_of_the_cpu_brings_the_kinds_of_devices() {
        let supported = [KERNEL, COUNTER, PRIVATE_RUNTIME, 1, 11, 1024];
        let own = [("tile".to_owned(), KERNEL)];
        // The types that torch requests with activities=[CPU]; 11 is python_function.
        let cpu = [1, 2, 7, 8, 9, 10, 11, 23, 24];
        assert_eq!(wanted(&cpu, b"", &supported, &own).0, supported);
        assert_eq!(
            wanted(&[1], b"", &supported, &own).0,
            [KERNEL, COUNTER, PRIVATE_RUNTIME, 1, 1024],
            "python_function was not requested"
        );
        assert_eq!(wanted(&[KERNEL], b"", &supported, &own).0, [KERNEL, 1024]);
        assert!(wanted(&[], b"", &supported, &own).0.is_empty());
    }

    #[test]
    fn the_user_narrows_the_kinds() {
        let supported = [KERNEL, COUNTER, CUDA_RUNTIME, 1024, 1025];
        let own = [("tile".to_owned(), KERNEL), ("power".to_owned(), COUNTER)];
        let lines =
            b"ACTIVITIES_WARMUP_PERIOD_SECS=0\nCOUNTERPOINT_KINDS = counter, cuda_runtime\n";
        assert_eq!(
            wanted(&[1], lines, &supported, &own),
            (vec![COUNTER, CUDA_RUNTIME, 1025], None)
        );
        let (all, complaint) = wanted(&[1], b"COUNTERPOINT_KINDS=kernels", &supported, &own);
        assert_eq!(all, supported);
        assert!(complaint.is_some_and(|text| text.contains("kernels")));
    }

    #[test]
    fn words_are_names_or_kinds() {
        assert_eq!(parse("runtime"), Ok(vec![8, 13, 17, 19, 20, 23]));
        assert_eq!(parse("cuda_runtime"), Ok(vec![8]));
        assert_eq!(parse("kernel"), Ok(vec![6, 14]));
    }

    #[test]
    fn the_last_line_of_a_key_counts() {
        let lines = b"A=1\nCUSTOM_CONFIG={\"a\":1}\nA=2\nAB=3";
        assert_eq!(setting(lines, "A", "A"), Some(&b"2"[..]));
        assert_eq!(setting(lines, "B", "CUSTOM_CONFIG"), Some(&b"{\"a\":1}"[..]));
        assert_eq!(setting(lines, "C", "C"), None);
    }
}
