//! Patterns for names: `*` stands for any run of bytes, `?` for one byte, everything else for
//! itself. The pattern covers the whole name.

/// Whether `pattern` covers `name`. Linear in time for patterns with one star, never worse than
/// the product of both lengths; no recursion, no allocation.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // Where to go on when a guess about the last star was wrong.
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, n + 1));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == name[n] => {
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
    use super::matches;

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
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern:?} {name:?}");
        }
    }
}
