//! Finds the library functions that JIT-compiled code calls, and their names.
//!
//! Such code has no file with the names. The code refers to functions only by addresses, which are
//! numbers in instructions or are in slots (memory that contains an address). On x86-64:
//!
//! ```text
//!  mov slot(%rip),%reg     48 8b 05+8r  distance        call *slot(%rip)   ff 15  distance
//!  mov $function,%reg      48 b8+r      number          jmp  *slot(%rip)   ff 25  distance
//! ```
//!
//! The code is not decoded. All bytes that look like one of these instructions are examined, but
//! they count only if they lead to the first address of a library function. Some functions (such as
//! `expf`) have several implementations without exported names, of which a process chooses one. So
//! for the functions that compilers call by themselves, the agent looks up the addresses by name,
//! as the JIT compiler did.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;

use record::loops::Callee;

use crate::os::sys;

/// `e_machine` of ELF files for x86-64.
pub const X86_64: u16 = 62;
/// The largest number of bytes of code that are searched.
const MOST_BYTES: u64 = 16 << 20;
/// The number of bytes that are copied at once. It is small because the copy needs memory of the
/// profiled program.
const CHUNK: usize = 64 << 10;
const MOST_PLACES: usize = 4096;
/// The length in bytes of the longest instruction that contains an address.
const LONGEST: usize = 10;
const LONGEST_NAME: usize = 255;

/// Mathematical functions that LLVM calls by itself, for `double` and, with the suffix `f`, for
/// `float`.
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
/// Functions that copy, fill or compare memory and that LLVM calls by itself.
const MEMORY: [&CStr; 4] = [c"memcpy", c"memmove", c"memset", c"memcmp"];

/// Returns the library functions that the code at `start` may call. Only code for x86-64 is
/// searched.
pub fn of(machine: u16, start: u64, bytes: u64) -> Vec<Callee> {
    if machine != X86_64 {
        return Vec::new();
    }
    let places = places_in_memory(start, bytes.min(MOST_BYTES));
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Number(u64),
    /// The address of a slot that the code refers to.
    Slot(u64),
}

/// Finds the addresses that a range of code may contain, and the slots that it may refer to. Bytes
/// that cannot be read are left out.
fn places_in_memory(start: u64, bytes: u64) -> BTreeSet<Place> {
    let mut found = BTreeSet::new();
    let mut chunk = vec![0; CHUNK.min(bytes as usize)];
    let mut done = 0;
    while done < bytes && found.len() < MOST_PLACES {
        let wanted = chunk.len().min((bytes - done) as usize);
        let at = start.wrapping_add(done);
        let read = sys::copy_memory(at as usize, &mut chunk[..wanted]).min(wanted);
        add_places(&chunk[..read], at, &mut found);
        // The next chunk overlaps this one, because an instruction may begin in this chunk and end
        // after it.
        let is_last = done + wanted as u64 == bytes;
        done += if is_last { wanted } else { wanted + 1 - LONGEST } as u64;
    }
    found
}

/// Adds the addresses and slots ([`Place`]) that `code` may contain or refer to, until there are
/// [`MOST_PLACES`]. `start` is the address of `code`.
fn add_places(code: &[u8], start: u64, found: &mut BTreeSet<Place>) {
    for at in 0..code.len() {
        if found.len() >= MOST_PLACES {
            break;
        }
        let slot = |distance: [u8; 4], bytes: usize| {
            let end = start.wrapping_add((at + bytes) as u64);
            Place::Slot(end.wrapping_add_signed(i32::from_le_bytes(distance).into()))
        };
        found.extend(match code[at..] {
            [0x48 | 0x4c, 0x8b, register, a, b, c, d, ..] if register & 0xc7 == 0x05 => {
                Some(slot([a, b, c, d], 7))
            }
            [0xff, 0x15 | 0x25, a, b, c, d, ..] => Some(slot([a, b, c, d], 6)),
            [0x48 | 0x49, 0xb8..=0xbf, ref number @ ..] => {
                number.first_chunk().map(|eight| Place::Number(u64::from_le_bytes(*eight)))
            }
            _ => None,
        });
    }
}

/// Returns the executable mappings of files: for each start address, the end address (exclusive).
fn libraries() -> BTreeMap<u64, u64> {
    let maps = sys::read_file(c"/proc/self/maps").unwrap_or_default();
    let lines = maps.split(|b| *b == b'\n').filter_map(sys::Mapping::parse);
    let code = lines.filter(|map| map.executable && map.path.starts_with(b"/"));
    code.map(|map| (map.start, map.end)).collect()
}

/// Finds the name of a function by the address at which the function begins.
#[derive(Default)]
struct Names {
    /// The functions in [`MEMORY`] and [`MATHEMATICS`], by address; `None` before the first call of
    /// [`Names::of`].
    known: Option<BTreeMap<u64, &'static CStr>>,
}

impl Names {
    fn of(&mut self, function: u64) -> Option<String> {
        let known = self.known.get_or_insert_with(|| {
            // Functions in `MEMORY` may share one implementation, for example `memcpy` and
            // `memmove`. Such an implementation gets the name that comes first in `MEMORY`.
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

/// Returns the address of the function that the program's libraries export under this name, or 0.
fn address_of(name: &CStr) -> u64 {
    // SAFETY: `name` is a C string, and RTLD_DEFAULT is a handle that stands for all libraries.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) as u64 }
}

/// Returns the name of the function that begins at an address, if its library exports it.
fn name_at(function: u64) -> Option<String> {
    // SAFETY: the structure consists of pointers, which may be null.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `dladdr` only compares the address, and fills in the structure.
    let found = unsafe { libc::dladdr(function as *const libc::c_void, &mut info) };
    if found == 0 || info.dli_saddr as u64 != function || info.dli_sname.is_null() {
        return None;
    }
    // SAFETY: the name is a C string that belongs to the linker. It stays valid, because the
    // JIT-compiled code needs the library.
    let name = unsafe { CStr::from_ptr(info.dli_sname) };
    name.to_str().ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The C library exports `atoi` itself; for `memcpy`, it chooses one of several
    /// implementations. The last instruction ends at the end of the code.
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
        let mut places = BTreeSet::new();
        add_places(&code, start, &mut places);
        let slot = |n: u64| Place::Slot(slots.as_ptr() as u64 + 8 * n);
        assert_eq!(places, BTreeSet::from([Place::Number(plain), slot(0), slot(1), slot(2)]));
        let mut names = Names::default();
        assert_eq!(names.of(plain).as_deref(), Some("atoi"));
        assert_eq!(names.of(chosen).as_deref(), Some("memcpy"));
        assert_eq!(names.of(plain + 1), None);
        assert_eq!(names.of(0x1234), None);
    }

    #[test]
    fn code_of_the_process_is_read() {
        let plain = address_of(c"atoi");
        let mut code = vec![0x48, 0xb8];
        code.extend(plain.to_le_bytes());
        code.extend([0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8, 0x90, 0x90]);
        let of = |machine| of(machine, code.as_ptr() as u64, code.len() as u64);
        assert_eq!(of(X86_64), [Callee { slot: 0, function: plain, name: "atoi".to_owned() }]);
        // The same bytes mean something else on AArch64.
        assert_eq!(of(183), []);
        assert_eq!(super::of(X86_64, 8, 64), []);
    }

    #[test]
    fn instructions_at_the_ends_of_code_and_chunks_are_found() {
        let number = |n: u64| [&[0x48, 0xb8], &n.to_le_bytes()[..]].concat();
        let mut code = vec![0x90; 2 * CHUNK + 50];
        let mut put = |at: usize, n: u64| code[at..at + LONGEST].copy_from_slice(&number(n));
        let starts: Vec<usize> = (CHUNK - LONGEST..=CHUNK).step_by(LONGEST).collect();
        starts.iter().for_each(|at| put(*at, *at as u64));
        put(2 * CHUNK - 13, 7);
        let end = code.len() - 6;
        code[end..].copy_from_slice(&[0xff, 0x25, 0, 0, 0, 0]); // jmp *slot(%rip)
        let start = code.as_ptr() as u64;
        let slot = Place::Slot(start + code.len() as u64);
        let numbers = starts.iter().map(|at| *at as u64).chain([7]).map(Place::Number);
        let expected: BTreeSet<Place> = numbers.chain([slot]).collect();
        assert_eq!(places_in_memory(start, code.len() as u64), expected);
        for begin in CHUNK - LONGEST..=CHUNK {
            let mut code = vec![0x90; CHUNK + 2 * LONGEST];
            code[begin..begin + LONGEST].copy_from_slice(&number(5));
            let found = places_in_memory(code.as_ptr() as u64, code.len() as u64);
            assert_eq!(found, BTreeSet::from([Place::Number(5)]), "{begin}");
        }
    }
}
