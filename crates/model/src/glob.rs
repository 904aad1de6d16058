//! Matches names with patterns. `*` matches any sequence of bytes, `?` matches one byte, `\` makes
//! the next byte literal, and everything else matches itself. The pattern must match the whole
//! name.

/// Returns the pattern that matches `name` and nothing else.
pub fn escape(name: &str) -> String {
    let mut pattern = String::new();
    for c in name.chars() {
        if matches!(c, '*' | '?' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

/// Whether `pattern` matches `name`. The time for one match grows at most with the product of the
/// lengths of `pattern` and `name`. The function does not recurse or allocate.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // The positions in pattern and name from which to continue if the last `*` must match one more
    // byte.
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, n + 1));
                p += 1;
            }
            Some(b'\\') if pattern.get(p + 1) == Some(&name[n]) => {
                p += 2;
                n += 1;
            }
            Some(b'?') => {
                p += 1;
                n += 1;
            }
            // A backslash at the end of the pattern matches itself.
            Some(c) if *c == name[n] && (*c != b'\\' || p + 1 == pattern.len()) => {
                p += 1;
                n += 1;
            }
            _ => match retry {
                Some((after_star, next)) => {
                    (p, n) = (after_star, next);
                    retry = Some((after_star, next + 1));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::{escape, matches};

    #[test]
    fn patterns() {
        for (pattern, name, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "anything", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*matmul*", "mlp_dispatch_0_matmul_64x256", true),
            ("*matmul", "mlp_dispatch_0_matmul_64x256", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("**", "x", true),
            ("abc", "abcd", false),
            ("*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
            (r"a\*c", "a*c", true),
            (r"a\*c", "abc", false),
            (r"a\?c", "abc", false),
            (r"*\?", "abc?", true),
            (r"a\\b", r"a\b", true),
            (r"a\\b", r"a\\b", false),
            (r"a\", r"a\", true),
            (r"a\", "a", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern:?} {name:?}");
        }
    }

    #[test]
    fn an_escaped_name_matches_only_itself() {
        for name in ["", "plain", "a*b", "?", r"\", r"\*", r"a\?*"] {
            let pattern = escape(name);
            assert!(matches(&pattern, name), "{pattern:?} {name:?}");
            for other in ["x", "axb", "a", r"\\", r"\x", r"a\xy", "plainer"] {
                assert!(!matches(&pattern, other), "{pattern:?} {other:?}");
            }
        }
    }
}
