//! Defines kinds of devices, and the interface through which accelerators add their counters.
//!
//! ```text
//!  DeviceKind   cpu, cuda, …: its default counters, its variable, and what counts it
//!  DeviceSource the counters of one component (`cuda:::…`), as of CUPTI or rocprofiler
//!  Devices      all components together, as one source of names
//! ```
//!
//! For most components that this version cannot count, there is a source that only names the
//! library that counting would need. Each kind of device is one of DLPack's, and has a name that
//! TVM gives it.

use crate::{Entry, Head, NameCause, NameErrorKind, NameSource, Resolved, Trouble};

/// A kind of device that work can run on.
#[derive(Debug, PartialEq, Eq)]
pub struct DeviceKind {
    /// For example `cuda`.
    pub name: &'static str,
    /// Other names that are accepted.
    pub aliases: &'static [&'static str],
    pub counted_by: CountedBy,
    /// The counters of a recording without `-e`.
    pub defaults: &'static [&'static str],
}

/// What counts the events of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedBy {
    /// The counters of the processor that runs the work.
    Processor,
    /// The [`DeviceSource`] of this component.
    Component(&'static str),
}

/// The default counters of TVM's original collectors, in their order.
pub const PROCESSOR_DEFAULTS: &[&str] = &[
    "cycles",
    "stalled-cycles-frontend",
    "stalled-cycles-backend",
    "instructions",
    "cache-misses",
];

const fn kind(
    name: &'static str,
    aliases: &'static [&'static str],
    counted_by: CountedBy,
    defaults: &'static [&'static str],
) -> DeviceKind {
    DeviceKind { name, aliases, counted_by, defaults }
}

/// The kinds of devices that can be named. The kinds for host memory that is pinned for an
/// accelerator use the processor's counters.
pub const KINDS: &[DeviceKind] = {
    use CountedBy::{Component, Processor};
    &[
        kind("cpu", &["llvm"], Processor, PROCESSOR_DEFAULTS),
        kind("cpu_pinned", &[], Processor, PROCESSOR_DEFAULTS),
        kind("cuda_host", &[], Processor, PROCESSOR_DEFAULTS),
        kind("rocm_host", &[], Processor, PROCESSOR_DEFAULTS),
        kind("cuda", &["gpu"], Component("cuda"), &["cuda:::event:elapsed_cycles_sm:device=0"]),
        kind("rocm", &["hip"], Component("rocm"), &[]),
        kind("opencl", &[], Component("opencl"), &[]),
        kind("vulkan", &[], Component("vulkan"), &[]),
        kind("metal", &[], Component("metal"), &[]),
        kind("oneapi", &[], Component("intel_gpu"), &[]),
        kind("hexagon", &[], Component("hexagon"), &[]),
    ]
};

impl DeviceKind {
    /// Returns the kind with this name or alias, in upper or lower case.
    pub fn named(name: &str) -> Option<&'static Self> {
        let same = |n: &&str| n.eq_ignore_ascii_case(name);
        KINDS.iter().find(|k| same(&k.name) || k.aliases.iter().any(same))
    }

    /// Returns the environment variables that can name this kind's counters. The first one that is
    /// set is used.
    pub fn variables(&self) -> [String; 2] {
        let upper = self.name.to_ascii_uppercase();
        [format!("COUNTERPOINT_{upper}_METRICS"), format!("TVM_PAPI_{upper}_METRICS")]
    }
}

/// The counters of one component.
pub trait DeviceSource {
    /// Returns the text before the three colons: `cuda`.
    fn component(&self) -> &str;

    /// Checks that the component can be used here and now.
    ///
    /// # Errors
    /// Returns [`Missing`], for example with the library that is missing.
    fn available(&self) -> Result<(), Missing>;

    /// Returns the counters that the text after the three colons stands for
    /// (`event:elapsed_cycles_sm:device=0`), if the component is available.
    ///
    /// # Errors
    /// Fails for the same reasons as [`NameSource::resolve`].
    fn resolve(&self, name: &str) -> Result<Vec<Resolved>, Trouble>;

    /// Returns the counters' names, for `counterpoint list` and for suggestions.
    fn entries(&self) -> Vec<Entry>;
}

/// The reason why a component cannot count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// For example a library.
    pub what: String,
}

/// A component for which this version has no source.
struct Absent {
    component: &'static str,
    library: &'static str,
}

#[rustfmt::skip]
const ABSENT: [Absent; 6] = [
    Absent { component: "cuda", library: "libcupti.so (CUPTI, part of NVIDIA's CUDA toolkit)" },
    Absent { component: "rocm", library: "librocprofiler64.so (AMD's ROCm)" },
    Absent { component: "opencl", library: "libOpenCL.so" },
    Absent { component: "vulkan", library: "libvulkan.so" },
    Absent { component: "metal", library: "Apple's Metal framework" },
    Absent { component: "intel_gpu", library: "libze_loader.so (Intel's Level Zero)" },
];

impl DeviceSource for Absent {
    fn component(&self) -> &str {
        self.component
    }

    fn available(&self) -> Result<(), Missing> {
        Err(Missing { what: format!("this version cannot count with {}", self.library) })
    }

    fn resolve(&self, name: &str) -> Result<Vec<Resolved>, Trouble> {
        let name = format!("{}:::{name}", self.component);
        Err(Trouble::new(NameErrorKind::Unknown { name }))
    }

    fn entries(&self) -> Vec<Entry> {
        Vec::new()
    }
}

/// The sources of all components.
pub struct Devices {
    sources: Vec<Box<dyn DeviceSource>>,
}

impl Devices {
    /// Returns the components that this version knows.
    pub fn known() -> Self {
        let sources = ABSENT.into_iter().map(|absent| Box::new(absent) as Box<dyn DeviceSource>);
        Self { sources: sources.collect() }
    }

    /// Adds a source, which is asked before the others.
    pub fn with(mut self, source: Box<dyn DeviceSource>) -> Self {
        self.sources.insert(0, source);
        self
    }

    /// Returns the source of a component by its name.
    pub fn source(&self, component: &str) -> Option<&dyn DeviceSource> {
        let mut sources = self.sources.iter();
        let found = sources.find(|s| s.component().eq_ignore_ascii_case(component));
        found.map(|source| &**source)
    }
}

impl NameSource for Devices {
    fn resolve(&self, head: &Head) -> Option<Result<Vec<Resolved>, Trouble>> {
        let Head::Device { component, name } = head else { return None };
        let Some(source) = self.source(component) else {
            let known = self.sources.iter().map(|s| s.component().to_owned()).collect();
            let cause = match component.as_str() {
                "perf_event" | "cpu" => NameCause::NoComponent,
                _ => NameCause::Components(known),
            };
            let kind = NameErrorKind::Unknown { name: format!("{component}:::{name}") };
            return Some(Err(Trouble::new(kind).because(cause)));
        };
        Some(match source.available() {
            Ok(()) => source.resolve(name),
            Err(missing) => {
                let device = component.clone();
                Err(Trouble::new(NameErrorKind::NoSource { device, missing: missing.what }))
            }
        })
    }

    fn entries(&self) -> Vec<Entry> {
        self.sources.iter().flat_map(|source| source.entries()).collect()
    }
}
