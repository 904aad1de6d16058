//! Calls CUPTI's functions for profiling. Each function takes one struct, whose first word is the
//! size of this struct in bytes, up to the end of its last field. From this size, another version
//! of CUPTI finds out which fields the struct has.

use std::ffi::{CString, c_char, c_void};
use std::ptr;

use crate::cupti::{Code, Cupti, SUCCESS};

/// `CUPTI_ERROR_INVALID_PARAMETER`.
const INVALID_PARAMETER: Code = 1;
/// `CUPTI_ERROR_INVALID_METRIC_NAME`.
const INVALID_NAME: Code = 17;
/// `CUPTI_ERROR_INSUFFICIENT_PRIVILEGES`.
const NO_PRIVILEGES: Code = 35;

/// Defines structs of parameters. `size` counts the bytes up to the end of the field after the
/// semicolon.
macro_rules! parameters {
    ($( $name:ident { $( $field:ident: $type:ty ),* ; $last:ident: $last_type:ty } )*) => { $(
        #[repr(C)]
        struct $name {
            size: usize,
            private: *mut std::ffi::c_void,
            $( $field: $type, )*
            $last: $last_type,
        }

        impl $name {
            fn new() -> Self {
                // SAFETY: the struct consists of numbers and pointers, for which zeros are valid
                // values.
                let mut parameters: Self = unsafe { std::mem::zeroed() };
                parameters.size = std::mem::offset_of!(Self, $last) + size_of::<$last_type>();
                parameters
            }
        }

        impl crate::structs::Parameters for $name {
            fn set_size(&mut self, size: usize) {
                self.size = size;
            }
        }
    )* };
}

/// Defines `Api`, with one function for each struct of [`parameters`].
macro_rules! api {
    ($( $name:ident $symbol:literal $parameters:ident; )*) => {
        #[derive(Clone, Copy, Debug)]
        struct Api {
            $( $name: unsafe extern "C" fn(*mut $parameters) -> crate::cupti::Code, )*
        }

        impl Api {
            /// Looks up the functions. The error is the name of the function that is missing.
            fn of(cupti: &crate::cupti::Cupti) -> Result<Self, &'static str> {
                Ok(Self { $(
                    $name: {
                        let found = cupti.symbol($symbol).ok_or($symbol)?;
                        // SAFETY: a function with this name has this type, as CUPTI's headers say.
                        unsafe {
                            std::mem::transmute::<
                                *mut std::ffi::c_void,
                                unsafe extern "C" fn(*mut $parameters) -> crate::cupti::Code,
                            >(found)
                        }
                    },
                )* })
            }
        }

        $(
            impl crate::structs::Call for $parameters {
                const NAME: &'static str = $symbol;
            }
        )*
    };
}

pub(crate) use {api, parameters};

pub trait Parameters {
    /// Sets the struct's size in bytes.
    fn set_size(&mut self, size: usize);
}

/// The parameters of a function of CUPTI.
pub trait Call: Parameters {
    const NAME: &'static str;
}

pub fn code_of<P>(function: unsafe extern "C" fn(*mut P) -> Code, parameters: &mut P) -> Code {
    // SAFETY: this is CUPTI's function with its own struct, and everything to which the struct
    // points is alive in the caller.
    unsafe { function(ptr::from_mut(parameters)) }
}

/// Calls a function of CUPTI.
///
/// # Errors
/// The error says which function failed, and why.
pub fn call<P: Call>(
    cupti: &Cupti,
    function: unsafe extern "C" fn(*mut P) -> Code,
    parameters: &mut P,
) -> Result<(), String> {
    match code_of(function, parameters) {
        SUCCESS => Ok(()),
        code => Err(refused(cupti, P::NAME, code)),
    }
}

/// Calls a function of CUPTI whose struct has a last field that older versions of CUPTI lack. If
/// this CUPTI refuses the struct, calls the function again with the size `older`, without the
/// field.
///
/// # Errors
/// The same as those of [`call`].
pub fn call_or_older<P: Call>(
    cupti: &Cupti,
    function: unsafe extern "C" fn(*mut P) -> Code,
    parameters: &mut P,
    older: usize,
) -> Result<(), String> {
    match code_of(function, parameters) {
        SUCCESS => Ok(()),
        INVALID_PARAMETER => {
            parameters.set_size(older);
            call(cupti, function, parameters)
        }
        code => Err(refused(cupti, P::NAME, code)),
    }
}

/// Makes the message for an error code, with advice for some codes.
pub fn refused(cupti: &Cupti, function: &str, code: Code) -> String {
    let advice = match code {
        INVALID_NAME => "; `ncu --query-metrics` lists the names",
        // CUPTI 12.6 and 12.8 return this code for a name that they do not know.
        INVALID_PARAMETER if function.ends_with("ConfigAddMetrics") => {
            "; one of the names may be wrong: `ncu --query-metrics` lists them"
        }
        NO_PRIVILEGES => {
            "; root may read counters of the device, and everybody if the driver's module has \
             NVreg_RestrictProfilingToAdminUsers=0"
        }
        _ => "",
    };
    format!("{function}: {}{advice}", cupti.said(code))
}

pub fn lacks(cupti: &Cupti, function: &str, first: &str) -> String {
    format!("{} has no function {function}: {first}", cupti.file)
}

/// Memory in which CUPTI stores data, aligned to 8 bytes.
#[derive(Debug, Default)]
pub struct Image(Vec<u64>);

impl Image {
    /// Makes an image of at least this number of bytes.
    pub fn new(length: usize) -> Self {
        Self(vec![0; length.div_ceil(8)])
    }

    pub fn at(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
}

/// Names in the form that CUPTI expects: an array of pointers to C strings.
#[derive(Debug)]
pub struct Names {
    pointers: Vec<*const c_char>,
    _texts: Vec<CString>,
}

impl Names {
    /// Names that contain a zero byte are left out.
    pub fn new(names: &[String]) -> Self {
        let texts: Vec<CString> =
            names.iter().filter_map(|name| CString::new(&**name).ok()).collect();
        Self { pointers: texts.iter().map(|text| text.as_ptr()).collect(), _texts: texts }
    }

    pub fn at(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }

    pub fn count(&self) -> usize {
        self.pointers.len()
    }
}

/// A handle of CUPTI.
pub type Object = *mut c_void;
