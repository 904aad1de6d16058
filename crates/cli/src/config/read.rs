//! Reads the part of TOML that `counterpoint.toml` uses: `key = "text"` and `key = 12`, with
//! comments.

use names::{Entries, Head};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Events,
    Budget,
    Loops,
    Top,
    Color,
    Pager,
    EventsDir,
}

struct Known {
    key: Key,
    name: &'static str,
    is_number: bool,
    in_projects: bool,
    /// Tests whether a text is allowed as this key's value. Not used for keys with numbers.
    is_right: fn(&str) -> bool,
    expected: &'static str,
}

const fn known(key: Key, name: &'static str, in_projects: bool) -> Known {
    Known { key, name, is_number: false, in_projects, is_right: |_| true, expected: "a text" }
}

const KEYS: [Known; 7] = [
    known(Key::Events, "events", true),
    known(Key::Budget, "budget", true),
    known(Key::Loops, "loops", true),
    Known { is_number: true, expected: "a number", ..known(Key::Top, "top", true) },
    Known {
        is_right: |text| matches!(text, "auto" | "always" | "never"),
        expected: "\"auto\", \"always\" or \"never\"",
        ..known(Key::Color, "color", true)
    },
    known(Key::Pager, "pager", false),
    known(Key::EventsDir, "events-dir", false),
];

impl Key {
    pub fn name(self) -> &'static str {
        KEYS.iter().find(|known| known.key == self).map_or("", |known| known.name)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Text(String),
    Number(u64),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

/// The settings of a file, each with the number of its line.
pub type Settings = Vec<(usize, Key, Value)>;

/// Parses the settings of a file. An error consists of the number of a line and a text that says
/// what is wrong in it.
pub fn settings(text: &str, of_project: bool) -> Result<Settings, (usize, String)> {
    let mut found = Settings::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |why: String| (number, why);
        if line.starts_with('[') {
            return Err(wrong(format!("{line}: there are no tables, only keys and values")));
        }
        let Some((name, rest)) = line.split_once('=') else {
            return Err(wrong(format!("{line:?} is not KEY = VALUE")));
        };
        let name = name.trim();
        let Some(known) = KEYS.iter().find(|known| known.name == name) else {
            let all: Vec<_> = KEYS.iter().map(|known| known.name).collect();
            return Err(wrong(format!("{name:?} is not a key; there are {}", all.join(", "))));
        };
        if of_project && !known.in_projects {
            return Err(wrong(format!(
                "{name} names a program or a path, so only the user's own file may have it \
                 (~/.config/counterpoint/counterpoint.toml)"
            )));
        }
        let value = value(rest.trim()).map_err(|why| wrong(format!("{name}: {why}")))?;
        let right = match &value {
            Value::Number(_) => known.is_number,
            Value::Text(text) => !known.is_number && (known.is_right)(text),
        };
        if !right {
            return Err(wrong(format!("{name}: expected {}", known.expected)));
        }
        if let Value::Text(text) = &value
            && of_project
            && known.key == Key::Events
            && let Some(probe) = probe_of_a_file(text)
        {
            return Err(wrong(format!(
                "events: {probe} names a file, so only the user's own file may have it \
                 (~/.config/counterpoint/counterpoint.toml)"
            )));
        }
        if let Some((before, ..)) = found.iter().find(|(_, key, _)| *key == known.key) {
            return Err(wrong(format!("{name} is in line {before} already")));
        }
        found.push((number, known.key, value));
    }
    Ok(found)
}

/// Returns the first counter of `events` that is a probe of a function in a file. `None` also if the
/// list cannot be parsed, because such a list is refused when it is used.
fn probe_of_a_file(events: &str) -> Option<String> {
    let list = names::parse(events).ok()?;
    let mut items = list.entries.iter().flat_map(|entry| match entry {
        Entries::Single(item) => std::slice::from_ref(item),
        Entries::Group { items, .. } => items.as_slice(),
    });
    items.find(|item| matches!(item.head, Head::Uprobe { .. })).map(ToString::to_string)
}

/// Parses a value, which a comment may follow.
fn value(text: &str) -> Result<Value, String> {
    if let Some(rest) = text.strip_prefix('"') {
        let mut value = String::new();
        let mut characters = rest.chars();
        loop {
            match characters.next() {
                Some('"') => break,
                Some('\\') => match characters.next() {
                    Some(escaped @ ('"' | '\\')) => value.push(escaped),
                    _ => return Err("after a backslash, only \" and \\ are known".to_owned()),
                },
                Some(character) => value.push(character),
                None => return Err("the text has no closing quote".to_owned()),
            }
        }
        return ends(characters.as_str()).map(|()| Value::Text(value));
    }
    if let Some(rest) = text.strip_prefix('\'') {
        let (value, rest) = rest.split_once('\'').ok_or("the text has no closing quote")?;
        return ends(rest).map(|()| Value::Text(value.to_owned()));
    }
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let number = digits.parse();
    let number = number.map_err(|_| "expected a text in quotes or a number".to_owned())?;
    ends(rest).map(|()| Value::Number(number))
}

fn ends(rest: &str) -> Result<(), String> {
    let rest = rest.trim();
    match rest.is_empty() || rest.starts_with('#') {
        true => Ok(()),
        false => Err(format!("{rest:?} follows the value")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_comments() {
        let text = "# ours\nevents = \"page-faults\" # which\n\n top=12\nloops = '--mode timed'\n";
        let expected = [
            (2, Key::Events, Value::Text("page-faults".into())),
            (4, Key::Top, Value::Number(12)),
            (5, Key::Loops, Value::Text("--mode timed".into())),
        ];
        assert_eq!(settings(text, true).unwrap(), expected);
    }

    #[test]
    fn what_is_wrong_has_a_line() {
        for (text, line, why) in [
            ("\nplugins = \"x.so\"", 2, "\"plugins\" is not a key; there are events, budget"),
            ("[run]", 1, "[run]: there are no tables"),
            ("events", 1, "\"events\" is not KEY = VALUE"),
            ("events = page", 1, "events: expected a text in quotes or a number"),
            ("top = \"x\"", 1, "top: expected a number"),
            ("color = \"red\"", 1, "color: expected \"auto\""),
            ("events = \"x", 1, "events: the text has no closing quote"),
            ("events = \"x\" y", 1, "events: \"y\" follows the value"),
            ("events = \"\\n\"", 1, "events: after a backslash"),
            ("top = 1\ntop = 2", 2, "top is in line 1 already"),
            ("pager = \"sh -c evil\"", 1, "pager names a program or a path"),
            ("events-dir = \"/x\"", 1, "events-dir names a program or a path"),
            ("events = \"{page-faults,uprobe:/x:f}\"", 1, "events: uprobe:/x:f names a file"),
            ("events = ' URETPROBE:/y:g'", 1, "events: uretprobe:/y:g names a file"),
            ("top = 99999999999999999999999", 1, "top: expected a text in quotes or a number"),
        ] {
            let (at, said) = settings(text, true).unwrap_err();
            assert!(at == line && said.starts_with(why), "{text}: {at}: {said}");
        }
        for users in ["pager = \"less -S\"", "events = \"uprobe:/x:f\""] {
            assert!(settings(users, false).is_ok(), "{users}");
        }
    }
}
