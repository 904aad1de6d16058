//! SQL functions for sums and means. A sum that cannot be represented is an error.
//!
//! DataFusion's own `sum` wraps silently, both for 64-bit numbers and for decimals. 2⁶³ ns are 292
//! years; 10⁵ ranks with 64 threads reach this sum in 24 minutes. Here, whole numbers and decimals
//! are added up with 256 bits. A result of more than 38 digits is an error. Floats are added up by
//! DataFusion itself.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Decimal256Array, Float64Array,
    UInt64Array,
};
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Decimal256Type, Field, FieldRef, Int64Type,
    UInt64Type, i256,
};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::functions_aggregate::{average::avg_udaf, sum::sum_udaf};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};

/// The largest number of 38 digits.
const MOST: i128 = 10i128.pow(38) - 1;

pub fn checked_sum() -> AggregateUDF {
    Exact::new(What::Sum).into()
}

/// Returns the function `avg`: an exact sum, divided by the number of values.
pub fn exact_avg() -> AggregateUDF {
    Exact::new(What::Mean).into()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
enum What {
    #[default]
    Sum,
    Mean,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Exact {
    what: What,
    signature: Signature,
    aliases: Vec<String>,
}

impl Exact {
    fn new(what: What) -> Self {
        // The aliases are the other names of the DataFusion function that this function replaces.
        // The programs of a cluster look up functions by their main name. If DataFusion's function
        // stayed registered under an alias, the programs could find it instead of this function,
        // because both have the same main name.
        let aliases = match what {
            What::Sum => Vec::new(),
            What::Mean => vec!["mean".to_owned()],
        };
        Self { what, signature: Signature::user_defined(Volatility::Immutable), aliases }
    }

    /// Returns DataFusion's own function, for floats.
    fn own(&self) -> Arc<AggregateUDF> {
        match self.what {
            What::Sum => sum_udaf(),
            What::Mean => avg_udaf(),
        }
    }
}

/// Returns the number of digits after the decimal point, or `None` for a type that is not added up
/// exactly.
fn scale_of(data_type: &DataType) -> Option<i8> {
    match data_type {
        DataType::Int64 => Some(0),
        DataType::Decimal128(_, scale) => Some(*scale),
        _ => None,
    }
}

impl AggregateUDFImpl for Exact {
    fn name(&self) -> &str {
        match self.what {
            What::Sum => "sum",
            What::Mean => "avg",
        }
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let [given] = given else { return plan_err!("{} takes one argument", self.name()) };
        let exact = |scale| DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale);
        Ok(vec![match given {
            DataType::Decimal32(_, scale)
            | DataType::Decimal64(_, scale)
            | DataType::Decimal128(_, scale) => exact(*scale),
            DataType::Float16 | DataType::Float32 | DataType::Float64 => DataType::Float64,
            DataType::UInt64 => exact(0),
            given if given.is_integer() || given.is_null() => DataType::Int64,
            other => return plan_err!("{} of {other}: not a number", self.name()),
        }])
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        match (scale_of(&given[0]), self.what) {
            (Some(scale), What::Sum) => Ok(DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale)),
            _ => Ok(DataType::Float64),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match scale_of(args.expr_fields[0].data_type()) {
            None => self.own().accumulator(args),
            Some(_) if args.is_distinct => {
                plan_err!("{}(DISTINCT …): take DISTINCT in a query of its own", self.name())
            }
            Some(scale) => {
                Ok(Box::new(One(Groups { what: self.what, scale, ..Groups::default() })))
            }
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        match scale_of(args.input_fields[0].data_type()) {
            None => self.own().state_fields(args),
            Some(scale) => Ok(vec![
                Arc::new(Field::new(
                    format!("{}[sum]", args.name),
                    DataType::Decimal256(76, scale),
                    false,
                )),
                Arc::new(Field::new(format!("{}[n]", args.name), DataType::UInt64, false)),
            ]),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        match scale_of(args.expr_fields[0].data_type()) {
            None => self.own().groups_accumulator_supported(args),
            Some(_) => !args.is_distinct,
        }
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        match scale_of(args.expr_fields[0].data_type()) {
            None => self.own().create_groups_accumulator(args),
            Some(scale) => Ok(Box::new(Groups { what: self.what, scale, ..Groups::default() })),
        }
    }
}

fn mean(sum: i128, values: u64, scale: i8) -> f64 {
    sum as f64 / values as f64 / 10f64.powi(scale.into())
}

/// Calls `show` with each value that is not missing, and its row.
fn each(values: &ArrayRef, mut show: impl FnMut(usize, i256)) {
    match values.as_primitive_opt::<Int64Type>() {
        // Integers are not converted to decimals, because converting a value takes longer than
        // adding it.
        Some(values) => {
            for (row, value) in values.values().iter().enumerate() {
                if values.is_valid(row) {
                    show(row, i256::from_i128((*value).into()));
                }
            }
        }
        None => {
            let values = values.as_primitive::<Decimal128Type>();
            for (row, value) in values.values().iter().enumerate() {
                if values.is_valid(row) {
                    show(row, i256::from_i128(*value));
                }
            }
        }
    }
}

/// The sum of each group, and the number of values in it.
#[derive(Debug, Default)]
struct Groups {
    what: What,
    scale: i8,
    sums: Vec<i256>,
    values: Vec<u64>,
}

impl Groups {
    fn grow(&mut self, groups: usize) {
        self.sums.resize(groups.max(self.sums.len()), i256::ZERO);
        self.values.resize(groups.max(self.values.len()), 0);
    }

    /// Adds `value`, which is the sum of `values` single values, to the sum of `group`. To remove a
    /// value that leaves the frame of a window function, the caller negates both numbers.
    fn add(&mut self, group: usize, value: i256, values: u64) {
        // No overflow: the sum of 2⁶⁴ numbers of 38 digits is far below 2²⁵⁵.
        self.sums[group] = self.sums[group].wrapping_add(value);
        self.values[group] = self.values[group].wrapping_add(values);
    }

    fn take(&mut self, emit: EmitTo) -> (Vec<i256>, Vec<u64>) {
        (emit.take_needed(&mut self.sums), emit.take_needed(&mut self.values))
    }

    /// Returns the sum of a group, if it has values. A sum of more than 38 digits is an error.
    fn sum_of(sum: i256, values: u64) -> Result<Option<i128>> {
        match sum.to_i128().filter(|sum| sum.unsigned_abs() <= MOST.unsigned_abs()) {
            _ if values == 0 => Ok(None),
            Some(sum) => Ok(Some(sum)),
            None => exec_err!("a sum has more than 38 digits: {sum}"),
        }
    }

    fn finished(&self, sums: &[i256], values: &[u64]) -> Result<ArrayRef> {
        let sums = sums.iter().zip(values).map(|(sum, values)| Self::sum_of(*sum, *values));
        let sums = sums.collect::<Result<Vec<Option<i128>>>>()?;
        match self.what {
            What::Sum => Ok(Arc::new(
                Decimal128Array::from(sums)
                    .with_precision_and_scale(DECIMAL128_MAX_PRECISION, self.scale)?,
            )),
            What::Mean => {
                let of = |(sum, n): (Option<i128>, &u64)| Some(mean(sum?, *n, self.scale));
                Ok(Arc::new(sums.into_iter().zip(values).map(of).collect::<Float64Array>()))
            }
        }
    }

    fn stored(&self, sums: Vec<i256>, values: Vec<u64>) -> Result<Vec<ArrayRef>> {
        let sums = Decimal256Array::from(sums).with_precision_and_scale(76, self.scale)?;
        Ok(vec![Arc::new(sums), Arc::new(UInt64Array::from(values))])
    }
}

impl GroupsAccumulator for Groups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.grow(total);
        let wanted = |row| filter.is_none_or(|f| f.is_valid(row) && f.value(row));
        each(&values[0], |row, value| {
            if wanted(row) {
                self.add(groups[row], value, 1);
            }
        });
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.grow(total);
        let sums = states[0].as_primitive::<Decimal256Type>();
        let values = states[1].as_primitive::<UInt64Type>();
        for (row, group) in groups.iter().enumerate() {
            self.add(*group, sums.value(row), values.value(row));
        }
        Ok(())
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        let (sums, values) = self.take(emit);
        self.finished(&sums, &values)
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        let (sums, values) = self.take(emit);
        self.stored(sums, values)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let mut own = Self { what: self.what, scale: self.scale, ..Self::default() };
        let rows: Vec<usize> = (0..values[0].len()).collect();
        own.update_batch(values, &rows, filter, rows.len())?;
        let (sums, counts) = own.take(EmitTo::All);
        self.stored(sums, counts)
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<i256>() + self.values.capacity() * size_of::<u64>()
    }
}

/// The accumulator for a single group, or for the frame of a window function.
#[derive(Debug)]
struct One(Groups);

impl Accumulator for One {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.grow(1);
        each(&values[0], |_, value| self.0.add(0, value, 1));
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.grow(1);
        each(&values[0], |_, value| self.0.add(0, value.wrapping_neg(), u64::MAX));
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let groups = vec![0; states[0].len()];
        self.0.merge_batch(states, &groups, 1)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.0.grow(1);
        // DataFusion calls this method once for each row of a window function, so it avoids the
        // cost of making arrays.
        let (scale, values) = (self.0.scale, self.0.values[0]);
        let sum = Groups::sum_of(self.0.sums[0], values)?;
        Ok(match self.0.what {
            What::Sum => ScalarValue::Decimal128(sum, DECIMAL128_MAX_PRECISION, scale),
            What::Mean => ScalarValue::Float64(sum.map(|sum| mean(sum, values, scale))),
        })
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.0.grow(1);
        let stored = self.0.stored(self.0.sums.clone(), self.0.values.clone())?;
        stored.iter().map(|array| ScalarValue::try_from_array(array, 0)).collect()
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.0.size()
    }
}
