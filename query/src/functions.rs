//! SQL functions for datasets: correlations from sums, and conversions between durations and the
//! buckets of a histogram.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Int64Type, i256};
use datafusion::common::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};
use dataset::buckets;

use crate::sum;

const WIDE: DataType = DataType::Decimal128(38, 0);

/// Registers the functions. `sum` and `avg` replace DataFusion's own functions of the same names.
pub fn register(registry: &mut dyn FunctionRegistry) -> Result<()> {
    registry.register_udaf(Arc::new(sum::checked_sum()))?;
    registry.register_udaf(Arc::new(sum::exact_avg()))?;
    registry.register_udf(Arc::new(pearson()))?;
    registry.register_udf(Arc::new(bucket_ns()))?;
    registry.register_udf(Arc::new(bucket_of()))?;
    Ok(())
}

/// `pearson(n, Σx, Σy, Σx², Σxy, Σy²)`: the correlation of x and y. NULL if x or y is constant, or
/// if a sum is missing.
fn pearson() -> ScalarUDF {
    let of = |given: &[ColumnarValue]| -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(given)?;
        let columns: Vec<_> = arrays.iter().map(|a| a.as_primitive::<Decimal128Type>()).collect();
        let rows = columns[0].len();
        let value = |row: usize| {
            let mut sums = [0i128; 6];
            for (sum, column) in sums.iter_mut().zip(&columns) {
                *sum = column.is_valid(row).then(|| column.value(row))?;
            }
            correlation(sums)
        };
        let found: ArrayRef = Arc::new((0..rows).map(value).collect::<Float64Array>());
        Ok(ColumnarValue::Array(found))
    };
    create_udf("pearson", vec![WIDE; 6], DataType::Float64, Volatility::Immutable, Arc::new(of))
}

/// Computes the correlation from exact sums. Products of numbers of 38 digits fit into 256 bits.
fn correlation([n, x, y, xx, xy, yy]: [i128; 6]) -> Option<f64> {
    let less = |a: i128, b: i128, c: i128, d: i128| -> Option<i256> {
        let product = |a: i128, b: i128| i256::from_i128(a).checked_mul(i256::from_i128(b));
        product(a, b)?.checked_sub(product(c, d)?)
    };
    let (of_x, of_y) = (less(n, xx, x, x)?, less(n, yy, y, y)?);
    if !of_x.is_positive() || !of_y.is_positive() {
        return None;
    }
    let r = to_f64(less(n, xy, x, y)?) / (to_f64(of_x).sqrt() * to_f64(of_y).sqrt());
    Some(r.clamp(-1.0, 1.0))
}

fn to_f64(number: i256) -> f64 {
    match number.to_i128() {
        Some(small) => small as f64,
        None => {
            let (low, high) = number.to_parts();
            high as f64 * 2f64.powi(128) + low as f64
        }
    }
}

/// `bucket_ns(bucket)`: the middle of a bucket of the table `hist`, in ns.
fn bucket_ns() -> ScalarUDF {
    let of = |given: &[ColumnarValue]| -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(given)?;
        let buckets = arrays[0].as_primitive::<Int64Type>();
        let middles: Int64Array = buckets.iter().map(|bucket| middle(bucket?)).collect();
        Ok(ColumnarValue::Array(Arc::new(middles)))
    };
    let whole = DataType::Int64;
    create_udf("bucket_ns", vec![whole.clone()], whole, Volatility::Immutable, Arc::new(of))
}

/// `bucket_of(ns)`: the number of the bucket to which a duration belongs, as in the table `hist`.
/// NULL for a negative duration.
fn bucket_of() -> ScalarUDF {
    let of = |given: &[ColumnarValue]| -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(given)?;
        let durations = arrays[0].as_primitive::<Int64Type>();
        let buckets: Int64Array = durations.iter().map(|ns| bucket(ns?)).collect();
        Ok(ColumnarValue::Array(Arc::new(buckets)))
    };
    let whole = DataType::Int64;
    create_udf("bucket_of", vec![whole.clone()], whole, Volatility::Immutable, Arc::new(of))
}

fn bucket(ns: i64) -> Option<i64> {
    Some(buckets::bucket_of(u64::try_from(ns).ok()?).into())
}

/// Returns the middle of a bucket, if there is such a bucket and the middle fits into 63 bits.
fn middle(bucket: i64) -> Option<i64> {
    i64::try_from(buckets::middle_of(u16::try_from(bucket).ok()?)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_those_that_docs_describe() {
        let of = [(0, Some(0)), (127, Some(127)), (128, Some(129)), (192, Some(258)), (-1, None)];
        of.iter().for_each(|(bucket, ns)| assert_eq!(middle(*bucket), *ns));
        assert!(middle(3711).is_some_and(|ns| ns > 0), "the last one below 2⁶³");
        let beyond = [3712, 3775, 3776, 65_536, 65_536 + 129, i64::MAX, i64::MIN];
        assert!(beyond.iter().all(|bucket| middle(*bucket).is_none()));
    }

    #[test]
    fn a_duration_is_in_the_bucket_that_stands_for_it() {
        let of = [(-1, None), (0, Some(0)), (127, Some(127)), (129, Some(128)), (130, Some(129))];
        of.iter().for_each(|(ns, number)| assert_eq!(bucket(*ns), *number));
        assert_eq!(bucket(i64::MAX), Some(3711));
        for number in 0..3712 {
            assert_eq!(bucket(middle(number).unwrap()), Some(number));
        }
        // Each duration differs from the middle of its bucket by at most 1/128 of the duration.
        for ns in (0..62).flat_map(|bit| [(1i64 << bit) - 1, 1 << bit, (1 << bit) * 3 / 2 + 1]) {
            let of = middle(bucket(ns).unwrap()).unwrap();
            assert!((of - ns).abs() <= ns / 128, "{ns}: {of}");
        }
    }

    #[test]
    fn nothing_that_is_replaced_stays_under_another_name() {
        let session = datafusion::prelude::SessionContext::new();
        register(&mut *session.state_ref().write()).unwrap();
        let state = session.state();
        let own = [sum::checked_sum(), sum::exact_avg()];
        for own in own {
            let mut known = state.aggregate_functions().iter();
            let other = known.find(|(_, known)| known.name() == own.name() && ***known != own);
            assert!(other.is_none(), "{other:?}");
        }
    }

    #[test]
    fn correlations_by_hand() {
        // The correlation is 35 / √(305 · 5), as a test of the crate `analysis` computes by hand.
        let sums = [6, 19, 43, 111, 142, 309];
        assert_eq!(correlation(sums), Some(35.0 / (305f64.sqrt() * 5f64.sqrt())));
        assert_eq!(correlation([3, 3, 3, 3, 3, 3]), None, "constant");
        // If y is 2x, the correlation is exactly 1, also for sums of 38 digits.
        let (a, b) = (1i128 << 61, (1i128 << 61) + 1);
        let (x, xx) = (a + b, a * a + b * b);
        assert_eq!(correlation([2, x, 2 * x, xx, 2 * xx, 4 * xx]), Some(1.0));
    }
}
