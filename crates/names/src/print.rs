//! Prints a counter list so that [`super::parse()`] reads the same list.

use std::fmt;

use crate::syntax::{Access, Entries, Head, Item, List, Modifiers, Term};

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, entry) in self.entries.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{entry}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Single(item) => write!(f, "{item}"),
            Self::Group { items, modifiers } => {
                f.write_str("{")?;
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        f.write_str(",")?;
                    }
                    write!(f, "{item}")?;
                }
                write!(f, "}}{modifiers}")
            }
        }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.head, self.modifiers)
    }
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => f.write_str(word),
            Self::Tracepoint { system, name, filter } => {
                write!(f, "{system}:{name}")?;
                match filter {
                    Some(filter) => write!(f, "/filter={}/", quoted(&filter.text)),
                    None => Ok(()),
                }
            }
            Self::Pmu { pmu, terms } => {
                write!(f, "{pmu}/")?;
                for (i, term) in terms.iter().enumerate() {
                    let comma = if i > 0 { "," } else { "" };
                    write!(f, "{comma}{term}")?;
                }
                f.write_str("/")
            }
            Self::Uprobe { returns, path, symbol, offset, .. } => {
                let kind = if *returns { "uretprobe" } else { "uprobe" };
                match path.is_empty() || path.contains(awkward_in_paths) {
                    true => write!(f, "{kind}:{}:", quoted(path))?,
                    false => write!(f, "{kind}:{path}:")?,
                }
                match (symbol, offset) {
                    (None, offset) => write!(f, "{offset:#x}"),
                    (Some(symbol), 0) => f.write_str(symbol),
                    (Some(symbol), offset) => write!(f, "{symbol}+{offset:#x}"),
                }
            }
            Self::Papi { pmu, name, attributes } => {
                write!(f, "{pmu}::{name}")?;
                // The parser does not treat quotes in attributes specially, so attributes are
                // printed without added quotes.
                attributes.iter().try_for_each(|Term { name, value, .. }| match value {
                    Some(value) => write!(f, ":{name}={value}"),
                    None => write!(f, ":{name}"),
                })
            }
            Self::Device { component, name } => write!(f, "{component}:::{name}"),
            Self::Breakpoint { address, len, access } => {
                write!(f, "mem:{address:#x}")?;
                if let Some(len) = len {
                    write!(f, "/{len}")?;
                }
                match access {
                    Some(access) => write!(f, ":{access}"),
                    None => Ok(()),
                }
            }
        }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match &self.value {
            Some(value) if value.is_empty() || value.contains(AWKWARD_IN_VALUES) => {
                write!(f, "={}", quoted(value))
            }
            Some(value) => write!(f, "={value}"),
            None => Ok(()),
        }
    }
}

const AWKWARD_IN_VALUES: [char; 4] = [',', '/', '"', '\\'];

fn awkward_in_paths(c: char) -> bool {
    c.is_whitespace() || ",:{}\"\\".contains(c)
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        letters(f, &[(self.read, "r"), (self.write, "w"), (self.execute, "x")])
    }
}

impl fmt::Display for Modifiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return Ok(());
        }
        f.write_str(":")?;
        letters(
            f,
            &[
                (self.user, "u"),
                (self.kernel, "k"),
                (self.hypervisor, "h"),
                (self.guest, "G"),
                (self.host, "H"),
                (self.not_idle, "I"),
                (self.pinned, "D"),
                (self.exclusive, "e"),
            ],
        )
    }
}

fn letters(f: &mut fmt::Formatter<'_>, letters: &[(bool, &str)]) -> fmt::Result {
    letters.iter().filter(|(on, _)| *on).try_for_each(|(_, letter)| f.write_str(letter))
}
