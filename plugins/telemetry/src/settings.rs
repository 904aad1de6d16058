//! The user's settings: `interval=20ms,root=/,nvml=off`.

use std::path::PathBuf;
use std::time::Duration;

use plugin::Error;

use crate::INTERVAL;

const NVML: &str = "libnvidia-ml.so.1";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The time that the sampling thread waits after each sample.
    pub interval: Duration,
    /// The directory whose files are sampled in place of those of `/`.
    pub root: PathBuf,
    /// The file of NVML; `None` if NVIDIA's devices are not sampled.
    pub nvml: Option<PathBuf>,
    /// The number of bytes that the plugin may keep; `None` for no limit.
    pub max_buffer_bytes: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            interval: INTERVAL,
            root: PathBuf::from("/"),
            nvml: Some(PathBuf::from(NVML)),
            max_buffer_bytes: None,
        }
    }
}

impl Settings {
    /// Reads a configuration.
    ///
    /// # Errors
    /// A key does not exist, or its value is not allowed.
    pub fn parse(text: &str, max_buffer_bytes: Option<u64>) -> Result<Self, Error> {
        let mut settings = Self { max_buffer_bytes, ..Self::default() };
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some(("interval", value)) => settings.interval = interval(value)?,
                Some(("root", value)) => settings.root = PathBuf::from(value),
                Some(("nvml", "off")) => settings.nvml = None,
                Some(("nvml", value)) => settings.nvml = Some(PathBuf::from(value)),
                // All plugins of a recording get the same text; a key with a dot belongs to another
                // plugin.
                Some((key, _)) if key.contains('.') => {}
                _ => {
                    return Err(Error(format!(
                        "configuration {part:?}: known are interval=TIME, root=DIR and \
                         nvml=FILE|off"
                    )));
                }
            }
        }
        Ok(settings)
    }

    /// The number of values that fit into the buffer that the host allows.
    pub fn most_values(&self) -> usize {
        let each = size_of::<(i64, u32, f64)>() as u64;
        let most = self.max_buffer_bytes.map_or(u64::MAX, |bytes| bytes / each);
        usize::try_from(most).unwrap_or(usize::MAX)
    }
}

fn interval(text: &str) -> Result<Duration, Error> {
    let wrong = || Error(format!("interval {text:?}: give 1ms to 10s, as 20ms or 0.5s"));
    let (number, factor) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(number), _) => (number, 1e-3),
        (None, Some(number)) => (number, 1.0),
        _ => return Err(wrong()),
    };
    let seconds = number.trim().parse::<f64>().map_err(|_| wrong())? * factor;
    // `contains` is false for NaN.
    if !(1e-3..=10.0).contains(&seconds) {
        return Err(wrong());
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_have_units_and_a_range() {
        let parsed = |text: &str| Settings::parse(text, None).map(|settings| settings.interval);
        assert_eq!(parsed("").expect("the default"), INTERVAL);
        assert_eq!(parsed("interval=0.5s").expect("a time"), Duration::from_millis(500));
        assert_eq!(parsed(" interval=1ms , root=/x").expect("a time"), Duration::from_millis(1));
        for wrong in ["interval=5", "interval=0ms", "interval=nans", "interval=11s", "rate=5"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
        let nvml = |text: &str| Settings::parse(text, None).expect("known").nvml;
        assert_eq!(nvml("cuda.torch=on"), Some(PathBuf::from("libnvidia-ml.so.1")));
        assert_eq!((nvml("nvml=off"), nvml("nvml=/x.so")), (None, Some(PathBuf::from("/x.so"))));
        let limited = Settings::parse("", Some(2400)).expect("no configuration");
        assert_eq!(limited.most_values(), 100);
    }
}
