//! The rules that come with Counterpoint.

/// Each line is a rule; see [`super`].
pub const RULES: &str = include_str!("builtin.txt");
