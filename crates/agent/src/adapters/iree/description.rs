//! The description of IREE in a profile.

use record::host::Host;
use record::meta::Role;
use std::borrow::Cow::Borrowed;

pub const HOST: Host = Host {
    name: Borrowed("iree"),
    title: Borrowed("IREE"),
    without_calls: Borrowed("an executable was loaded, but none of its functions was called"),
    kinds: Borrowed(&[(Role::Workgroup, Borrowed("workgroup"))]),
    inside: Borrowed(
        "compile the model with `counterpoint loops compile-iree` instead of `iree-compile`, record that with \
         `counterpoint run --loops -e none`, and look at `counterpoint loops report`",
    ),
    ..Host::UNKNOWN
};
