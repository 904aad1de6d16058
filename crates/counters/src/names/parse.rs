//! Syntax of counter lists, as perf's `-e` has it.
//!
//! ```text
//!  list   := entry { "," entry }
//!  entry  := item | "{" item { "," item } "}" [ ":" letters ]
//!  item   := word [ ":" letters ]
//!          | word ":" word [ ":" letters ]                  a tracepoint
//!          | word "/" [ term { "," term } ] "/" [ [":"] letters ]
//!          | "mem:" number [ "/" number ] [ ":" rwx ] [ ":" letters ]
//!  term   := word [ "=" value ]
//! ```
//!
//! `a:b` is a name with modifiers if `b` consists of letters that perf uses as modifiers, and
//! otherwise a tracepoint. White space around items is ignored.

use super::error::{NameError, NameErrorKind};
use super::syntax::{Access, Entries, Head, Item, List, Modifiers, Term};

/// Reads a counter list. Says nothing about whether its names exist.
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

struct Parser<'t> {
    text: &'t str,
    at: usize,
}

/// Letters that perf knows as modifiers, whether we do or not.
const PERF_MODIFIERS: &str = "ukhGHIpPSDWebR";

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

    /// Everything up to one of `stops`, white space, a comma or a brace; may be empty.
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

    /// Behind the opening brace.
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
        if self.rest().starts_with("::") {
            let what = format!("PAPI's spelling {word}::…");
            let error = NameError::new(NameErrorKind::Unsupported { what }, at);
            return Err(error.hint("perf's own names: cycles, instructions, page-faults:u"));
        }
        let (head, modifiers) = if word.eq_ignore_ascii_case("mem") && self.eat(':') {
            self.breakpoint()?
        } else if self.eat('/') {
            let terms = self.terms()?;
            let more = self.eat(':') || self.rest().starts_with(|c: char| c.is_alphanumeric());
            let modifiers = if more { self.modifiers()? } else { Modifiers::default() };
            (Head::Pmu { pmu: word.into(), terms }, modifiers)
        } else if self.eat(':') {
            self.behind_colon(word)?
        } else {
            (Head::Word(word.into()), Modifiers::default())
        };
        Ok(Item { at, head, modifiers })
    }

    /// `word:` was read: its modifiers, or a tracepoint's name.
    fn behind_colon(&mut self, word: &str) -> Result<(Head, Modifiers), NameError> {
        let (at, second) = self.word(":", "modifiers or a tracepoint's name")?;
        if !self.rest().starts_with(':') && second.chars().all(|c| PERF_MODIFIERS.contains(c)) {
            return Ok((Head::Word(word.into()), letters(second, at)?));
        }
        let head = Head::Tracepoint { system: word.into(), name: second.into() };
        let modifiers = if self.eat(':') { self.modifiers()? } else { Modifiers::default() };
        Ok((head, modifiers))
    }

    fn modifiers(&mut self) -> Result<Modifiers, NameError> {
        let (at, word) = self.word(":/", "modifiers")?;
        letters(word, at)
    }

    /// Behind the first slash, up to and with the second.
    fn terms(&mut self) -> Result<Vec<Term>, NameError> {
        let open = self.at - 1;
        let Some((inside, _)) = self.rest().split_once('/') else {
            return Err(NameError::expected("a second \"/\"", self.text, self.text.len())
                .hint(format!("the first one is at byte {open}")));
        };
        let mut at = self.at;
        self.at += inside.len() + 1;
        let mut terms = Vec::new();
        if inside.is_empty() {
            return Ok(terms);
        }
        for piece in inside.split(',') {
            let (name, value) = match piece.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (piece, None),
            };
            if name.is_empty() {
                return Err(NameError::expected("a term", self.text, at));
            }
            if value == Some("") {
                return Err(NameError::expected("a value", self.text, at + piece.len()));
            }
            terms.push(Term { at, name: name.into(), value: value.map(Into::into) });
            at += piece.len() + 1;
        }
        Ok(terms)
    }

    /// Behind `mem:`.
    fn breakpoint(&mut self) -> Result<(Head, Modifiers), NameError> {
        let address = self.number("/:")?;
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

/// `0x1F` or `31`.
pub(super) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) if !hex.starts_with('+') => u64::from_str_radix(hex, 16).ok(),
        None if !text.starts_with('+') => text.parse().ok(),
        _ => None,
    }
}

fn letters(word: &str, at: usize) -> Result<Modifiers, NameError> {
    let mut m = Modifiers::default();
    for (i, letter) in word.char_indices() {
        let unsupported = |what: &str| {
            let what = format!("modifier {letter:?} ({what})");
            Err(NameError::new(NameErrorKind::Unsupported { what }, at + i))
        };
        match letter {
            'u' => m.user = true,
            'k' => m.kernel = true,
            'h' => m.hypervisor = true,
            'G' => m.guest = true,
            'H' => m.host = true,
            'I' => m.not_idle = true,
            'p' if m.precise < 3 => m.precise += 1,
            'p' => {
                let (text, problem) = (word.into(), "at most three p".into());
                return Err(NameError::new(NameErrorKind::Value { text, problem }, at + i));
            }
            'D' => m.pinned = true,
            'P' | 'S' => return unsupported("of sampling"),
            'W' => return unsupported("a weak group"),
            'e' => return unsupported("an exclusive group"),
            'b' => return unsupported("counting in BPF"),
            'R' => return unsupported("not regrouping"),
            letter => {
                let kind = NameErrorKind::UnknownModifier { letter };
                return Err(NameError::new(kind, at + i).hint(MODIFIERS_HINT));
            }
        }
    }
    Ok(m)
}

pub(super) const MODIFIERS_HINT: &str =
    "u user, k kernel, h hypervisor, G guest, H host, I not idle, p precise, D pinned";
