//! Contains the rules that come with Counterpoint.

/// The text of the rules, one rule per line. [`super`] describes the format.
pub const RULES: &str = include_str!("builtin.txt");
