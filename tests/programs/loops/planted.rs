//! Functions with loops over slices. `planted_slices.c` calls these functions and says how often
//! each loop runs.
#![no_std]
#![crate_type = "lib"]

use core::hint::black_box;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}

/// The loop runs once for each element of the slice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slice(p: *const u32, n: usize) -> u64 {
    // SAFETY: by contract, `p` points to `n` numbers that nobody changes meanwhile.
    let all = unsafe { core::slice::from_raw_parts(p, n) };
    let mut sum = 0;
    for x in all {
        sum += u64::from(black_box(*x));
    }
    sum
}

/// The loop runs once for each element of the slice, from the last one to the first one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reversed(p: *const [u64; 3], n: usize) -> u64 {
    // SAFETY: by contract, `p` points to `n` arrays that nobody changes meanwhile.
    let all = unsafe { core::slice::from_raw_parts(p, n) };
    let mut sum = 0;
    for x in all.iter().rev() {
        sum += black_box(x[1]);
    }
    sum
}

/// The loop runs once for each element up to and including the first element that equals `wanted`,
/// or for all elements if none equals it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn find(p: *const u16, n: usize, wanted: u16) -> usize {
    // SAFETY: by contract, `p` points to `n` numbers that nobody changes meanwhile.
    let all = unsafe { core::slice::from_raw_parts(p, n) };
    for (i, x) in all.iter().enumerate() {
        if black_box(*x) == wanted {
            return i;
        }
    }
    n
}
