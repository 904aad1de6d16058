//! The data of the rules of `cargo xtask tidy`: names, limits and exceptions. If you change a rule,
//! give the reason in the commit message.

/// A room: a crate below `crates/`, with a row in ARCHITECTURE.md.
pub struct Room {
    /// The name of the crate's folder, and of its library (there with `_` instead of `-`).
    pub name: &'static str,
    /// The rooms on which the crate and its build script may depend directly. Development
    /// dependencies are not restricted.
    pub may_use: &'static [&'static str],
    /// Whether the crate runs inside other people's programs. If so, the only crate outside of
    /// `crates/` on which it may depend is `libc`. Programs to which users add `measure` do not
    /// count as other people's.
    pub in_target: bool,
    /// Whether the crate must say `#![forbid(unsafe_code)]`.
    pub safe: bool,
}

pub const ROOMS: &[Room] = &[
    Room { name: "model", may_use: &[], in_target: true, safe: true },
    Room { name: "abi", may_use: &[], in_target: true, safe: false },
    Room { name: "counters", may_use: &["model"], in_target: true, safe: false },
    Room { name: "record", may_use: &["model"], in_target: true, safe: false },
    Room {
        name: "agent",
        may_use: &["counters", "record", "plugin-host", "abi", "model"],
        in_target: true,
        safe: false,
    },
    // Authors of profiler plugins build this crate into their plugins, which can run inside
    // profiled programs.
    Room { name: "plugin", may_use: &["abi"], in_target: true, safe: false },
    Room { name: "plugin-host", may_use: &["abi"], in_target: true, safe: false },
    Room { name: "looprt", may_use: &["abi"], in_target: true, safe: false },
    Room { name: "machine", may_use: &["counters", "model"], in_target: false, safe: false },
    Room {
        name: "names",
        may_use: &["machine", "counters", "model"],
        in_target: false,
        safe: false,
    },
    // `measure` needs `abi` to register a user's collector with the recorder in the same process.
    Room {
        name: "measure",
        may_use: &["names", "machine", "counters", "abi", "model"],
        in_target: false,
        safe: false,
    },
    Room { name: "profile", may_use: &["record", "model"], in_target: false, safe: false },
    Room { name: "trace", may_use: &["profile", "model"], in_target: false, safe: true },
    Room { name: "ir", may_use: &["abi"], in_target: false, safe: true },
    // `code` uses the loop finder of `ir`.
    Room { name: "code", may_use: &["ir", "abi"], in_target: false, safe: true },
    Room { name: "analysis", may_use: &["profile", "ir", "model"], in_target: false, safe: true },
    Room {
        name: "dataset",
        may_use: &["analysis", "profile", "model"],
        in_target: false,
        safe: true,
    },
    // `cli` may not use `agent`, whose state exists only in libcounterpoint.so, nor `measure`,
    // which is for users' programs.
    Room {
        name: "cli",
        may_use: &[
            "model",
            "abi",
            "counters",
            "machine",
            "names",
            "record",
            "profile",
            "trace",
            "ir",
            "code",
            "analysis",
            "dataset",
            "plugin-host",
        ],
        in_target: false,
        safe: false,
    },
    // Other crates use `testkit` only in their tests (as a development dependency), so no other row
    // lists it.
    Room {
        name: "testkit",
        may_use: &["model", "abi", "counters", "record", "profile"],
        in_target: false,
        safe: false,
    },
];

/// The layers of the modules in a folder, from the lowest to the highest. A module may use only
/// modules of its own layer and of lower layers.
pub struct Layers {
    pub folder: &'static str,
    /// Each layer has a name and a list of top-level modules, which stand for all modules below
    /// them, too.
    pub layers: &'static [(&'static str, &'static [&'static str])],
}

pub const LAYERS: &[Layers] = &[Layers {
    folder: "crates/agent/src",
    layers: &[
        ("os", &["os"]),
        ("state", &["state"]),
        ("process", &["process"]),
        ("recorder", &["recorder"]),
        ("adapters", &["adapters"]),
        ("entry", &["entry"]),
    ],
}];

pub const IN_TARGET_OUTSIDE: &[&str] = &["libc"];

/// The libraries that the programs and shared objects in `dist/` may need, all of which are part of
/// glibc.
pub const NEEDED: &[&str] =
    &["libc.so.6", "libdl.so.2", "libpthread.so.0", "libm.so.6", "librt.so.1"];

/// The beginning of the dynamic linker's file name, which continues differently on each
/// architecture.
pub const NEEDED_PREFIX: &str = "ld-linux";

/// A source file with more lines than this must explain its length, after [`LONG_FILE_REASON`], in
/// one of its first 80 lines.
pub const LONGEST_FILE: usize = 600;
pub const LONG_FILE_REASON: &str = "above 600 lines:";

pub const SOURCE_ENDINGS: &[&str] =
    &["rs", "py", "c", "h", "cc", "cpp", "hpp", "sh", "toml", "md", "yml", "yaml"];

/// Files whose paths begin like this (such as inputs and recorded outputs) are not checked for
/// length, a header and marks of unfinished work.
pub const NOT_OURS: &[&str] = &["fixtures/", "benches/runs/", "Cargo.lock", "LICENSE-"];

/// Marks of unfinished work. These marks are written in two pieces, because otherwise the check for
/// unfinished work would find them in this file.
pub const UNFINISHED: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
];

/// Code that shows that an error type was written by hand. Rooms (crates) for which `in_target` is
/// false must derive their error types with `thiserror` instead.
pub const OWN_ERROR: &[&str] = &["impl std::error::Error for", "impl Error for"];

pub const MACHINE_PATHS: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];

/// The largest number of bytes of the program's stack that an entry point of `libcounterpoint.so`
/// may use, together with the functions that it calls.
pub const STACK_BYTES: u64 = 1024;

/// Functions of other libraries that may be called on the program's stack, each with the largest
/// number of bytes of stack that it uses. The numbers for `malloc` and related functions were
/// measured with glibc 2.36 on a stack that was filled with a pattern, with all symbols bound at
/// start. Most other functions are leaves or make one system call; their numbers are generous.
/// `_Unwind_Resume` counts as 0, because it runs only during a panic.
pub const OUTSIDE: &[(&str, u64)] = &[
    ("__errno_location", 0),
    ("__tls_get_addr", 64),
    ("__fxstat", 16),
    ("__fxstat64", 16),
    ("_Unwind_Resume", 0),
    ("bcmp", 64),
    ("calloc", 320),
    ("clock_gettime", 128),
    ("dl_iterate_phdr", 256),
    ("free", 256),
    ("getauxval", 16),
    ("getenv", 64),
    ("getpid", 16),
    ("getrlimit", 16),
    ("getrusage", 16),
    ("madvise", 16),
    ("malloc", 320),
    ("memcmp", 64),
    ("memcpy", 64),
    ("memmove", 64),
    ("memset", 64),
    ("munmap", 16),
    ("posix_memalign", 320),
    ("pthread_self", 0),
    ("realloc", 448),
    ("sched_getcpu", 64),
    ("sched_yield", 16),
    ("strcmp", 64),
    ("strlen", 64),
    ("syscall", 16),
];

/// Parts of the names of functions that are called only after an internal error or a failed
/// allocation. Their stack does not count. Most of them panic; the panic is caught and switches the
/// agent off.
pub const LEAVES_BY_PANIC: &[&str] = &[
    "core9panicking",
    "core::panicking",
    "3std9panicking",
    "12handle_error",
    "18handle_alloc_error",
    "expect_failed",
    "unwrap_failed",
    "_fail",
    "panics::caught",
];

/// Parts of the names of functions whose address is taken, but which are no entry points. These
/// functions run on the library's own stack, or a comment below gives another reason.
pub const RUNS_APART: &[&str] = &[
    "own_stack::runner",
    // Functions in fields of `Adapter` and `RunSource`. The agent calls almost all of these
    // functions on its own stack.
    "::rehearse",
    "loops::register::constructed",
    "loops::session_began",
    "iree::loaded::register",
    "hook_variables::",
    "core::ops::function::FnOnce::call_once",
    // Functions of the standard library. Only our own code calls them: directly (the check follows
    // such calls), on a thread that our code started, or after an internal error.
    "_R",
    "std::sync::once::",
    "__rust_",
    "rust_eh_personality",
    // The unwinder in the release runs only after an internal error.
    "libunwind::",
    "_Unwind_",
    "core::fmt::",
    "std::io::",
    // Functions of the C compiler's runtime, which the dynamic linker calls after loading the
    // library and at exit.
    "__do_global_dtors_aux",
    "frame_dummy",
];

/// Functions that may use more than [`STACK_BYTES`]: a part of the name, the limit in bytes, and
/// the reason.
pub const STACK_EXCEPTIONS: &[(&str, u64, &str)] = &[
    (
        "agent::adapters::plugins::",
        8192,
        "runs plugins, whose own use of the same stack nobody bounds",
    ),
    ("agent::adapters::torch::plugins::", 8192, "likewise, called by PyTorch's own profiler"),
    ("plugin_host::", 8192, "likewise"),
];
