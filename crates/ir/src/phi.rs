//! Reads the entries of a phi node.

use crate::scan::{Span, Token, Tokens};

/// An entry of a phi node.
#[derive(Clone, Copy, Debug, Default)]
pub struct Incoming {
    /// The entry with its brackets.
    pub whole: Span,
    /// The value that the phi node gets.
    pub value: Span,
    /// The name, with `%`, of the block from which control comes.
    pub block: Span,
}

/// Returns the entries: `[ value, %block ]`.
pub fn incoming(text: &[u8], phi: Span) -> Vec<Incoming> {
    let mut found = Vec::new();
    let mut depth = 0_u32;
    let mut current = Incoming::default();
    let mut comma = None;
    let mut last = (Token::Mark(0), Span::default());
    for (token, span) in Tokens::new(text, phi) {
        match token {
            Token::Mark(b'(' | b'[' | b'{' | b'<') => {
                depth += 1;
                if depth == 1 {
                    current.whole.start = span.start;
                    comma = None;
                }
            }
            Token::Mark(close @ (b')' | b']' | b'}' | b'>')) => {
                depth = depth.saturating_sub(1);
                if let (0, b']', (Token::Local, block), Some(comma)) = (depth, close, last, comma) {
                    current.whole.end = span.end;
                    current.value = Span { start: current.whole.start + 1, end: comma };
                    current.block = block;
                    found.push(current);
                }
            }
            Token::Mark(b',') if depth == 1 => comma = Some(span.start),
            _ => {}
        }
        last = (token, span);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_values_may_have_brackets_of_their_own() {
        for (phi, expected) in [
            ("%x = phi i32 [ 0, %a ], [ %y, %\"b c\" ], !dbg !3", "0 %a|%y %\"b c\""),
            (
                "%x = phi [2 x %s] [ [%s zeroinitializer, %s undef], %7 ]",
                "[%s zeroinitializer, %s undef] %7",
            ),
            ("%x = phi <2 x i8> [ <i8 1, i8 2>, %a ] ; [ 1, %b ]", "<i8 1, i8 2> %a"),
            ("%x = phi fast { ptr, i32 } [ { ptr null, i32 0 }, %a ]", "{ ptr null, i32 0 } %a"),
        ] {
            let text = phi.as_bytes();
            let found: Vec<String> = incoming(text, Span::new(0, text.len()))
                .iter()
                .map(|entry| {
                    [entry.value, entry.block]
                        .map(|s| String::from_utf8_lossy(s.of(text)).trim().to_owned())
                        .join(" ")
                })
                .collect();
            assert_eq!(found.join("|"), expected);
        }
    }
}
