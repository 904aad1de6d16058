//! Tests of the rules that compute the work of ops from their shapes.

#![allow(clippy::unwrap_used, reason = "tests, which may panic")]

use super::*;

fn work(name: &str, arguments: &str) -> Option<(Option<f64>, Option<f64>)> {
    Rules::builtin().of(name, arguments).map(|work| (work.flop, work.bytes))
}

#[test]
fn the_table_is_whole() {
    let lines = builtin::RULES.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    assert_eq!(Rules::parse(builtin::RULES).unwrap().rules.len(), lines.count());
}

#[test]
fn products_on_paper() {
    // There are 4 × 8 results, each the sum of 16 products. 64 + 128 + 32 numbers of 4 bytes are
    // moved.
    let of = (Some(1024.0), Some(4.0 * (64.0 + 128.0 + 32.0)));
    assert_eq!(work("aten::mm", "float32[4, 16], float32[16, 8]"), Some(of));
    assert_eq!(work("matmul", "float32[4, 16], float32[16, 8], float32[4, 8]"), Some(of));
    assert_eq!(
        work("fused_NT_matmul1_add", "float32[4, 16], float32[8, 16], float32[4, 8]"),
        Some(of)
    );
    assert_eq!(work("x_dispatch_3_matmul_4x8x16_f32", ""), Some(of));
    let bias = (Some(1024.0), Some(4.0 * (8.0 + 64.0 + 128.0 + 32.0)));
    assert_eq!(work("aten::addmm", "float32[8], float32[4, 16], float32[16, 8]"), Some(bias));
    let batch = (Some(3.0 * 1024.0), Some(3.0 * 8.0 * (64.0 + 128.0 + 32.0)));
    assert_eq!(work("aten::bmm", "float64[3, 4, 16], float64[3, 16, 8]"), Some(batch));
    let name = "attn_dispatch_2_batch_matmul_8x128x64x128_f32";
    let bytes = 4.0 * 8.0 * f64::from(128 * 128 + 128 * 64 + 128 * 64);
    assert_eq!(work(name, ""), Some((Some(2.0 * 8.0 * 128.0 * 64.0 * 128.0), Some(bytes))));
}

#[test]
fn elementwise_ops_on_paper() {
    // A row of 64 is stretched to 32 rows, which makes 2,048 additions. 2,048 + 64 numbers are
    // read, and 2,048 are written.
    let sum = (Some(2048.0), Some(4.0 * (2048.0 + 64.0 + 2048.0)));
    assert_eq!(work("aten::add", "float32[32, 64], float32[64]"), Some(sum));
    assert_eq!(work("add", "float32[32, 64], float32[64], float32[32, 64]"), Some(sum));
    let outer = work("aten::mul", "float32[32, 1], float32[1, 64]").unwrap();
    assert_eq!(outer, (Some(2048.0), Some(4.0 * (32.0 + 64.0 + 2048.0))));
    let softmax = (Some(5.0 * 640.0), Some(2.0 * 4.0 * 640.0));
    assert_eq!(work("mlp_dispatch_3_softmax_64x10xf32_dispatch_tensor_store", ""), Some(softmax));
    assert_eq!(work("aten::_softmax", "float32[64, 10]"), Some(softmax));
    let norm = Some((Some(8.0 * 2048.0), Some(4.0 * (2.0 * 2048.0 + 128.0))));
    assert_eq!(work("aten::native_layer_norm", "float32[32, 64], float32[64], float32[64]"), norm);
}

/// Adding up 32 rows of 64 numbers takes 2,048 additions if sums begin with 0, and reads 8,192
/// bytes. If the shape of the result is known, one number per row is written.
#[test]
fn reductions_on_paper() {
    let (n, read) = (32.0 * 64.0, 4.0 * 32.0 * 64.0);
    for name in ["sum", "prod", "mean", "amax", "amin", "max", "min", "argmax", "argmin"] {
        let name = format!("aten::{name}");
        assert_eq!(work(&name, "float32[32, 64]"), Some((Some(n), Some(read))), "{name}");
    }
    for (name, each) in [("linalg_vector_norm", 2.0), ("var", 4.0), ("std", 4.0), ("var_mean", 4.0)]
    {
        let name = format!("aten::{name}");
        assert_eq!(work(&name, "float32[32, 64]"), Some((Some(each * n), Some(read))), "{name}");
    }
    // With two arguments, `max` is elementwise: it takes the larger of two numbers, 2,048 times.
    let larger = work("aten::max", "float32[32, 64], float32[64]");
    assert_eq!(larger, Some((Some(n), Some(read + 4.0 * 64.0))));
    assert_eq!(work("aten::cumsum", "float64[2048]"), Some((Some(n), Some(2.0 * 8.0 * n))));
    // A softmax takes five operations for each number, and reads and writes each number.
    let softmax = Some((Some(5.0 * n), Some(2.0 * read)));
    assert_eq!(work("aten::_log_softmax", "float32[32, 64]"), softmax);
    assert_eq!(work("softmax2", "float32[32, 64], float32[32, 64]"), softmax);
    assert_eq!(work("x_dispatch_1_softmax_2x2x8x64xf32_dispatch_tensor_store", ""), softmax);
    for name in ["sum", "mean", "max7", "min12", "prod"] {
        let rows = work(name, "float32[32, 64], float32[32, 1]");
        assert_eq!(rows, Some((Some(n), Some(read + 4.0 * 32.0))), "{name}");
    }
    let variance = work("variance", "float32[32, 64], float32[32]");
    assert_eq!(variance, Some((Some(4.0 * n), Some(read + 4.0 * 32.0))));
    let position = work("argmax1", "float32[32, 64], int64[32]");
    assert_eq!(position, Some((Some(n), Some(read + 8.0 * 32.0))));
    let of_iree = Some((Some(n), Some(read)));
    assert_eq!(work("tblock$async_dispatch_0_reduction_32x64_f32", ""), of_iree);
    assert_eq!(work("x_dispatch_9_reduction_2048_f32", ""), of_iree);
    // The name contains two types (16-bit numbers are added up in 32 bits), so the size of the
    // inputs is not known.
    assert_eq!(work("x_dispatch_0_reduction_32x64_f16xf32", ""), Some((Some(n), None)));
    // No rule fits this fused op, so its work is not known.
    assert_eq!(work("fused_sum_divide", "float32[32, 64], float32[32]"), None);
}

/// There are 5 channels of 6 × 6 results, each from 3 channels of 3 × 3 products. If an addition is
/// fused with the convolution, its bias adds bytes, even if the bias has as many dimensions as the
/// result.
#[test]
fn convolutions_on_paper() {
    let flop = Some(2.0 * f64::from(5 * 6 * 6 * 3 * 3 * 3));
    let (x, w, y) = ("float32[1, 3, 8, 8]", "float32[5, 3, 3, 3]", "float32[1, 5, 6, 6]");
    let numbers = f64::from(3 * 64 + 5 * 27 + 5 * 36);
    assert_eq!(work("conv2d", &format!("{x}, {w}, {y}")), Some((flop, Some(4.0 * numbers))));
    let with_bias = work("fused_conv2d_add_relu", &format!("{x}, {w}, float32[1, 5, 1, 1], {y}"));
    assert_eq!(with_bias, Some((flop, Some(4.0 * (numbers + 5.0)))));
    // The weights have one channel, so each channel of the input is a group of its own; no rule
    // fits such a convolution.
    let depthwise = format!("{x}, float32[3, 1, 3, 3], float32[1, 3, 6, 6]");
    assert_eq!(work("depthwise_conv2d", &depthwise), None);
    // A fused op does more work than the op with which its name begins, so the rule for `add` does
    // not fit.
    assert_eq!(work("add_rms_norm", &format!("{x}, {x}, {x}")), None);
}

/// Work for which there is no rule is absent, instead of 0.
#[test]
fn what_is_not_known_is_absent() {
    for (name, arguments) in [
        ("aten::mm", ""),
        ("aten::mm", "float32[4, 16], float32[15, 8]"),
        ("aten::mm", "float32[4, -1], float32[16, 8]"),
        ("aten::mm", "float32[?], float32[16, 8]"),
        ("aten::mm", "float32[4, 16], float3"),
        ("my_matmul_64x64x64", ""),
        ("x_dispatch_0_matmul_DxDxD_f32", ""),
        ("x_dispatch_0_matmul_64x64_f32", ""),
        ("x_dispatch_0_elementwise_16_f32", ""),
        ("x_dispatch_0_reduction_8x128x128x64_f32", ""),
        ("x_dispatch_0_reduction_DxD_f32", ""),
        ("aten::embedding", "float32[10, 10]"),
    ] {
        assert_eq!(work(name, arguments), None, "{name} {arguments}");
    }
    // Of the first two ops, the number of operations is known, but not the size of a number. Of the
    // last one, only the bytes are known.
    let mixed = work("x_dispatch_0_matmul_4x8x16_i8xi8xi32", "");
    assert_eq!(mixed, Some((Some(1024.0), None)));
    assert_eq!(work("aten::mm", "weird[4, 16], weird[16, 8]"), Some((Some(1024.0), None)));
    assert_eq!(work("aten::copy_", "float32[4], float32[4]"), Some((None, Some(32.0))));
    // These two shapes cannot be stretched to a common shape.
    assert_eq!(work("aten::add", "float32[3], float32[4]"), None);
    // For this op of PyTorch, the table has only the rule `aten::* unknown`.
    assert_eq!(work("aten::matmul", "float32[4, 16], float32[16, 8]"), None);
    // The product of the dimensions does not fit into 64 bits.
    let huge =
        "float32[18446744073709551615, 18446744073709551615], float32[18446744073709551615, 2]";
    assert!(work("aten::mm", huge).unwrap().0.unwrap() > 1e39);
}

#[test]
fn rules_of_users_come_first() {
    let own = "# mine\n*_elementwise_*  n  flop = 3*n; bytes = 2*size*n\naten::mm [m,k],[k,n] flop = 9*m\n";
    let rules = Rules::parse(own).unwrap().before(Rules::builtin());
    let of = |name: &str, arguments: &str| rules.of(name, arguments).unwrap();
    let elementwise = of("tinyloop_dispatch_0_elementwise_16_f32", "");
    assert_eq!((elementwise.flop, elementwise.bytes), (Some(48.0), Some(128.0)));
    let mm = of("aten::mm", "float32[4, 16], float32[16, 8]");
    assert_eq!((mm.flop, mm.bytes), (Some(36.0), None));
    assert_eq!(of("aten::bmm", "float32[1, 4, 16], float32[1, 16, 8]").flop, Some(1024.0));
}

#[test]
fn numbers_of_arguments() {
    let of = |arguments: &str| Rules::builtin().of("aten::mm", arguments).unwrap().number;
    let number = |is_float, bits| Some(Number { is_float, bits });
    assert_eq!(of("float64[4, 16], float64[16, 8]"), number(true, 64));
    assert_eq!(of("bfloat16[4, 16], bfloat16[16, 8]"), number(true, 16));
    assert_eq!(of("int8[4, 16], int8[16, 8]"), number(false, 8));
    assert_eq!(of("float32[4, 16], float64[16, 8]"), None);
}

#[test]
fn lines_that_are_no_rules() {
    for (line, expected) in [
        ("aten::mm", "line 1: expected formulas after the name"),
        ("aten::mm [m, k]", "line 1: expected flop = … or bytes = …"),
        ("aten::mm [m, k flop = m", "line 1: \"[m, k\": expected shapes such as [m, k], [k, n]"),
        ("aten::mm [*a, *b] flop = a", "line 1: [*a, *b]: only one * in a shape"),
        ("aten::mm [m] speed = m", "line 1: speed: expected flop or bytes"),
        (
            "\n\nx [m] flop = m * duration",
            "line 3: flop = m * duration: work does not depend on the duration",
        ),
    ] {
        assert_eq!(Rules::parse(line).unwrap_err().to_string(), expected);
    }
    assert!(Rules::parse("x [m] flop = q").is_err(), "a name that no shape has");
}
