//! Reads counter lists, which have the syntax of perf's `-e`.
//!
//! ```text
//!  list   := entry { "," entry }
//!  entry  := item | "{" item { "," item } "}" [ ":" letters ]
//!  item   := word [ ":" letters ]
//!          | word ":" word [ "/filter=" value "/" ] [ ":" letters ]       a tracepoint
//!          | word "/" [ term { "," term } ] "/" [ [":"] letters ]
//!          | "mem:" number [ "/" number ] [ ":" rwx ] [ ":" letters ]
//!          | ( "uprobe:" | "uretprobe:" ) path ":" place [ ":" letters ]
//!          | word "::" word { ":" attribute [ "=" value ] }               as in libpfm4 and PAPI
//!          | word ":::" anything                                          of a component of PAPI
//!  place  := symbol [ "+" number ] | number
//!  term   := word [ "=" value ]
//! ```
//!
//! A value or path may be in double quotes, with a backslash before each quote or backslash in it.
//! `a:b` is a name with modifiers if `b` has only letters that perf uses as modifiers, and
//! otherwise a tracepoint.

use crate::cause::NameCause;
use crate::error::{NameError, NameErrorKind};
use crate::syntax::{Access, Entries, Filter, Head, Item, List, Modifiers, Term};

/// Reads a counter list. The counters that the text names need not exist.
///
/// # Errors
/// Returns an error about the first place where the text is not a counter list.
pub fn parse(text: &str) -> Result<List, NameError> {
    let mut p = Parser { text, at: 0 };
    let mut entries = Vec::new();
    loop {
        p.skip_space();
        entries.push(if p.eat('{') { p.group()? } else { Entries::Single(p.item()?) });
        p.skip_space();
        if p.at == text.len() {
            return Ok(List { entries });
        }
        if !p.eat(',') {
            return Err(p.expected("\",\" between counters"));
        }
    }
}

/// Returns the entries of a list as they were typed. An entry with an error ends at the next comma,
/// so that the other entries can still be used.
pub fn pieces(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut p = Parser { text, at: 0 };
    while p.at < text.len() {
        let start = p.at;
        p.skip_space();
        let entry = if p.eat('{') { p.group().map(drop) } else { p.item().map(drop) };
        p.skip_space();
        if entry.is_err() || !(p.rest().is_empty() || p.rest().starts_with(',')) {
            // The parser may have read further before it found the error, for example if a quote is
            // not closed.
            p.at = start;
            p.at += p.rest().find(',').unwrap_or(p.rest().len());
        }
        let piece = text.get(start..p.at).unwrap_or("").trim();
        pieces.extend(Some(piece).filter(|piece| !piece.is_empty()));
        p.eat(',');
    }
    pieces
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
}

/// Whether perf (Linux 6.14) has this modifier.
pub(crate) fn is_perfs(letter: char) -> bool {
    "ukhGHIpPSDWebRX".contains(letter)
}

impl<'t> Parser<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn eat(&mut self, c: char) -> bool {
        let found = self.rest().starts_with(c);
        self.at += if found { c.len_utf8() } else { 0 };
        found
    }

    fn skip_space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn expected(&self, what: &'static str) -> NameError {
        NameError::expected(what, self.text, self.at)
    }

    /// Returns the byte offset of the parser, and the text from there up to one of `stops`, white
    /// space, a comma or a brace.
    fn until(&mut self, stops: &str) -> (usize, &'t str) {
        let start = self.at;
        let stop = |c: char| c.is_whitespace() || ",{}".contains(c) || stops.contains(c);
        let word = self.rest().split(stop).next().unwrap_or("");
        self.at += word.len();
        (start, word)
    }

    fn word(&mut self, stops: &str, what: &'static str) -> Result<(usize, &'t str), NameError> {
        match self.until(stops) {
            (at, "") => Err(NameError::expected(what, self.text, at)),
            word => Ok(word),
        }
    }

    /// Reads a group after its opening brace.
    fn group(&mut self) -> Result<Entries, NameError> {
        let mut items = Vec::new();
        loop {
            self.skip_space();
            items.push(self.item()?);
            self.skip_space();
            if self.eat('}') {
                break;
            }
            if !self.eat(',') {
                return Err(self.expected("\",\" or \"}\""));
            }
        }
        let modifiers = if self.eat(':') { self.modifiers()? } else { Modifiers::default() };
        Ok(Entries::Group { items, modifiers })
    }

    fn item(&mut self) -> Result<Item, NameError> {
        let (at, word) = self.word("/:", "a counter name")?;
        let is = |name: &str| word.eq_ignore_ascii_case(name);
        let none = Modifiers::default();
        let (head, modifiers) = if self.rest().starts_with(":::") {
            self.at += 3;
            let (_, name) = self.word("", "a counter of the component")?;
            (Head::Device { component: word.into(), name: name.into() }, none)
        } else if self.rest().starts_with("::") {
            self.at += 2;
            (self.papi(word)?, none)
        } else if is("mem") && self.eat(':') {
            self.breakpoint()?
        } else if (is("uprobe") || is("uretprobe")) && self.eat(':') {
            let head = self.uprobe(is("uretprobe"))?;
            (head, if self.eat(':') { self.modifiers()? } else { none })
        } else if self.eat('/') {
            let terms = self.terms()?;
            (Head::Pmu { pmu: word.into(), terms }, self.after_slash()?)
        } else if self.eat(':') {
            self.after_colon(word)?
        } else {
            (Head::Word(word.into()), none)
        };
        Ok(Item { at, head, modifiers })
    }

    /// Reads the text after the first colon: modifiers, or the rest of a tracepoint.
    fn after_colon(&mut self, word: &str) -> Result<(Head, Modifiers), NameError> {
        let (at, second) = self.word(":/", "modifiers or a tracepoint's name")?;
        if !self.rest().starts_with([':', '/']) && second.chars().all(is_perfs) {
            return Ok((Head::Word(word.into()), letters(second, at)?));
        }
        let (system, name) = (word.to_owned(), second.to_owned());
        let (mut filter, mut modifiers) = (None, Modifiers::default());
        if self.eat('/') {
            if self.rest().starts_with('/') {
                return Err(self.expected("a filter"));
            }
            for term in self.terms()? {
                match term.value {
                    Some(text) if term.name == "filter" && filter.is_none() => {
                        filter = Some(Filter { at: term.at, text });
                    }
                    _ => {
                        let pmu = format!("{system}:{name}");
                        let kind = NameErrorKind::UnknownTerm { pmu, term: term.name };
                        return Err(NameError::new(kind, term.at).because(NameCause::OneFilter));
                    }
                }
            }
            modifiers = self.after_slash()?;
        } else if self.eat(':') {
            modifiers = self.modifiers()?;
        }
        Ok((Head::Tracepoint { system, name, filter }, modifiers))
    }

    /// Reads the modifiers after the second slash, if there are any, with or without a colon.
    fn after_slash(&mut self) -> Result<Modifiers, NameError> {
        let more = self.eat(':') || self.rest().starts_with(|c: char| c.is_alphanumeric());
        if more { self.modifiers() } else { Ok(Modifiers::default()) }
    }

    fn uprobe(&mut self, returns: bool) -> Result<Head, NameError> {
        let path = match self.quoted()? {
            Some(path) => path,
            None => self.word(":", "a path")?.1.to_owned(),
        };
        if !self.eat(':') {
            return Err(self.expected("\":\" and a function or an offset"));
        }
        let (at, place) = self.word(":", "a function or an offset")?;
        let (symbol, offset) = match (number(place), place.rsplit_once('+')) {
            (Some(offset), _) => (None, offset),
            (None, None) => (Some(place.to_owned()), 0),
            (None, Some((symbol, _))) if symbol.is_empty() || number(symbol).is_some() => {
                return Err(NameError::expected("a function", self.text, at));
            }
            (None, Some((symbol, offset))) => {
                let at = at + symbol.len() + 1;
                let offset = number(offset).ok_or_else(|| {
                    let problem = "an offset is a number (0x… or decimal)".into();
                    NameError::new(NameErrorKind::Value { text: offset.into(), problem }, at)
                })?;
                (Some(symbol.to_owned()), offset)
            }
        };
        Ok(Head::Uprobe { returns, path, at, symbol, offset })
    }

    fn papi(&mut self, pmu: &str) -> Result<Head, NameError> {
        let (_, name) = self.word(":", "a counter name")?;
        let mut attributes = Vec::new();
        while self.eat(':') {
            let (at, word) = self.word(":", "an attribute (u, k, …)")?;
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (word, None),
            };
            attributes.push(Term { at, name: name.into(), value });
        }
        Ok(Head::Papi { pmu: pmu.into(), name: name.into(), attributes })
    }

    fn modifiers(&mut self) -> Result<Modifiers, NameError> {
        let (at, word) = self.word(":/", "modifiers")?;
        letters(word, at)
    }

    /// Reads the terms and the second slash.
    fn terms(&mut self) -> Result<Vec<Term>, NameError> {
        let open = self.at - 1;
        let unclosed = |p: &Self| {
            NameError::expected("a second \"/\"", p.text, p.text.len())
                .because(NameCause::OpenedAt(open))
        };
        let mut terms = Vec::new();
        if self.eat('/') {
            return Ok(terms);
        }
        loop {
            let at = self.at;
            let name = self.rest().split(['=', ',', '/']).next().unwrap_or("");
            self.at += name.len();
            if self.rest().is_empty() {
                return Err(unclosed(self));
            }
            if name.is_empty() {
                return Err(NameError::expected("a term", self.text, at));
            }
            let value = if self.eat('=') { Some(self.value()?) } else { None };
            terms.push(Term { at, name: name.into(), value });
            if self.eat('/') {
                return Ok(terms);
            }
            if self.rest().is_empty() {
                return Err(unclosed(self));
            }
            if !self.eat(',') {
                return Err(self.expected("\",\" or \"/\""));
            }
        }
    }

    fn value(&mut self) -> Result<String, NameError> {
        if let Some(text) = self.quoted()? {
            return Ok(text);
        }
        let value = self.rest().split([',', '/']).next().unwrap_or("");
        if value.is_empty() && !self.rest().is_empty() {
            return Err(self.expected("a value"));
        }
        self.at += value.len();
        Ok(value.to_owned())
    }

    /// Reads a text in double quotes, if there is one.
    fn quoted(&mut self) -> Result<Option<String>, NameError> {
        let open = self.at;
        if !self.eat('"') {
            return Ok(None);
        }
        let mut text = String::new();
        let mut chars = self.rest().char_indices();
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.at += i + 1;
                    return Ok(Some(text));
                }
                '\\' => text.extend(chars.next().map(|(_, c)| c)),
                c => text.push(c),
            }
        }
        Err(NameError::expected("a second quote", self.text, self.text.len())
            .because(NameCause::OpenedAt(open)))
    }

    fn breakpoint(&mut self) -> Result<(Head, Modifiers), NameError> {
        let address = self.number("/:").map_err(|e| e.because(NameCause::AddressExpected))?;
        let len = if self.eat('/') { Some(self.number(":")?) } else { None };
        let (mut access, mut modifiers) = (None, Modifiers::default());
        if self.eat(':') {
            let (at, word) = self.word(":", "r, w, x or modifiers")?;
            if word.chars().all(|c| "rwx".contains(c)) {
                let has = |c| word.contains(c);
                access = Some(Access { read: has('r'), write: has('w'), execute: has('x') });
                modifiers = if self.eat(':') { self.modifiers()? } else { modifiers };
            } else {
                modifiers = letters(word, at)?;
            }
        }
        Ok((Head::Breakpoint { address, len, access }, modifiers))
    }

    fn number(&mut self, stops: &str) -> Result<u64, NameError> {
        let (at, word) = self.word(stops, "a number")?;
        number(word).ok_or_else(|| {
            let problem = "not a number of 64 bits (0x… or decimal)".into();
            NameError::new(NameErrorKind::Value { text: word.into(), problem }, at)
        })
    }
}

pub(crate) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) if !hex.starts_with('+') => u64::from_str_radix(hex, 16).ok(),
        None if !text.starts_with('+') => text.parse().ok(),
        _ => None,
    }
}

fn letters(word: &str, at: usize) -> Result<Modifiers, NameError> {
    let mut m = Modifiers::default();
    for (i, letter) in word.char_indices() {
        let useless = |why: &str| {
            let why = why.into();
            Err(NameError::new(NameErrorKind::UselessModifier { letter, why }, at + i))
        };
        match letter {
            'u' => m.user = true,
            'k' => m.kernel = true,
            'h' => m.hypervisor = true,
            'G' => m.guest = true,
            'H' => m.host = true,
            'I' => m.not_idle = true,
            'D' => m.pinned = true,
            'e' => m.exclusive = true,
            'p' | 'P' => return useless("where a sample lies (precise) matters to sampling only"),
            'S' => return useless("reading a group at each sample matters to sampling only"),
            'W' => return useless("a group that does not fit is refused and never split"),
            'b' => return useless("the recorder counts threads, not BPF programs"),
            'R' => return useless("a retire latency is measured by sampling"),
            'X' => return useless("counters are never regrouped"),
            letter => {
                let kind = NameErrorKind::UnknownModifier { letter };
                return Err(NameError::new(kind, at + i));
            }
        }
    }
    Ok(m)
}
