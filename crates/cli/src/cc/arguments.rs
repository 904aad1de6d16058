//! Reads a command line of clang: the source files, the output, and options that make two steps
//! impossible. (The first step compiles a source to LLVM IR, the second one compiles the
//! instrumented IR to an object.)

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::options::{
    CANNOT, COMPILES_NOTHING, FIRST_ONLY, INNER, JOINED, LTO, UNKNOWN, VARIABLES, WHOLE, WITH_VALUE,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// An option of clang; `value` is the next argument if that is the option's value.
    Option,
    /// A C or C++ file.
    Source,
    /// A file that clang compiles but that is not instrumented.
    OtherSource,
    /// A file that clang only passes to the linker.
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

    /// Whether Counterpoint knows what this option, with its value, means to clang.
    fn is_known(&self) -> bool {
        let known = |list: &[&str]| list.iter().any(|begin| self.begins(begin));
        match &self.value {
            Some(value) if self.is("-Xclang") => {
                // A word without a dash is the value of the option that the previous `-Xclang`
                // passed.
                INNER.iter().any(|inner| value == inner) || !value.as_bytes().starts_with(b"-")
            }
            Some(_) => true,
            None if WHOLE.iter().any(|whole| self.is(whole)) => true,
            // The option's value is missing.
            None if WITH_VALUE.iter().any(|name| self.is(name)) => false,
            // `-Wp,` passes options to the preprocessor. `-D` and `-U` are known, because Linux
            // distributions define macros with `-Wp,-D`.
            None if self.begins("-Wp,") => {
                let words = self.text.to_string_lossy();
                words
                    .split(',')
                    .skip(1)
                    .all(|word| word.starts_with("-D") || word.starts_with("-U"))
            }
            None => known(JOINED) && !known(UNKNOWN),
        }
    }

    /// Returns the value of this word if it is the option `name`. The value may follow in the same
    /// word or be the next word.
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

/// A command line of clang, in which response files were replaced by their words.
pub struct Line {
    words: Vec<Word>,
}

/// How a command line is handled.
pub enum Plan {
    /// Clang gets the same arguments, because no C or C++ file is compiled or because clang itself
    /// reports what is wrong.
    Nothing,
    /// Something is compiled, but it cannot be instrumented for this reason.
    Cannot(String),
    Compile(Steps),
}

pub struct Steps {
    pub sources: Vec<Source>,
    pub links: bool,
}

pub struct Source {
    /// An index into [`Line::words`].
    at: usize,
    pub path: PathBuf,
    /// The path of the object that the user gets; `None` if the object is only linked.
    pub object: Option<PathBuf>,
}

impl Line {
    /// Reads a command line. Fails if a response file cannot be read, or if only clang can read it.
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
            if let Some(chosen) = word.value_of("-x") {
                language = (chosen != "none").then_some(chosen);
            }
            words.push(word);
        }
        Ok(Self { words })
    }

    pub fn has_sources(&self) -> bool {
        matches!(self.plan(), Plan::Cannot(_) | Plan::Compile(_))
    }

    /// Returns the names of the source files, for a message.
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

    /// Decides how the command line is handled, without looking at the files on disk.
    pub fn plan(&self) -> Plan {
        let sources = self.words.iter().filter(|word| word.kind == Kind::Source).count();
        if sources == 0 || COMPILES_NOTHING.iter().any(|name| self.has(name)) {
            return Plan::Nothing;
        }
        let question =
            |word: &Word| ["-print-", "--print-", "-ccc-"].iter().any(|begin| word.begins(begin));
        if self.words.iter().any(question) {
            return Plan::Nothing;
        }
        if let Some(why) = self.obstacle() {
            return Plan::Cannot(why);
        }
        let links = self.links();
        let output = self.last("-o");
        // Clang reports this error: several objects cannot have one output file.
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

    /// Returns another plan if the files on disk require one. A missing input is left to clang,
    /// which reports it. The whole command is also left to clang if an input or the output is not a
    /// regular file: two steps would read a pipe twice or replace a device.
    pub fn stopped_by_files(&self, steps: &Steps) -> Option<Plan> {
        let is_other = |path: &Path| std::fs::metadata(path).is_ok_and(|about| !about.is_file());
        let is_missing = |word: &&Word| std::fs::metadata(&word.text).is_err();
        let (options, inputs): (Vec<_>, Vec<_>) =
            self.words.iter().partition(|word| word.kind == Kind::Option);
        // A missing header is no reason to stop: clang searches further directories.
        let names = ["-include", "-imacros", "-Xclang"];
        let headers = options.iter().filter(|word| names.iter().any(|name| word.is(name)));
        let read = headers.filter_map(|word| word.value.as_ref());
        let read = read.chain(inputs.iter().map(|word| &word.text)).map(Path::new);
        let of_kernel = |path: &Path| path.starts_with("/dev") || path.starts_with("/proc");
        if read.into_iter().any(|path| of_kernel(path) || is_other(path)) {
            return Some(Plan::Cannot("an input is not a regular file".to_owned()));
        }
        let mut objects = steps.sources.iter().filter_map(|source| source.object.as_deref());
        if objects.any(is_other) {
            return Some(Plan::Cannot("the output is not a regular file".to_owned()));
        }
        inputs.iter().any(is_missing).then_some(Plan::Nothing)
    }

    fn links(&self) -> bool {
        !self.has("-c") && !self.has("--compile")
    }

    /// Returns the reason why the command line or an environment variable does not allow two steps.
    fn obstacle(&self) -> Option<String> {
        for (beginning, why) in CANNOT {
            let whole = beginning.len() == 2 || *beginning == "-MJ" || *beginning == "-arch";
            let asks =
                |word: &Word| if whole { word.is(beginning) } else { word.begins(beginning) };
            if self.words.iter().any(asks) {
                return Some((*why).to_owned());
            }
        }
        let lto = self.words.iter().rfind(|word| word.begins("-flto") || word.is("-fno-lto"));
        if lto.is_some_and(|word| !word.is("-fno-lto")) {
            return Some(LTO.to_owned());
        }
        if let Some(name) = VARIABLES.iter().find(|name| std::env::var_os(name).is_some()) {
            return Some(format!("{name} is set"));
        }
        let of_kind = |kind| move |word: &&Word| word.kind == kind;
        let mut options = self.words.iter().filter(of_kind(Kind::Option));
        if let Some(word) = options.find(|word| !word.is_known()) {
            let mut option = word.text.to_string_lossy().into_owned();
            if let Some(value) = &word.value {
                option = format!("{option} {}", value.to_string_lossy());
            }
            return Some(format!("what {option} does in two steps is not known"));
        }
        let has = |kind| self.words.iter().any(|word| word.kind == kind);
        let is_pipe = |word: &Word| word.kind == Kind::Source && word.text == "-";
        let output = self.last("-o");
        let why = if has(Kind::OtherSource) {
            "files of several languages are compiled together"
        } else if self.words.iter().any(is_pipe) {
            "a source on standard input can be read only once"
        } else if output.is_some_and(|output| output == "-" || output.is_empty()) {
            "the output has no name"
        } else if !self.links() && has(Kind::Linked) {
            "it has files for the linker, and does not link"
        } else if self.links()
            && (self.has("-MD") || self.has("-MMD"))
            && self.last("-MF").is_none()
        {
            "the dependencies are named after the program that is linked"
        } else if self.links() && self.words.iter().any(|word| word.value_of("-x").is_some()) {
            "-x, and linking in the same command"
        } else {
            return None;
        };
        Some(why.to_owned())
    }

    /// Returns the arguments of the first step, which compiles a source to the text of LLVM IR on
    /// standard output.
    pub fn first(&self, source: &Source, links: bool) -> Vec<OsString> {
        let mut words = Vec::new();
        for (at, word) in self.words.iter().enumerate() {
            let other = word.kind != Kind::Option && at != source.at;
            let ours = ["-c", "--compile", "--"].iter().any(|name| word.is(name));
            let output = word.value_of("-o").is_some();
            // After `--`, the name of a file may begin with a dash. `--` is not passed on, so `./`
            // is put before the name.
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
            // Without `-MF`, the dependency file gets the name that clang would derive from the
            // object.
            let object = source.object.clone().unwrap_or_default();
            if self.last("-MF").is_none() {
                words.extend(["-MF".into(), object.with_extension("d").into()]);
            }
            if self.last("-MT").is_none() && self.last("-MQ").is_none() {
                words.extend(["-MQ".into(), object.into()]);
            }
        }
        if links {
            // Without this option, clang would warn about options for the linker.
            words.push("-Qunused-arguments".into());
        }
        words.extend(["-S", "-emit-llvm", "-o", "-"].map(OsString::from));
        words
    }

    pub fn second(&self) -> Vec<OsString> {
        let mut words = Vec::new();
        for word in self.words.iter().filter(|word| word.kind == Kind::Option) {
            let output = word.value_of("-o").is_some();
            let first = FIRST_ONLY.iter().any(|with| word.begins(with));
            if !output && !first && !word.is("-c") && !word.is("--compile") && !word.is("--") {
                word.push(&mut words);
            }
        }
        words
    }

    pub fn linking(&self, steps: &Steps, objects: &[PathBuf]) -> Vec<OsString> {
        let mut words = Vec::new();
        for (at, word) in self.words.iter().enumerate() {
            match steps.sources.iter().position(|source| source.at == at) {
                Some(source) => words.push(objects[source].clone().into()),
                None if word.is("--") => {}
                None => word.push(&mut words),
            }
        }
        // Without this option, clang would warn about options that are used only for compiling.
        words.push("-Qunused-arguments".into());
        words
    }
}

/// Returns the kind of a file. It is determined by the language that `-x` named, or else by the
/// file's name.
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
        "f" | "F" | "for" | "f90" | "F90" | "f95" | "F95" | "m" | "mm" | "M" | "mi" | "mii"
        | "s" | "S" | "asm" | "ll" | "bc" | "cu" | "cui" | "hip" | "cl" | "h" | "hh" | "hpp"
        | "hxx" | "H" | "cppm" | "ccm" | "cxxm" | "ixx" | "pcm" | "ast" => Kind::OtherSource,
        _ => Kind::Linked,
    }
}

/// Replaces each `@FILE` by the words of that response file. As in clang, `@FILE` is an ordinary
/// word if the file does not exist.
fn expand(words: &[OsString], all: &mut Vec<OsString>, depth: u32) -> io::Result<()> {
    for word in words {
        let named =
            word.as_bytes().strip_prefix(b"@").map(|name| Path::new(OsStr::from_bytes(name)));
        match named.filter(|file| file.is_file()) {
            Some(_) if depth > 20 => return Err(io::Error::other("response files without an end")),
            Some(file) => {
                let text = std::fs::read(file)?;
                // A response file that begins with a byte order mark or ends with a backslash is
                // left to clang.
                let odd = [&b"\xef\xbb\xbf"[..], b"\xff\xfe", b"\xfe\xff"];
                if odd.iter().any(|mark| text.starts_with(mark)) || text.ends_with(b"\\") {
                    return Err(io::Error::other("a response file that only clang reads"));
                }
                expand(&split(&text), all, depth + 1)?;
            }
            None => all.push(word.clone()),
        }
    }
    Ok(())
}

/// Splits a response file into words at white space. Quotes keep white space inside a word. A
/// backslash keeps the next character as it is, also within both kinds of quotes.
fn split(text: &[u8]) -> Vec<OsString> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match (quote, byte) {
            (_, b'\\') => word.get_or_insert_default().extend(bytes.next()),
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

    /// Returns the plan as text: `nothing`, the first four words of a reason, or the objects
    /// (`link` if they are linked).
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
            ("-x c -x none -c b.cpp", "b.o"),
            ("-S a.c", "it asks for assembly,"),
            ("-c -flto=thin a.c", "-flto leaves the machine"),
            ("-c -flto -fno-lto a.c", "a.o"),
            ("-c -emit-llvm a.c", "it asks for LLVM's"),
            ("-c -gsplit-dwarf a.c", "debug information in a"),
            ("-c a.c -Xclang -emit-obj", "what -Xclang -emit-obj does"),
            ("-c a.c -Xclang -target-feature -Xclang +avx2", "a.o"),
            ("-c -x c -", "a source on standard"),
            ("-c a.c -o -", "the output has no"),
            ("-c a.c x.o", "it has files for"),
            ("-c a.c -o", "what -o does in"),
            ("-c a.c -D", "what -D does in"),
            ("-c a.c -Wp,-U_FORTIFY_SOURCE,-D_FORTIFY_SOURCE=2", "a.o"),
            ("-c a.c -Xclang -include-pch -Xclang a.pch", "a.o"),
            ("-c a.c -Wp,-DX,-MD,w.d", "what -Wp,-DX,-MD,w.d does in"),
            ("-c a.c -Wp,-MD,w.d", "what -Wp,-MD,w.d does in"),
            ("-c a.c -iwithsysroot b.c", "what -iwithsysroot does in"),
            ("-c a.c --std c11", "what --std does in"),
            ("-c a.c -Xclang -fsyntax-only", "what -Xclang -fsyntax-only does"),
            ("-c a.c --driver-mode=cl", "what --driver-mode=cl does in"),
            ("a.c -Ttext 0x1000", "what -Ttext does in"),
            ("-c a.c --user-dependencies", "nothing"),
            ("-c a.c -ccc-print-phases", "nothing"),
            // The values of options are not files.
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
        assert_eq!(text(line.second()), "-Wall -Werror -O2 -fPIC -Wa,-L");
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
        let words = split(b"-c \"a b.c\"\n 'c\\''\\ d \"\"\t-DX=\\\"y\\\" \"\\\\\"");
        let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
        assert_eq!(words, ["-c", "a b.c", "c' d", "", "-DX=\"y\"", "\\"]);
    }
}
