//! Represents where the bits of a term are in a counter's configuration: `config:0-7,32-35`. These
//! places are read from sysfs. If sysfs lacks the processor's PMU, they come from the tables in
//! this file, which follow the processors' manuals.

use model::PerfAttr;

use machine::Machine;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Config,
    Config1,
    Config2,
    Config3,
}

/// Where the bits of a value are, from the least significant bit on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    field: Field,
    bits: Vec<u32>,
}

impl Format {
    /// Reads `config:0-7,32-35`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (field, ranges) = text.split_once(':')?;
        let field = match field {
            "config" => Field::Config,
            "config1" => Field::Config1,
            "config2" => Field::Config2,
            "config3" => Field::Config3,
            _ => return None,
        };
        let mut bits = Vec::new();
        for range in ranges.split(',') {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            let (from, to): (u32, u32) = (from.parse().ok()?, to.parse().ok()?);
            if from > to || to > 63 {
                return None;
            }
            bits.extend(from..=to);
        }
        (bits.len() <= 64).then_some(Self { field, bits })
    }

    /// Returns how many bits a value may have.
    pub(crate) fn bits(&self) -> usize {
        self.bits.len()
    }

    /// Puts a value into the bits of `attr`. The value must fit [`Format::bits`].
    pub(crate) fn put(&self, attr: &mut PerfAttr, value: u64) {
        let word = match self.field {
            Field::Config => &mut attr.config,
            Field::Config1 => &mut attr.config1,
            Field::Config2 => &mut attr.config2,
            Field::Config3 => &mut attr.config3,
        };
        for (i, &bit) in self.bits.iter().enumerate() {
            *word = *word & !(1 << bit) | (value >> i & 1) << bit;
        }
    }
}

/// The name of a term, and its format as sysfs writes it.
pub(crate) type Row = (&'static str, &'static str);

/// The layout of Intel's counters. Source: Intel SDM volume 3, "Architectural Performance
/// Monitoring" (IA32_PERFEVTSELx), and the auxiliary registers as Linux numbers them
/// (arch/x86/events/intel/core.c, Linux 6.12).
const INTEL: &[Row] = &[
    ("event", "config:0-7"),
    ("umask", "config:8-15"),
    ("edge", "config:18"),
    ("any", "config:21"),
    ("inv", "config:23"),
    ("cmask", "config:24-31"),
    ("offcore_rsp", "config1:0-63"),
    ("ldlat", "config1:0-15"),
    ("frontend", "config1:0-23"),
];

/// The layout of AMD's counters. Source: AMD64 Architecture Programmer's Manual volume 2,
/// "Performance Event-Select Registers".
const AMD: &[Row] = &[
    ("event", "config:0-7,32-35"),
    ("umask", "config:8-15"),
    ("edge", "config:18"),
    ("inv", "config:23"),
    ("cmask", "config:24-31"),
];

/// The layout of Arm's counters. Source: Arm Architecture Reference Manual, PMEVTYPER.evtCount.
const ARM: &[Row] = &[("event", "config:0-15"), ("long", "config1:0"), ("rdpmc", "config1:1")];

/// Returns the layout of the counters of this machine's processor, if it is known.
pub(crate) fn documented(machine: &Machine) -> &'static [Row] {
    match machine.field("proc/cpuinfo", "vendor_id").as_deref() {
        Some("GenuineIntel") => INTEL,
        Some("AuthenticAMD" | "HygonGenuine") => AMD,
        Some(_) => &[],
        None if machine.field("proc/cpuinfo", "CPU implementer").is_some() => ARM,
        None => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_and_their_order() {
        let format = Format::parse("config:0-7,32-35").unwrap();
        assert_eq!(format.bits(), 12);
        let mut attr = PerfAttr { config: 0xff00_00ff, ..PerfAttr::default() };
        format.put(&mut attr, 0x1c2);
        assert_eq!(attr.config, 0x1_ff00_00c2);
        let third = Format::parse("config3:4").unwrap();
        third.put(&mut attr, 1);
        assert_eq!(attr.config3, 0x10);
        for wrong in ["", "config", "config:", "config:7-0", "config:64", "config4:0", "config:x"] {
            assert_eq!(Format::parse(wrong), None, "{wrong}");
        }
        assert_eq!(Format::parse("config:0-63,0"), None);
        for (term, text) in INTEL.iter().chain(AMD).chain(ARM) {
            assert!(Format::parse(text).is_some(), "{term}");
        }
    }
}
