//! Tracepoints: `system:name`, with the number from tracefs.

use std::io;

use model::{PerfAttr, Source, Unit};

use super::error::NameErrorKind;
use super::resolve::{Entry, NameSource, Resolved, Trouble};
use super::syntax::Head;
use crate::machine::Machine;

const TYPE_TRACEPOINT: u32 = 2;

/// Where tracefs is mounted, the modern place first.
pub(crate) const TRACEFS: [&str; 2] = ["sys/kernel/tracing", "sys/kernel/debug/tracing"];

/// [`NameSource`] of tracepoints.
pub(super) struct Tracepoints(pub Machine);

impl NameSource for Tracepoints {
    fn resolve(&self, head: &Head) -> Option<Result<Resolved, Trouble>> {
        let Head::Tracepoint { system, name } = head else { return None };
        Some(self.look_up(system, name))
    }

    fn entries(&self) -> Vec<Entry> {
        vec![Entry {
            name: "SYSTEM:NAME".into(),
            aliases: vec![],
            source: "tracepoint".into(),
            unit: Unit::Count,
            description: "a kernel tracepoint, as in syscalls:sys_enter_openat".into(),
            is_pattern: true,
        }]
    }
}

impl Tracepoints {
    fn look_up(&self, system: &str, name: &str) -> Result<Resolved, Trouble> {
        let typed = || format!("{system}:{name}");
        if system.contains('*') || name.contains('*') {
            let what = format!("a pattern of tracepoints ({})", typed());
            return Err(Trouble::new(NameErrorKind::Unsupported { what }));
        }
        let plain = |s: &str| s.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        if !plain(system) || !plain(name) {
            return Err(Trouble::new(NameErrorKind::Unknown { name: typed() }));
        }
        let Some(root) = TRACEFS.iter().find(|t| self.0.exists(&format!("{t}/events"))) else {
            let problem = format!("{}: tracefs is not mounted or not readable here", typed());
            let trouble = Trouble::new(NameErrorKind::Machine { problem });
            return Err(trouble.hint("sudo mount -t tracefs tracefs /sys/kernel/tracing"));
        };
        let path = format!("{root}/events/{system}/{name}/id");
        let id = match self.0.read(&path) {
            Ok(text) => text.trim().parse().ok(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Trouble::new(NameErrorKind::Unknown { name: typed() }));
            }
            Err(error) => {
                let problem = format!("{}: read /{path}: {error}", typed());
                let hint =
                    "tracepoints are readable by root: sudo chmod -R a+rX /sys/kernel/tracing";
                return Err(Trouble::new(NameErrorKind::Machine { problem }).hint(hint));
            }
        };
        let Some(config) = id else {
            let problem = format!("{}: /{path} holds no number", typed());
            return Err(Trouble::new(NameErrorKind::Machine { problem }));
        };
        let attr = PerfAttr { kind: TYPE_TRACEPOINT, config, ..PerfAttr::default() };
        Ok(Resolved::new(Source::Perf(attr), Unit::Count))
    }
}
