//! The user's options: `--plugin-config cuda.torch=on,cuda.counters=sm__cycles_active.avg+…`.

use std::time::Duration;

use plugin::Error;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Whether to record even if PyTorch is loaded.
    pub beside_torch: bool,
    /// The path of CUPTI's library, if the user names one.
    pub cupti: Option<String>,
    pub counters: Counters,
    /// Counters of single kernels or ops.
    pub ranges: Ranges,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// CUPTI's names.
    pub names: Vec<String>,
    pub around: Around,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Around {
    #[default]
    Kernels,
    /// Each op of the host (the program that loaded the plugin). The host must tell the plugin when
    /// an op begins and ends.
    Ops,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    pub names: Vec<String>,
    pub interval: Duration,
}

impl Default for Counters {
    fn default() -> Self {
        Self { names: Vec::new(), interval: Duration::from_micros(100) }
    }
}

/// The intervals that the user may choose. At all of them, a device's buffer has room for the
/// samples between two fetches.
const INTERVALS: std::ops::RangeInclusive<Duration> =
    Duration::from_micros(20)..=Duration::from_secs(1);

/// Parses an interval such as `100us`, `5ms` or `1s`.
fn interval(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let unit = match unit {
        "us" => Duration::from_micros(1),
        "ms" => Duration::from_millis(1),
        "s" => Duration::from_secs(1),
        _ => return None,
    };
    let interval = unit.checked_mul(number.parse().ok()?)?;
    INTERVALS.contains(&interval).then_some(interval)
}

impl Settings {
    /// Reads a configuration. Keys that do not begin with `cuda.` belong to other plugins.
    ///
    /// # Errors
    /// A key does not exist, a value is not allowed, or both `cuda.counters` and
    /// `cuda.range-counters` have names.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut settings = Self::default();
        for part in text.split(',').map(str::trim) {
            let Some(own) = part.strip_prefix("cuda.") else { continue };
            match own.split_once('=') {
                Some(("torch", "on")) => settings.beside_torch = true,
                Some(("torch", "off")) => settings.beside_torch = false,
                Some(("cupti", file)) if !file.is_empty() => {
                    settings.cupti = Some(file.to_owned());
                }
                Some(("counters", list)) if list.split('+').all(is_name) => {
                    settings.counters.names = list.split('+').map(str::to_owned).collect();
                }
                Some(("range-counters", list)) if list.split('+').all(is_name) => {
                    settings.ranges.names = list.split('+').map(str::to_owned).collect();
                }
                Some(("ranges", "kernel")) => settings.ranges.around = Around::Kernels,
                Some(("ranges", "op")) => settings.ranges.around = Around::Ops,
                Some(("counters-interval", time)) if interval(time).is_some() => {
                    settings.counters.interval = interval(time).unwrap_or_default();
                }
                _ => {
                    return Err(Error(format!(
                        "configuration {part:?}: known are cuda.torch=on|off, cuda.cupti=FILE, \
                         cuda.counters=NAME+NAME, cuda.counters-interval=TIME (20us to 1s), \
                         cuda.range-counters=NAME+NAME and cuda.ranges=kernel|op"
                    )));
                }
            }
        }
        if !settings.counters.names.is_empty() && !settings.ranges.names.is_empty() {
            return Err(Error(
                "cuda.counters and cuda.range-counters cannot be combined: a device has one set of \
                 registers for both"
                    .to_owned(),
            ));
        }
        Ok(settings)
    }
}

/// Returns whether a text can be CUPTI's name of a counter.
fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':' | '-');
    !text.is_empty() && text.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_keys_are_checked_and_others_left_alone() {
        let parsed = |text: &str| Settings::parse(text).ok();
        assert_eq!(parsed("interval=5ms"), Some(Settings::default()));
        let all = parsed("interval=5ms, cuda.torch=on,cuda.cupti=/x/libcupti.so");
        let expected = Settings {
            beside_torch: true,
            cupti: Some("/x/libcupti.so".to_owned()),
            ..Settings::default()
        };
        assert_eq!(all, Some(expected));
        let counters =
            parsed("cuda.counters=a__b.sum+c.avg.pct,cuda.counters-interval=5ms").unwrap();
        assert_eq!(counters.counters.names, ["a__b.sum", "c.avg.pct"]);
        assert_eq!(counters.counters.interval, Duration::from_millis(5));
        assert_eq!(Counters::default().interval, Duration::from_micros(100));
        let ranges =
            parsed("cuda.range-counters=a__b.sum+c.avg.pct,cuda.ranges=op").unwrap().ranges;
        assert_eq!(ranges.names, ["a__b.sum", "c.avg.pct"]);
        assert_eq!((ranges.around, Ranges::default().around), (Around::Ops, Around::Kernels));
        for wrong in [
            "cuda.range-counters=",
            "cuda.ranges=kernels",
            "cuda.counters=a,cuda.range-counters=b",
            "cuda.torch=yes",
            "cuda.cupti=",
            "cuda.kernels=1",
            "cuda.torch",
            "cuda.counters=",
            "cuda.counters=a+",
            "cuda.counters=a b",
            "cuda.counters-interval=19us",
            "cuda.counters-interval=2s",
            "cuda.counters-interval=ms",
            "cuda.counters-interval=5",
        ] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}
