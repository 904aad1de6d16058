//! The rules as data. Change a rule here, and say in the commit why.

/// A room: a crate below `crates/`. The table of rooms in ARCHITECTURE.md has a row for each.
pub struct Room {
    /// Folder below `crates/`, and the name of the library.
    pub name: &'static str,
    /// Rooms it may use in its normal and build dependencies. Development dependencies are free.
    pub may_use: &'static [&'static str],
    /// Runs inside other people's programs: uses nothing from outside but `libc`.
    pub in_target: bool,
    /// Must say `#![forbid(unsafe_code)]`.
    pub safe: bool,
}

pub const ROOMS: &[Room] = &[
    Room { name: "model", may_use: &[], in_target: true, safe: true },
    Room { name: "abi", may_use: &[], in_target: true, safe: false },
    Room { name: "counters", may_use: &["model"], in_target: true, safe: false },
    Room { name: "record", may_use: &["model"], in_target: true, safe: false },
    Room {
        name: "agent",
        may_use: &["counters", "record", "abi", "model"],
        in_target: true,
        safe: false,
    },
    Room { name: "looprt", may_use: &["abi"], in_target: true, safe: false },
    Room { name: "machine", may_use: &["counters", "model"], in_target: false, safe: false },
    Room {
        name: "names",
        may_use: &["machine", "counters", "model"],
        in_target: false,
        safe: false,
    },
    // abi: a user's collector is registered with the recorder in the same process.
    Room {
        name: "measure",
        may_use: &["names", "machine", "counters", "abi", "model"],
        in_target: false,
        safe: false,
    },
    Room { name: "profile", may_use: &["record", "model"], in_target: false, safe: false },
    Room { name: "trace", may_use: &["profile", "model"], in_target: false, safe: true },
    Room { name: "ir", may_use: &["abi"], in_target: false, safe: true },
    Room { name: "analysis", may_use: &["profile", "ir", "model"], in_target: false, safe: true },
    // Not agent: its state lives in libcounterpoint.so alone. Not measure: it is for programs of
    // users.
    Room {
        name: "cli",
        may_use: &[
            "model", "abi", "counters", "machine", "names", "record", "profile", "trace", "ir",
            "analysis",
        ],
        in_target: false,
        safe: false,
    },
    // Listed in no other row: a development dependency only.
    Room {
        name: "testkit",
        may_use: &["model", "abi", "counters", "record", "profile"],
        in_target: false,
        safe: false,
    },
];

/// The layers of a crate: its modules, lowest layer first. A module uses only its own layer and
/// those below it.
pub struct Layers {
    /// The folder, relative to the root.
    pub folder: &'static str,
    /// A layer's name, and the modules in it by the first part of their path.
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

/// What in-target rooms may use from outside.
pub const IN_TARGET_OUTSIDE: &[&str] = &["libc"];

/// Libraries that the built files may need. All are part of glibc.
pub const NEEDED: &[&str] =
    &["libc.so.6", "libdl.so.2", "libpthread.so.0", "libm.so.6", "librt.so.1"];

/// The dynamic loader has a name per machine.
pub const NEEDED_PREFIX: &str = "ld-linux";

/// Lines above which a source file must explain itself, and the words with which it does.
pub const LONGEST_FILE: usize = 600;
pub const LONG_FILE_REASON: &str = "above 600 lines:";

/// Endings of files that people write and read line by line.
pub const SOURCE_ENDINGS: &[&str] =
    &["rs", "py", "c", "h", "cc", "cpp", "hpp", "sh", "toml", "md", "yml", "yaml"];

/// Inputs and recorded outputs: content is not ours to tidy.
pub const NOT_OURS: &[&str] = &["fixtures/", "benches/runs/", "Cargo.lock", "LICENSE-"];

/// Words that say "not finished". Spelled in pieces, or this file would find itself.
pub const UNFINISHED: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
];

/// Starts of absolute paths that exist on one machine only.
pub const MACHINE_PATHS: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];
