//! Reads a command line of rustc.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Options with a value. The value is the next word, unless the option's own word contains the
/// value (`-Copt-level=3`).
const WITH_VALUE: &[&str] = &[
    "--crate-name",
    "--crate-type",
    "--edition",
    "--emit",
    "--print",
    "-o",
    "--out-dir",
    "--explain",
    "--target",
    "--cfg",
    "--check-cfg",
    "-L",
    "-l",
    "--extern",
    "--sysroot",
    "--error-format",
    "--json",
    "--color",
    "--diagnostic-width",
    "--remap-path-prefix",
    "--env-set",
    "-A",
    "-W",
    "-D",
    "-F",
    "-Z",
    "-C",
    "--codegen",
    "--cap-lints",
    "--allow",
    "--warn",
    "--deny",
    "--forbid",
    "--force-warn",
    "--remap-path-scope",
];

/// A command line of rustc, as options with their values, and files.
pub struct Line {
    words: Vec<(String, OsString, Option<OsString>)>,
}

/// How a command line is handled.
pub enum Plan {
    /// There is nothing to instrument: rustc makes no code, or only code that rustc or cargo itself
    /// runs (procedural macros and build scripts).
    Nothing,
    /// The code cannot be instrumented for this reason.
    Cannot(&'static str),
    Compile,
}

impl Line {
    /// Splits the arguments of rustc into options with their values, and files. Returns an error if
    /// a file with arguments cannot be read.
    pub fn read(words: &[OsString]) -> io::Result<Self> {
        let mut all: Vec<OsString> = Vec::new();
        for word in words {
            match word.as_bytes().strip_prefix(b"@") {
                // `@FILE` names a file with one argument in each line.
                Some(file) => {
                    let text =
                        std::fs::read_to_string(Path::new(std::ffi::OsStr::from_bytes(file)))?;
                    all.extend(text.lines().map(OsString::from));
                }
                None => all.push(word.clone()),
            }
        }
        let mut words = Vec::new();
        let mut all = all.into_iter();
        while let Some(word) = all.next() {
            let text = word.to_string_lossy().into_owned();
            let short = text.get(..2).filter(|two| ["-C", "-o", "-L", "-l", "-Z"].contains(two));
            let (name, joined) = match (text.split_once('='), short) {
                (Some((name, value)), _) if name.starts_with("--") => {
                    (name.to_owned(), Some(value.to_owned()))
                }
                (_, Some(two)) if text.len() > 2 && !text.starts_with("--") => {
                    (two.to_owned(), Some(text[2..].to_owned()))
                }
                _ => (text.clone(), None),
            };
            let name = if name == "--codegen" { "-C".to_owned() } else { name };
            // If the option's word contains no value, the value is the next word.
            let next = joined.is_none() && WITH_VALUE.contains(&&*name);
            let own = if next { all.next() } else { None };
            let words_value = own.clone().or_else(|| joined.map(OsString::from));
            let whole = match own {
                Some(_) => OsString::new(),
                None => word,
            };
            words.push((name, whole, words_value));
        }
        Ok(Self { words })
    }

    fn values<'a>(&'a self, name: &'a str) -> impl DoubleEndedIterator<Item = String> + 'a {
        let named = self.words.iter().filter(move |(word, ..)| word == name);
        named.filter_map(|(_, _, value)| Some(value.as_ref()?.to_string_lossy().into_owned()))
    }

    /// Returns the value of a code-generation option (`-C name=value`); if the option occurs
    /// several times, the last value. An option without a value has the value `yes`.
    fn codegen(&self, name: &str) -> Option<String> {
        self.values("-C").rev().find_map(|option| match option.split_once('=') {
            Some((option, value)) => (option == name).then(|| value.to_owned()),
            None => (option == name).then(|| "yes".to_owned()),
        })
    }

    pub fn name(&self) -> String {
        self.values("--crate-name").next_back().unwrap_or_default()
    }

    fn types(&self) -> Vec<String> {
        let all = self.values("--crate-type");
        let mut types: Vec<String> =
            all.flat_map(|list| list.split(',').map(str::to_owned).collect::<Vec<_>>()).collect();
        if types.is_empty() {
            types.push("bin".to_owned());
        }
        types
    }

    /// Whether the command line names the outputs to make. If not, the type of the crate determines
    /// them.
    pub fn says_what(&self) -> bool {
        self.values("--emit").next().is_some()
    }

    pub fn plan(&self) -> Plan {
        let types = self.types();
        let emits: Vec<String> = self.values("--emit").collect();
        let emits_link = emits.is_empty()
            || emits.iter().flat_map(|list| list.split(',')).any(|kind| kind == "link");
        let ours = |kind: &String| {
            ["bin", "lib", "rlib", "cdylib", "dylib", "staticlib"].contains(&kind.as_str())
        };
        // A command line without a crate name only asks for information about the compiler, or does
        // not come from cargo.
        if self.name().is_empty()
            || self.values("--print").next().is_some()
            || !emits_link
            || !types.iter().all(ours)
            || self.name().starts_with("build_script_")
        {
            return Plan::Nothing;
        }
        let on = |value: Option<String>| {
            value.is_some_and(|value| !["no", "n", "off", "false"].contains(&value.as_str()))
        };
        if on(self.codegen("lto")) || on(self.codegen("linker-plugin-lto")) {
            return Plan::Cannot("lto makes its machine code when it is linked");
        }
        if on(self.codegen("instrument-coverage")) {
            return Plan::Cannot("coverage belongs to the code as rustc writes it");
        }
        if on(self.codegen("save-temps")) {
            return Plan::Cannot("-C save-temps asks for the files in between");
        }
        let named = emits.iter().flat_map(|list| list.split(','));
        if self.values("-o").next().is_some() || named.clone().any(|kind| kind.starts_with("link="))
        {
            return Plan::Cannot("the output has a name of its own; --out-dir is supported");
        }
        if named.clone().any(|kind| kind.starts_with("llvm-ir") || kind.starts_with("obj")) {
            return Plan::Cannot("--emit asks for the object or the text of LLVM IR");
        }
        if self.values("-Z").any(|option| option.starts_with("codegen-backend")) {
            return Plan::Cannot("another code generator than LLVM was chosen");
        }
        Plan::Compile
    }

    /// Whether rustc starts the linker.
    pub fn links(&self) -> bool {
        self.types().iter().any(|kind| ["bin", "cdylib", "dylib"].contains(&kind.as_str()))
    }

    pub fn linker(&self) -> OsString {
        self.codegen("linker").unwrap_or_else(|| "cc".to_owned()).into()
    }

    pub fn archives(&self) -> Vec<PathBuf> {
        let folder = self.values("--out-dir").next_back().unwrap_or_else(|| ".".to_owned());
        let stem =
            format!("lib{}{}", self.name(), self.codegen("extra-filename").unwrap_or_default());
        let endings = self.types().into_iter().filter_map(|kind| match kind.as_str() {
            "lib" | "rlib" => Some("rlib"),
            "staticlib" => Some("a"),
            _ => None,
        });
        // With `--test`, rustc makes a program and no archive, also from a library.
        if self.words.iter().any(|(word, ..)| word == "--test") {
            return Vec::new();
        }
        endings.map(|ending| Path::new(&folder).join(format!("{stem}.{ending}"))).collect()
    }

    /// Returns the arguments of this command line for a compilation that also writes LLVM IR; the
    /// caller adds the options for that. Leaves out the linker, for which the caller passes another
    /// one, and the options with which rustc makes several objects of a crate.
    pub fn first(&self) -> Vec<OsString> {
        let mut words = Vec::new();
        for (name, whole, value) in &self.words {
            let option = value.as_ref().map(|value| value.to_string_lossy()).unwrap_or_default();
            let replaced = ["linker=", "codegen-units=", "incremental="];
            if name == "-C" && replaced.iter().any(|begin| option.starts_with(begin)) {
                continue;
            }
            if whole.is_empty() && value.is_some() {
                words.push(name.into());
                words.extend(value.clone());
            } else {
                words.push(whole.clone());
            }
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &str) -> Line {
        Line::read(&words.split(' ').map(OsString::from).collect::<Vec<_>>()).unwrap()
    }

    fn judged(words: &str) -> &'static str {
        match line(words).plan() {
            Plan::Nothing => "nothing",
            Plan::Cannot(why) => why,
            Plan::Compile => "compile",
        }
    }

    #[test]
    fn what_a_command_line_asks_for() {
        for (words, expected) in [
            ("--crate-name x src/main.rs --crate-type bin --emit=dep-info,link", "compile"),
            ("--crate-name x a.rs --test --emit=link -C opt-level=3", "compile"),
            ("--crate-name x a.rs --crate-type lib --emit=dep-info,metadata", "nothing"),
            ("--crate-name x a.rs --crate-type proc-macro --emit=link", "nothing"),
            ("--crate-name build_script_build build.rs --emit=link", "nothing"),
            ("--crate-name ___ - --print=file-names --crate-type bin", "nothing"),
            ("-vV", "nothing"),
            ("--crate-name x a.rs -Clto=off", "compile"),
        ] {
            assert_eq!(judged(words), expected, "{words}");
        }
        assert!(judged("--crate-name x a.rs -C lto=fat").starts_with("lto"));
        assert!(judged("--crate-name x a.rs --codegen lto").starts_with("lto"));
    }

    #[test]
    fn arguments_that_are_replaced() {
        let line = line(
            "--crate-name x --edition=2024 a.rs --crate-type rlib,cdylib -C opt-level=3 -C \
             incremental=/i -Ccodegen-units=16 -Clinker=clang -C extra-filename=-1f --out-dir d \
             --cfg a -L dependency=d",
        );
        let first: Vec<_> = line.first().iter().map(|w| w.to_string_lossy().into_owned()).collect();
        assert_eq!(
            first.join(" "),
            "--crate-name x --edition=2024 a.rs --crate-type rlib,cdylib -C opt-level=3 -C \
             extra-filename=-1f --out-dir d --cfg a -L dependency=d"
        );
        assert_eq!(line.linker(), "clang");
        assert!(line.links());
        assert_eq!(line.archives(), [PathBuf::from("d/libx-1f.rlib")]);
    }
}
