//! Describes a kind of host (a runtime whose calls are recorded, such as IREE or PyTorch). The
//! host's adapter writes the description into the metadata of a process. So code that shows or
//! exports calls need not know the individual hosts.
//!
//! ```text
//!  number u8 · flags u8 · 3 × u32 thousandths · name · title · ops · library key · without calls ·
//!  bookkeeping · profiler · u8 n · n × (role u8 · kind) · u8 n · n × numbered · inside
//! ```
//!
//! A text consists of its length (four bytes) and UTF-8. The field *inside* was added in a later
//! version; it is empty if the description ends before it. A reader does not trust a description:
//! see [`Host::within_bounds`].

use std::borrow::Cow;

use crate::role::Role;
use crate::wire::{Decoder, Encoder, Truncated, Wire};

/// A text of a description: a constant of an adapter, or read from a file.
pub type Text = Cow<'static, str>;

/// Maximum length of a text in a description, in bytes.
pub const LONGEST_TEXT: usize = 400;
/// The largest number of entries of a list in a description.
pub const MOST_ENTRIES: usize = 8;
const MOST_THOUSANDTHS: u32 = 100_000;

/// One kind of host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host {
    /// A short name in lower case, such as `iree`.
    pub name: Text,
    /// The name that people use, such as `IREE`.
    pub title: Text,
    /// Whether the host calls ops, as a virtual machine does.
    pub calls_ops: bool,
    /// Whether the functions of the host's libraries are called for each workgroup of a dispatch.
    pub dispatches: bool,
    /// Whether the recorder only times the host's parallel regions and the launching thread's tasks
    /// in them, without reading counters. The counts of the op that launches a region already
    /// include the region and these tasks.
    pub times_regions_only: bool,
    /// Whether the program itself runs between two ops. If so, the time between ops does not belong
    /// to the host, and the cost of announcing an op is measured separately.
    pub program_between_ops: bool,
    /// Whether shapes of arguments distinguish the host's ops only if the user asks for this (`run
    /// --shapes`).
    pub shapes_if_asked: bool,
    /// A factor in thousandths: its best estimate, and the low and the high end of its range. A
    /// bracket (the recorder's work before and after a call) costs more in the program than in the
    /// calibration, and the times of brackets show only a part of this additional cost. The whole
    /// additional cost is that part times the factor. All three numbers are 1,000 if the times of
    /// brackets show the whole additional cost.
    pub unseen: [u32; 3],
    /// The words for the host's ops, such as `the ops of PyTorch`. Empty if the host calls no ops.
    pub ops: Text,
    /// The key under which exported traces contain the name of a call's library, such as `machine`.
    pub library_key: Text,
    /// A sentence that explains why the host may have no calls although it was seen in the program.
    /// Empty if there is none.
    pub without_calls: Text,
    /// The beginning of the names of the host's bookkeeping ops. Usually, no counters are read for
    /// them. Empty if the host has none.
    pub bookkeeping: Text,
    /// The name of the host's own profiler, such as `torch.profiler`. Empty if the host has none.
    pub profiler: Text,
    /// The host's own names for calls of some roles (kinds of calls). For calls of other roles, all
    /// hosts share the same names.
    pub kinds: Cow<'static, [(Role, Text)]>,
    /// Prefixes of names, such as `ProfilerStep#`. Calls whose names differ only in the number
    /// after such a prefix share one row of a table.
    pub numbered: Cow<'static, [Text]>,
    /// A text that tells the user how to see the loops inside of the host's functions. Empty if the
    /// functions cannot be instrumented.
    pub inside: Text,
}

impl Host {
    /// A host without a description. Adapters list only the fields that differ from this constant,
    /// and take the others from it.
    pub const UNKNOWN: Self = Self {
        name: Cow::Borrowed(""),
        title: Cow::Borrowed("an unknown host"),
        calls_ops: false,
        dispatches: true,
        times_regions_only: false,
        program_between_ops: false,
        shapes_if_asked: false,
        unseen: [1_000; 3],
        ops: Cow::Borrowed(""),
        library_key: Cow::Borrowed("library"),
        without_calls: Cow::Borrowed(""),
        bookkeeping: Cow::Borrowed(""),
        profiler: Cow::Borrowed(""),
        kinds: Cow::Borrowed(&[]),
        numbered: Cow::Borrowed(&[]),
        inside: Cow::Borrowed(""),
    };

    /// Returns the host's name for calls of this role, if it has one.
    pub fn kind(&self, role: Role) -> Option<&str> {
        self.kinds.iter().find(|(of, _)| *of == role).map(|(_, name)| &**name)
    }

    /// Returns the name under which tables show a call, if it differs from `name`. Calls whose
    /// names differ only in the number after a prefix share a row, whose name ends in `*`.
    pub fn shown_name(&self, name: &str) -> Option<String> {
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
        let prefix = self.numbered.iter().find(|prefix| {
            !prefix.is_empty() && name.strip_prefix(&***prefix).is_some_and(is_number)
        })?;
        Some(format!("{}*", prefix.trim_end_matches('#')))
    }

    /// Returns whether an op of this name is bookkeeping.
    pub fn is_bookkeeping(&self, name: &str) -> bool {
        !self.bookkeeping.is_empty() && name.starts_with(&*self.bookkeeping)
    }
}

impl Wire for Host {
    fn put(&self, e: &mut Encoder) {
        let flags = [
            self.calls_ops,
            self.dispatches,
            self.times_regions_only,
            self.program_between_ops,
            self.shapes_if_asked,
        ];
        let flags = flags.iter().rev().fold(0, |bits, flag| bits << 1 | u8::from(*flag));
        e.u8(flags);
        self.unseen.put(e);
        for text in [&self.name, &self.title, &self.ops, &self.library_key, &self.without_calls] {
            e.str(text);
        }
        e.str(&self.bookkeeping).str(&self.profiler).u8(self.kinds.len() as u8);
        for (role, kind) in self.kinds.iter() {
            e.u8(*role as u8).str(kind);
        }
        e.u8(self.numbered.len() as u8);
        self.numbered.iter().for_each(|prefix| {
            e.str(prefix);
        });
        e.str(&self.inside);
    }

    fn get(d: &mut Decoder<'_>) -> Result<Self, Truncated> {
        let (flags, unseen) = (d.u8()?, Wire::get(d)?);
        let flag = |bit: u8| flags >> bit & 1 == 1;
        let (name, title, ops, library_key, without_calls, bookkeeping, profiler) =
            (text(d)?, text(d)?, text(d)?, text(d)?, text(d)?, text(d)?, text(d)?);
        let mut kinds = Vec::new();
        for _ in 0..d.u8()? {
            let (role, kind) = (d.u8()?, text(d)?);
            // A role that a later version added is left out, because this version cannot read its
            // calls.
            let role = Role::ALL.get(usize::from(role));
            kinds.extend(role.map(|role| (*role, kind)));
        }
        let numbered = (0..d.u8()?).map(|_| text(d)).collect::<Result<Vec<_>, _>>()?;
        let inside = if d.remaining() == 0 { Text::default() } else { text(d)? };
        let host = Self {
            name,
            title,
            calls_ops: flag(0),
            dispatches: flag(1),
            times_regions_only: flag(2),
            program_between_ops: flag(3),
            shapes_if_asked: flag(4),
            unseen,
            ops,
            library_key,
            without_calls,
            bookkeeping,
            profiler,
            kinds: kinds.into(),
            numbered: numbered.into(),
            inside,
        };
        Ok(host.within_bounds())
    }
}

impl Host {
    /// Limits the description to what a file may contain: shortens texts and lists, removes control
    /// characters, limits numbers, and replaces an empty title or library key.
    pub fn within_bounds(mut self) -> Self {
        let [value, low, high] =
            self.unseen.map(|thousandths| thousandths.clamp(1_000, MOST_THOUSANDTHS));
        self.unseen = [value, low.min(value), high.max(value)];
        let texts = [
            &mut self.name,
            &mut self.title,
            &mut self.ops,
            &mut self.library_key,
            &mut self.without_calls,
            &mut self.bookkeeping,
            &mut self.profiler,
            &mut self.inside,
        ];
        for text in texts {
            *text = clean(text).into();
        }
        if self.library_key.is_empty() {
            self.library_key = Self::UNKNOWN.library_key;
        }
        if self.title.is_empty() {
            self.title = match self.name.is_empty() {
                true => Self::UNKNOWN.title,
                false => self.name.clone(),
            };
        }
        let kinds = self.kinds.iter().take(MOST_ENTRIES);
        self.kinds =
            kinds.map(|(role, kind)| (*role, clean(kind).into())).collect::<Vec<_>>().into();
        let numbered = self.numbered.iter().take(MOST_ENTRIES);
        self.numbered = numbered.map(|prefix| clean(prefix).into()).collect::<Vec<_>>().into();
        self
    }
}

fn text(d: &mut Decoder<'_>) -> Result<Text, Truncated> {
    Ok(String::from_utf8_lossy(d.bytes()?).into_owned().into())
}

/// Removes control characters, and shortens the text to at most [`LONGEST_TEXT`] bytes.
fn clean(text: &str) -> String {
    let kept = text.chars().filter(|c| !c.is_control());
    let mut bytes = 0;
    kept.take_while(|c| {
        bytes += c.len_utf8();
        bytes <= LONGEST_TEXT
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(host: &Host) -> Host {
        let mut e = Encoder::new();
        host.put(&mut e);
        let bytes = e.finish();
        let read = Host::get(&mut Decoder::new(&bytes)).expect("whole");
        // Earlier versions wrote no text about the inside of functions.
        let earlier = bytes.len() - 4 - host.inside.len();
        let cut =
            Host::get(&mut Decoder::new(&bytes[..earlier])).expect("as of an earlier version");
        assert_eq!(cut, Host { inside: "".into(), ..read.clone() });
        // A description that is cut anywhere else cannot be read. Of a long one, at most 500 cuts
        // are tested.
        let cuts = (0..bytes.len()).step_by(bytes.len().div_ceil(500));
        for cut in cuts.filter(|cut| *cut != earlier) {
            assert!(Host::get(&mut Decoder::new(&bytes[..cut])).is_err(), "cut at {cut}");
        }
        read
    }

    #[test]
    fn a_description_is_read_as_it_was_written() {
        let host = Host {
            name: "toy".into(),
            title: "Toy".into(),
            calls_ops: true,
            dispatches: false,
            program_between_ops: true,
            shapes_if_asked: true,
            unseen: [1_800, 1_000, 2_900],
            ops: "the ops of Toy".into(),
            library_key: "model".into(),
            without_calls: "it was seen".into(),
            bookkeeping: "toy.".into(),
            profiler: "toyprof".into(),
            kinds: vec![(Role::Region, "loop".into()), (Role::Task, "part".into())].into(),
            numbered: vec!["step#".into()].into(),
            inside: "compile it with toycc".into(),
            ..Host::UNKNOWN
        };
        assert_eq!(read(&host), host);
        assert_eq!(read(&Host::UNKNOWN), Host::UNKNOWN);
        assert_eq!((host.kind(Role::Task), host.kind(Role::Op)), (Some("part"), None));
        let shown = ["step#12", "step#", "step#1x", "other"].map(|name| host.shown_name(name));
        assert_eq!(shown, [Some("step*".to_owned()), None, None, None]);
        assert!(host.is_bookkeeping("toy.alloc") && !Host::UNKNOWN.is_bookkeeping("toy.alloc"));
    }

    #[test]
    fn a_hostile_description_is_put_into_bounds() {
        let long = "ä\u{1b}[31m\n".repeat(1_000);
        let host = Host {
            name: "".into(),
            title: "".into(),
            library_key: "\n".into(),
            without_calls: long.clone().into(),
            unseen: [u32::MAX, u32::MAX, 0],
            kinds: vec![(Role::Op, long.clone().into()); 200].into(),
            numbered: vec![long.into(); 200].into(),
            ..Host::UNKNOWN
        };
        let read = read(&host);
        assert_eq!(read.unseen, [MOST_THOUSANDTHS; 3]);
        assert_eq!((&*read.title, &*read.library_key), ("an unknown host", "library"));
        assert_eq!((read.kinds.len(), read.numbered.len()), (MOST_ENTRIES, MOST_ENTRIES));
        let kinds = read.kinds.iter().map(|(_, kind)| kind);
        for text in kinds.chain(read.numbered.iter()).chain([&read.without_calls]) {
            assert!(!text.is_empty() && text.len() <= LONGEST_TEXT);
            assert!(!text.chars().any(char::is_control));
        }
    }
}
