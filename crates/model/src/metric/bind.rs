//! Binds a metric to the counters of one recording: replaces names with indices, and determines the
//! unit.

use super::error::{MetricCause, MetricError, MetricErrorKind};
use super::names::Spelling;
use super::unit::{Dimension, MetricUnit};
use super::{Metric, Name, Node, Operator};
use crate::Unit;
use crate::suggest::closest;

/// What metrics need to know about a counter of the recording.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Operand<'a> {
    /// The name that views show.
    pub name: &'a str,
    /// The unit of the counter's values after multiplication by `scale`.
    pub unit: Unit,
    /// The amount, in `unit`, for which one step of the raw value stands.
    pub scale: f64,
    /// The group with which the counter was read.
    pub group: u16,
}

/// A metric that can be computed from the counters of one recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// The name that views show.
    pub name: String,
    /// The expression as the user wrote it, including the unit.
    pub expression: String,
    /// The unit of the metric's values.
    pub unit: MetricUnit,
    /// Whether this is a built-in metric that the user did not ask for.
    pub builtin: bool,
    /// The counters that the metric uses, as ascending indices into the operands of
    /// [`Metric::bind`]. They belong to one group.
    pub counters: Vec<usize>,
    scales: Vec<f64>,
    /// The expression, in which a counter is represented by its index in `counters`.
    root: Node<usize>,
}

impl Bound {
    pub fn uses_duration(&self) -> bool {
        self.root.uses_duration()
    }

    /// Whether the metric is one counter divided by the duration and nothing else.
    pub fn is_plain_part_of_duration(&self) -> bool {
        let Node::Binary(Operator::Divide, _, a, b) = &self.root else { return false };
        matches!((&**a, &**b), (Node::Counter(_), Node::Duration))
    }
}

impl Metric {
    /// Finds the counters of this metric among `operands`.
    ///
    /// A name matches the counter with exactly this name. If there is none, it matches a counter
    /// with another spelling of the name (`cpu-cycles` for `cycles`). If there is none either, a
    /// name without modifiers matches a counter that has modifiers, in any spelling.
    ///
    /// # Errors
    /// Fails if a counter is missing or ambiguous, or if the groups, modes or units of the counters
    /// do not fit together, or if the declared unit does not fit. The error has the byte offset in
    /// the text from which the metric was parsed.
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
    /// Computes the value in [`Bound::unit`]. `values` are the raw values of [`Bound::counters`] in
    /// one call, or their sums over several calls. `duration_ns` is the time of that call, or the
    /// sum for those calls. An undefined value is `None`.
    ///
    /// # Panics
    /// Panics if there are fewer values than counters.
    pub fn value(&self, duration_ns: f64, values: &[f64]) -> Option<f64> {
        self.value_of(1.0, None, duration_ns, values)
    }

    /// Computes the value of several calls: `values` and `duration_ns` are sums over `calls` calls,
    /// which belong to `dispatches` dispatches.
    ///
    /// # Panics
    /// Panics if there are fewer values than counters.
    pub fn value_of(
        &self,
        calls: f64,
        dispatches: Option<f64>,
        duration_ns: f64,
        values: &[f64],
    ) -> Option<f64> {
        let at =
            |i: usize| if self.scales[i] == 1.0 { values[i] } else { values[i] * self.scales[i] };
        let value = self.root.value(&Sums { calls, dispatches, duration_ns, of: &at })?;
        self.unit.convert(value.number)
    }
}

/// The inputs of an expression.
struct Sums<'a> {
    calls: f64,
    dispatches: Option<f64>,
    duration_ns: f64,
    of: &'a dyn Fn(usize) -> f64,
}

/// The value of an expression or of a part of it.
#[derive(Clone, Copy)]
struct Value {
    number: f64,
    /// Whether the value is a sum over calls. A quotient of two sums is not such a sum.
    is_sum: bool,
}

impl Value {
    /// Returns `self` in the form in which it is combined with `other`. If only `other` is a sum,
    /// `self` applies to each call and is multiplied by `calls`.
    fn beside(self, other: Self, calls: f64) -> Self {
        match other.is_sum && !self.is_sum {
            true => Self { number: self.number * calls, is_sum: true },
            false => self,
        }
    }
}

struct Found<'n> {
    name: &'n Name,
    place: usize,
    /// Whether the counter was found only when its modifiers were ignored.
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

/// Returns what may be wrong with a name that matches no counter.
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

/// Checks that the counters belong to one group. If modifiers were ignored for any of them, all
/// must count in the same modes.
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
        Node::Calls | Node::Dispatches => Dimension::of(Unit::Count),
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
    /// Passes the names of the counters in this expression to `each`, from left to right.
    fn names<'n, E>(&'n self, each: &mut impl FnMut(&'n Name) -> Result<(), E>) -> Result<(), E> {
        match self {
            Self::Number(_) | Self::Duration | Self::Calls | Self::Dispatches => Ok(()),
            Self::Counter(name) => each(name),
            Self::Negative(inside) => inside.names(each),
            Self::Binary(_, _, a, b) => {
                a.names(each)?;
                b.names(each)
            }
            Self::Extreme(_, _, all) => all.iter().try_for_each(|one| one.names(each)),
        }
    }

    /// Returns the same tree with indices into `places` instead of names. For each name from left
    /// to right, `next` returns the index of its operand, which is one of `places`.
    fn placed(&self, next: &mut impl Iterator<Item = usize>, places: &[usize]) -> Node<usize> {
        match self {
            Self::Number(quantity) => Node::Number(quantity.clone()),
            Self::Duration => Node::Duration,
            Self::Calls => Node::Calls,
            Self::Dispatches => Node::Dispatches,
            Self::Counter(_) => {
                let place = next.next().and_then(|place| places.binary_search(&place).ok());
                Node::Counter(place.expect("`find_all` has found every name, in this order"))
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
            Self::Number(_) | Self::Counter(_) | Self::Calls | Self::Dispatches => false,
            Self::Duration => true,
            Self::Negative(inside) => inside.uses_duration(),
            Self::Binary(_, _, a, b) => a.uses_duration() || b.uses_duration(),
            Self::Extreme(_, _, all) => all.iter().any(Self::uses_duration),
        }
    }

    fn value(&self, sums: &Sums<'_>) -> Option<Value> {
        let sum = |number| Value { number, is_sum: true };
        let value = match self {
            Self::Number(quantity) => Value { number: quantity.value, is_sum: false },
            Self::Duration => sum(sums.duration_ns),
            Self::Calls => sum(sums.calls),
            Self::Dispatches => sum(sums.dispatches?),
            Self::Counter(i) => sum((sums.of)(*i)),
            Self::Negative(inside) => {
                let value = inside.value(sums)?;
                Value { number: -value.number, ..value }
            }
            Self::Binary(operator, _, a, b) => {
                let (a, b) = (a.value(sums)?, b.value(sums)?);
                let (left, right) = (a.beside(b, sums.calls), b.beside(a, sums.calls));
                let both = |number| Value { number, is_sum: left.is_sum };
                match operator {
                    Operator::Add => both(left.number + right.number),
                    Operator::Subtract => both(left.number - right.number),
                    Operator::Multiply => {
                        Value { number: a.number * b.number, is_sum: a.is_sum || b.is_sum }
                    }
                    // A sum that is divided by a number is still a sum.
                    Operator::Divide => {
                        Value { number: left.number / b.number, is_sum: left.is_sum && !b.is_sum }
                    }
                }
            }
            Self::Extreme(max, _, all) => {
                let mut result: Option<Value> = None;
                for one in all {
                    let one = one.value(sums)?;
                    result = Some(match result {
                        None => one,
                        Some(known) => {
                            let known = known.beside(one, sums.calls);
                            let one = one.beside(known, sums.calls);
                            let number = match max {
                                true => known.number.max(one.number),
                                false => known.number.min(one.number),
                            };
                            Value { number, ..known }
                        }
                    });
                }
                result?
            }
        };
        value.number.is_finite().then_some(value)
    }
}
