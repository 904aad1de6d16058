//! What the user says: `--plugin-config cuda.torch=on,cuda.cupti=/opt/cuda/lib64/libcupti.so`.

use plugin::Error;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Record although PyTorch is loaded.
    pub beside_torch: bool,
    /// The file of CUPTI.
    pub cupti: Option<String>,
}

impl Settings {
    /// Reads a configuration. What does not begin with `cuda.` is another plugin's.
    ///
    /// # Errors
    /// A key that does not exist, or a value that it cannot have.
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
                _ => {
                    return Err(Error(format!(
                        "configuration {part:?}: known are cuda.torch=on|off and cuda.cupti=FILE"
                    )));
                }
            }
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_keys_are_checked_and_others_left_alone() {
        let parsed = |text: &str| Settings::parse(text).ok();
        assert_eq!(parsed("interval=5ms"), Some(Settings::default()));
        let all = parsed("interval=5ms, cuda.torch=on,cuda.cupti=/x/libcupti.so");
        let expected = Settings { beside_torch: true, cupti: Some("/x/libcupti.so".to_owned()) };
        assert_eq!(all, Some(expected));
        for wrong in ["cuda.torch=yes", "cuda.cupti=", "cuda.kernels=1", "cuda.torch"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}
