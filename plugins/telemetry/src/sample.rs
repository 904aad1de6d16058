//! Samples files and NVIDIA's devices, and computes the values of the series.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::descriptors;
use crate::nvml::Nvml;
use crate::series::Series;

/// The sampled files, below `/` or the directory that the user names, and the devices that NVML
/// finds.
#[derive(Debug)]
pub struct Machine {
    sources: Vec<Source>,
    nvml: Option<Nvml>,
    series: Vec<Series>,
    /// The content of the file that is being read.
    text: Vec<u8>,
}

#[derive(Debug)]
struct Source {
    file: File,
    kind: Kind,
    /// Number of the file's first series.
    first: u32,
    /// The sums in the last sample, for values over the interval between two samples.
    before: Vec<f64>,
    /// The time of the last sample.
    last: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// The file contains one number. The value is this number, multiplied by the field.
    Number(f64),
    /// A sum of energy in µJ. The field is its largest value, after which it starts again at 0.
    Energy(f64),
    Memory,
    Resident,
    /// A line that begins with `some` and, if the field is true, a line that begins with `full`.
    Pressure(bool),
    Stat,
    Schedstat,
}

fn read_all(file: &File, text: &mut Vec<u8>) -> bool {
    // Linux generates the content of these files anew whenever they are read from the beginning.
    text.resize(64 * 1024, 0);
    let mut length = 0;
    while length < text.len() {
        match file.read_at(&mut text[length..], length as u64) {
            Ok(0) => break,
            Ok(n) => length += n,
            Err(_) => return false,
        }
    }
    text.truncate(length);
    length > 0
}

fn number(path: &Path) -> Option<f64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn word(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Returns the entries of the directory `parent` whose names begin with `prefix` and a digit or
/// colon. Shorter names come first, so `cpu2` comes before `cpu10`.
fn numbered(parent: &Path, prefix: &str) -> Vec<(PathBuf, String)> {
    let Ok(entries) = std::fs::read_dir(parent) else { return Vec::new() };
    let mut found: Vec<(PathBuf, String)> = entries
        .flatten()
        .map(|entry| (entry.path(), entry.file_name().to_string_lossy().into_owned()))
        .filter(|(_, name)| {
            name.strip_prefix(prefix)
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == ':'))
        })
        .collect();
    found.sort_by_key(|(_, name)| (name.len(), name.clone()));
    found
}

impl Machine {
    /// Opens the files to sample, below `root`. A file that is missing or cannot be read is left
    /// out.
    pub fn open(root: &Path) -> Self {
        let mut machine =
            Self { sources: Vec::new(), nvml: None, series: Vec::new(), text: Vec::new() };
        for (cpu, name) in numbered(&root.join("sys/devices/system/cpu"), "cpu") {
            let file = cpu.join("cpufreq/scaling_cur_freq");
            machine.add(&file, Kind::Number(1e-3), &[("cpu frequency", &name, "MHz")]);
        }
        for (zone, name) in numbered(&root.join("sys/class/thermal"), "thermal_zone") {
            let name = word(&zone.join("type")).unwrap_or(name);
            machine.add(&zone.join("temp"), Kind::Number(1e-3), &[("temperature", &name, "C")]);
        }
        for (domain, name) in numbered(&root.join("sys/class/powercap"), "intel-rapl") {
            let name = word(&domain.join("name")).unwrap_or(name);
            let most = number(&domain.join("max_energy_range_uj")).unwrap_or(f64::INFINITY);
            machine.add(&domain.join("energy_uj"), Kind::Energy(most), &[("power", &name, "W")]);
        }
        let memory = ["available", "cached", "dirty"].map(|name| ("memory", name, "MiB"));
        machine.add(&root.join("proc/meminfo"), Kind::Memory, &memory);
        let resident = [("process memory", "resident", "MiB")];
        machine.add(&root.join("proc/self/status"), Kind::Resident, &resident);
        for what in ["cpu", "memory", "io"] {
            let file = root.join("proc/pressure").join(what);
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            // For the CPU, `full` has no meaning, although some versions of Linux print a line
            // `full`.
            let full = what != "cpu" && text.contains("full ");
            let names = [format!("{what} some"), format!("{what} full")];
            let all = [("pressure", &*names[0], "%"), ("pressure", &*names[1], "%")];
            machine.add(&file, Kind::Pressure(full), &all[..1 + usize::from(full)]);
        }
        machine.add(
            &root.join("proc/stat"),
            Kind::Stat,
            &[
                ("cpu busy", "all", "%"),
                ("scheduler", "running", "tasks"),
                ("scheduler", "blocked", "tasks"),
                ("scheduler rate", "context switches", "1/s"),
            ],
        );
        let waiting = [("run queue", "waiting", "%")];
        machine.add(&root.join("proc/self/schedstat"), Kind::Schedstat, &waiting);
        machine
    }

    fn add(&mut self, path: &Path, kind: Kind, series: &[(&'static str, &str, &'static str)]) {
        let Ok(file) = File::open(path) else { return };
        let mut text = Vec::new();
        // Some drivers provide the file, but reading it fails.
        if !read_all(&file, &mut text) {
            return;
        }
        let file = descriptors::high(file);
        let first = self.series.len() as u32;
        self.series.extend(series.iter().map(|(track, name, unit)| {
            // Kineto's traces allow only printable ASCII characters in names.
            let name = name.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' });
            Series { track, name: name.collect(), unit }
        }));
        self.sources.push(Source { file, kind, first, before: Vec::new(), last: None });
    }

    /// Adds NVIDIA's devices, if NVML finds any. NVML keeps files open in the calling thread's
    /// table of descriptors.
    pub fn add_nvml(&mut self, library: &Path) {
        self.nvml = Nvml::open(library, &mut self.series);
    }

    pub fn series(&self) -> &[Series] {
        &self.series
    }

    /// Returns the current values, each with the number of its series. A value that cannot be read
    /// is missing. The first sample has no values that need the interval since an earlier sample.
    pub fn sample(&mut self) -> Vec<(u32, f64)> {
        let mut values = Vec::with_capacity(self.series.len());
        for source in &mut self.sources {
            if !read_all(&source.file, &mut self.text) {
                source.before.clear();
                continue;
            }
            // Each file has its own time, because the thread may lose its CPU between two files.
            let now = Instant::now();
            let seconds = source.last.map(|last| now.duration_since(last).as_secs_f64());
            source.last = Some(now);
            let text = String::from_utf8_lossy(&self.text);
            source.values(&text, seconds, &mut values);
        }
        if let Some(nvml) = &mut self.nvml {
            nvml.sample(&mut values);
        }
        values
    }
}

/// Returns the number after `word`, on the first line that begins with `word`.
fn after(text: &str, word: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(word))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

impl Source {
    fn values(&mut self, text: &str, seconds: Option<f64>, out: &mut Vec<(u32, f64)>) {
        let first = self.first;
        let mut put = |offset: u32, value: Option<f64>| {
            if let Some(value) = value.filter(|value| value.is_finite()) {
                out.push((first + offset, value));
            }
        };
        match self.kind {
            Kind::Number(scale) => {
                put(0, text.trim().parse::<f64>().ok().map(|value| value * scale));
            }
            Kind::Energy(most) => {
                let sums: Vec<f64> = text.trim().parse().into_iter().collect();
                let rate = self.rates(sums, seconds, most);
                put(0, rate.first().map(|per_second| per_second * 1e-6));
            }
            Kind::Memory => {
                for (offset, word) in ["MemAvailable:", "Cached:", "Dirty:"].iter().enumerate() {
                    put(offset as u32, after(text, word).map(|kib| kib / 1024.0));
                }
            }
            Kind::Resident => {
                put(0, after(text, "VmRSS:").map(|kib| kib / 1024.0));
            }
            Kind::Pressure(full) => {
                // The numbers after `total=` are sums of stalled time, in µs.
                let total = |word: &str| {
                    let line = text.lines().find(|line| line.starts_with(word))?;
                    line.split("total=").nth(1)?.trim().parse::<f64>().ok()
                };
                let words = ["some", "full"];
                let sums: Option<Vec<f64>> =
                    words[..1 + usize::from(full)].iter().map(|word| total(word)).collect();
                let rates = self.rates(sums.unwrap_or_default(), seconds, f64::INFINITY);
                for (offset, rate) in rates.iter().enumerate() {
                    put(offset as u32, Some(rate * 1e-6 * 100.0));
                }
            }
            Kind::Stat => {
                let times = text.lines().find_map(|line| line.strip_prefix("cpu "));
                let times: Vec<f64> = times
                    .map(|line| line.split_ascii_whitespace().flat_map(str::parse).collect())
                    .unwrap_or_default();
                // The numbers are user, nice, system, idle, iowait, irq, softirq and steal; the
                // guests are included in user.
                let all: f64 = times.iter().take(8).sum();
                let idle: f64 = times.iter().skip(3).take(2).sum();
                let switches = after(text, "ctxt ");
                let sums = match (times.len() >= 8, switches) {
                    (true, Some(switches)) => vec![all, all - idle, switches],
                    _ => Vec::new(),
                };
                let rates = self.rates(sums, seconds, f64::INFINITY);
                if let [all, busy, switches] = rates[..] {
                    // If less than one tick of time has passed, the share is not known.
                    put(0, (all * seconds.unwrap_or(0.0) >= 1.0).then(|| busy / all * 100.0));
                    put(3, Some(switches));
                }
                put(1, after(text, "procs_running "));
                put(2, after(text, "procs_blocked "));
            }
            Kind::Schedstat => {
                // The first two numbers are the time on a CPU and the time of waiting for a CPU, in
                // ns.
                let waited = text.split_ascii_whitespace().nth(1).and_then(|n| n.parse().ok());
                let rates = self.rates(waited.into_iter().collect(), seconds, f64::INFINITY);
                put(0, rates.first().map(|rate| rate * 1e-9 * 100.0));
            }
        }
    }

    /// Returns the growth of sums per second, or an empty list if no earlier sums can be compared.
    /// If a sum is smaller than before, it has started again at 0 after `most`.
    fn rates(&mut self, sums: Vec<f64>, seconds: Option<f64>, most: f64) -> Vec<f64> {
        let rates = match seconds {
            Some(seconds) if seconds > 0.0 && sums.len() == self.before.len() => sums
                .iter()
                .zip(&self.before)
                .map(|(now, before)| {
                    let grown = if now < before { now + most - before } else { now - before };
                    grown / seconds
                })
                .collect(),
            _ => Vec::new(),
        };
        self.before = sums;
        rates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with files like those of a machine.
    struct Root(PathBuf);

    impl Root {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("telemetry-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            Self(path)
        }

        fn file(&self, name: &str, text: &str) {
            let path = self.0.join(name);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("makes it");
            std::fs::write(path, text).expect("writes");
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn stat(user: u64, idle: u64, switches: u64) -> String {
        format!(
            "cpu  {user} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 2 3\nctxt {switches}\nprocs_running 3\n\
             procs_blocked 1\n"
        )
    }

    #[test]
    fn values_are_those_of_the_files_and_differences_those_of_the_interval() {
        let root = Root::new("values");
        root.file("sys/devices/system/cpu/cpu10/cpufreq/scaling_cur_freq", "3200000\n");
        root.file("sys/devices/system/cpu/cpu2/cpufreq/scaling_cur_freq", "800000\n");
        root.file("sys/class/thermal/thermal_zone0/temp", "47500\n");
        root.file("sys/class/thermal/thermal_zone0/type", "x86_pkg_temp\n");
        root.file("sys/class/powercap/intel-rapl:0/energy_uj", "999000000\n");
        root.file("sys/class/powercap/intel-rapl:0/max_energy_range_uj", "1000000000\n");
        root.file("sys/class/powercap/intel-rapl:0/name", "package-0\n");
        root.file("proc/meminfo", "MemAvailable: 2048 kB\nCached: 1024 kB\nDirty: 512 kB\n");
        root.file("proc/self/status", "Name:\tx\nVmRSS:\t    2048 kB\n");
        root.file("proc/pressure/io", "some avg10=0 total=1000000\nfull avg10=0 total=500000\n");
        root.file("proc/stat", &stat(100, 100, 5_000));
        root.file("proc/self/schedstat", "1 1000000000 7\n");
        let mut machine = Machine::open(&root.0);
        let named = |machine: &Machine, values: &[(u32, f64)]| -> Vec<(String, f64)> {
            values
                .iter()
                .map(|(series, value)| {
                    let Series { track, name, unit } = &machine.series()[*series as usize];
                    (format!("{track}/{name} {unit}"), *value)
                })
                .collect()
        };
        let first = machine.sample();
        let expected = [
            ("cpu frequency/cpu2 MHz", 800.0),
            ("cpu frequency/cpu10 MHz", 3200.0),
            ("temperature/x86_pkg_temp C", 47.5),
            ("memory/available MiB", 2.0),
            ("memory/cached MiB", 1.0),
            ("memory/dirty MiB", 0.5),
            ("process memory/resident MiB", 2.0),
            ("scheduler/running tasks", 3.0),
            ("scheduler/blocked tasks", 1.0),
        ];
        assert_eq!(named(&machine, &first), expected.map(|(name, value)| (name.to_owned(), value)));

        // The test makes the last sample two seconds older. The energy sum grows by 1 J to its
        // largest value, and by 3 J after that.
        for source in &mut machine.sources {
            source.last = source.last.map(|last| last - std::time::Duration::from_secs(2));
        }
        root.file("sys/class/powercap/intel-rapl:0/energy_uj", "3000000\n");
        root.file("proc/pressure/io", "some avg10=0 total=2000000\nfull avg10=0 total=700000\n");
        root.file("proc/stat", &stat(250, 150, 6_000));
        root.file("proc/self/schedstat", "1 1500000000 7\n");
        let second = machine.sample();
        let find = |name: &str| {
            let all = named(&machine, &second);
            all.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
        };
        for (name, value) in [
            ("power/package-0 W", 2.0),
            ("pressure/io some %", 50.0),
            ("pressure/io full %", 10.0),
            ("cpu busy/all %", 75.0),
            ("scheduler rate/context switches 1/s", 500.0),
            ("run queue/waiting %", 25.0),
        ] {
            let found = find(name).unwrap_or_else(|| panic!("{name} is not in {second:?}"));
            // On a busy machine, more than two seconds have passed, so rates may be smaller than
            // `value`.
            assert!((0.7 * value..=1.001 * value).contains(&found), "{name}: {found}");
        }
    }

    #[test]
    fn what_a_machine_lacks_has_no_series() {
        let root = Root::new("nothing");
        root.file("proc/meminfo", "MemTotal: 5 kB\n");
        root.file("sys/class/thermal/thermal_zone0/temp", "");
        let mut machine = Machine::open(&root.0);
        assert_eq!(machine.series().len(), 3, "only those of meminfo");
        assert!(machine.sample().is_empty(), "and none of them is in it");
        root.file("proc/meminfo", "MemAvailable: many kB\nCached: 1024 kB\n");
        assert_eq!(machine.sample(), [(1, 1.0)]);
    }
}
