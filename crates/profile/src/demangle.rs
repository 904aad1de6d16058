//! Finds the readable names of compiled functions: `_Z3addIfEvPT_i` is `void add<float>(float*,
//! int)`. Tables for people show readable names. A profile, and formats that programs read (JSON,
//! CSV, Parquet), contain names as they were recorded.
//!
//! A few bytes of a name can describe megabytes of types. So a readable name above [`LONGEST`]
//! bytes is not used.

use std::borrow::Cow;
use std::fmt::{self, Write};

/// The length in bytes of the longest readable name that is used. The names of templates with about
/// ten arguments have about 500 bytes.
pub const LONGEST: usize = 4096;

/// How much a readable name contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// The name without the types of parameters and of the result. Overloaded functions share it.
    Short,
    /// The whole content of the mangled name.
    Whole,
}

/// Returns the readable form of `name`, or `name` itself if it is not mangled or its readable form
/// would be too long.
pub fn demangle(name: &str, detail: Detail) -> Cow<'_, str> {
    // Mangled names begin with one of these texts. macOS, and Clang for its *blocks* (closures in
    // C), add up to two underscores.
    if !["_Z", "__Z", "___Z", "_R"].iter().any(|start| name.starts_with(start)) {
        return Cow::Borrowed(name);
    }
    of_rust(name).or_else(|| of_cxx(name, detail)).map_or(Cow::Borrowed(name), Cow::Owned)
}

/// Returns whether a pattern of [`model::glob`] matches the recorded name or a readable form.
pub fn matches(glob: &str, name: &str) -> bool {
    model::glob::matches(glob, name)
        || [Detail::Short, Detail::Whole].iter().any(|detail| match demangle(name, *detail) {
            Cow::Borrowed(_) => false,
            Cow::Owned(readable) => model::glob::matches(glob, &readable),
        })
}

fn of_rust(name: &str) -> Option<String> {
    let symbol = rustc_demangle::try_demangle(name).ok()?;
    let mut text = Bounded(String::new());
    // `#` leaves out the hash of the crate.
    write!(text, "{symbol:#}").ok()?;
    text.done()
}

fn of_cxx(name: &str, detail: Detail) -> Option<String> {
    let symbol = cpp_demangle::Symbol::new(name).ok()?;
    let options = cpp_demangle::DemangleOptions::new();
    let options = match detail {
        Detail::Short => options.no_params().no_return_type(),
        Detail::Whole => options,
    };
    let mut text = Bounded(String::new());
    symbol.structured_demangle(&mut text, &options).ok()?;
    text.done()
}

struct Bounded(String);

impl Bounded {
    fn done(self) -> Option<String> {
        (!self.0.is_empty()).then_some(self.0)
    }
}

impl Write for Bounded {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        if self.0.len() + more.len() > LONGEST {
            return Err(fmt::Error);
        }
        self.0.push_str(more);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected names are from binutils' `c++filt` 2.40 (`-p` for the short form) and from the
    /// documentation of Rust's mangling scheme.
    #[test]
    fn names_of_cxx_and_rust_become_readable() {
        for (name, short, whole) in [
            ("_Z3addIfEvPT_i", "add<float>", "void add<float>(float*, int)"),
            (
                "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEEEEviT0_",
                "at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >",
                "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> \
                 >(int, at::native::FillFunctor<float>)",
            ),
            (
                "_ZN4core3fmt9Formatter3pad17h0123456789abcdefE",
                "core::fmt::Formatter::pad",
                "core::fmt::Formatter::pad",
            ),
            ("_RNvC6_123foo3bar", "123foo::bar", "123foo::bar"),
        ] {
            assert_eq!(demangle(name, Detail::Short), short);
            assert_eq!(demangle(name, Detail::Whole), whole);
        }
    }

    #[test]
    fn other_names_stay_as_they_are() {
        for name in ["", "matmul_16", "_Z", "_ZZZ", "_Razor", "_R", "aten::mm", "_Z3ad"] {
            assert_eq!(demangle(name, Detail::Whole), name);
        }
    }

    /// Returns a name whose type doubles in size with each level: `pair<T, T>`, where T is the type
    /// of the level before.
    fn doubling(levels: u32) -> String {
        // S_ is the function, S0_ is `pair`, and S1_, S2_, … are the types in the order in which
        // they occur.
        let types = (1..=levels).map(|level| {
            let last = char::from_digit(level, 36).expect("below 36").to_ascii_uppercase();
            format!("S0_IS{last}_S{last}_E")
        });
        format!("_Z1fI4pairIiiE{}Evv", types.collect::<String>())
    }

    #[test]
    fn a_short_name_of_a_long_type_is_not_unfolded() {
        // As `c++filt` prints it.
        let two = "void f<pair<int, int>, pair<pair<int, int>, pair<int, int> > >()";
        assert_eq!(demangle(&doubling(1), Detail::Whole), two);
        assert_eq!(demangle(&doubling(30), Detail::Whole), doubling(30));
    }

    #[test]
    fn patterns_match_recorded_and_readable_names() {
        let name = "_Z3addIfEvPT_i";
        for glob in ["_Z3add*", "add<float>", "*add<*", "void add<float>(float\\*, int)"] {
            assert!(matches(glob, name), "{glob}");
        }
        assert!(!matches("add", name));
        assert!(!matches("add*", "sub"));
    }
}
