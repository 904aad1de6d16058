//! What IREE says about itself in a profile.

use record::host::Host;
use record::meta::Role;
use std::borrow::Cow::Borrowed;

pub const HOST: Host = Host {
    name: Borrowed("iree"),
    title: Borrowed("IREE"),
    without_calls: Borrowed("an executable was loaded, but none of its functions was called"),
    kinds: Borrowed(&[(Role::Workgroup, Borrowed("workgroup"))]),
    ..Host::UNKNOWN
};
