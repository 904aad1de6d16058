//! Defines what a thread counts about the steps of a program. It is used if the program's host
//! announces its ops only in some of the steps.
//!
//! ```text
//!  step   1 2 3 4 5 6 7 8 · · · 12 · 14 · · · · · 20 · …      · away: no op is announced, none is counted
//!         └ all seen ───┘       └── sampled: one in `period` is seen ──
//!         weight 0 or 1         weight: the period at which the step was sampled
//! ```
//!
//! The calls of an export in the steps that are *away* (steps in which the host announces no ops)
//! are estimated from its calls in the steps of the *sample*: `away · Σ w·c / Σ w`, where c is the
//! number of the export's calls in a step and w is the step's weight. If a step that is away takes
//! too long, the host announces its ops from then on until the step ends. The calls of these ops
//! are counted, and not estimated. Calls outside of steps, and calls in steps whose ops are
//! announced, are counted, too.

use crate::wire::wire;

/// Number of words of [`Steps`] in a table's header.
pub const STEPS_WORDS: usize = 16;

macro_rules! steps {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// What one thread has counted about the steps of its process.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Steps {
            $($(#[$doc])* pub $field: u64,)*
        }

        wire!(Steps { $($field),* });

        impl Steps {
            /// Returns the fields as words. The words after the last field are 0.
            pub fn to_words(self) -> [u64; STEPS_WORDS] {
                let mut words = [0; STEPS_WORDS];
                words.iter_mut().zip([$(self.$field),*]).for_each(|(to, from)| *to = from);
                words
            }

            pub fn from_words(words: [u64; STEPS_WORDS]) -> Self {
                let mut words = words.into_iter();
                Self { $($field: words.next().unwrap_or(0)),* }
            }
        }
    };
}

steps! {
    /// Number of steps in the sample since the thread was attached.
    sampled,
    /// The sum of the weights of the steps in the sample.
    weight,
    /// The sum of the squares of the weights.
    squared_weight,
    /// Number of the process's steps that were away and began before the thread was attached.
    away_before,
    /// Number of the process's steps that were away, from the start of the process to the latest
    /// change of these fields.
    away,
    /// 0 while the thread runs. [`Steps::ENDED`] if the thread has ended, so that it has no calls
    /// in later steps; [`Steps::ENDED_AWAY`] if the thread ended in a step that was away.
    has_ended,
    /// Number of all steps that have begun. Only the thread whose ranges are the program's steps
    /// stores this number and the fields below.
    steps,
    /// Number of steps that were away at first, but in which ops were announced later because the
    /// steps took too long.
    cut,
    /// Not 0 while the step in progress is away.
    is_away,
    /// The processor time that all threads of the process used in a step in which ops were
    /// announced. `seen_ns` is the median of the latest such steps in ns, `seen_timed` is the
    /// number of these steps, and `seen_spread` is their median distance from that median.
    seen_ns,
    /// See [`Self::seen_ns`].
    seen_timed,
    /// See [`Self::seen_ns`].
    seen_spread,
    /// The processor time of steps that were away, in the same form as for `seen_ns`.
    away_ns,
    /// See [`Self::away_ns`].
    away_timed,
    /// See [`Self::away_ns`].
    away_spread,
}

impl Steps {
    /// See [`Steps::has_ended`].
    pub const ENDED: u64 = 1;
    /// See [`Steps::has_ended`].
    pub const ENDED_AWAY: u64 = 2;
}

/// The sums of one export over the steps of the sample (the steps chosen to estimate the others).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampledCalls {
    pub export: u32,
    /// The sum of weight · calls over all steps of the sample.
    pub sum: u64,
    /// The sum of weight · calls² over all steps of the sample.
    pub squares: u64,
    /// The number of calls that were estimated. They are part of the export's number of calls.
    pub unseen: u64,
    /// Number of calls that were counted in steps that were away at first and in which ops were
    /// announced later. Each such step contributes at most the mean number of calls per step.
    pub in_cut: u64,
}

wire!(SampledCalls { export, sum, squares, unseen, in_cut });

/// What one thread counted about steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadSteps {
    pub steps: Steps,
    /// The exports that have calls in steps of the sample, or estimated calls.
    pub rows: Vec<SampledCalls>,
}

wire!(ThreadSteps { steps, rows });
