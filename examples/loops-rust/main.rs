//! Multiplies two matrices of N × N numbers and prints the sum of all numbers of the product:
//! `matmul 256`.

unsafe extern "C" {
    fn multiply(n: usize, a: *const f32, b: *const f32, c: *mut f32);
}

fn main() {
    let n: usize = std::env::args().nth(1).map_or(256, |n| n.parse().expect("N is a number"));
    assert!((1..=8192).contains(&n), "N must be between 1 and 8192");
    let a: Vec<f32> = (0..n * n).map(|i| (i % 7) as f32).collect();
    let b: Vec<f32> = (0..n * n).map(|i| (i % 5) as f32).collect();
    let mut c = vec![0.0; n * n];
    // SAFETY: each of the three vectors has n * n numbers, and nothing else borrows `c`.
    unsafe { multiply(n, a.as_ptr(), b.as_ptr(), c.as_mut_ptr()) };
    println!("{:.0}", c.iter().map(|x| f64::from(*x)).sum::<f64>());
}
