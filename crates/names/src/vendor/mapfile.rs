//! Chooses a directory's tables for the machine's processor: those that `mapfile.csv` names, or all
//! if there is no such file.
//!
//! ```text
//!  the kernel     GenuineIntel-6-(8F|CF),v1.20,sapphirerapids,core          → folder, all its files
//!                 0x00000000410fd0c0,v1,arm/neoverse-n1,core
//!  Intel          GenuineIntel-6-8F,V1.20,/SPR/events/sapphirerapids_core.json,core,,,   → file
//!                 GenuineIntel-6-97,V1.28,/ADL/…_goldencove_core.json,hybridcore,0x40,0x1,Core
//! ```

use std::fs;
use std::path::{Component, Path, PathBuf};

use machine::Machine;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Chosen {
    /// Files of events, and the PMU of those events that name no unit.
    pub(super) files: Vec<(PathBuf, String)>,
    /// Files of events to which others refer (`ArchStdEvent`).
    pub(super) standard: Vec<PathBuf>,
}

pub(super) fn choose(directory: &Path, machine: &Machine) -> Result<Chosen, String> {
    let arch = if is_arm(machine) { "arm64" } else { "x86" };
    let roots = [directory.to_owned(), directory.join(arch), directory.join("arch").join(arch)];
    let Some(root) = roots.iter().find(|root| root.join("mapfile.csv").is_file()) else {
        let files = json_files(directory)?;
        if files.is_empty() {
            return Err(format!("{}: no mapfile.csv and no *.json", directory.display()));
        }
        let files = files.into_iter().map(|file| (file, "cpu".to_owned())).collect();
        return Ok(Chosen { files, standard: Vec::new() });
    };
    let map = root.join("mapfile.csv");
    let text = fs::read_to_string(&map).map_err(|e| format!("read {}: {e}", map.display()))?;
    let Some(cpu) = Cpu::of(machine) else {
        return Err(format!("{}: this machine's processor is not known", map.display()));
    };
    let mut chosen = Chosen::default();
    for row in text.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = row.split(',').map(str::trim).collect();
        let (Some(pattern), Some(place)) = (fields.first(), fields.get(2)) else { continue };
        if !cpu.matches(pattern) {
            continue;
        }
        // A path must not lead out of the directory. In Intel's mapfiles, paths begin with a slash.
        let place = Path::new(place.trim_start_matches('/'));
        if !place.components().all(|part| matches!(part, Component::Normal(_))) {
            let place = place.display();
            return Err(format!("{}: \"{place}\" is not inside of its directory", map.display()));
        }
        let path = root.join(place);
        let pmu = match fields.get(6).map(|role| role.to_ascii_lowercase()).as_deref() {
            Some("atom") => "cpu_atom",
            Some("core") if fields.get(3) == Some(&"hybridcore") => "cpu_core",
            _ => "cpu",
        };
        let files = if path.is_dir() { json_files(&path)? } else { vec![path] };
        chosen.files.extend(files.into_iter().map(|file| (file, pmu.to_owned())));
    }
    if chosen.files.is_empty() {
        return Err(format!("{}: no row for this processor, {cpu}", map.display()));
    }
    chosen.standard = json_files(root)?;
    Ok(chosen)
}

fn json_files(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let entries =
        fs::read_dir(directory).map_err(|e| format!("read {}: {e}", directory.display()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
    files.sort();
    Ok(files)
}

const MIDR: &str = "sys/devices/system/cpu/cpu0/regs/identification/midr_el1";

fn is_arm(machine: &Machine) -> bool {
    machine.exists(MIDR) || machine.field("proc/cpuinfo", "CPU implementer").is_some()
}

/// A processor as it is named in mapfiles.
enum Cpu {
    /// `GenuineIntel-6-8F`, and the stepping.
    X86 { model: String, stepping: String },
    /// MIDR_EL1 without variant and revision.
    Arm { midr: u64 },
}

/// The bits of variant and revision in MIDR_EL1. Processors that differ only in these share a
/// table.
const MIDR_VERSION: u64 = 0x00f0_000f;

impl Cpu {
    fn of(machine: &Machine) -> Option<Self> {
        if let Some(text) = machine.read_trimmed(MIDR) {
            let digits = text.trim_start_matches("0x");
            let midr = u64::from_str_radix(digits, 16).ok()? & !MIDR_VERSION;
            return Some(Self::Arm { midr });
        }
        let field = |key| machine.field("proc/cpuinfo", key);
        let number = |key| field(key)?.parse::<u32>().ok();
        let vendor = field("vendor_id")?;
        let (family, model) = (number("cpu family")?, number("model")?);
        let stepping = format!("{:X}", number("stepping").unwrap_or(0));
        Some(Self::X86 { model: format!("{vendor}-{family}-{model:X}"), stepping })
    }

    /// Whether a row is for this processor. On x86, patterns are POSIX extended regular
    /// expressions. A pattern without a stepping matches all steppings.
    fn matches(&self, pattern: &str) -> bool {
        match self {
            Self::Arm { midr } => {
                let digits = pattern.trim_start_matches("0x");
                u64::from_str_radix(digits, 16).is_ok_and(|row| row & !MIDR_VERSION == *midr)
            }
            Self::X86 { model, stepping } => {
                let Ok(whole) = regex::Regex::new(&format!("^(?:{pattern})$")) else {
                    return false;
                };
                whole.is_match(model) || whole.is_match(&format!("{model}-{stepping}"))
            }
        }
    }
}

impl std::fmt::Display for Cpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::X86 { model, stepping } => write!(f, "{model}-{stepping}"),
            Self::Arm { midr } => write!(f, "{midr:#018x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_for_processors() {
        let x86 = |model: &str, stepping: &str| Cpu::X86 {
            model: model.into(),
            stepping: stepping.into(),
        };
        for (cpu, pattern, expected) in [
            (x86("GenuineIntel-6-8F", "4"), "GenuineIntel-6-(8F|CF)", true),
            (x86("GenuineIntel-6-8F", "4"), "GenuineIntel-6-8F", true),
            (x86("GenuineIntel-6-8F", "4"), "GenuineIntel-6-8", false),
            (x86("GenuineIntel-6-55", "4"), "GenuineIntel-6-55-[01234]", true),
            (x86("GenuineIntel-6-55", "7"), "GenuineIntel-6-55-[01234]", false),
            (
                x86("AuthenticAMD-25-11", "1"),
                "AuthenticAMD-25-([12][[:xdigit:]]|[[:xdigit:]])",
                true,
            ),
            (
                x86("AuthenticAMD-25-61", "1"),
                "AuthenticAMD-25-([12][[:xdigit:]]|[[:xdigit:]])",
                false,
            ),
            (x86("AuthenticAMD-25-11", "1"), "([", false),
            (Cpu::Arm { midr: 0x410f_d0c0 & !MIDR_VERSION }, "0x00000000410fd0c0", true),
            (Cpu::Arm { midr: 0x413f_d0c1 & !MIDR_VERSION }, "0x00000000410fd0c0", true),
            (Cpu::Arm { midr: 0x410f_d0b0 & !MIDR_VERSION }, "0x00000000410fd0c0", false),
        ] {
            assert_eq!(cpu.matches(pattern), expected, "{cpu} {pattern}");
        }
    }
}
