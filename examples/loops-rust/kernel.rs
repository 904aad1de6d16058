//! The kernel. It is compiled to LLVM's text, so that its loops can be counted and timed.

/// Multiplies two matrices of `n` × `n` numbers, whose rows are one after the other.
///
/// # Safety
/// `a`, `b` and `c` must point to `n * n` numbers each, and nothing else may use those of `c`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn multiply(n: usize, a: *const f32, b: *const f32, c: *mut f32) {
    // SAFETY: the caller promises that each pointer has `n * n` numbers, and that `c`'s are ours.
    let (a, b, c) = unsafe {
        (
            std::slice::from_raw_parts(a, n * n),
            std::slice::from_raw_parts(b, n * n),
            std::slice::from_raw_parts_mut(c, n * n),
        )
    };
    for i in 0..n {
        for j in 0..n {
            let mut sum = 0.0;
            for k in 0..n {
                sum += a[i * n + k] * b[k * n + j];
            }
            c[i * n + j] = sum;
        }
    }
}
