//! What a command line of clang asks for: as much of clang's options as one must know to find the source
//! files, the output, and what makes a second step impossible.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Options whose value is the next word. Others have it joined, or none.
const WITH_VALUE: &[&str] = &[
    "-o",
    "-I",
    "-D",
    "-U",
    "-include",
    "-include-pch",
    "-imacros",
    "-isystem",
    "-isystem-after",
    "-iquote",
    "-idirafter",
    "-iprefix",
    "-iwithprefix",
    "-iwithprefixbefore",
    "-isysroot",
    "-iframework",
    "-ivfsoverlay",
    "-cxx-isystem",
    "-x",
    "-L",
    "-l",
    "-T",
    "-u",
    "-e",
    "-z",
    "-h",
    "-Xclang",
    "-Xlinker",
    "-Xassembler",
    "-Xpreprocessor",
    "-Xanalyzer",
    "-Xopenmp-target",
    "-mllvm",
    "-mmlir",
    "-target",
    "-arch",
    "-MF",
    "-MT",
    "-MQ",
    "-MJ",
    "-framework",
    "-F",
    "-A",
    "-b",
    "-B",
    "-G",
    "--param",
    "-rpath",
    "-resource-dir",
    "--sysroot",
    "--target",
    "-gcc-toolchain",
    "-working-directory",
    "--serialize-diagnostics",
    "-serialize-diagnostics",
    "-dependency-file",
    "-dependency-dot",
    "--config",
    "-ccc-install-dir",
    "--output",
    "--include",
    "--language",
    "-V",
    "-fmodules-user-build-path",
    "--prefix",
    "-specs",
    "--library-directory",
    "--include-directory",
    "--define-macro",
    "--undefine-macro",
];

/// Options that only the first step understands or may have, beside preprocessing, by their beginning. The
/// second one would write a file again, load a plugin again, or find nothing to do.
const FIRST_ONLY: &[&str] = &[
    "-D",
    "-U",
    "-I",
    "-i",
    "-x",
    "-std=",
    "--std",
    "-W",
    "-ansi",
    "-pedantic",
    "-w",
    "-M",
    "-Xclang",
    "-Xpreprocessor",
    "-Xanalyzer",
    "-fplugin",
    "-fpass-plugin",
    "-load",
    "-v",
    "-C",
    "-P",
    "-trigraphs",
    "-nostdinc",
    "-cxx-isystem",
    "-A",
    "-fmodule",
    "-fprofile",
    "-serialize-diagnostics",
    "--serialize-diagnostics",
    "--include",
    "--define-macro",
    "--undefine-macro",
    "--language",
];

/// Options of the first kind that the second step needs: those for the assembler.
const SECOND_TOO: &[&str] = &["-Wa,", "-integrated-as"];

/// Options with which clang compiles nothing.
const COMPILES_NOTHING: &[&str] = &[
    "-E",
    "-M",
    "-MM",
    "-fsyntax-only",
    "-###",
    "--analyze",
    "-analyze",
    "--help",
    "--version",
    "--help-hidden",
    "-dumpversion",
    "-dumpmachine",
    "--preprocess",
    "-rewrite-objc",
    "--autocomplete",
];

/// Options that make a second step impossible, by their beginning, and why.
const CANNOT: &[(&str, &str)] = &[
    ("-S", "it asks for assembly, and not for machine code"),
    ("--assemble", "it asks for assembly, and not for machine code"),
    ("-emit-llvm", "it asks for LLVM's own format, and not for machine code"),
    ("-emit-ast", "it asks for a syntax tree, and not for machine code"),
    ("--precompile", "it asks for a module of C++, and not for machine code"),
    ("--coverage", "it counts coverage, whose files are named after those that are compiled"),
    ("-fprofile-arcs", "it counts coverage, whose files are named after those that are compiled"),
    ("-ftest-coverage", "it counts coverage, whose files are named after those that are compiled"),
    ("-fcoverage-mapping", "it counts coverage, whose map belongs to the code as clang writes it"),
    ("-gsplit-dwarf", "debug information in a file of its own is named after what is compiled"),
    ("-save-temps", "the files in between are asked for"),
    ("--save-temps", "the files in between are asked for"),
    ("-fembed-bitcode", "the object must contain what clang compiled it from"),
    ("-ftime-trace", "clang's trace belongs to one step"),
    ("-fsave-optimization-record", "clang's records belong to one step"),
    ("-foptimization-record", "clang's records belong to one step"),
    ("-fmodule-output", "modules of C++ are compiled in one step"),
    ("-MJ", "clang's compilation database belongs to one step"),
    ("-arch", "it may ask for several targets"),
    ("-fopenmp-targets", "it asks for code of several devices"),
    ("--offload-arch", "it asks for code of several devices"),
];

const LTO: &str = "-flto leaves the machine code to the linker";

/// What a word is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// An option, with its value if that is the next word.
    Option,
    /// A C or C++ file.
    Source,
    /// A file that clang compiles, and that we do not instrument.
    OtherSource,
    /// A file for the linker.
    Linked,
}

/// An option with its value, or a file.
struct Word {
    kind: Kind,
    text: OsString,
    value: Option<OsString>,
}

impl Word {
    fn is(&self, name: &str) -> bool {
        self.kind == Kind::Option && self.text == name
    }

    fn begins(&self, with: &str) -> bool {
        self.kind == Kind::Option && self.text.as_bytes().starts_with(with.as_bytes())
    }

    /// The option's value, joined or not.
    fn value_of(&self, name: &str) -> Option<OsString> {
        if self.is(name) {
            return self.value.clone();
        }
        let joined = self.text.as_bytes().strip_prefix(name.as_bytes())?;
        let joined = joined.strip_prefix(b"=").unwrap_or(joined);
        self.begins(name).then(|| OsString::from_vec(joined.to_vec()))
    }

    fn push(&self, words: &mut Vec<OsString>) {
        words.push(self.text.clone());
        words.extend(self.value.clone());
    }
}

/// A command line of clang, without response files.
pub struct Line {
    words: Vec<Word>,
}

/// What is to be done.
pub enum Plan {
    /// Nothing is compiled.
    Nothing,
    /// Something is compiled that cannot be instrumented, and why.
    Cannot(&'static str),
    Compile(Steps),
}

/// How the source files are compiled.
pub struct Steps {
    pub sources: Vec<Source>,
    /// Whether clang links what they become.
    pub links: bool,
}

/// A source file.
pub struct Source {
    /// Its place among the words.
    at: usize,
    pub path: PathBuf,
    /// Where the object is to be. Without a name, the linker gets it.
    pub object: Option<PathBuf>,
}

impl Line {
    /// Reads a command line. An error is one of reading a response file.
    pub fn read(words: &[OsString]) -> io::Result<Self> {
        let mut all = Vec::new();
        expand(words, &mut all, 0)?;
        let mut words = Vec::new();
        let mut language: Option<OsString> = None;
        let mut rest_are_files = false;
        let mut all = all.into_iter();
        while let Some(text) = all.next() {
            let bytes = text.as_bytes();
            if rest_are_files || !bytes.starts_with(b"-") || bytes == b"-" {
                let kind = file_kind(Path::new(&text), language.as_deref());
                words.push(Word { kind, text, value: None });
                continue;
            }
            rest_are_files = bytes == b"--";
            let has_value = WITH_VALUE.iter().any(|known| text == *known);
            let value = has_value.then(|| all.next()).flatten();
            let word = Word { kind: Kind::Option, text, value };
            if let Some(chosen) = word.value_of("-x").or_else(|| word.value_of("--language")) {
                language = (chosen != "none").then_some(chosen);
            }
            words.push(word);
        }
        Ok(Self { words })
    }

    /// Whether it compiles a file of C or C++.
    pub fn has_sources(&self) -> bool {
        matches!(self.plan(), Plan::Cannot(_) | Plan::Compile(_))
    }

    /// The source files, for a message.
    pub fn sources(&self) -> String {
        let files = self.words.iter().filter(|word| word.kind == Kind::Source);
        let names: Vec<_> = files.map(|word| word.text.to_string_lossy()).collect();
        names.join(", ")
    }

    fn has(&self, name: &str) -> bool {
        self.words.iter().any(|word| word.is(name))
    }

    fn last(&self, name: &str) -> Option<OsString> {
        self.words.iter().filter_map(|word| word.value_of(name)).next_back()
    }

    /// What is to be done.
    pub fn plan(&self) -> Plan {
        let sources = self.words.iter().filter(|word| word.kind == Kind::Source).count();
        if sources == 0 || COMPILES_NOTHING.iter().any(|name| self.has(name)) {
            return Plan::Nothing;
        }
        if self.words.iter().any(|word| word.begins("-print-") || word.begins("--print-")) {
            return Plan::Nothing;
        }
        for (beginning, why) in CANNOT {
            let whole = beginning.len() == 2 || *beginning == "-MJ" || *beginning == "-arch";
            let asks =
                |word: &Word| if whole { word.is(beginning) } else { word.begins(beginning) };
            if self.words.iter().any(asks) {
                return Plan::Cannot(why);
            }
        }
        let lto = self.words.iter().rfind(|word| word.begins("-flto") || word.is("-fno-lto"));
        if lto.is_some_and(|word| !word.is("-fno-lto")) {
            return Plan::Cannot(LTO);
        }
        let inner = |word: &Word| {
            word.value_of("-Xclang").is_some_and(|value| {
                ["-emit", "-ast", "-E", "-S"]
                    .iter()
                    .any(|begin| value.as_bytes().starts_with(begin.as_bytes()))
            })
        };
        if self.words.iter().any(inner) {
            return Plan::Cannot("-Xclang asks for something else than machine code");
        }
        let others = self.words.iter().any(|word| word.kind == Kind::OtherSource);
        if others {
            return Plan::Cannot("files of several languages are compiled together");
        }
        if self.words.iter().any(|word| word.kind == Kind::Source && word.text == "-") {
            return Plan::Cannot("a source on standard input can be read only once");
        }
        let links = !self.has("-c") && !self.has("--compile");
        let output = self.last("-o").or_else(|| self.last("--output"));
        if output.as_ref().is_some_and(|output| output == "-") {
            return Plan::Cannot("the object goes to standard output");
        }
        if links && (self.has("-MD") || self.has("-MMD")) && self.last("-MF").is_none() {
            return Plan::Cannot("the dependencies are named after the program that is linked");
        }
        if links && self.words.iter().any(|word| word.value_of("-x").is_some()) {
            return Plan::Cannot("-x, and linking in the same command");
        }
        // clang says that one output is not enough.
        if !links && sources > 1 && output.is_some() {
            return Plan::Nothing;
        }
        let found = self.words.iter().enumerate().filter(|(_, word)| word.kind == Kind::Source);
        let sources = found.map(|(at, word)| {
            let path = PathBuf::from(&word.text);
            let named = output.clone().map(PathBuf::from);
            let beside = || path.with_extension("o").file_name().unwrap_or_default().into();
            let object = (!links).then(|| named.unwrap_or_else(beside));
            Source { at, path, object }
        });
        Plan::Compile(Steps { sources: sources.collect(), links })
    }

    /// The arguments of the first step: from a source to the text of LLVM IR on standard output.
    pub fn first(&self, source: &Source, links: bool) -> Vec<OsString> {
        let mut words = Vec::new();
        for (at, word) in self.words.iter().enumerate() {
            let other = word.kind != Kind::Option && at != source.at;
            let ours = ["-c", "--compile", "--"].iter().any(|name| word.is(name));
            let output = word.value_of("-o").is_some() || word.value_of("--output").is_some();
            // A file may have a name like an option, after `--`.
            if word.kind != Kind::Option && at == source.at {
                let dashed = word.text.as_bytes().starts_with(b"-");
                words.push(if dashed {
                    Path::new(".").join(&word.text).into()
                } else {
                    word.text.clone()
                });
            } else if !(other || ours || output) {
                word.push(&mut words);
            }
        }
        if self.has("-MD") || self.has("-MMD") {
            // As they would be named after the object.
            let object = source.object.clone().unwrap_or_default();
            if self.last("-MF").is_none() {
                words.extend(["-MF".into(), object.with_extension("d").into()]);
            }
            if self.last("-MT").is_none() && self.last("-MQ").is_none() {
                words.extend(["-MQ".into(), object.into()]);
            }
        }
        if links {
            // Options of the linker have no use here, which clang would say.
            words.push("-Qunused-arguments".into());
        }
        words.extend(["-S", "-emit-llvm", "-o", "-"].map(OsString::from));
        words
    }

    /// The options of the second step.
    pub fn second(&self) -> Vec<OsString> {
        let mut words = Vec::new();
        for word in self.words.iter().filter(|word| word.kind == Kind::Option) {
            let output = word.value_of("-o").is_some() || word.value_of("--output").is_some();
            let kept = SECOND_TOO.iter().any(|with| word.begins(with));
            let first = FIRST_ONLY.iter().any(|with| word.begins(with));
            if !output
                && (kept || !first)
                && !word.is("-c")
                && !word.is("--compile")
                && !word.is("--")
            {
                word.push(&mut words);
            }
        }
        words
    }

    /// The arguments with which clang links: objects in place of the sources.
    pub fn linking(&self, steps: &Steps, objects: &[PathBuf]) -> Vec<OsString> {
        let mut words = Vec::new();
        for (at, word) in self.words.iter().enumerate() {
            match steps.sources.iter().position(|source| source.at == at) {
                Some(source) => words.push(objects[source].clone().into()),
                None if word.is("--") => {}
                None => word.push(&mut words),
            }
        }
        // Nothing is compiled any more, which clang would say of each option of that.
        words.push("-Qunused-arguments".into());
        words
    }
}

/// What a file is, by `-x` or by its name.
fn file_kind(path: &Path, language: Option<&OsStr>) -> Kind {
    if let Some(language) = language.and_then(OsStr::to_str) {
        return match language {
            "c" | "c++" | "cpp-output" | "c++-cpp-output" => Kind::Source,
            _ => Kind::OtherSource,
        };
    }
    if path.as_os_str() == "-" {
        return Kind::Source;
    }
    match path.extension().and_then(OsStr::to_str).unwrap_or_default() {
        "c" | "i" | "cc" | "cp" | "cxx" | "cpp" | "CPP" | "c++" | "C" | "CC" | "CXX" | "ii"
        | "C++" => Kind::Source,
        "m" | "mm" | "M" | "mi" | "mii" | "s" | "S" | "asm" | "ll" | "bc" | "cu" | "cui"
        | "hip" | "cl" | "h" | "hh" | "hpp" | "hxx" | "H" | "cppm" | "ccm" | "cxxm" | "ixx"
        | "pcm" | "ast" => Kind::OtherSource,
        _ => Kind::Linked,
    }
}

/// Response files in the place of `@FILE`, which may name others. One that does not exist is a word like any
/// other, as for clang.
fn expand(words: &[OsString], all: &mut Vec<OsString>, depth: u32) -> io::Result<()> {
    for word in words {
        let named =
            word.as_bytes().strip_prefix(b"@").map(|name| Path::new(OsStr::from_bytes(name)));
        match named.filter(|file| file.is_file()) {
            Some(_) if depth > 20 => return Err(io::Error::other("response files without an end")),
            Some(file) => expand(&split(&std::fs::read(file)?), all, depth + 1)?,
            None => all.push(word.clone()),
        }
    }
    Ok(())
}

/// The words of a response file: separated by white space, with quotes and backslashes as in a shell.
fn split(text: &[u8]) -> Vec<OsString> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match (quote, byte) {
            (None | Some(b'"'), b'\\') => word.get_or_insert_default().extend(bytes.next()),
            (Some(open), _) if open == byte => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(byte),
            (None, b'"' | b'\'') => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            (None, _) if byte.is_ascii_whitespace() => words.extend(word.take()),
            (None, _) => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    words.into_iter().map(OsString::from_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &str) -> Line {
        let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        Line::read(&words).unwrap()
    }

    fn text(words: Vec<OsString>) -> String {
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    /// What a command line is: nothing to do, a reason, or the objects (`link` if they are linked).
    fn judged(words: &str) -> String {
        match line(words).plan() {
            Plan::Nothing => "nothing".to_owned(),
            Plan::Cannot(why) => why.split_whitespace().take(4).collect::<Vec<_>>().join(" "),
            Plan::Compile(steps) if steps.links => "link".to_owned(),
            Plan::Compile(steps) => {
                let objects = steps.sources.iter().filter_map(|source| source.object.as_ref());
                objects.map(|object| object.display().to_string()).collect::<Vec<_>>().join(" ")
            }
        }
    }

    #[test]
    fn what_a_command_line_asks_for() {
        for (words, expected) in [
            ("-c -O2 src/a.c", "a.o"),
            ("-c a.cc -o b/a.obj", "b/a.obj"),
            ("-c a.c b.i", "a.o b.o"),
            ("-c a.c b.c -o x.o", "nothing"),
            ("a.c -o prog -lm", "link"),
            ("a.o b.a -o prog", "nothing"),
            ("-E a.c", "nothing"),
            ("-MM a.c", "nothing"),
            ("-v", "nothing"),
            ("-c a.s", "nothing"),
            ("-x c -c something", "something.o"),
            ("-xc++ -c a.in -o a.o", "a.o"),
            ("-x c -x none -c a.o b.cpp", "b.o"),
            ("-S a.c", "it asks for assembly,"),
            ("-c -flto=thin a.c", "-flto leaves the machine"),
            ("-c -flto -fno-lto a.c", "a.o"),
            ("-c -emit-llvm a.c", "it asks for LLVM's"),
            ("-c -gsplit-dwarf a.c", "debug information in a"),
            ("-c a.c -Xclang -emit-obj", "-Xclang asks for something"),
            ("-c a.c -Xclang -target-feature -Xclang +avx2", "a.o"),
            ("-c -x c -", "a source on standard"),
            ("-c a.c -o -", "the object goes to"),
            // Values are not files.
            ("-c a.c -include b.c -MF c.c -D x.c -T d.c", "a.o"),
            ("-c -- -a.c", "-a.o"),
            ("-std=c11 -shared -MD a.c -o a.so", "the dependencies are named"),
            ("-std=c11 -shared -MD -MF a.d a.c -o a.so", "link"),
        ] {
            assert_eq!(judged(words), expected, "{words}");
        }
    }

    #[test]
    fn the_steps_of_a_command_line() {
        let line = line("-MD -DX=1 -I inc -Wall -Werror -O2 -fPIC -Wa,-L -c a.c -o out/a.o");
        let Plan::Compile(steps) = line.plan() else { panic!() };
        assert_eq!(
            text(line.first(&steps.sources[0], steps.links)),
            "-MD -DX=1 -I inc -Wall -Werror -O2 -fPIC -Wa,-L a.c -MF out/a.d -MQ out/a.o \
             -S -emit-llvm -o -"
        );
        assert_eq!(text(line.second()), "-O2 -fPIC -Wa,-L");
    }

    #[test]
    fn linking_takes_the_objects() {
        let line = line("-O2 a.c x.o b.c -lm -o prog");
        let Plan::Compile(steps) = line.plan() else { panic!() };
        assert_eq!(
            text(line.linking(&steps, &["/t/0.o".into(), "/t/1.o".into()])),
            "-O2 /t/0.o x.o /t/1.o -lm -o prog -Qunused-arguments"
        );
        let first = text(line.first(&steps.sources[1], steps.links));
        assert_eq!(first, "-O2 b.c -lm -Qunused-arguments -S -emit-llvm -o -");
    }

    #[test]
    fn words_of_response_files() {
        let words = split(b"-c \"a b.c\"\n 'c'\\ d \"\"\t-DX=\\\"y\\\" \"\\\\\"");
        let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
        assert_eq!(words, ["-c", "a b.c", "c d", "", "-DX=\"y\"", "\\"]);
    }
}
