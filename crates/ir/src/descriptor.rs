//! Writes the parts of an instrumented module that are not hooks: the descriptor, the side table
//! and some functions. A constructor looks for a runtime and registers the module there, and a
//! destructor unregisters it. A JIT that runs no constructors registers the module through an
//! exported function. The rehearsal runs empty hits (calls or loops without contents), so that the
//! runtime can measure the cost of the hooks.

use std::fmt::Write;

use abi::loops::Mode;

use crate::error::IrError;
use crate::hit::Print;
use crate::hooks::{Hook, Writer};
use crate::module::{Module, PREFIX};
use crate::scan::{Span, Token, Tokens, number};

/// The priority of our constructor and destructor in LLVM's lists. Priorities up to 100 are
/// reserved for the compiler and its libraries. Ours comes directly after them.
const PRIORITY: u32 = 101;

/// The names of the added definitions.
#[derive(Clone, Debug)]
pub struct Names {
    /// The module's identity as 32 hexadecimal digits.
    pub id: String,
}

impl Names {
    /// Returns the full name of a definition, with `@`.
    pub fn of(&self, what: &str) -> String {
        format!("@{PREFIX}{what}_{}", self.id)
    }
}

pub struct Descriptor<'a> {
    pub names: &'a Names,
    /// How hits are recorded.
    pub mode: Mode,
    /// Number of ids.
    pub ids: u32,
    /// The module's identity as bytes.
    pub id: [u8; 16],
    /// The side table.
    pub table: &'a str,
    /// The target triple.
    pub triple: &'a str,
}

/// Writes bytes as the content of a string `c"…"`.
pub(crate) fn quoted(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        match byte {
            b' '..=b'~' if !matches!(byte, b'"' | b'\\') => out.push(char::from(*byte)),
            _ => {
                let _ = write!(out, "\\{byte:02X}");
            }
        }
    }
}

impl Descriptor<'_> {
    /// Writes the side table, the descriptor and the functions as text to `out`.
    pub fn write(&self, module: &Module, writer: &mut Writer, out: &mut String) {
        let names = self.names;
        let (descriptor, table) = (names.of("module"), names.of("table"));
        let bytes = self.table.len();
        let _ = write!(out, "{table} = internal constant [{bytes} x i8] c\"");
        quoted(self.table.as_bytes(), out);
        out.push_str("\", align 1\n");
        // Mode log has no rehearsal, because its empty hits would be in the log, too, like hits of
        // the program.
        let rehearse = match self.mode {
            Mode::Log => "null".to_owned(),
            _ => names.of("rehearse"),
        };
        let (mode, ids) = (self.mode as u32, self.ids);
        let _ = write!(
            out,
            "{descriptor} = internal global {{ [8 x i8], i32, i32, i32, i32, [16 x i8], ptr, i64, \
             ptr, ptr, ptr, ptr, ptr, i32, i32, i64, ptr, i64 }} {{ [8 x i8] c\"CPLOOPS1\", \
             i32 128, i32 {}, i32 {ids}, i32 {mode}, [16 x i8] c\"",
            abi::loops::VERSION,
        );
        quoted(&self.id, out);
        let _ = writeln!(
            out,
            "\", ptr {table}, i64 {bytes}, ptr {rehearse}, ptr null, ptr null, ptr null, ptr null, \
             i32 100, i32 127, i64 0, ptr null, i64 0 }}, align 64"
        );
        self.attach(out);
        if self.is_elf() {
            self.note(out);
        }
        if self.has_dlsym() {
            self.start(module, out);
        }
        if self.mode != Mode::Log {
            self.rehearse(writer);
            out.push_str(&writer.out);
            writer.out.clear();
        }
    }

    /// Returns whether the target has `dlsym`, which is assumed except on Windows.
    pub fn has_dlsym(&self) -> bool {
        !self.triple.contains("windows")
    }

    fn is_elf(&self) -> bool {
        !["windows", "apple", "wasm"].iter().any(|other| self.triple.contains(other))
    }

    /// Writes the ELF note by which a runtime that is loaded later finds the descriptor. The note
    /// contains the distance from its content to the descriptor, so that the dynamic linker has
    /// nothing to relocate. The constructor refers to the note, because an optimiser would
    /// otherwise remove the note.
    fn note(&self, out: &mut String) {
        let (note, descriptor) = (self.names.of("note"), self.names.of("module"));
        let (name, kind) = (abi::loops::NOTE_NAME.to_bytes_with_nul(), abi::loops::NOTE_TYPE);
        let padded = name.len().next_multiple_of(4);
        let fields = format!("<{{ i32, i32, i32, [{padded} x i8], i64 }}>");
        let _ = write!(
            out,
            "{note} = internal constant {fields} <{{ i32 {}, i32 8, i32 {kind}, [{padded} x i8] c\"",
            name.len()
        );
        let zeros = std::iter::repeat_n(0, padded - name.len());
        quoted(&name.iter().copied().chain(zeros).collect::<Vec<u8>>(), out);
        let section = abi::loops::NOTE_SECTION.to_str().unwrap_or_default();
        let _ = writeln!(
            out,
            "\", i64 sub (i64 ptrtoint (ptr {descriptor} to i64), i64 ptrtoint (ptr getelementptr \
             inbounds ({fields}, ptr {note}, i32 0, i32 4) to i64)) }}>, section \"{section}\", \
             align 4"
        );
    }

    /// Writes two functions that register the module once: an internal one, and an exported one for
    /// loaders that run no constructors. The constructor does not call the exported one: if two
    /// copies of a module are loaded, the exported name means the function of only one copy, so the
    /// other copy would not be registered.
    fn attach(&self, out: &mut String) {
        let names = self.names;
        let (attach, registered) = (names.of("attach"), names.of("registered"));
        let (descriptor, once) = (names.of("module"), names.of("once"));
        let _ = write!(
            out,
            "{registered} = internal global i32 0, align 4

define weak i32 {attach}(ptr %register) noinline nounwind {{
start:
  %status = call i32 {once}(ptr %register)
  ret i32 %status
}}

define internal i32 {once}(ptr %register) noinline nounwind {{
start:
  %before = cmpxchg ptr {registered}, i32 0, i32 1 seq_cst seq_cst
  %first = extractvalue {{ i32, i1 }} %before, 1
  br i1 %first, label %call, label %done

call:
  %status = call i32 %register(ptr {descriptor})
  %refused = icmp slt i32 %status, 0
  br i1 %refused, label %undo, label %done

undo:
  store atomic i32 0, ptr {registered} seq_cst, align 4
  br label %done

done:
  %result = phi i32 [ 0, %start ], [ %status, %call ], [ %status, %undo ]
  ret i32 %result
}}
"
        );
    }

    fn start(&self, module: &Module, out: &mut String) {
        let names = self.names;
        let (once, descriptor) = (names.of("once"), names.of("module"));
        let register = "counterpoint_loops_register";
        let default = match self.triple.contains("apple") {
            true => "inttoptr (i64 -2 to ptr)",
            false => "null",
        };
        let known = |name: &[u8]| module.names(name);
        if !known(b"dlsym") {
            out.push_str("\ndeclare extern_weak ptr @dlsym(ptr, ptr)\n");
        }
        if !known(register.as_bytes()) {
            let _ = writeln!(out, "declare extern_weak i32 @{register}(ptr)");
        }
        let register_name = names.of("register_name");
        let _ = writeln!(
            out,
            "{register_name} = internal constant [{} x i8] c\"{register}\\00\", align 1",
            register.len() + 1
        );
        let keep = match self.is_elf() {
            true => {
                let note = names.of("note");
                format!("  call void asm sideeffect \"\", \"r\"(ptr {note})\n")
            }
            false => String::new(),
        };
        let _ = write!(
            out,
            "
define internal void {start}() nounwind {{
start:
{keep}  %linked = icmp ne ptr @{register}, null
  br i1 %linked, label %own, label %other

own:
  %known = call i32 {once}(ptr @{register})
  br label %done

other:
  %there = icmp ne ptr @dlsym, null
  br i1 %there, label %look, label %done

look:
  %register = call ptr @dlsym(ptr {default}, ptr {register_name})
  %found = icmp ne ptr %register, null
  br i1 %found, label %call, label %done

call:
  %status = call i32 {once}(ptr %register)
  br label %done

done:
  ret void
}}

define internal void {end}() nounwind {{
start:
  %field = getelementptr inbounds i8, ptr {descriptor}, i64 {unregister}
  %unregister = load atomic ptr, ptr %field monotonic, align 8
  %found = icmp ne ptr %unregister, null
  br i1 %found, label %call, label %done

call:
  call void %unregister(ptr {descriptor})
  br label %done

done:
  ret void
}}
",
            start = names.of("start"),
            end = names.of("end"),
            unregister = std::mem::offset_of!(abi::loops::Module, unregister),
        );
    }

    /// Writes the function that runs empty hits. They change the entry (the numbers of one function
    /// or loop) that the caller passes.
    fn rehearse(&self, writer: &mut Writer) {
        writer.restart();
        let hook = Hook::default();
        let _ = write!(
            writer.out,
            "
define internal void {}(ptr %module, ptr %entry, i64 %times) noinline nounwind {{
start:
  %none = icmp eq i64 %times, 0
  br i1 %none, label %done, label %cpt.hit

",
            self.names.of("rehearse"),
        );
        writer.label("cpt.hit".to_owned());
        writer.line(format_args!("%left = phi i64 [ %times, %start ], [ %after, %cpt.next ]"));
        writer.rehearse("%entry", &hook, "cpt.next");
        writer.line(format_args!("%after = sub i64 %left, 1"));
        writer.line(format_args!("%more = icmp ne i64 %after, 0"));
        writer.line(format_args!("br i1 %more, label %cpt.hit, label %done"));
        writer.out.push_str("\ndone:\n  ret void\n}\n");
    }
}

impl Names {
    /// Adds our constructor and destructor to the module's lists. An existing list is extended by
    /// changes in `edits`. A missing list is written to `out`, the text after the module.
    pub fn constructors(
        &self,
        text: &[u8],
        module: &Module,
        edits: &mut Vec<(Span, String)>,
        out: &mut String,
    ) -> Result<(), IrError> {
        let lists = [("llvm.global_ctors", "start"), ("llvm.global_dtors", "end")];
        for ((list, what), known) in lists.into_iter().zip(module.constructors) {
            let function = self.of(what);
            let own = format!("{{ i32, ptr, ptr }} {{ i32 {PRIORITY}, ptr {function}, ptr null }}");
            match known {
                None => {
                    let _ = writeln!(
                        out,
                        "@{list} = appending global [1 x {{ i32, ptr, ptr }}] [{own}]"
                    );
                }
                Some((span, line)) => {
                    let wrong = IrError::Constructors { line, name: list };
                    extend(text, span, &own, edits).ok_or(wrong)?;
                }
            }
        }
        Ok(())
    }
}

/// Adds an element to a list `[n x { i32, ptr, ptr }] […]`.
fn extend(text: &[u8], span: Span, own: &str, edits: &mut Vec<(Span, String)>) -> Option<()> {
    let mut depth = 0_u32;
    let mut size = None;
    let mut brackets = Vec::new();
    let mut zero = None;
    for (token, span) in Tokens::new(text, span) {
        match token {
            Token::Mark(b'[' | b'{' | b'(') => {
                depth += 1;
                if depth == 1 {
                    brackets.push(span);
                }
            }
            Token::Mark(b']' | b'}' | b')') => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    brackets.push(span);
                }
            }
            Token::Word if depth == 1 && size.is_none() => size = Some(span),
            Token::Word if depth == 0 && span.of(text) == b"zeroinitializer" => zero = Some(span),
            _ => {}
        }
    }
    let size = size?;
    let count = number(size.of(text))?;
    edits.push((size, count.checked_add(1)?.to_string()));
    match (zero, &brackets[..]) {
        (Some(zero), _) if count == 0 => edits.push((zero, format!("[{own}]"))),
        (None, [_, _, _, close]) if count > 0 => {
            let before = Span { start: close.start, end: close.start };
            edits.push((before, format!(", {own}")));
        }
        _ => return None,
    }
    Some(())
}
