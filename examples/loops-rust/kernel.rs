//! The function whose loops are counted and timed. build.sh compiles it to LLVM IR as text, so that
//! it can be instrumented.

/// Multiplies two matrices of `n` × `n` numbers. The rows of a matrix are stored one after the
/// other.
///
/// # Safety
/// `a`, `b` and `c` must each point to `n * n` numbers. Nothing else may use the numbers
/// of `c` during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn multiply(n: usize, a: *const f32, b: *const f32, c: *mut f32) {
    // SAFETY: the caller promises that each pointer points to `n * n` numbers, and that nothing
    // else uses the numbers of `c`.
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
