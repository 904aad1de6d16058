//! Defines what a thread counts if the host (a runtime such as PyTorch) announces its ops only in
//! some of the program's steps, such as iterations of a training loop.
//!
//! ```text
//!  step   1 2 3 4 5 6 7 8 · · · 12 · 14 · · · · · 20 · …      · away: no op is announced, none is counted
//!         └ all seen ───┘       └── sampled: one in `period` is seen ──
//!         weight 0 or 1         weight: the period at which the step was sampled
//! ```
//!
//! In the steps that are *away*, the host announces no ops. The *sample* consists of the seen steps
//! with a weight above 0. The calls of an export (recorded function or op) in the steps that are
//! away are estimated as `away · Σ w·c / Σ w`. Here, `away` is the number of steps that are away,
//! the sums are over the sample, c is the number of the export's calls in a step, and w is the
//! step's weight. If a step that is away takes too long, the host announces the rest of the step's
//! ops, and their calls are counted. Calls outside of steps are counted, too.

use crate::wire::{Decoder, Encoder, Truncated, Wire, wire};

/// Number of words of [`Steps`] in a table's header.
pub const STEPS_WORDS: usize = 16;

macro_rules! steps {
    ($($(#[$doc:meta])* $field:ident),* ; $(#[$last_doc:meta])* $last:ident) => {
        /// What one thread has counted about the steps of its process.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Steps {
            $($(#[$doc])* pub $field: u64,)*
            $(#[$last_doc])*
            pub $last: u64,
        }

        impl Steps {
            /// Returns the fields as words.
            pub fn to_words(self) -> [u64; STEPS_WORDS] {
                [$(self.$field,)* self.$last]
            }

            pub fn from_words([$($field,)* $last]: [u64; STEPS_WORDS]) -> Self {
                Self { $($field,)* $last }
            }
        }

        impl Wire for ThreadSteps {
            fn put(&self, e: &mut Encoder) {
                $(self.steps.$field.put(e);)*
                self.rows.put(e);
                self.steps.$last.put(e);
            }

            fn get(d: &mut Decoder<'_>) -> Result<Self, Truncated> {
                let mut steps = Steps { $($field: Wire::get(d)?,)* $last: 0 };
                let rows = Wire::get(d)?;
                // Frames of earlier versions end here.
                if d.remaining() > 0 {
                    steps.$last = Wire::get(d)?;
                }
                Ok(Self { steps, rows })
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
    /// Number of the process's steps that were away, up to the latest change of these fields.
    away,
    /// 0 while the thread runs. [`Steps::ENDED`] if the thread has ended, or [`Steps::ENDED_AWAY`]
    /// if it ended in a step that was away.
    has_ended,
    /// Number of steps that have begun. Only the thread whose named ranges (`record_function` in
    /// PyTorch) begin the program's steps stores this number and the fields below.
    steps,
    /// Number of steps in which no ops were announced at first, but later.
    cut,
    /// Not 0 while the step in progress is away.
    is_away,
    /// The processor time of the process in a step in which ops were announced, in ns: the median
    /// of the latest such steps (at most 32). `seen_timed` is the number of these steps, and
    /// `seen_spread` the median of the distances of their times from `seen_ns`.
    seen_ns,
    /// See [`Self::seen_ns`].
    seen_timed,
    /// See [`Self::seen_ns`].
    seen_spread,
    /// The same as `seen_ns`, for steps that were away.
    away_ns,
    /// See [`Self::away_ns`].
    away_timed,
    /// See [`Self::away_ns`].
    away_spread;
    /// The processor time of the process in a step, in thousandths of the processor time of the
    /// thread that begins the steps: the median of the latest timed steps (at most 32). 0 before
    /// the ninth step, and in recordings of earlier versions.
    of_thread
}

impl Steps {
    /// See [`Steps::has_ended`].
    pub const ENDED: u64 = 1;
    /// See [`Steps::has_ended`].
    pub const ENDED_AWAY: u64 = 2;
}

/// What one thread has counted of one export in the steps of the sample, and what is estimated from
/// this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampledCalls {
    pub export: u32,
    /// The sum of weight · calls over the steps of the sample.
    pub sum: u64,
    /// The sum of weight · calls² over the steps of the sample.
    pub squares: u64,
    /// Number of calls that were estimated. The export's number of calls includes them.
    pub unseen: u64,
    /// Number of calls that were counted in steps that were away at first, to be subtracted from
    /// the estimate for these steps. Each such step contributes at most the mean number of calls
    /// per step of the sample.
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
