//! Which functions and loops are instrumented, and how: the options that the commands of the
//! instrumenter share.

use ir::choice::{Functions, Options};

/// What is instrumented.
#[derive(clap::Args)]
pub struct Selection {
    /// How hits are recorded. `sampled` counts every hit and times the first 100 and then random
    /// ones; `timed` times every hit; `count` times none; `log` calls the runtime at the
    /// beginning and end of each hit.
    #[arg(long, value_enum, default_value_t = Mode::Sampled)]
    pub mode: Mode,
    /// Leave out loops with more than N loops around them: 0 takes outermost loops only [default:
    /// 2, or no limit with --siblings].
    #[arg(long, value_name = "N")]
    max_depth: Option<u32>,
    /// Leave out loops with fewer than N levels of loops inside: 0 takes innermost loops, too
    /// [default: 1, but outermost loops are always taken].
    #[arg(long, value_name = "N")]
    min_height: Option<u32>,
    /// Take only loops that have siblings: other loops directly in the same loop or function.
    #[arg(long)]
    siblings: bool,
    /// Instrument all functions, also those without an instrumented loop.
    #[arg(long, conflicts_with = "no_functions")]
    functions: bool,
    /// Instrument loops only.
    #[arg(long)]
    no_functions: bool,
    /// Only functions whose name in the text matches. `*` matches any text, `?` any character.
    /// Repeatable.
    #[arg(long, value_name = "GLOB")]
    filter: Vec<String>,
}

/// How hits are recorded.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Mode {
    Sampled,
    Timed,
    Count,
    Log,
}

impl From<Mode> for abi::loops::Mode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Sampled => Self::Sampled,
            Mode::Timed => Self::Timed,
            Mode::Count => Self::Count,
            Mode::Log => Self::Log,
        }
    }
}

impl Selection {
    /// The options of the instrumenter, without a filter.
    pub fn options(&self) -> Options<'_> {
        Options {
            mode: self.mode.into(),
            max_depth: self.max_depth,
            min_height: self.min_height,
            siblings: self.siblings,
            functions: match (self.functions, self.no_functions) {
                (true, _) => Functions::All,
                (_, true) => Functions::None,
                _ => Functions::WithLoops,
            },
            ..Options::default()
        }
    }

    /// Whether there is a filter.
    pub fn has_filter(&self) -> bool {
        !self.filter.is_empty()
    }

    /// Whether the filter takes this name.
    pub fn names(&self, name: &str) -> bool {
        self.filter.iter().any(|glob| profile::demangle::matches(glob, name))
    }
}
