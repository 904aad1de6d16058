//! Parses the text of a metric. [`super`] documents the grammar.

use super::error::{MetricCause, MetricError, MetricErrorKind};
use super::unit::{MetricUnit, Quantity, UNITS};
use super::{MOST_BYTES, MOST_DEPTH, Name, Node, Operator};

pub(super) fn name(name: &str, at: usize) -> Result<(), MetricError> {
    let mut letters = name.chars();
    let first = letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    if first && letters.all(|c| c.is_ascii_alphanumeric() || "_-.:".contains(c)) {
        return Ok(());
    }
    Err(MetricError::new(MetricErrorKind::Name { name: name.to_owned() }, at))
}

/// Parses `expression [in unit]`.
pub(super) fn expression(text: &str) -> Result<(Node<Name>, Option<MetricUnit>), MetricError> {
    if text.len() > MOST_BYTES {
        return Err(MetricError::new(MetricErrorKind::TooLong { bytes: text.len() }, 0));
    }
    let mut parser = Parser { text, at: 0, measures: false, depth: 0 };
    let root = parser.sum()?;
    let declared = parser.declared()?;
    parser.skip_space();
    if parser.at < text.len() {
        let mut error = parser.expected("an operator or the end");
        if parser.rest().starts_with(|c: char| c.is_alphanumeric() || c == '"' || c == '{') {
            error = error.because(MetricCause::UnquotedName);
        }
        return Err(error);
    }
    if !parser.measures {
        return Err(MetricError::new(MetricErrorKind::Constant, 0));
    }
    Ok((root, declared))
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    /// Whether a counter, the duration, `calls` or `dispatches` has occurred.
    measures: bool,
    /// Nesting depth of factors.
    depth: usize,
}

fn in_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_.:".contains(c)
}

impl<'t> Parser<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn skip_space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn eat(&mut self, c: char) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(c);
        self.at += if found { c.len_utf8() } else { 0 };
        found
    }

    fn expected(&self, what: &'static str) -> MetricError {
        MetricError::expected(what, self.text, self.at)
    }

    fn sum(&mut self) -> Result<Node<Name>, MetricError> {
        let mut left = self.product()?;
        loop {
            self.skip_space();
            let at = self.at;
            let operator = match self.rest().chars().next() {
                Some('+') => Operator::Add,
                Some('-') => Operator::Subtract,
                _ => return Ok(left),
            };
            self.at += 1;
            left = Node::Binary(operator, at, Box::new(left), Box::new(self.product()?));
        }
    }

    fn product(&mut self) -> Result<Node<Name>, MetricError> {
        let mut left = self.factor()?;
        loop {
            self.skip_space();
            let at = self.at;
            let operator = match self.rest().chars().next() {
                Some('*' | '×') => Operator::Multiply,
                Some('/') => Operator::Divide,
                _ => return Ok(left),
            };
            self.at += self.rest().chars().next().map_or(0, char::len_utf8);
            left = Node::Binary(operator, at, Box::new(left), Box::new(self.factor()?));
        }
    }

    fn factor(&mut self) -> Result<Node<Name>, MetricError> {
        self.skip_space();
        if self.depth == MOST_DEPTH {
            return Err(MetricError::new(MetricErrorKind::TooDeep, self.at));
        }
        self.depth += 1;
        let factor = self.shallow_factor();
        self.depth -= 1;
        factor
    }

    fn shallow_factor(&mut self) -> Result<Node<Name>, MetricError> {
        let at = self.at;
        match self.rest().chars().next() {
            Some('-') => {
                self.at += 1;
                Ok(Node::Negative(Box::new(self.factor()?)))
            }
            Some('(') => {
                self.at += 1;
                let inside = self.sum()?;
                if self.eat(')') { Ok(inside) } else { Err(self.expected("an operator or \")\"")) }
            }
            Some(quote @ ('"' | '\'')) => {
                self.at += 1;
                let Some((name, _)) = self.rest().split_once(quote) else {
                    return Err(MetricError::expected(
                        "a closing quote",
                        self.text,
                        self.text.len(),
                    ));
                };
                self.at += name.len() + 1;
                if name.is_empty() {
                    return Err(MetricError::expected("a counter", self.text, at + 1));
                }
                self.measures = true;
                Ok(Node::Counter(Name { text: name.to_owned(), at }))
            }
            Some(c) if c.is_ascii_digit() || c == '.' => self.number().map(Node::Number),
            Some(c) if c.is_ascii_alphabetic() || c == '_' => self.word(),
            _ => Err(self.expected("a number, a counter or \"(\"")),
        }
    }

    fn number(&mut self) -> Result<Quantity, MetricError> {
        let (start, text) = (self.at, self.rest());
        let digits =
            |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let mut end = digits(text);
        if text[end..].starts_with('.') {
            end += 1 + digits(&text[end + 1..]);
        }
        if let Some(exponent) = text[end..].strip_prefix(['e', 'E']) {
            let sign = usize::from(exponent.starts_with(['+', '-']));
            let length = digits(&exponent[sign..]);
            end += if length > 0 { 1 + sign + length } else { 0 };
        }
        let suffix_end = text[end..]
            .find(|c: char| !(c.is_alphabetic() || c == '%' || c == '_' || c.is_ascii_digit()))
            .map_or(text.len(), |length| end + length);
        let (number, suffix) = (&text[..end], &text[end..suffix_end]);
        self.at += suffix_end;
        let value = number.parse::<f64>().ok().filter(|value| value.is_finite());
        let Some(value) = value else {
            return Err(MetricError::new(
                MetricErrorKind::Number { text: number.to_owned() },
                start,
            ));
        };
        let Some(quantity) = Quantity::new(value, suffix) else {
            let kind = MetricErrorKind::Unit { text: suffix.to_owned() };
            return Err(MetricError::new(kind, start + end).because(MetricCause::Units(UNITS)));
        };
        // A prefix can make a number too large.
        let too_large = || MetricErrorKind::Number { text: format!("{number}{suffix}") };
        let is_finite = |quantity: &Quantity| quantity.value.is_finite();
        Some(quantity).filter(is_finite).ok_or_else(|| MetricError::new(too_large(), start))
    }

    /// Returns the next word without consuming it.
    fn peek_word(&self) -> &'t str {
        let rest = self.rest();
        let mut end = 0;
        let mut letters = rest.char_indices().peekable();
        while let Some((i, c)) = letters.next() {
            let next = letters
                .peek()
                .is_some_and(|(_, next)| next.is_ascii_alphanumeric() || *next == '_');
            // A colon at the end is not part of the word.
            match c {
                '-' if next && i > 0 => {}
                ':' if next || letters.peek().is_some_and(|(_, next)| *next == ':') => {}
                ':' => break,
                c if in_word(c) => {}
                _ => break,
            }
            end = i + c.len_utf8();
        }
        &rest[..end]
    }

    fn word(&mut self) -> Result<Node<Name>, MetricError> {
        let (at, word) = (self.at, self.peek_word());
        self.at += word.len();
        if self.rest().trim_start().starts_with('(') {
            let max = match word {
                "max" => true,
                "min" => false,
                _ => {
                    let kind = MetricErrorKind::Function { name: word.to_owned() };
                    return Err(MetricError::new(kind, at));
                }
            };
            self.eat('(');
            let mut of = vec![self.sum()?];
            while !self.eat(')') {
                if !self.eat(',') {
                    return Err(self.expected("an operator, \",\" or \")\""));
                }
                of.push(self.sum()?);
            }
            return Ok(Node::Extreme(max, at, of));
        }
        self.measures = true;
        Ok(match word {
            "duration" => Node::Duration,
            "calls" => Node::Calls,
            "dispatches" => Node::Dispatches,
            _ => Node::Counter(Name { text: word.to_owned(), at }),
        })
    }

    fn declared(&mut self) -> Result<Option<MetricUnit>, MetricError> {
        self.skip_space();
        if self.peek_word() != "in" {
            return Ok(None);
        }
        self.at += 2;
        self.skip_space();
        let (at, unit) = (self.at, self.rest().trim_end());
        self.at = self.text.len();
        if unit.is_empty() {
            return Err(self.expected("a unit").because(MetricCause::Units(UNITS)));
        }
        MetricUnit::named(unit).map(Some).ok_or_else(|| {
            let kind = MetricErrorKind::Unit { text: unit.to_owned() };
            MetricError::new(kind, at).because(MetricCause::Units(UNITS))
        })
    }
}
