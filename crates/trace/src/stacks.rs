//! Writes stacks with values, in the formats of programs that draw flame graphs.
//!
//! ```text
//!            ┌─ pprof        gzip and protobuf: `go tool pprof`, Pyroscope
//!  Stacks ───┼─ folded       lines `a;b;c 12`: inferno, flamegraph.pl
//!            └─ speedscope   JSON of speedscope.app
//! ```
//!
//! Folded lines can only have one kind of value.

pub mod folded;
pub mod pprof;
pub mod speedscope;

/// The unit of a kind of value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackUnit {
    /// Occurrences.
    Count,
    Nanoseconds,
    Bytes,
    /// Another unit, by name.
    Other(&'static str),
}

impl StackUnit {
    /// Returns the unit's name in pprof.
    fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Nanoseconds => "nanoseconds",
            Self::Bytes => "bytes",
            Self::Other(name) => name,
        }
    }
}

/// A function, a loop or a thread. Names should be printable: only [`folded`] replaces control
/// characters.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackFrame {
    pub name: String,
    /// Empty if it is not known.
    pub file: String,
    /// 0 if it is not known.
    pub line: u32,
}

/// A node of the tree of stacks. Its values do not include those of the nodes below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackNode {
    /// The node above this node. It has a lower index than this node.
    pub parent: Option<usize>,
    /// Index in [`Stacks::frames`].
    pub frame: usize,
    /// Numbers for the node and the nodes below it, such as the ids of a thread and a process.
    pub numbers: Vec<(&'static str, u64)>,
    /// In the order of [`Stacks::kinds`].
    pub values: Vec<u64>,
}

/// The stacks that the writers get.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stacks {
    /// Without duplicates.
    pub frames: Vec<StackFrame>,
    pub nodes: Vec<StackNode>,
    /// Name and unit of each kind of value.
    pub kinds: Vec<(String, StackUnit)>,
    /// The index in `kinds` of the kind of value that is shown first. [`folded`] contains only this
    /// kind.
    pub main: usize,
    /// The title of the profile.
    pub title: String,
    /// Remarks for people who read the profile.
    pub comments: Vec<String>,
    /// In ns since 1970; 0 if it is not known.
    pub begin_unix_ns: u64,
    /// Name and version of the program that writes.
    pub exporter: String,
}

impl Stacks {
    /// Returns a path for each node whose value of this kind is above 0, and the value. A path
    /// contains the node and the nodes above it, the outermost first.
    fn with(&self, kind: usize) -> impl Iterator<Item = (Vec<&StackNode>, u64)> {
        let has = move |node: &&StackNode| node.values.get(kind).is_some_and(|value| *value > 0);
        self.nodes.iter().filter(has).map(move |node| (self.path(node), node.values[kind]))
    }

    /// Returns a node and the nodes above it, the outermost first.
    fn path<'a>(&'a self, node: &'a StackNode) -> Vec<&'a StackNode> {
        let mut path = vec![node];
        let mut at = node.parent;
        while let Some(above) = at.and_then(|at| self.nodes.get(at)) {
            path.push(above);
            at = above.parent;
        }
        path.reverse();
        path
    }

    fn name(&self, node: &StackNode) -> &str {
        self.frames.get(node.frame).map_or("", |frame| &frame.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns stacks with a function named `a;b`. Folded lines must not show this name like a call
    /// of `b` inside of `a`.
    pub(super) fn example() -> Stacks {
        let frame =
            |name: &str, line| StackFrame { name: name.to_owned(), file: "m.py".into(), line };
        let node = |parent, frame, values: [u64; 2]| StackNode {
            parent,
            frame,
            numbers: vec![("tid", 7)],
            values: values.into(),
        };
        Stacks {
            frames: vec![frame("a", 1), frame("b", 2), frame("a;b\nc ", 3), StackFrame::default()],
            nodes: vec![
                node(None, 0, [1, 10]),
                node(Some(0), 1, [2, 20]),
                node(None, 2, [3, 30]),
                node(Some(2), 3, [4, 0]),
            ],
            kinds: vec![
                ("calls".to_owned(), StackUnit::Count),
                ("time".to_owned(), StackUnit::Nanoseconds),
            ],
            main: 1,
            title: "x".to_owned(),
            comments: vec!["said".to_owned()],
            begin_unix_ns: 5,
            exporter: "counterpoint 1".to_owned(),
        }
    }

    #[test]
    fn folded_lines_cannot_be_mistaken() {
        let mut out = Vec::new();
        folded::write(&mut out, &example()).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "a 10\na;b 20\na,b\u{fffd}c 30\n");
    }

    #[test]
    fn speedscope_has_one_profile_for_each_kind() {
        let mut out = Vec::new();
        speedscope::write(&mut out, &example()).unwrap();
        let file: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(file["shared"]["frames"][1]["line"], 2);
        assert_eq!(file["shared"]["frames"][3], serde_json::json!({"name": "(no name)"}));
        assert_eq!(file["activeProfileIndex"], 1);
        let time = &file["profiles"][1];
        assert_eq!(time["samples"], serde_json::json!([[0], [0, 1], [2]]));
        assert_eq!(time["weights"], serde_json::json!([10, 20, 30]));
        assert_eq!((&time["startValue"], &time["endValue"]), (&0.into(), &60.into()));
        assert_eq!(file["profiles"][0]["unit"], "none");
    }
}
