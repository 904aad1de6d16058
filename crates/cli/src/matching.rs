//! Prints a hint if a pattern matches no name in a profile: similar names, or some of those that
//! exist.

use std::collections::BTreeSet;

use model::suggest::closest;
use profile::Profile;

use crate::terminal::say;

/// At most this many names are shown if no name is similar to the pattern.
const FEW: usize = 8;

/// Prints that no op matches `glob`, with a hint. `option` is the option that the user typed, for
/// example `--op`.
pub fn no_op(profile: &Profile, option: &str, glob: &str) {
    say!("{option} {glob}: no op of this profile matches");
    let names: BTreeSet<&str> = profile.ops.all().iter().map(|op| op.name.as_str()).collect();
    if let Some(hint) = near(option, glob, &names, "ops") {
        say!("hint: {hint}");
    }
}

/// Like [`no_op`], but for the names of threads.
pub fn no_thread(profile: &Profile, option: &str, glob: &str) {
    say!("{option} {glob}: no thread of this profile matches");
    let threads = profile.processes.iter().flat_map(|process| &process.threads);
    let names: BTreeSet<&str> = threads.map(|thread| thread.name.as_str()).collect();
    if let Some(hint) = near(option, glob, &names, "threads") {
        say!("hint: {hint}");
    }
}

/// Returns a hint that says what to type instead, or which names exist. Returns `None` if there are
/// no names.
fn near(option: &str, glob: &str, names: &BTreeSet<&str>, what: &str) -> Option<String> {
    let word = glob.trim_matches(['*', '?']).to_lowercase();
    let contains = |name: &&&str| name.to_lowercase().contains(&word);
    if let Some(first) = names.iter().find(contains).filter(|_| !word.is_empty()) {
        // A pattern must match the whole name, but the user may have typed only a part of a name,
        // or the wrong case.
        let all = names.iter().filter(contains).count();
        let more = if all > 1 { format!(" and {} more", all - 1) } else { String::new() };
        return Some(match first.contains(&word) {
            true => format!("{option} '*{word}*' matches {first}{more}"),
            false => format!("did you mean {first}{more}? upper and lower case differ"),
        });
    }
    let close = closest(&word, names.iter().copied());
    if !close.is_empty() {
        return Some(format!("did you mean {}?", close.join(", ")));
    }
    let shown: Vec<&str> = names.iter().copied().filter(|n| !n.is_empty()).take(FEW).collect();
    let more = names.len().saturating_sub(FEW);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!shown.is_empty()).then(|| format!("its {what}: {}{more}", shown.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_say_what_the_profile_has() {
        let names: BTreeSet<&str> = ["matmul_16", "matmul_32", "softmax", "Copy"].into();
        let near = |glob: &str| near("--op", glob, &names, "ops").unwrap();
        assert_eq!(near("matmul"), "--op '*matmul*' matches matmul_16 and 1 more");
        assert_eq!(near("soft*16"), "its ops: Copy, matmul_16, matmul_32, softmax");
        assert_eq!(near("copy"), "did you mean Copy? upper and lower case differ");
        assert_eq!(near("sotfmax"), "did you mean softmax?");
        assert_eq!(near("gemm"), "its ops: Copy, matmul_16, matmul_32, softmax");
        assert_eq!(super::near("--op", "x", &BTreeSet::new(), "ops"), None);
    }
}
