//! Defines the variables that may be associated with the durations of calls.

use super::What;

pub const MOST_CLASSES: usize = 64;

/// A variable of the calls, with its values.
#[derive(Clone, Debug)]
pub struct Variable {
    pub what: What,
    /// One value for each call, in the order in which the calls began.
    pub values: Values,
}

#[derive(Clone, Debug)]
pub enum Values {
    /// Numbers; NaN is a missing value.
    Ordered(Vec<f64>),
    /// Classes below [`MOST_CLASSES`]; `u32::MAX` is a missing value.
    Classes(Vec<u32>),
    /// Whether each call is the first one on its thread.
    First(Vec<bool>),
    /// The position of the call in the order of the calls.
    Time,
}
