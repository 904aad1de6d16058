//! A metric over the counters of one run: names become places in its list, units one unit.

use super::error::{MetricCause, MetricError, MetricErrorKind};
use super::names::Spelling;
use super::unit::{Dimension, MetricUnit};
use super::{Metric, Name, Node, Operator};
use crate::Unit;
use crate::suggest::closest;

/// A counter of the run, as far as metrics care.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Operand<'a> {
    /// As views show it.
    pub name: &'a str,
    /// What its values are measured in, once multiplied by `scale`.
    pub unit: Unit,
    /// One step of a raw value in `unit`.
    pub scale: f64,
    /// Which group it was read with.
    pub group: u16,
}

/// A metric that can be computed from the counters of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// What views call it.
    pub name: String,
    /// As written, the unit included.
    pub expression: String,
    /// What its values are in.
    pub unit: MetricUnit,
    /// Nobody asked for it.
    pub builtin: bool,
    /// The counters it is made of, ascending, as places in the run's list: all of one group. None
    /// if it is made of the duration alone.
    pub counters: Vec<usize>,
    scales: Vec<f64>,
    /// Counters as places in `counters`.
    root: Node<usize>,
}

impl Bound {
    /// Whether it is made of the duration, of whatever else besides.
    pub fn uses_duration(&self) -> bool {
        self.root.uses_duration()
    }

    /// Whether it is one counter over the duration and nothing else.
    pub fn is_plain_part_of_duration(&self) -> bool {
        let Node::Binary(Operator::Divide, _, a, b) = &self.root else { return false };
        matches!((&**a, &**b), (Node::Counter(_), Node::Duration))
    }
}

impl Metric {
    /// Finds the counters of this metric among `operands`, all counters of a run in its order.
    ///
    /// A name finds the counter of just this name; else that of another spelling of it
    /// (`cpu-cycles` for `cycles`), else, if it has no modifiers, the only counter that differs
    /// in nothing but modifiers.
    ///
    /// # Errors
    /// A counter that is not there or not unique; counters of several groups; units that do not
    /// go together. With the byte of the text that [`Metric::parse`] read.
    pub fn bind(&self, operands: &[Operand<'_>]) -> Result<Bound, MetricError> {
        self.find_all(operands).map_err(|e| e.moved(self.offset))
    }

    fn find_all(&self, operands: &[Operand<'_>]) -> Result<Bound, MetricError> {
        let mut found: Vec<Found<'_>> = Vec::new();
        self.root.names(&mut |name| {
            let (place, loose) = find(name, operands)?;
            found.push(Found { name, place, loose });
            Ok(())
        })?;
        check_together(&found, operands)?;
        let mut places: Vec<usize> = found.iter().map(|f| f.place).collect();
        places.sort_unstable();
        places.dedup();
        let root = self.root.placed(&mut found.iter().map(|f| f.place), &places);
        let dimension = dimension(&root, &|i| Dimension::of(operands[places[i]].unit))?;
        let natural = dimension.unit();
        let unit = match &self.declared {
            None => natural,
            Some(declared) if declared.dimension.plus(dimension).is_some() => declared.clone(),
            Some(declared) => {
                let kind =
                    MetricErrorKind::Declared { asked: declared.name.clone(), is: natural.name };
                return Err(MetricError::new(kind, 0));
            }
        };
        Ok(Bound {
            name: self.name.clone(),
            expression: self.expression.clone(),
            unit,
            builtin: false,
            scales: places.iter().map(|place| operands[*place].scale).collect(),
            counters: places,
            root,
        })
    }
}

impl Bound {
    /// The value in [`Bound::unit`]. `values` are raw values or sums of [`Bound::counters`], in
    /// that order, and `duration_ns` is the time of the same calls. `None`: not defined.
    ///
    /// # Panics
    /// There are fewer values than counters.
    pub fn value(&self, duration_ns: f64, values: &[f64]) -> Option<f64> {
        let at =
            |i: usize| if self.scales[i] == 1.0 { values[i] } else { values[i] * self.scales[i] };
        self.root.value(duration_ns, &at).and_then(|value| self.unit.convert(value))
    }
}

/// A name and the counter it stands for.
struct Found<'n> {
    name: &'n Name,
    place: usize,
    /// It was found although its modifiers were left out.
    loose: bool,
}

fn find(name: &Name, operands: &[Operand<'_>]) -> Result<(usize, bool), MetricError> {
    let all = |wanted: &dyn Fn(&str) -> bool| -> Vec<usize> {
        (0..operands.len()).filter(|i| wanted(operands[*i].name)).collect()
    };
    let typed = Spelling::of(&name.text);
    let mut found = all(&|known| known == name.text);
    let mut loose = false;
    if found.is_empty() {
        found = all(&|known| Spelling::of(known) == typed);
    }
    if found.is_empty() && typed.modifiers.is_empty() {
        loose = true;
        found = all(&|known| Spelling::of(known).base == typed.base);
    }
    match found.as_slice() {
        [one] => Ok((*one, loose)),
        [] => {
            let kind = MetricErrorKind::UnknownCounter { name: name.text.clone() };
            Err(MetricError::new(kind, name.at).because(cause(&name.text, operands)))
        }
        several => {
            let counters = several.iter().map(|i| operands[*i].name.to_owned()).collect();
            let kind = MetricErrorKind::Ambiguous { name: name.text.clone(), counters };
            Err(MetricError::new(kind, name.at))
        }
    }
}

/// What is known about a name that is not a counter of the recording.
fn cause(typed: &str, operands: &[Operand<'_>]) -> MetricCause {
    let counted = |name: &str| {
        name == "duration" || name.bytes().all(|b| b.is_ascii_digit()) || {
            let one = Name { text: name.to_owned(), at: 0 };
            find_quietly(&one, operands)
        }
    };
    for (at, _) in typed.match_indices('-') {
        let (left, right) = (&typed[..at], &typed[at + 1..]);
        if counted(left) && counted(right) {
            return MetricCause::Minus { left: left.to_owned(), right: right.to_owned() };
        }
    }
    let near = closest(typed, operands.iter().map(|operand| operand.name));
    if !near.is_empty() {
        return MetricCause::Near(near.into_iter().map(str::to_owned).collect());
    }
    MetricCause::Counters(operands.iter().map(|operand| operand.name.to_owned()).collect())
}

fn find_quietly(name: &Name, operands: &[Operand<'_>]) -> bool {
    let typed = Spelling::of(&name.text);
    operands.iter().any(|o| Spelling::of(o.name).base == typed.base)
}

/// All of one group, and where modifiers were left out, all in the same modes.
fn check_together(found: &[Found<'_>], operands: &[Operand<'_>]) -> Result<(), MetricError> {
    let Some(first) = found.first() else { return Ok(()) };
    let name = |f: &Found<'_>| operands[f.place].name.to_owned();
    if let Some(other) =
        found.iter().find(|f| operands[f.place].group != operands[first.place].group)
    {
        let mut names: Vec<String> = Vec::new();
        for f in found {
            if !names.contains(&name(f)) {
                names.push(name(f));
            }
        }
        let kind = MetricErrorKind::Groups { one: name(first), other: name(other) };
        return Err(MetricError::new(kind, other.name.at).because(MetricCause::OneGroup(names)));
    }
    let modes = |f: &Found<'_>| Spelling::of(operands[f.place].name).modes();
    let mut loose = found.iter().filter(|f| f.loose);
    let Some(one) = loose.next() else { return Ok(()) };
    match found.iter().find(|f| modes(f) != modes(one)) {
        None => Ok(()),
        Some(other) => {
            let kind = MetricErrorKind::Modes { one: name(one), other: name(other) };
            Err(MetricError::new(kind, other.name.at))
        }
    }
}

fn dimension(
    node: &Node<usize>,
    of: &impl Fn(usize) -> Dimension,
) -> Result<Dimension, MetricError> {
    let plus = |a: Dimension, b: Dimension, at: usize| {
        a.plus(b).ok_or_else(|| {
            let (left, right) = (a.unit().name, b.unit().name);
            let plain = left == "ratio" || right == "ratio";
            let error = MetricError::new(MetricErrorKind::Mismatch { left, right }, at);
            if plain { error.because(MetricCause::PlainNumber) } else { error }
        })
    };
    Ok(match node {
        Node::Number(quantity) => quantity.dimension,
        Node::Duration => Dimension::of(Unit::Nanoseconds),
        Node::Counter(i) => of(*i),
        Node::Negative(inside) => dimension(inside, of)?,
        Node::Binary(operator, at, a, b) => {
            let (a, b) = (dimension(a, of)?, dimension(b, of)?);
            match operator {
                Operator::Add | Operator::Subtract => plus(a, b, *at)?,
                Operator::Multiply => a.times(b, 1),
                Operator::Divide => a.times(b, -1),
            }
        }
        Node::Extreme(_, at, all) => {
            let mut result = None;
            for one in all {
                let one = dimension(one, of)?;
                result = Some(match result {
                    None => one,
                    Some(known) => plus(known, one, *at)?,
                });
            }
            result.unwrap_or_default()
        }
    })
}

impl Node<Name> {
    /// Shows every counter to `each`, from left to right.
    fn names<'n, E>(&'n self, each: &mut impl FnMut(&'n Name) -> Result<(), E>) -> Result<(), E> {
        match self {
            Self::Number(_) | Self::Duration => Ok(()),
            Self::Counter(name) => each(name),
            Self::Negative(inside) => inside.names(each),
            Self::Binary(_, _, a, b) => {
                a.names(each)?;
                b.names(each)
            }
            Self::Extreme(_, _, all) => all.iter().try_for_each(|one| one.names(each)),
        }
    }

    /// The same tree with places in `places`; `next` gives the counter of each name in turn.
    fn placed(&self, next: &mut impl Iterator<Item = usize>, places: &[usize]) -> Node<usize> {
        match self {
            Self::Number(quantity) => Node::Number(quantity.clone()),
            Self::Duration => Node::Duration,
            Self::Counter(_) => {
                let place = next.next().and_then(|place| places.binary_search(&place).ok());
                Node::Counter(place.expect("every name was found, in this order"))
            }
            Self::Negative(inside) => Node::Negative(Box::new(inside.placed(next, places))),
            Self::Binary(operator, at, a, b) => {
                let a = a.placed(next, places);
                Node::Binary(*operator, *at, Box::new(a), Box::new(b.placed(next, places)))
            }
            Self::Extreme(max, at, all) => {
                Node::Extreme(*max, *at, all.iter().map(|one| one.placed(next, places)).collect())
            }
        }
    }
}

impl Node<usize> {
    fn uses_duration(&self) -> bool {
        match self {
            Self::Number(_) | Self::Counter(_) => false,
            Self::Duration => true,
            Self::Negative(inside) => inside.uses_duration(),
            Self::Binary(_, _, a, b) => a.uses_duration() || b.uses_duration(),
            Self::Extreme(_, _, all) => all.iter().any(Self::uses_duration),
        }
    }

    fn value(&self, duration_ns: f64, of: &impl Fn(usize) -> f64) -> Option<f64> {
        let value = match self {
            Self::Number(quantity) => quantity.value,
            Self::Duration => duration_ns,
            Self::Counter(i) => of(*i),
            Self::Negative(inside) => -inside.value(duration_ns, of)?,
            Self::Binary(operator, _, a, b) => {
                let (a, b) = (a.value(duration_ns, of)?, b.value(duration_ns, of)?);
                match operator {
                    Operator::Add => a + b,
                    Operator::Subtract => a - b,
                    Operator::Multiply => a * b,
                    Operator::Divide => a / b,
                }
            }
            Self::Extreme(max, _, all) => {
                let mut result: Option<f64> = None;
                for one in all {
                    let one = one.value(duration_ns, of)?;
                    result = Some(match (result, max) {
                        (None, _) => one,
                        (Some(known), true) => known.max(one),
                        (Some(known), false) => known.min(one),
                    });
                }
                result?
            }
        };
        value.is_finite().then_some(value)
    }
}
