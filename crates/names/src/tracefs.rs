//! Resolves tracepoints: `system:name`. Their numbers are in tracefs.

use std::ffi::CString;
use std::{fs, io};

use model::{PerfAttr, Source, Unit};

use crate::cause::NameCause;
use crate::error::NameErrorKind;
use crate::source::{Entry, NameSource, Resolved, Trouble};
use crate::syntax::{Filter, Head};
use machine::Machine;
use machine::files::TRACEFS;

const TYPE_TRACEPOINT: u32 = 2;

pub(crate) struct Tracepoints(pub Machine);

impl NameSource for Tracepoints {
    fn resolve(&self, head: &Head) -> Option<Result<Vec<Resolved>, Trouble>> {
        let Head::Tracepoint { system, name, filter } = head else { return None };
        let filter = filter.as_ref();
        Some(
            self.look_up(system, name, filter)
                .map(|attr| vec![Resolved::new(Source::Perf(attr), Unit::Count)]),
        )
    }

    fn entries(&self) -> Vec<Entry> {
        let what = "a kernel tracepoint, as in syscalls:sys_enter_openat";
        vec![Entry::pattern("SYSTEM:NAME[/filter=\"…\"/]", "tracepoint", what)]
    }

    fn bulk(&self) -> Vec<Entry> {
        let root = TRACEFS.iter().find(|t| self.0.exists(&format!("{t}/events")));
        let list = root.and_then(|root| self.0.read(&format!("{root}/available_events")).ok());
        let names = list.iter().flat_map(|text| text.lines());
        names
            .filter(|name| name.contains(':'))
            .map(|name| Entry {
                bulk: true,
                ..Entry::new(name.trim(), "tracepoint", Unit::Count, "kernel tracepoint")
            })
            .collect()
    }
}

impl Tracepoints {
    fn look_up(
        &self,
        system: &str,
        name: &str,
        filter: Option<&Filter>,
    ) -> Result<PerfAttr, Trouble> {
        let typed = || format!("{system}:{name}");
        if system.contains('*') || name.contains('*') {
            let what = format!("a pattern of tracepoints ({})", typed());
            let cause = NameCause::TracepointPattern(typed());
            return Err(Trouble::new(NameErrorKind::Unsupported { what }).because(cause));
        }
        let plain = |s: &str| s.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        if !plain(system) || !plain(name) {
            return Err(Trouble::new(NameErrorKind::Unknown { name: typed() }));
        }
        // `kprobe` and `kretprobe` are kinds of probes, not systems of tracepoints, so without
        // tracefs the error is an unknown name. If somebody has named a group of probes `kprobe` or
        // `kretprobe`, the group is found in tracefs, below.
        let is_kind = matches!(system, "kprobe" | "kretprobe");
        let Some(root) = TRACEFS.iter().find(|t| self.0.exists(&format!("{t}/events"))) else {
            if is_kind {
                return Err(Trouble::new(NameErrorKind::Unknown { name: typed() }));
            }
            let at = |t: &&str| fs::metadata(self.0.path(&format!("{t}/events")));
            let denied = |e: io::Error| e.kind() == io::ErrorKind::PermissionDenied;
            if TRACEFS.iter().any(|t| at(t).is_err_and(denied)) {
                let problem = format!("{}: you may not read tracefs (EACCES)", typed());
                let trouble = Trouble::new(NameErrorKind::Machine { problem });
                return Err(trouble.because(NameCause::ClosedTracefs));
            }
            let problem = format!("{}: tracefs is not mounted here", typed());
            let trouble = Trouble::new(NameErrorKind::Machine { problem });
            return Err(trouble.because(NameCause::NoTracefs));
        };
        let path = format!("{root}/events/{system}/{name}/id");
        let id = match self.0.read(&path) {
            Ok(text) => text.trim().parse().ok(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Trouble::new(NameErrorKind::Unknown { name: typed() }));
            }
            Err(error) => {
                let problem = format!("{}: read /{path}: {error}", typed());
                let trouble = Trouble::new(NameErrorKind::Machine { problem });
                return Err(trouble.because(NameCause::ClosedTracefs));
            }
        };
        let Some(config) = id else {
            let problem = format!("{}: /{path} holds no number", typed());
            return Err(Trouble::new(NameErrorKind::Machine { problem }));
        };
        let filter = match filter {
            Some(filter) => {
                Some(self.condition(filter, &format!("{root}/events/{system}/{name}"))?)
            }
            None => None,
        };
        Ok(PerfAttr { kind: TYPE_TRACEPOINT, config, filter, ..PerfAttr::default() })
    }

    /// Returns the filter for the kernel. If the tracepoint's `format` can be read, the filter's
    /// fields are checked here, so that an error can name the fields that exist.
    fn condition(&self, filter: &Filter, dir: &str) -> Result<CString, Trouble> {
        let wrong = |text: &str, problem: String| {
            Trouble::new(NameErrorKind::Value { text: text.into(), problem }).at(filter.at)
        };
        let fields = self.0.read(&format!("{dir}/format")).map(|text| fields(&text));
        if let Ok(fields) = &fields {
            for field in compared(&filter.text) {
                // `fields` does not return these names, but filters may use them
                // (Documentation/trace/events.rst).
                let known = ["cpu", "CPU", "comm", "COMM", "common_pid"].contains(&field);
                if !known && !fields.iter().any(|f| f == field) {
                    let problem = "no field of this tracepoint".into();
                    return Err(wrong(field, problem).because(NameCause::Fields(fields.clone())));
                }
            }
        }
        CString::new(filter.text.as_str())
            .map_err(|_| wrong(&filter.text, "a filter holds no zero byte".into()))
    }
}

/// Returns the names of a tracepoint's fields, without the common ones, from lines of its `format`
/// like `field:unsigned int fd;\toffset:16;…`.
fn fields(format: &str) -> Vec<String> {
    let declarations = format.lines().filter_map(|line| {
        let (declaration, _) = line.trim().strip_prefix("field:")?.split_once(';')?;
        let name = declaration.rsplit([' ', '*']).next()?;
        Some(name.split('[').next().unwrap_or(name).to_owned())
    });
    declarations.filter(|name| !name.starts_with("common_")).collect()
}

/// Returns the words to the left of comparison operators, outside of quotes.
fn compared(filter: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (mut word, mut quote) = (None::<&str>, None::<char>);
    let mut chars = filter.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match quote {
            Some(q) if c == q => quote = None,
            Some(_) => {}
            None if c == '"' || c == '\'' => (quote, word) = (Some(c), None),
            None if is_word(c) => {
                let mut end = at + c.len_utf8();
                while let Some((next, _)) = chars.next_if(|(_, c)| is_word(*c)) {
                    end = next + 1;
                }
                word = filter.get(at..end);
            }
            None if "=!<>&~".contains(c) => {
                // && and || separate conditions; the other operators compare.
                let doubled = c == '&' && chars.next_if(|(_, c)| *c == '&').is_some();
                let name = word.take().filter(|w| !w.starts_with(|c: char| c.is_ascii_digit()));
                found.extend(name.filter(|_| !doubled));
            }
            None if c.is_whitespace() || c == ')' => {}
            None => word = None,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_format() {
        let text = "name: sys_enter_read\nformat:\n\tfield:unsigned short common_type;\toffset:0;\n\
                    \n\tfield:int __syscall_nr;\toffset:8;\n\tfield:char * buf;\toffset:24;\n\
                    \tfield:char comm[16];\toffset:8;\n";
        assert_eq!(fields(text), ["__syscall_nr", "buf", "comm"]);
    }

    #[test]
    fn what_a_filter_compares() {
        for (filter, expected) in [
            ("count > 100", vec!["count"]),
            ("count>100&&fd==3", vec!["count", "fd"]),
            ("(a & 4) || !(b ~ \"x*=y\")", vec!["a", "b"]),
            ("comm == 'a b' && id != 7", vec!["comm", "id"]),
            ("", vec![]),
        ] {
            assert_eq!(compared(filter), expected, "{filter}");
        }
    }
}
