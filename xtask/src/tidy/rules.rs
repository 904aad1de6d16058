//! The rules as data. If you change a rule, give the reason in the commit message.

/// A room: a crate below `crates/`, with a row in ARCHITECTURE.md.
pub struct Room {
    /// The name of the crate's folder, which is also the name of its library.
    pub name: &'static str,
    /// The rooms on which the crate and its build script may depend. Development dependencies are
    /// not restricted.
    pub may_use: &'static [&'static str],
    /// Whether the crate runs inside other people's programs. Its only dependency from outside is
    /// then `libc`.
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
    // Users build this crate into their own shared objects.
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
    // `measure` registers a user's collector with the recorder in the same process.
    Room {
        name: "measure",
        may_use: &["names", "machine", "counters", "abi", "model"],
        in_target: false,
        safe: false,
    },
    Room { name: "profile", may_use: &["record", "model"], in_target: false, safe: false },
    Room { name: "trace", may_use: &["profile", "model"], in_target: false, safe: true },
    Room { name: "ir", may_use: &["abi"], in_target: false, safe: true },
    // The loop finder of `ir`.
    Room { name: "code", may_use: &["ir", "abi"], in_target: false, safe: true },
    Room { name: "analysis", may_use: &["profile", "ir", "model"], in_target: false, safe: true },
    Room {
        name: "dataset",
        may_use: &["analysis", "profile", "model"],
        in_target: false,
        safe: true,
    },
    // The agent's state exists only in libcounterpoint.so, and measure is for users' programs, so
    // cli may use neither.
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
    // A development dependency, so no other row lists it.
    Room {
        name: "testkit",
        may_use: &["model", "abi", "counters", "record", "profile"],
        in_target: false,
        safe: false,
    },
];

/// The lowest layer comes first. A module may use only modules of its own layer and of lower
/// layers.
pub struct Layers {
    pub folder: &'static str,
    /// The modules are given by the first part of their path.
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

/// The libraries that `libcounterpoint.so` may need, all of which are part of glibc.
pub const NEEDED: &[&str] =
    &["libc.so.6", "libdl.so.2", "libpthread.so.0", "libm.so.6", "librt.so.1"];

/// The dynamic linker, whose name continues differently on each architecture.
pub const NEEDED_PREFIX: &str = "ld-linux";

/// A source file with more lines must explain its length in its first 80 lines.
pub const LONGEST_FILE: usize = 600;
pub const LONG_FILE_REASON: &str = "above 600 lines:";

pub const SOURCE_ENDINGS: &[&str] =
    &["rs", "py", "c", "h", "cc", "cpp", "hpp", "sh", "toml", "md", "yml", "yaml"];

/// Inputs and recorded outputs, whose length and words are not checked.
pub const NOT_OURS: &[&str] = &["fixtures/", "benches/runs/", "Cargo.lock", "LICENSE-"];

/// Written in two pieces, because otherwise this file would be a finding.
pub const UNFINISHED: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
];

/// What an error type that is written by hand contains. Rooms that do not run in the target must
/// derive errors with `thiserror` instead.
pub const OWN_ERROR: &[&str] = &["impl std::error::Error for", "impl Error for"];

pub const MACHINE_PATHS: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];

/// The bytes of the program's stack that an entry point of the library may use, including
/// everything that it calls.
pub const STACK_BYTES: u64 = 1024;

/// The largest number of bytes of stack that a function of glibc uses. The numbers for `malloc` and
/// related functions were measured with glibc 2.36 on a stack that was filled with a pattern, with
/// all symbols bound at start. The other functions are leaves or make one system call; their
/// numbers are generous.
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

/// Functions that are only called if something in the library is broken. They end in a panic, which
/// is caught and switches the agent off.
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

/// Functions whose address is taken, but which are no entry points: they run on the library's own
/// stack, or a comment gives the reason.
pub const RUNS_APART: &[&str] = &[
    "own_stack::runner",
    // Functions of `Adapter` and `RunSource`, for the constructor, attaching, the beginning of a
    // session, and loading.
    "::rehearse",
    "loops::register::constructed",
    "loops::session_began",
    "iree::loaded::register",
    "hook_variables::",
    "core::ops::function::FnOnce::call_once",
    // Functions of the standard library. Only our own code calls them: directly, on a thread that
    // our code started, or if something is broken.
    "_R",
    "std::sync::once::",
    "__rust_",
    "rust_eh_personality",
    // The release's own unwinder runs only if something is broken.
    "libunwind::",
    "_Unwind_",
    "core::fmt::",
    "std::io::",
    // Functions of the compiler, for loading and unloading.
    "__do_global_dtors_aux",
    "frame_dummy",
];

/// Functions that may use more stack: a part of the name, the limit, and the reason.
pub const STACK_EXCEPTIONS: &[(&str, u64, &str)] = &[
    (
        "agent::adapters::plugins::",
        8192,
        "runs plugins, whose own use of the same stack nobody bounds",
    ),
    ("agent::adapters::torch::plugins::", 8192, "likewise, called by PyTorch's own profiler"),
    ("plugin_host::", 8192, "likewise"),
];
