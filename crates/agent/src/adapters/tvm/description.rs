//! The description of TVM's Relax virtual machine in a profile.

use record::host::Host;
use record::meta::Role;
use std::borrow::Cow::Borrowed;

pub const HOST: Host = Host {
    name: Borrowed("tvm"),
    title: Borrowed("TVM"),
    calls_ops: true,
    dispatches: false,
    ops: Borrowed("those of TVM's virtual machines"),
    library_key: Borrowed("machine"),
    without_calls: Borrowed(
        "a virtual machine of TVM was seen, but none of its calls: it was not called, or it was \
         compiled with exec_mode=\"compiled\", which makes no calls that can be seen",
    ),
    bookkeeping: Borrowed("vm.builtin."),
    kinds: Borrowed(&[(Role::Region, Borrowed("region")), (Role::Task, Borrowed("task"))]),
    inside: Borrowed(
        "compile the model inside of `with cp.loops(mode=\"timed\", min_height=0):` (`import counterpoint.tvm \
         as cp`), record that with `counterpoint run --loops -e none`, and look at `counterpoint loops \
         report`",
    ),
    ..Host::UNKNOWN
};
