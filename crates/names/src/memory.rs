//! Resolves hardware breakpoints: `mem:address[/length][:rwx]`. The address must be known before
//! the program starts. It is known for programs that were linked with `-no-pie`.

use model::{PerfAttr, Source, Unit};

use crate::error::NameErrorKind;
use crate::source::{Entry, NameSource, Resolved, Trouble};
use crate::syntax::{Access, Head};

const TYPE_BREAKPOINT: u32 = 5;

pub(crate) struct Breakpoints;

impl NameSource for Breakpoints {
    fn resolve(&self, head: &Head) -> Option<Result<Vec<Resolved>, Trouble>> {
        let &Head::Breakpoint { address, len, access } = head else { return None };
        let access = access.unwrap_or(Access { read: true, write: true, execute: false });
        // The default lengths are perf's: 4 bytes for data, and the size of a C `long` for code,
        // for which the kernel refuses other lengths.
        let len = len.unwrap_or(if access.execute { size_of::<usize>() as u64 } else { 4 });
        let wrong = |problem: &str| {
            let (text, problem) = (head.to_string(), problem.into());
            Some(Err(Trouble::new(NameErrorKind::Value { text, problem })))
        };
        if access.execute && (access.read || access.write) {
            return wrong("a breakpoint counts executions or accesses, not both");
        }
        if !matches!(len, 1 | 2 | 4 | 8) {
            return wrong("a breakpoint watches 1, 2, 4 or 8 bytes");
        }
        // The bits are HW_BREAKPOINT_R, _W and _X of linux/hw_breakpoint.h.
        let bp_type =
            u32::from(access.read) | u32::from(access.write) << 1 | u32::from(access.execute) << 2;
        let attr = PerfAttr {
            kind: TYPE_BREAKPOINT,
            config1: address,
            config2: len,
            bp_type,
            ..PerfAttr::default()
        };
        Some(Ok(vec![Resolved::new(Source::Perf(attr), Unit::Count)]))
    }

    fn entries(&self) -> Vec<Entry> {
        vec![Entry::pattern(
            "mem:ADDRESS[/LENGTH][:rwx]",
            "breakpoint",
            "accesses to an address, by a hardware breakpoint",
        )]
    }
}
