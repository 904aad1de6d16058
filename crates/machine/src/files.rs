//! Reads the kernel's files about the machine. Tests can choose another root than `/`.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// A machine, described by the files below its root.
///
/// For the machine on which this program runs, [`Machine`] keeps the first answers about the
/// processor, this process, the list of PMUs and the hypervisor. Clones share these answers.
#[derive(Clone, Debug)]
pub struct Machine {
    root: PathBuf,
    known: Option<Arc<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    cpuinfo: OnceLock<Option<String>>,
    status: OnceLock<Option<String>>,
    pmus: OnceLock<Vec<String>>,
    virtualisation: OnceLock<Option<String>>,
}

/// The directory in sysfs that describes the PMUs.
pub const DEVICES: &str = "sys/bus/event_source/devices";

/// The places where tracefs can be mounted, the modern one first.
pub const TRACEFS: [&str; 2] = ["sys/kernel/tracing", "sys/kernel/debug/tracing"];

const CPUINFO: &str = "proc/cpuinfo";
const STATUS: &str = "proc/self/status";
/// Reading of `/proc/cpuinfo` stops after this many bytes, or earlier at the empty line after the
/// first processor. The kernel produces the text while the file is read, and may interrupt each
/// processor to get its frequency, which takes milliseconds for hundreds of processors.
const CPUINFO_BYTES: usize = 16 * 1024;
/// One read asks for this many bytes, which is less than the text of one processor.
const CPUINFO_STEP: usize = 1024;

impl Default for Machine {
    fn default() -> Self {
        Self::here()
    }
}

impl Machine {
    /// Returns the machine on which this program runs.
    pub fn here() -> Self {
        Self { root: "/".into(), known: Some(Arc::default()) }
    }

    /// Returns a machine whose files are below `root`, for tests. Facts that are not in files
    /// (CPUID, whether a counter opens) are those of this machine, or are not known.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), known: None }
    }

    /// Returns whether this is the machine on which this program runs, so that instructions and
    /// system calls can examine it.
    pub fn is_here(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Returns whether a seccomp filter is active for this process.
    pub fn is_filtered(&self) -> bool {
        if self.known.is_some() {
            // SAFETY: this command of prctl takes no pointer. It returns the same mode as
            // `/proc/self/status`, in a tenth of the time.
            return unsafe { libc::prctl(libc::PR_GET_SECCOMP) } == 2;
        }
        self.field(STATUS, "Seccomp").is_some_and(|mode| mode == "2")
    }

    /// Returns the path of a file of this machine. `path` has no leading slash.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Returns the content of a small file.
    pub fn read(&self, path: &str) -> io::Result<String> {
        fs::read_to_string(self.path(path))
    }

    /// Returns the content of a small file without white space at its ends, if it can be read.
    pub fn read_trimmed(&self, path: &str) -> Option<String> {
        Some(self.read(path).ok()?.trim().to_owned())
    }

    /// Returns the value after `key:` in a file such as `/proc/self/status`. In `/proc/cpuinfo`,
    /// looks only at the first processor.
    pub fn field(&self, path: &str, key: &str) -> Option<String> {
        let find = |text: &str| {
            let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
            pairs.find(|(k, _)| k.trim() == key).map(|(_, v)| v.trim().to_owned())
        };
        let known = self.known.as_ref().and_then(|known| match path {
            CPUINFO => Some(&known.cpuinfo),
            STATUS => Some(&known.status),
            _ => None,
        });
        match known {
            Some(known) => find(known.get_or_init(|| self.start_of(path)).as_ref()?),
            None => find(&self.start_of(path)?),
        }
    }

    fn start_of(&self, path: &str) -> Option<String> {
        let mut file = fs::File::open(self.path(path)).ok()?;
        let mut text = Vec::with_capacity(4 * CPUINFO_STEP);
        if path == CPUINFO {
            let mut step = [0; CPUINFO_STEP];
            while text.len() < CPUINFO_BYTES && !text.windows(2).any(|two| two == b"\n\n") {
                match file.read(&mut step) {
                    Ok(0) => break,
                    Ok(read) => text.extend_from_slice(&step[..read]),
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return None,
                }
            }
        } else {
            file.read_to_end(&mut text).ok()?;
        }
        Some(String::from_utf8_lossy(&text).into_owned())
    }

    /// Returns whether the path exists and this user may see it.
    pub fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Returns the names in a directory, sorted, or nothing if the directory cannot be read.
    pub fn list(&self, path: &str) -> Vec<String> {
        match &self.known {
            Some(known) if path == DEVICES => {
                known.pmus.get_or_init(|| self.names_in(path)).clone()
            }
            _ => self.names_in(path),
        }
    }

    fn names_in(&self, path: &str) -> Vec<String> {
        let Ok(dir) = fs::read_dir(self.path(path)) else { return Vec::new() };
        let mut names: Vec<String> =
            dir.flatten().filter_map(|e| e.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Returns the logical CPUs that are online, or CPU 0 if the kernel does not say.
    pub fn online_cpus(&self) -> Vec<u32> {
        let list = self.read_trimmed("sys/devices/system/cpu/online").unwrap_or_default();
        parse_cpus(&list).unwrap_or_else(|| vec![0])
    }

    /// Returns the value of `kernel.perf_event_paranoid`, or `None` if it cannot be read.
    pub fn paranoid(&self) -> Option<i32> {
        self.read_trimmed("proc/sys/kernel/perf_event_paranoid")?.parse().ok()
    }

    /// Returns the effective capabilities of this process, one bit each.
    pub fn capabilities(&self) -> Option<u64> {
        u64::from_str_radix(&self.field("proc/self/status", "CapEff")?, 16).ok()
    }

    /// Returns whether this process is in a user namespace other than the initial one. Capabilities
    /// of a user namespace do not allow counting, because the kernel checks them in the initial
    /// namespace (`perfmon_capable`).
    pub fn in_user_namespace(&self) -> bool {
        // The initial namespace maps every id to itself (user_namespaces(7)).
        self.read("proc/self/uid_map").is_ok_and(|map| {
            let words: Vec<&str> = map.split_whitespace().collect();
            !words.is_empty() && words != ["0", "0", "4294967295"]
        })
    }

    /// Returns why this process seems to run in a container; `None` if nothing shows that it does.
    pub fn container(&self) -> Option<String> {
        if self.exists(".dockerenv") {
            return Some("/.dockerenv exists".into());
        }
        if self.exists("run/.containerenv") {
            return Some("/run/.containerenv exists".into());
        }
        if let Some(kind) = self.read_trimmed("run/systemd/container") {
            return Some(kind);
        }
        let groups = self.read("proc/1/cgroup").ok()?;
        ["docker", "kubepods", "containerd", "lxc", "libpod"]
            .into_iter()
            .find(|sign| groups.contains(sign))
            .map(|sign| format!("control group of process 1 names {sign}"))
    }

    /// If this machine seems to be virtual, returns the name of the hypervisor, or a sentence if
    /// its name is not known.
    pub fn virtualisation(&self) -> Option<String> {
        match &self.known {
            Some(known) => known.virtualisation.get_or_init(|| self.hypervisor()).clone(),
            None => self.hypervisor(),
        }
    }

    fn hypervisor(&self) -> Option<String> {
        let dmi = |file| self.read_trimmed(&format!("sys/class/dmi/id/{file}"));
        let flagged = self
            .field("proc/cpuinfo", "flags")
            .is_some_and(|f| f.split_whitespace().any(|f| f == "hypervisor"));
        if let Some(kind) = self.read_trimmed("sys/hypervisor/type") {
            return Some(kind);
        }
        let known = [
            ("QEMU", "QEMU"),
            ("KVM", "KVM"),
            ("Amazon EC2", "Amazon EC2"),
            ("Google", "Google Compute Engine"),
            ("Microsoft Corporation", "Hyper-V"),
            ("VMware", "VMware"),
            ("innotek", "VirtualBox"),
            ("Xen", "Xen"),
        ];
        let vendor =
            dmi("sys_vendor").unwrap_or_default() + " " + &dmi("product_name").unwrap_or_default();
        let named = known.iter().find(|(sign, _)| vendor.contains(sign)).map(|(_, name)| *name);
        // Some vendors, such as Google and Microsoft, also build physical machines, so their names
        // alone are not enough.
        match (named, flagged) {
            (Some(name), true) => Some(name.into()),
            (Some(name @ ("QEMU" | "KVM" | "VirtualBox" | "Xen")), false) => Some(name.into()),
            (None, true) => Some("the processor reports a hypervisor".into()),
            _ => None,
        }
    }

    /// Returns the PMUs of [`Machine::core_pmus`] with their types, one for each kind of cores.
    pub fn core_types(&self) -> Vec<(String, u32)> {
        let pmus = self.core_pmus().into_iter();
        let typed = pmus.filter_map(|pmu| {
            let path = format!("{}/{pmu}/type", DEVICES);
            let number = self.read_trimmed(&path)?.parse().ok()?;
            Some((pmu, number))
        });
        typed.collect()
    }

    /// Returns the names in sysfs of the PMUs of the cores: `cpu`, `cpu_core`, `armv8_pmuv3_0`, …
    pub fn core_pmus(&self) -> Vec<String> {
        let mut pmus = self.list(DEVICES);
        pmus.retain(|p| {
            matches!(p.as_str(), "cpu" | "cpu_core" | "cpu_atom" | "cpum_cf")
                || ["armv8", "armv7", "apple_", "riscv-pmu"].iter().any(|s| p.starts_with(s))
        });
        pmus
    }
}

/// Returns the processors of a list as the kernel writes it (`0,18-19`), or `None` if it is empty
/// or damaged.
pub fn parse_cpus(text: &str) -> Option<Vec<u32>> {
    /// Limits the memory that a damaged file can make us allocate.
    const MOST: u32 = 65_536;
    let mut cpus = Vec::new();
    for range in text.split(',') {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let (from, to): (u32, u32) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
        if from > to || to >= MOST {
            return None;
        }
        cpus.extend(from..=to);
    }
    (!cpus.is_empty()).then_some(cpus)
}
