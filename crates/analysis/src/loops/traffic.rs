//! Computes bounds of the bytes that a loop can have moved. The bounds are not measurements: how
//! many bytes really go to memory depends on caches, line sizes and prefetches.
//!
//! **Requested bytes.** The machine code of a loop or function of the instrumented text is called
//! its region. The region consists of machine loops and of code outside of them. Every cycle of its
//! control flow is in one of its machine loops, so the code outside of them runs at most once in
//! each hit. If there is one machine loop, without a loop inside, an iteration runs each of its
//! instructions at most once. Let `r` be the number of bytes that all loads and stores of the
//! region access if each runs once. Let `l` be the part of `r` that is accessed in the machine
//! loop. In `h` hits with `n` iterations in all, the instructions ask for
//!
//! ```text
//!   at most   B = n × l + h × (r − l)        bytes
//!   exactly   n × l  in the machine loop, if nothing in it is conditional
//! ```
//!
//! The counted iterations are those of the loop in the instrumented text. If a compiler unrolls the
//! machine loop after the instrumentation, the upper bound is still valid. Functions that the code
//! calls are not included, so a region with calls has no bound.
//!
//! **Footprint.** The tensors that an op is called with have `F` bytes in all. One call touches at
//! most these `F` different bytes. If the op needs all of them and finds none in a cache, each must
//! be moved from or to memory at least once.
//!
//! **Bandwidth.** Let `t ± m` be the inclusive time of all hits. The instructions asked for at most
//! `B / (t − m)` bytes per second. Moving every byte of the arguments once in each of `c` calls
//! needs at most `c × F / (t − m)` bytes per second. If `t − m` is not above zero, there is no
//! bound. If the rate for the arguments is far below the bandwidth of the machine's memory, this
//! bandwidth does not limit the op, unless the op moves its arguments several times.

use super::Estimate;

/// The bytes that the machine code of a region (a loop or function) loads and stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requests {
    /// The bytes of all loads and stores of the region, each instruction counted once.
    pub region: u64,
    /// The bytes of all loads and stores of the region's only machine loop, each instruction
    /// counted once.
    pub machine_loop: u64,
    /// Whether each iteration of the machine loop runs all of its instructions.
    pub is_straight: bool,
}

/// Bounds of the bytes that a loop requested, or of the argument bytes that calls of an op touched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    pub bytes_at_most: u128,
    /// A lower bound of the bytes. `None` if code in the machine loop is conditional, or if the
    /// bounds are those of a footprint.
    pub bytes_at_least: Option<u128>,
    /// An upper bound of the bytes per second. `None` if the time or its interval is missing, or if
    /// the interval's lower end is not above 0.
    pub rate_at_most: Option<f64>,
}

/// Computes bounds of the bytes that the instructions of a loop asked for. `time` is the time of
/// all hits in seconds.
pub fn requested(
    requests: Requests,
    hits: u128,
    iterations: u128,
    time: Option<Estimate>,
) -> Option<Bounds> {
    let inside = iterations.checked_mul(requests.machine_loop.into())?;
    let outside = requests.region.saturating_sub(requests.machine_loop);
    let bytes = inside.checked_add(hits.checked_mul(outside.into())?)?;
    Some(Bounds {
        bytes_at_most: bytes,
        bytes_at_least: requests.is_straight.then_some(inside),
        rate_at_most: rate(bytes, time),
    })
}

/// Computes an upper bound of the bytes of arguments that `calls` calls of an op touch. `bytes` is
/// the size of all arguments of a call.
pub fn footprint(bytes: u64, calls: u128, time: Option<Estimate>) -> Option<Bounds> {
    let all = calls.checked_mul(bytes.into())?;
    Some(Bounds { bytes_at_most: all, bytes_at_least: None, rate_at_most: rate(all, time) })
}

/// Returns the bytes per second for the shortest time that the interval allows.
fn rate(bytes: u128, time: Option<Estimate>) -> Option<f64> {
    let time = time?;
    let least = time.value - time.margin?;
    (least > 0.0 && least.is_finite()).then(|| bytes as f64 / least)
}

/// Returns the number of bytes of the tensors in the text of an op's arguments (`float32[1, 64],
/// float32[64, 64]`). `None` without tensors, or if the shape or the element type of a tensor is
/// not known.
pub fn bytes_of_arguments(arguments: &str) -> Option<u64> {
    let mut sum = 0_u64;
    let mut rest = arguments.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (kind, after) = rest.split_once('[')?;
        let (shape, after) = after.split_once(']')?;
        let mut bits = bits_of(kind.trim())?;
        for extent in shape.split(',').map(str::trim).filter(|extent| !extent.is_empty()) {
            bits = bits.checked_mul(extent.parse().ok()?)?;
        }
        sum = sum.checked_add(bits.div_ceil(8))?;
        rest = after.trim_start_matches([',', ' ']);
    }
    Some(sum)
}

/// Returns the number of bits of an element of a type such as `float32`, `int8`, `float32x4`.
fn bits_of(kind: &str) -> Option<u64> {
    if kind == "bool" {
        return Some(8);
    }
    let digits = kind.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    let (bits, lanes) = digits.split_once('x').unwrap_or((digits, "1"));
    // Some types have a suffix, such as `float8_e4m3fn`.
    let bits = bits.split('_').next()?;
    bits.parse::<u64>().ok()?.checked_mul(lanes.parse().ok()?).filter(|bits| *bits > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With doubles, `s += a[k] * b[k]` loads 16 bytes in each iteration. 10 hits of 100 iterations
    /// load 16,000 bytes. Each hit stores 8 bytes after the loop, so the sum is 16,080. In 2 µs ±
    /// 0.4 µs, the rate is at most 16,080 / 1.6 µs = 10.05 GB/s.
    #[test]
    fn requested_bytes_of_a_dot_product() {
        let requests = Requests { region: 24, machine_loop: 16, is_straight: true };
        let time = Some(Estimate { value: 2e-6, margin: Some(0.4e-6) });
        let found = requested(requests, 10, 1000, time).expect("small numbers");
        assert_eq!((found.bytes_at_most, found.bytes_at_least), (16_080, Some(16_000)));
        assert!(found.rate_at_most.is_some_and(|rate| (rate - 10.05e9).abs() < 1.0));
        let unknown = Some(Estimate { value: 2e-6, margin: None });
        assert_eq!(requested(requests, 10, 1000, unknown).and_then(|b| b.rate_at_most), None);
        let wide = Some(Estimate { value: 2e-6, margin: Some(3e-6) });
        assert_eq!(requested(requests, 10, 1000, wide).and_then(|b| b.rate_at_most), None);
        let conditional = Requests { is_straight: false, ..requests };
        assert_eq!(requested(conditional, 10, 1000, time).and_then(|b| b.bytes_at_least), None);
        assert_eq!(requested(requests, u128::MAX, 1, time), None);
    }

    #[test]
    fn arguments_have_bytes() {
        for (text, bytes) in [
            ("float32[1, 64], float32[64, 64], float32[1, 64]", Some(4 * (64 + 4096 + 64))),
            ("float16[3]", Some(6)),
            ("bool[5], int64[]", Some(13)),
            ("float32x4[2]", Some(32)),
            ("float8_e4m3fn[7]", Some(7)),
            ("int4[3]", Some(2)),
            ("float32[?]", None),
            ("float32[-1]", None),
            ("", None),
            ("handle", None),
            ("float32[18446744073709551615, 9]", None),
        ] {
            assert_eq!(bytes_of_arguments(text), bytes, "{text}");
        }
    }
}
