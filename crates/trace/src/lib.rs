//! Other people's trace formats, in and out.
//!
//! | module | what |
//! |---|---|
//! | [`chrome`] | Chrome's JSON trace format, as torch, Kineto, TensorFlow and we write it |

#![forbid(unsafe_code)]

pub mod chrome;
pub mod import;
