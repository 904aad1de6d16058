//! Contains the rules that come with Counterpoint.

/// One rule per line, in the format of [`super`].
pub const RULES: &str = include_str!("builtin.txt");
