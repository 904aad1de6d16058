//! Finds the place of a loop in its source, and its variable.
//!
//! The place comes from the loop's metadata (`!llvm.loop` with a `!DILocation`), which clang
//! writes, or else from the locations of instructions in the header and the latches. The loop is in
//! the innermost function, inlined or not, that all these locations share. Its line is the smallest
//! line of these locations in that function. Functions of libraries are left out, so a loop over an
//! inlined iterator gets the place where the program uses the iterator.

use std::collections::HashMap;

use crate::function::Body;
use crate::loops::Loops;
use crate::module::Module;
use crate::scan::{Span, Token, Tokens, name, number};

/// A place in the source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The file, as the debug information names it.
    pub file: Option<String>,
    /// Line, from 1.
    pub line: Option<u32>,
    /// Column, from 1.
    pub column: Option<u32>,
}

/// How the paths of files in rustc's libraries and in the system's libraries begin.
const LIBRARIES: [&str; 3] = ["library/", "/rustc/", "/usr/"];
/// Of a longer block, only this number of bytes is searched for locations and debug records.
const MOST_BYTES: usize = 1 << 16;
/// The largest number of levels of inlined calls or scopes that are followed.
const MOST_LEVELS: usize = 64;

/// The debug information of a module.
pub struct Source<'a> {
    text: &'a [u8],
    module: &'a Module,
    files: HashMap<u32, Option<String>>,
    /// The text of the function that was searched last, and its debug records by the value that
    /// they describe.
    declarations: (Span, HashMap<&'a [u8], &'a [u8]>),
}

/// A `!DILocation`.
#[derive(Clone, Copy, Debug, Default)]
struct Location {
    line: u32,
    column: u32,
    scope: Option<u32>,
    inlined_at: Option<u32>,
}

impl<'a> Source<'a> {
    /// Prepares the debug information of a module.
    pub fn new(text: &'a [u8], module: &'a Module) -> Self {
        Self { text, module, files: HashMap::new(), declarations: Default::default() }
    }

    fn node(&self, id: u32) -> Option<Span> {
        let span = *self.module.metadata.get(id as usize)?;
        (!span.is_empty()).then_some(span)
    }

    /// Returns fields of a node `!Kind(key: value, …)`, if it is of this kind.
    fn fields<const N: usize>(
        &self,
        id: u32,
        kind: &[u8],
        keys: [&[u8]; N],
    ) -> Option<[Option<Span>; N]> {
        let mut tokens = Tokens::new(self.text, self.node(id)?)
            .skip_while(|(_, span)| span.of(self.text) == b"distinct");
        let found = tokens.next()?.1.of(self.text).strip_prefix(b"!")?;
        if !kind.is_empty() && found != kind {
            return None;
        }
        let mut values = [None; N];
        let mut key: &[u8] = b"";
        let mut depth = 0_u32;
        for (token, span) in tokens {
            match token {
                Token::Mark(b'(') => depth += 1,
                Token::Mark(b')') => depth = depth.saturating_sub(1),
                Token::Mark(_) => {}
                _ if depth != 1 => {}
                Token::Word if self.text.get(span.end as usize) == Some(&b':') => {
                    key = span.of(self.text);
                }
                _ => {
                    if let Some(i) = keys.iter().position(|wanted| *wanted == key) {
                        values[i].get_or_insert(span);
                    }
                    key = b"";
                }
            }
        }
        Some(values)
    }

    fn value(&self, span: Option<Span>) -> Option<u32> {
        number(span?.of(self.text))
    }

    fn string(&self, span: Option<Span>) -> Option<String> {
        let bytes = span?.of(self.text);
        let inner = bytes.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        Some(unescaped(inner))
    }

    fn location(&self, id: u32) -> Option<Location> {
        let keys: [&[u8]; 4] = [b"line", b"column", b"scope", b"inlinedAt"];
        let [line, column, scope, inlined_at] = self.fields(id, b"DILocation", keys)?;
        Some(Location {
            line: self.value(line).unwrap_or(0),
            column: self.value(column).unwrap_or(0),
            scope: self.value(scope),
            inlined_at: self.value(inlined_at),
        })
    }

    /// Returns the source line of each instruction that has a location, in a piece of text.
    pub fn lines(&mut self, text: &[u8]) -> Vec<u32> {
        let mut ids = Vec::new();
        locations(&text[..text.len().min(MOST_BYTES)], &mut ids);
        ids.into_iter().filter_map(|id| Some(self.location(id)?.line)).collect()
    }

    fn file(&mut self, scope: u32) -> Option<String> {
        if let Some(known) = self.files.get(&scope) {
            return known.clone();
        }
        let found = self.find_file(scope);
        self.files.insert(scope, found.clone());
        found
    }

    fn find_file(&self, scope: u32) -> Option<String> {
        let mut at = scope;
        for _ in 0..MOST_LEVELS {
            let keys: [&[u8]; 2] = [b"file", b"scope"];
            let [file, outer] = self.fields(at, b"", keys)?;
            if let Some(file) = self.value(file) {
                let keys: [&[u8]; 1] = [b"filename"];
                return self.fields(file, b"DIFile", keys).and_then(|[name]| self.string(name));
            }
            at = self.value(outer)?;
        }
        None
    }

    fn place(&mut self, location: Location) -> Place {
        let known = |n: u32| (n > 0).then_some(n);
        Place {
            file: location.scope.and_then(|scope| self.file(scope)),
            line: known(location.line),
            column: known(location.line).and(known(location.column)),
        }
    }

    /// Returns a function's place, from the text between its arguments and its body.
    pub fn function(&mut self, tail: Span) -> Place {
        let Some(program) = attached(self.text, tail, b"!dbg") else { return Place::default() };
        let keys: [&[u8]; 3] = [b"file", b"line", b"scopeLine"];
        let Some([_, line, _]) = self.fields(program, b"DISubprogram", keys) else {
            return Place::default();
        };
        let line = self.value(line).unwrap_or(0);
        self.place(Location { line, scope: Some(program), ..Location::default() })
    }

    pub fn of_loop(&mut self, body: &Body, loops: &Loops, l: u32, latches: &[u32]) -> Place {
        if let Some(place) = latches.iter().find_map(|latch| self.by_metadata(body, *latch)) {
            return place;
        }
        let mut ids: Vec<u32> = Vec::new();
        let header = loops.all[l as usize].header;
        for block in std::iter::once(&header).chain(latches) {
            let text = body.blocks[*block as usize].text.of(self.text);
            locations(&text[..text.len().min(MOST_BYTES)], &mut ids);
        }
        ids.sort_unstable();
        ids.dedup();
        // Each location with the calls around it, the outermost call first.
        let mut chains: Vec<Vec<(u32, Location)>> = Vec::new();
        for id in ids {
            let mut chain = Vec::new();
            let mut at = Some(id);
            while let Some(id) = at.filter(|_| chain.len() < MOST_LEVELS) {
                let Some(location) = self.location(id) else { break };
                chain.push((id, location));
                at = location.inlined_at;
            }
            chain.reverse();
            if !chain.is_empty() {
                chains.push(chain);
            }
        }
        let Some(first) = chains.first() else { return Place::default() };
        let mut common = chains.iter().map(|chain| chain.len() - 1).min().unwrap_or(0);
        for chain in &chains {
            let same = chain.iter().zip(first).take_while(|(a, b)| a.0 == b.0).count();
            common = common.min(same);
        }
        while common > 0 && self.in_library(first[common].1) {
            common -= 1;
        }
        let here = chains.iter().filter_map(|chain| chain.get(common)).map(|(_, place)| *place);
        let best =
            here.filter(|place| place.line > 0).min_by_key(|place| (place.line, place.column));
        let best = best.or_else(|| first.get(common).map(|(_, place)| *place));
        best.map(|place| self.place(place)).unwrap_or_default()
    }

    /// Returns the place that a loop's metadata gives. The terminator of `latch` refers to this
    /// metadata.
    fn by_metadata(&mut self, body: &Body, latch: u32) -> Option<Place> {
        let id = attached(self.text, body.blocks[latch as usize].terminator, b"!llvm.loop")?;
        let node = self.node(id)?;
        let operands: Vec<u32> = Tokens::new(self.text, node)
            .filter(|(token, _)| *token == Token::Meta)
            .filter_map(|(_, span)| number(span.of(self.text)))
            .filter(|operand| *operand != id)
            .take(8)
            .collect();
        let mut location = operands.into_iter().find_map(|operand| self.location(operand))?;
        for _ in 0..MOST_LEVELS {
            let Some(call) = location.inlined_at.filter(|_| self.in_library(location)) else {
                break;
            };
            location = self.location(call)?;
        }
        (location.line > 0).then(|| self.place(location))
    }

    /// Returns whether a place is in a library of the compiler or the system. For such a place, the
    /// place of the inlined call is used.
    fn in_library(&mut self, location: Location) -> bool {
        let file = location.scope.and_then(|scope| self.file(scope));
        file.is_some_and(|file| LIBRARIES.iter().any(|start| file.starts_with(start)))
    }

    /// Returns the name of a loop's variable, from the first of these that gives one: a debug
    /// record of a phi node of the header, TVM's name of the block, the name of a phi node. If the
    /// header has no phi nodes, the name of the memory that it reads first is tried last. `file` is
    /// the loop's file.
    pub fn variable(
        &mut self,
        body: &Body,
        header: u32,
        counter: Option<&str>,
        file: Option<&str>,
    ) -> Option<String> {
        let block = &body.blocks[header as usize];
        let phis: Vec<&[u8]> = body
            .phis_of(header)
            .iter()
            .filter_map(|phi| Tokens::new(self.text, *phi).next())
            .map(|(_, span)| span.of(self.text))
            .take(16)
            .collect();
        let counted = counter.map(str::as_bytes).filter(|value| phis.contains(value));
        let phis: Vec<&[u8]> = counted
            .into_iter()
            .chain(phis.iter().copied().filter(|p| Some(*p) != counted))
            .collect();
        let text = block.text.of(self.text);
        let text = &text[..text.len().min(MOST_BYTES)];
        if let Some(name) = phis.iter().find_map(|phi| self.recorded(text, phi, file)) {
            return Some(name);
        }
        let by_label = || of_tvm(block.label.of(self.text));
        let by_name = || phis.iter().find_map(|phi| readable(phi));
        by_label().or_else(by_name).or_else(|| {
            let address = first_load(text).filter(|_| phis.is_empty())?;
            let record = self.declaration(body, address);
            let declared = record.and_then(|record| self.recorded_in(record, address, file));
            declared.or_else(|| readable(address))
        })
    }

    /// Returns the variable that a debug record connects with a value, if the variable is in `file`
    /// or `file` is `None`.
    fn recorded(&mut self, text: &'a [u8], value: &[u8], file: Option<&str>) -> Option<String> {
        let mut records = text.split(|b| *b == b'\n').filter(|line| is_record(line));
        let record = records.find(|record| record_of(record) == Some(value))?;
        self.recorded_in(record, value, file)
    }

    /// Returns the record for the variable at an address. The records of all blocks are collected
    /// when a function is searched for the first time.
    fn declaration(&mut self, body: &Body, address: &[u8]) -> Option<&'a [u8]> {
        let (first, last) = (body.blocks.first()?, body.blocks.last()?);
        let span = Span { start: first.text.start, end: last.text.end };
        if self.declarations.0 != span {
            let records = span.of(self.text).split(|b| *b == b'\n').filter(|line| is_record(line));
            let named = records.filter_map(|record| Some((record_of(record)?, record)));
            self.declarations = (span, named.collect());
        }
        self.declarations.1.get(address).copied()
    }

    /// Returns the variable that a debug record of `value` describes, if the variable is in `file`
    /// or `file` is `None`.
    fn recorded_in(&self, record: &[u8], value: &[u8], file: Option<&str>) -> Option<String> {
        let mut tokens = Tokens::new(record, Span::new(0, record.len()));
        tokens.find(|(token, span)| *token == Token::Local && span.of(record) == value)?;
        let (_, node) = tokens.find(|(token, _)| *token == Token::Meta)?;
        let keys: [&[u8]; 2] = [b"name", b"scope"];
        let [name, scope] = self.fields(number(node.of(record))?, b"DILocalVariable", keys)?;
        let own = self.value(scope).and_then(|scope| self.find_file(scope));
        if file.is_some() && own.as_deref() != file {
            return None;
        }
        self.string(name)
    }
}

/// Returns whether a line is a debug record or, in LLVM 18 and older, a call that stands for one.
fn is_record(line: &[u8]) -> bool {
    let line = line.trim_ascii_start();
    line.starts_with(b"#dbg_")
        || line.first().is_some_and(|b| matches!(b, b'c' | b't'))
            && line.windows(10).take(24).any(|window| window == b"@llvm.dbg.")
}

fn record_of(record: &[u8]) -> Option<&[u8]> {
    let mut tokens = Tokens::new(record, Span::new(0, record.len()));
    let (_, value) = tokens.find(|(token, _)| *token == Token::Local)?;
    Some(value.of(record))
}

/// Returns the address of a load in the first lines of a block.
fn first_load(text: &[u8]) -> Option<&[u8]> {
    let lines = text.split(|b| *b == b'\n').map(<[u8]>::trim_ascii);
    let mut lines = lines.filter(|line| !line.is_empty() && line[0] != b';').take(4);
    lines.find_map(|line| {
        let tokens: Vec<_> = Tokens::new(line, Span::new(0, line.len())).take(7).collect();
        let is =
            |i: usize, word: &[u8]| tokens.get(i).is_some_and(|(_, span)| span.of(line) == word);
        let (_, address) = tokens.get(6).filter(|(token, _)| *token == Token::Local)?;
        (is(2, b"load") && is(5, b"ptr")).then(|| address.of(line))
    })
}

/// Returns the number after `key`: `!dbg !12`.
fn attached(text: &[u8], span: Span, key: &[u8]) -> Option<u32> {
    let mut tokens = Tokens::new(text, span);
    tokens.find(|(token, span)| *token == Token::Meta && span.of(text) == key)?;
    tokens.next().and_then(|(_, span)| number(span.of(text)))
}

/// Collects the numbers of the locations (`!dbg !12`) in a piece of text.
fn locations(text: &[u8], ids: &mut Vec<u32>) {
    const KEY: &[u8] = b"!dbg !";
    let mut at = 0;
    while let Some(found) = text[at..].iter().position(|b| *b == b'!') {
        at += found;
        if text[at..].starts_with(KEY) {
            at += KEY.len();
            let end = crate::scan::plain_end(text, at);
            ids.extend(number(&text[at..end]));
        } else {
            at += 1;
        }
    }
}

/// Returns the variable in a label of TVM: `for_body_k`, `for_begin_ax2.preheader`.
fn of_tvm(label: &[u8]) -> Option<String> {
    let label = std::str::from_utf8(label).ok()?;
    let rest = ["for_begin_", "for_body_"].into_iter().find_map(|p| label.strip_prefix(p))?;
    let name = rest.split('.').next().unwrap_or(rest);
    (!name.is_empty()).then(|| name.to_owned())
}

/// Returns the name of a value, without the number that LLVM adds, if it looks like a variable's
/// name.
fn readable(value: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(name(value)).ok()?;
    let base = text.split('.').next().unwrap_or(text);
    let made = ["indvars", "indvar", "vec", "index", "lsr", "tmp", "iter", "phi", "induction"];
    let fine = base.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    (fine && !made.contains(&base)).then(|| base.to_owned())
}

/// Decodes a string of metadata, whose escapes are a backslash and two hexadecimal digits.
fn unescaped(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 3).and_then(|two| std::str::from_utf8(two).ok());
        match digits.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(value) if *byte == b'\\' => {
                out.push(value);
                at += 3;
            }
            _ => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
