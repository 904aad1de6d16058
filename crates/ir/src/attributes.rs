//! Removes attributes that instrumentation makes false.
//!
//! An instrumented function writes memory, reads a clock and calls a runtime. If an attribute (such
//! as `memory(none)`) still promised that it does none of this, a later optimisation could join two
//! calls with the same arguments, and the count of calls would be wrong. Such attributes of the
//! function's callers, and of the calls to the function, would be false as well. So these
//! attributes are removed from instrumented functions, from calls that may reach a function defined
//! here, and from functions with such calls. Calls to functions that are only declared keep their
//! attributes, because those functions are not instrumented here.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;

use crate::edit::Edits;
use crate::module::Module;
use crate::scan::{Span, Token, Tokens, name, number};

/// Attributes that promise that a function does not do something.
const FALSE_NOW: [&[u8]; 10] = [
    b"memory",
    b"readnone",
    b"readonly",
    b"writeonly",
    b"argmemonly",
    b"inaccessiblememonly",
    b"inaccessiblemem_or_argmemonly",
    b"speculatable",
    b"nosync",
    b"nofree",
];

/// The attribute groups of a module that contain false attributes.
#[derive(Debug, Default)]
pub struct Weaker {
    /// The numbers of these groups, each with the number of the group that replaces it.
    twins: BTreeMap<u32, u32>,
}

fn false_now(text: &[u8], span: Span) -> Vec<Span> {
    let mut found: Vec<Span> = Vec::new();
    let mut depth = 0_u32;
    let mut group = false;
    for (token, span) in Tokens::new(text, span) {
        match token {
            Token::Mark(b'(') => {
                depth += 1;
                // `memory(…)`.
                group = depth == 1 && found.last().is_some_and(|last| last.end == span.start);
            }
            Token::Mark(b')') => {
                depth = depth.saturating_sub(1);
                if depth == 0
                    && std::mem::take(&mut group)
                    && let Some(last) = found.last_mut()
                {
                    last.end = span.end;
                }
            }
            Token::Word if depth == 0 && FALSE_NOW.contains(&span.of(text)) => found.push(span),
            _ => {}
        }
    }
    found
}

impl Weaker {
    /// Finds the attribute groups that contain false attributes, and numbers the new groups.
    pub fn new(text: &[u8], module: &Module) -> Self {
        let mut next = module.attributes.keys().max().map_or(0, |most| most.saturating_add(1));
        let mut groups: Vec<_> = module.attributes.iter().collect();
        groups.sort_by_key(|(group, _)| **group);
        let mut twins = BTreeMap::new();
        for (group, span) in groups {
            if !false_now(text, *span).is_empty() {
                twins.insert(*group, next);
                next = next.saturating_add(1);
            }
        }
        Self { twins }
    }

    /// Writes the new groups.
    pub fn write(&self, text: &[u8], module: &Module, out: &mut String) {
        for (old, new) in &self.twins {
            let Some(span) = module.attributes.get(old) else { continue };
            let mut edits = Edits::default();
            for piece in false_now(text, *span) {
                edits.replace(piece, "");
            }
            let mut kept = Vec::new();
            edits.apply(text, *span, &mut kept);
            let kept = String::from_utf8_lossy(&kept);
            let _ = writeln!(out, "attributes #{new} = {{ {} }}", kept.trim());
        }
    }

    /// Removes the false attributes of a definition. `tail` is the text between its arguments and
    /// its body.
    pub fn definition(&self, text: &[u8], tail: Span, edits: &mut Edits) {
        // `tail` may contain operands (for example of `prefix`), but these operands contain none of
        // the attributes.
        for piece in false_now(text, tail) {
            edits.replace(piece, "");
        }
        for (token, span) in Tokens::new(text, tail) {
            self.twin(text, token, span, edits);
        }
    }

    fn twin(&self, text: &[u8], token: Token, span: Span, edits: &mut Edits) {
        if token == Token::Attributes
            && let Some(twin) = number(span.of(text)).and_then(|group| self.twins.get(&group))
        {
            edits.replace(span, &format!("#{twin}"));
        }
    }

    /// Removes the false attributes of a call, unless the callee is inline assembler or a function
    /// that is only declared. Returns whether the call may reach a function that is defined here.
    pub fn call(
        &self,
        text: &[u8],
        call: Span,
        declared: &HashSet<Vec<u8>>,
        edits: &mut Edits,
    ) -> bool {
        let mut depth = 0_u32;
        let mut after_arguments = None;
        let mut callee = false;
        let mut groups: [Option<Span>; 2] = [None; 2];
        for (token, span) in Tokens::new(text, call) {
            match token {
                Token::Mark(b'(' | b'[' | b'{') => depth += 1,
                Token::Mark(b')' | b']' | b'}') => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        after_arguments = Some(span.end);
                    }
                }
                Token::Global if depth == 0 && !callee => {
                    callee = true;
                    let bytes = name(span.of(text));
                    if bytes.starts_with(b"llvm.") || declared.contains(bytes) {
                        return false;
                    }
                }
                Token::Word if depth == 0 && span.of(text) == b"asm" => return false,
                Token::Attributes if depth == 0 => {
                    let free = groups.iter_mut().find(|group| group.is_none());
                    if let Some(free) = free {
                        *free = Some(span);
                    }
                }
                _ => {}
            }
        }
        for group in groups.into_iter().flatten() {
            self.twin(text, Token::Attributes, group, edits);
        }
        if let Some(start) = after_arguments {
            for piece in false_now(text, Span { start, end: call.end }) {
                edits.replace(piece, "");
            }
        }
        true
    }
}
