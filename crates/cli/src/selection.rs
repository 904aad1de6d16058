//! The options that all instrumenting commands share. They choose the functions and loops to
//! instrument, and the mode. This file also formats the line that tells the user what was
//! instrumented.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Once;

use clap::{Args, FromArgMatches};
use ir::choice::{Functions, Options};
use ir::instrument::Counts;
use ir::table::Skipped;

use crate::config::{self, Key};
use crate::failure::Failure;
use crate::input::is_standard;
use crate::terminal::say;

/// The environment variable that contains the options of [`Selection`] for commands that replace a
/// compiler. The arguments of such a command are options of the compiler.
pub const VARIABLE: &str = "COUNTERPOINT_LOOPS";

/// What is instrumented.
#[derive(Args)]
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
    /// [default: 1; for outermost loops 0].
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
    /// Reads the options from the environment variable [`VARIABLE`]. If the variable is not set or
    /// is empty, the options come from `counterpoint.toml`.
    pub fn from_variable() -> Result<Self, Failure> {
        let set = std::env::var(VARIABLE).ok().filter(|words| !words.is_empty());
        match set {
            Some(words) => Self::parsed(&words),
            // A build must not fail because of `counterpoint.toml`, so the error is only printed.
            None => Self::from_file().or_else(|failure| {
                static SAID: Once = Once::new();
                SAID.call_once(|| say!("{}; left out", failure.messages().join("; ")));
                Self::parsed("")
            }),
        }
    }

    fn from_file() -> Result<Self, Failure> {
        config::load()?;
        Self::parsed(config::text(Key::Loops).unwrap_or_default())
    }

    fn parsed(words: &str) -> Result<Self, Failure> {
        let known = Self::augment_args(clap::Command::new(VARIABLE).no_binary_name(true));
        let parsed = known
            .try_get_matches_from(words.split_whitespace())
            .and_then(|matches| Self::from_arg_matches(&matches));
        parsed.map_err(|error| {
            let why = error.to_string();
            let why = why.lines().next().unwrap_or_default().trim_start_matches("error: ");
            Failure::new(format!("{VARIABLE}={words}: {why}")).hint(
                "its words are options of `counterpoint loops instrument`, such as --mode timed",
            )
        })
    }

    /// Returns these options as the instrumenter takes them, but without the filter, which the
    /// caller adds.
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

    pub fn has_filter(&self) -> bool {
        !self.filter.is_empty()
    }

    pub fn names(&self, name: &str) -> bool {
        self.filter.iter().any(|glob| profile::demangle::matches(glob, name))
    }
}

/// Formats a number with its noun: `1 loop`, `2 loops`.
fn number(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Returns a line that says what was instrumented and what was not.
pub fn summary(counts: Counts, skipped: &[Skipped], output: &Path, mode: Mode) -> String {
    let Counts { instrumented_functions, instrumented_loops, left_loops, left_functions, .. } =
        counts;
    let mode = abi::loops::Mode::from(mode).name();
    let mut line = format!(
        "instrumented {} and {} ({mode}) in {}",
        number(instrumented_functions, "function"),
        number(instrumented_loops, "loop"),
        if is_standard(output) {
            "standard output".to_owned()
        } else {
            output.display().to_string()
        },
    );
    let mut left = Vec::new();
    if left_loops > 0 {
        left.push(format!("{} by depth or height", number(left_loops, "loop")));
    }
    if left_functions > 0 {
        left.push(format!("{} by name", number(left_functions, "function")));
    }
    if !left.is_empty() {
        line += &format!("; left out: {}", left.join(", "));
    }
    let mut reasons: BTreeMap<(&str, bool), usize> = BTreeMap::new();
    for skipped in skipped {
        *reasons.entry((&skipped.why, skipped.label.is_some())).or_default() += 1;
    }
    if !reasons.is_empty() {
        let reasons: Vec<String> = reasons
            .into_iter()
            .map(|((why, within), count)| {
                format!("{} ({why})", number(count, if within { "loop" } else { "function" }))
            })
            .collect();
        line += &format!("; skipped: {}", reasons.join(", "));
    }
    line
}
