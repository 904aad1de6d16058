//! Computes the number of floating-point operations of an op from the shapes of its inputs.
//!
//! With `with_flops=True`, PyTorch shows these numbers in its own tables, but it does not write
//! them to a recording. The code here uses PyTorch's definitions.
//!
//! | op | operations |
//! |---|---|
//! | `mm`, `addmm`, `bmm`, `baddbmm` | 2 · b · m · n · k, for b products of an m × k matrix and a k × n matrix: a multiplication and an addition for each of the b · m · n · k terms |
//! | `conv2d` | 2 for each term, whose number is: images in the batch · pixels of the output · pixels of the kernel · channels of the input · channels of the output / groups |
//! | `add`, `mul` | one for each element of the first input |
//!
//! For all other ops the number is unknown, which is not the same as 0.

/// Returns the number of operations of one call. `shapes` and `concrete` are the op's arguments
/// `Input Dims` and `Concrete Inputs`, as JSON. `None` if the number is not known.
pub(super) fn of_op(name: &str, shapes: Option<&str>, concrete: Option<&str>) -> Option<u64> {
    let is_known = |op| matches!(op, "mm" | "addmm" | "bmm" | "baddbmm" | "conv2d" | "add" | "mul");
    let op = name.strip_prefix("aten::").filter(|op| is_known(*op))?;
    let shapes: Vec<serde_json::Value> = serde_json::from_str(shapes?).ok()?;
    let shape = |at: usize| -> Option<Vec<u64>> { numbers(shapes.get(at)?) };
    match op {
        "mm" | "bmm" => product(&shape(0)?, &shape(1)?),
        "addmm" | "baddbmm" => product(&shape(1)?, &shape(2)?),
        "conv2d" => convolution(&shape(0)?, &shape(1)?, concrete?),
        // An empty list of dimensions can stand for an input that is not a tensor, or for a tensor
        // without dimensions, which has one element. So for such a list, the number of elements is
        // unknown.
        _ => all(&shape(0).filter(|dims| !dims.is_empty())?),
    }
}

fn numbers(list: &serde_json::Value) -> Option<Vec<u64>> {
    list.as_array()?.iter().map(serde_json::Value::as_u64).collect()
}

fn all(dims: &[u64]) -> Option<u64> {
    dims.iter().try_fold(1u64, |all, dim| all.checked_mul(*dim))
}

/// Returns the number of operations of a product of two matrices, or of two batches of them.
fn product(a: &[u64], b: &[u64]) -> Option<u64> {
    match (a, b) {
        ([m, k], [inner, n]) if k == inner => all(&[2, *m, *k, *n]),
        ([batch, m, k], [again, inner, n]) if (batch, k) == (again, inner) => {
            all(&[2, *batch, *m, *k, *n])
        }
        _ => None,
    }
}

/// Returns the number of operations of a convolution. `concrete` contains the op's arguments:
/// input, weight, bias, stride, padding, dilation and groups.
fn convolution(input: &[u64], weight: &[u64], concrete: &str) -> Option<u64> {
    let ([batch, channels, height, width], [filters, _, rows, columns]) = (input, weight) else {
        return None;
    };
    let concrete: Vec<String> = serde_json::from_str(concrete).ok()?;
    let pair = |at: usize| -> Option<[u64; 2]> {
        let list: serde_json::Value = serde_json::from_str(concrete.get(at)?).ok()?;
        numbers(&list)?.try_into().ok()
    };
    let (stride, padding, dilation) = (pair(3)?, pair(4)?, pair(5)?);
    let groups: u64 = concrete.get(6)?.parse().ok()?;
    let output = |axis: usize, size: u64, kernel: u64| -> Option<u64> {
        let padded = size.checked_add(padding[axis].checked_mul(2)?)?;
        let reach = dilation[axis].checked_mul(kernel.checked_sub(1)?)?.checked_add(1)?;
        padded.checked_sub(reach)?.checked_div(stride[axis])?.checked_add(1)
    };
    let (high, wide) = (output(0, *height, *rows)?, output(1, *width, *columns)?);
    all(&[2, *batch, high, wide, *rows, *columns, *channels, *filters])?.checked_div(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_on_paper() {
        let of = |name: &str, shapes: &str| of_op(name, Some(shapes), None);
        // There are 4 × 8 results, and each is the sum of 16 products.
        assert_eq!(of("aten::mm", "[[4,16],[16,8]]"), Some(2 * 4 * 8 * 16));
        assert_eq!(of("aten::addmm", "[[8],[4,16],[16,8],[],[]]"), Some(1_024));
        assert_eq!(of("aten::bmm", "[[3,4,16],[3,16,8]]"), Some(3_072));
        assert_eq!(of("aten::baddbmm", "[[3,4,8],[3,4,16],[3,16,8],[],[]]"), Some(3_072));
        assert_eq!(of("aten::mul", "[[5,7],[]]"), Some(35));
        assert_eq!(of("aten::add", "[[5],[5],[]]"), Some(5));
        assert_eq!(of("aten::mm", "[[0,16],[16,8]]"), Some(0), "nothing to do is not unknown");
        for (name, shapes) in [
            ("aten::relu", "[[4]]"),
            ("mm", "[[4,16],[16,8]]"),
            ("aten::mm", "[[4,16],[15,8]]"),
            ("aten::mm", "[]"),
            ("aten::mm", "\"x\""),
            ("aten::mul", "[[],[]]"),
            ("aten::mul", "[[4294967296,4294967296]]"),
        ] {
            assert_eq!(of(name, shapes), None, "{name} {shapes}");
        }
    }

    /// There are 2 images with 3 channels of 9 × 9 pixels, and 4 filters of 3 × 3 pixels for each
    /// channel. With a stride of 2 and a padding of 1, each image and filter have 5 × 5 results.
    #[test]
    fn convolutions_on_paper() {
        let shapes = Some("[[2,3,9,9],[4,3,3,3],[4],[],[],[],[]]");
        let of = |more: &str| {
            let concrete = format!(r#"["","","",{more}]"#);
            of_op("aten::conv2d", shapes, Some(&concrete))
        };
        let expected = 2 * 2 * 5 * 5 * 3 * 3 * 3 * 4;
        assert_eq!(of(r#""[2, 2]","[1, 1]","[1, 1]","1""#), Some(expected));
        // With a dilation of 2, a filter spans 5 × 5 pixels, and there are 4 × 4 results.
        assert_eq!(of(r#""[2, 2]","[1, 1]","[2, 2]","1""#), Some(expected / 25 * 16));
        for wrong in [
            r#""[0, 2]","[1, 1]","[1, 1]","1""#,
            r#""[2, 2]","[1, 1]","[1, 1]","0""#,
            r#""[2]","[1, 1]","[1, 1]","1""#,
            r#""[2, 2]","[0, 0]","[9, 9]","1""#,
        ] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
        assert_eq!(of_op("aten::conv2d", shapes, None), None);
    }
}
