//! Stores the calls of one op as columns. A column has one value for each call, which may be
//! missing.

/// One variable.
#[derive(Clone, Debug)]
pub struct Column {
    pub(super) values: Values,
    /// Whether each value is missing; `None` if no value is.
    pub(super) missing: Option<Vec<bool>>,
}

/// Values of four bytes each, if all of them fit, or of eight bytes each.
#[derive(Clone, Debug)]
pub(super) enum Values {
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

/// Columns of equal length.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    pub(super) columns: Vec<Column>,
    len: usize,
}

impl Values {
    /// Makes an empty list with room for `len` values, of four bytes each if `narrow` is set.
    pub fn with_capacity(narrow: bool, len: usize) -> Self {
        match narrow {
            true => Self::Narrow(Vec::with_capacity(len)),
            false => Self::Wide(Vec::with_capacity(len)),
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Narrow(values) => values.len(),
            Self::Wide(values) => values.len(),
        }
    }

    pub fn at(&self, i: usize) -> u64 {
        match self {
            Self::Narrow(values) => values[i].into(),
            Self::Wide(values) => values[i],
        }
    }

    #[inline]
    pub fn push(&mut self, value: u64) {
        match self {
            Self::Narrow(values) => match u32::try_from(value) {
                Ok(value) => values.push(value),
                Err(_) => {
                    let mut wide: Vec<u64> = Vec::with_capacity(values.capacity());
                    wide.extend(values.iter().map(|v| u64::from(*v)));
                    wide.push(value);
                    *self = Self::Wide(wide);
                }
            },
            Self::Wide(values) => values.push(value),
        }
    }
}

impl Default for Values {
    fn default() -> Self {
        Self::Narrow(Vec::new())
    }
}

impl Samples {
    /// Makes columns of equal length. Shorter columns are filled up with missing values.
    pub fn new(columns: &[Vec<Option<u64>>]) -> Self {
        let len = columns.iter().map(Vec::len).max().unwrap_or(0);
        let columns = columns
            .iter()
            .map(|column| {
                let mut values = Values::default();
                let padded = || (0..len).map(|i| column.get(i).copied().flatten());
                padded().for_each(|value| values.push(value.unwrap_or(0)));
                let missing: Vec<bool> = padded().map(|value| value.is_none()).collect();
                Column { values, missing: missing.contains(&true).then_some(missing) }
            })
            .collect();
        Self { columns, len }
    }

    pub(super) fn from_columns(columns: Vec<Column>, len: usize) -> Self {
        Self { columns, len }
    }

    /// Returns the number of calls.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no calls.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Removes and returns the last column, the recorded durations, if `there` is set.
    pub(super) fn take_recorded(&mut self, there: bool) -> Option<Column> {
        self.columns.pop_if(|_| there)
    }

    /// If the calls have weights (see [`super::weighted`]), removes and returns the two columns
    /// with the weights. They are last after [`Self::take_recorded`].
    pub(super) fn take_weights(&mut self, profile: &profile::Profile) -> Option<Self> {
        let weights = profile.is_sampled() && self.columns.len() > 2;
        weights.then(|| Self {
            columns: self.columns.split_off(self.columns.len() - 2),
            len: self.len,
        })
    }

    pub(super) fn slice(&self, from: usize, to: usize) -> Slice<'_> {
        let columns = self.columns.iter().map(|column| ColumnSlice {
            values: match &column.values {
                Values::Narrow(values) => ValueSlice::Narrow(&values[from..to]),
                Values::Wide(values) => ValueSlice::Wide(&values[from..to]),
            },
            // If no value is missing in this part of a column, the slice needs no list of missing
            // values.
            missing: column.missing.as_deref().map(|m| &m[from..to]).filter(|m| m.contains(&true)),
        });
        Slice { columns: columns.collect(), len: to - from }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Slice<'a> {
    pub columns: Vec<ColumnSlice<'a>>,
    pub len: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ColumnSlice<'a> {
    pub values: ValueSlice<'a>,
    /// Whether each value is missing; `None` if every value exists.
    pub missing: Option<&'a [bool]>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum ValueSlice<'a> {
    Narrow(&'a [u32]),
    Wide(&'a [u64]),
}

impl ColumnSlice<'_> {
    /// Returns value `i`, or 0 if it is missing.
    #[inline]
    pub fn raw(&self, i: usize) -> u64 {
        match self.values {
            ValueSlice::Narrow(values) => values[i].into(),
            ValueSlice::Wide(values) => values[i],
        }
    }

    /// Calls `each` for the index and the value of each value that exists, in order.
    #[inline]
    pub fn each(&self, mut each: impl FnMut(usize, u64)) {
        match (self.values, self.missing) {
            (ValueSlice::Narrow(values), None) => {
                values.iter().enumerate().for_each(|(i, value)| each(i, (*value).into()));
            }
            (ValueSlice::Wide(values), None) => {
                values.iter().enumerate().for_each(|(i, value)| each(i, *value));
            }
            (_, Some(missing)) => {
                let there = missing.iter().enumerate().filter(|(_, missing)| !**missing);
                there.for_each(|(i, _)| each(i, self.raw(i)));
            }
        }
    }

    /// Whether value `i` exists.
    #[inline]
    pub fn is_there(&self, i: usize) -> bool {
        self.missing.is_none_or(|missing| !missing[i])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_value_widens_all() {
        let mut values = Values::default();
        values.push(7);
        values.push(1 << 40);
        assert!(matches!(values, Values::Wide(all) if all == [7, 1 << 40]));
    }

    #[test]
    fn a_slice_without_missing_values_has_no_list_of_them() {
        let samples = Samples::new(&[vec![Some(1), None, Some(3)], vec![Some(4)]]);
        assert_eq!(samples.len(), 3);
        assert!(samples.slice(0, 1).columns[1].missing.is_none());
        assert_eq!(samples.slice(1, 3).columns[0].missing, Some(&[true, false][..]));
        assert!(!samples.slice(1, 3).columns[1].is_there(1));
    }
}
