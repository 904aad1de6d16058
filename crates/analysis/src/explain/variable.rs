//! Defines the variables that may be associated with the durations of calls.

use super::What;

pub const MOST_CLASSES: usize = 64;

/// A recorded variable, such as the thread or a counter, with its value in each analysed call of an
/// op.
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
    /// Numbers of classes (such as one for each CPU), each below [`MOST_CLASSES`]; `u32::MAX` is a
    /// missing value.
    Classes(Vec<u32>),
    /// Whether each call is the op's first recorded call on its thread.
    First(Vec<bool>),
    /// The value of each call is its index in the list of calls, which is sorted by start.
    Time,
}
