//! The functions of libraries that the code of a JIT compiler calls, by name.
//!
//! Such code has no file that would name them. It has their addresses, as numbers or in slots:
//!
//! ```text
//!  mov slot(%rip),%reg     48 8b 05+8r  distance        call *slot(%rip)   ff 15  distance
//!  mov $function,%reg      48 b8+r      number          jmp  *slot(%rip)   ff 25  distance
//! ```
//!
//! The code is not decoded: any bytes that look like one of these are followed, and count only if they lead to
//! the first address of a function of a library. A library does not name the implementations among which a
//! process chooses (of `expf`, for instance). So the functions that compilers call by themselves are looked up by
//! their names, as the JIT compiler did it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;

use record::loops::Callee;

use crate::os::sys;

/// Bytes of code that are looked at, at most.
const MOST_BYTES: usize = 16 << 20;
/// Slots and numbers that are followed, at most.
const MOST_PLACES: usize = 4096;
/// Longer names are left out.
const LONGEST_NAME: usize = 255;

/// Functions that LLVM calls by itself, without and with `f` at the end of the name.
const MATHEMATICS: [&CStr; 64] = [
    c"acos",
    c"acosf",
    c"asin",
    c"asinf",
    c"atan",
    c"atanf",
    c"atan2",
    c"atan2f",
    c"cbrt",
    c"cbrtf",
    c"ceil",
    c"ceilf",
    c"cos",
    c"cosf",
    c"cosh",
    c"coshf",
    c"erf",
    c"erff",
    c"exp",
    c"expf",
    c"exp2",
    c"exp2f",
    c"exp10",
    c"exp10f",
    c"expm1",
    c"expm1f",
    c"floor",
    c"floorf",
    c"fma",
    c"fmaf",
    c"fmax",
    c"fmaxf",
    c"fmin",
    c"fminf",
    c"fmod",
    c"fmodf",
    c"hypot",
    c"hypotf",
    c"ldexp",
    c"ldexpf",
    c"log",
    c"logf",
    c"log10",
    c"log10f",
    c"log1p",
    c"log1pf",
    c"log2",
    c"log2f",
    c"nearbyint",
    c"nearbyintf",
    c"pow",
    c"powf",
    c"rint",
    c"rintf",
    c"round",
    c"roundf",
    c"sin",
    c"sinf",
    c"sinh",
    c"sinhf",
    c"tan",
    c"tanf",
    c"tanh",
    c"tanhf",
];
/// Functions for memory that LLVM calls by itself.
const MEMORY: [&CStr; 4] = [c"memcpy", c"memmove", c"memset", c"memcmp"];

/// The functions that the code at `start` may call.
pub fn of(start: u64, bytes: u64) -> Vec<Callee> {
    let length = usize::try_from(bytes).unwrap_or(usize::MAX).min(MOST_BYTES);
    let mut code = vec![0; length];
    let read = sys::copy_memory(start as usize, &mut code);
    let places = places(&code[..read.min(length)], start);
    let code = start..start.saturating_add(bytes);
    let libraries = libraries();
    let is_outside = |address: u64| {
        !code.contains(&address)
            && libraries.range(..=address).next_back().is_some_and(|(_, end)| address < *end)
    };
    let mut names = Names::default();
    let held = places.into_iter().filter_map(|place| match place {
        Place::Number(function) => Some((0, function)),
        Place::Slot(slot) => Some((slot, sys::read_value::<u64>(usize::try_from(slot).ok()?)?)),
    });
    let outside = held.filter(|(_, function)| is_outside(*function));
    outside
        .filter_map(|(slot, function)| Some(Callee { slot, function, name: names.of(function)? }))
        .collect()
}

/// Where code has an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// The code has it itself.
    Number(u64),
    /// At this address.
    Slot(u64),
}

fn places(code: &[u8], start: u64) -> BTreeSet<Place> {
    let mut found = BTreeSet::new();
    for (at, window) in code.windows(10).enumerate() {
        if found.len() == MOST_PLACES {
            break;
        }
        let slot = |from: usize| {
            let distance = [0, 1, 2, 3].map(|byte| window[from + byte]);
            let end = start.wrapping_add((at + from + 4) as u64);
            Place::Slot(end.wrapping_add_signed(i32::from_le_bytes(distance).into()))
        };
        found.extend(match *window {
            [0x48 | 0x4c, 0x8b, register, ..] if register & 0xc7 == 0x05 => Some(slot(3)),
            [0xff, 0x15 | 0x25, ..] => Some(slot(2)),
            [0x48 | 0x49, 0xb8..=0xbf, ref number @ ..] => {
                number.first_chunk().map(|eight| Place::Number(u64::from_le_bytes(*eight)))
            }
            _ => None,
        });
    }
    found
}

/// First addresses of executable mappings of files, and the addresses after them.
fn libraries() -> BTreeMap<u64, u64> {
    let maps = sys::read_file(c"/proc/self/maps").unwrap_or_default();
    let lines = maps.split(|b| *b == b'\n').filter_map(sys::Mapping::parse);
    let code = lines.filter(|map| map.executable && map.path.starts_with(b"/"));
    code.map(|map| (map.start, map.end)).collect()
}

/// Names of functions by their first addresses.
#[derive(Default)]
struct Names {
    /// The functions that are looked up by name, once they were.
    known: Option<BTreeMap<u64, &'static CStr>>,
}

impl Names {
    fn of(&mut self, function: u64) -> Option<String> {
        let known = self.known.get_or_insert_with(|| {
            // Some have one implementation in common (`memcpy`, `memmove`): the first one is named.
            let all = MEMORY.iter().rev().chain(&MATHEMATICS);
            all.map(|name| (address_of(name), *name)).collect()
        });
        let name = match known.get(&function) {
            Some(name) => name.to_str().ok()?.to_owned(),
            None => name_at(function)?,
        };
        (name.len() <= LONGEST_NAME).then_some(name)
    }
}

/// The address that the program gets for a name; 0 if there is no such function.
fn address_of(name: &CStr) -> u64 {
    // SAFETY: a C string, and a handle that stands for all libraries.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) as u64 }
}

/// The name of the function that begins at an address, if its library exports it.
fn name_at(function: u64) -> Option<String> {
    // SAFETY: the structure consists of pointers, which may be null.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `dladdr` only compares the address, and fills in the structure.
    let found = unsafe { libc::dladdr(function as *const libc::c_void, &mut info) };
    if found == 0 || info.dli_saddr as u64 != function || info.dli_sname.is_null() {
        return None;
    }
    // SAFETY: the linker's own name of a symbol, in a library that the code needs.
    let name = unsafe { CStr::from_ptr(info.dli_sname) };
    name.to_str().ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of the four instructions leads to a function of the C library: one that the library exports, and one
    /// of which it chooses an implementation.
    #[test]
    fn functions_are_named_however_code_has_their_addresses() {
        let [plain, chosen] = [c"atoi", c"memcpy"].map(address_of);
        assert!(plain != 0 && chosen != 0);
        let slots = [plain, chosen, 0x1234];
        let mut code = vec![0x90; 7];
        let start = slots.as_ptr() as u64 + 4096;
        let mut put = |instruction: &[u8], slot: usize| {
            code.extend_from_slice(instruction);
            let (end, to) =
                (start + code.len() as u64 + 4, slots.as_ptr() as u64 + 8 * slot as u64);
            code.extend_from_slice(&(to.wrapping_sub(end) as u32).to_le_bytes());
        };
        put(&[0x4c, 0x8b, 0x3d], 0); // mov slot(%rip),%r15
        put(&[0xff, 0x15], 1); // call *slot(%rip)
        put(&[0x48, 0x8b, 0x05], 2); // not a function
        code.extend([0x49, 0xbf]); // mov $atoi,%r15
        code.extend(plain.to_le_bytes());
        code.extend([0x90; 10]);
        let places = places(&code, start);
        let slot = |n: u64| Place::Slot(slots.as_ptr() as u64 + 8 * n);
        assert_eq!(places, BTreeSet::from([Place::Number(plain), slot(0), slot(1), slot(2)]));
        let mut names = Names::default();
        assert_eq!(names.of(plain).as_deref(), Some("atoi"));
        assert_eq!(names.of(chosen).as_deref(), Some("memcpy"));
        assert_eq!(names.of(plain + 1), None);
        assert_eq!(names.of(0x1234), None);
    }

    /// Code in this process: the number in it is found, and what it is not an address of is left out.
    #[test]
    fn code_of_the_process_is_read() {
        let plain = address_of(c"atoi");
        let mut code = vec![0x48, 0xb8];
        code.extend(plain.to_le_bytes());
        code.extend([0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8, 0x90, 0x90]);
        let found = of(code.as_ptr() as u64, code.len() as u64);
        assert_eq!(found, [Callee { slot: 0, function: plain, name: "atoi".to_owned() }]);
        assert_eq!(of(8, 64), []);
    }
}
