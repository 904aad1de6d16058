//! Writes an instrumented module's own definitions, such as the descriptor, the side table, and the
//! rehearsal (a function that runs empty hits).
//!
//! IREE's executables have no constructors and may not import symbols, so an executable cannot look
//! for the runtime itself. The descriptor is in a writable segment, aligned to 64 bytes, and begins
//! with its magic number, by which a runtime finds it when the executable is loaded.

use std::fmt::Write;

use abi::loops::{MAGIC, Mode, VERSION};

use crate::descriptor::Names;
use crate::hit::Print;

use super::hooks::{Code, Hooks};

pub struct Descriptor<'a> {
    pub names: &'a Names,
    /// Number of ids.
    pub ids: u32,
    /// The module's identity as bytes.
    pub id: [u8; 16],
    /// The side table.
    pub table: &'a str,
    /// The functions that hooks call.
    pub hooks: &'a Hooks,
}

const KIND: &str = "!llvm.struct<(array<8 x i8>, i32, i32, i32, i32, array<16 x i8>, ptr, i64, ptr, \
                    ptr, ptr, ptr, ptr, i32, i32, i64, ptr, i64)>";

/// Returns bytes as the content of a quoted MLIR string.
fn quoted(bytes: &[u8]) -> String {
    let mut out = String::new();
    crate::descriptor::quoted(bytes, &mut out);
    out
}

impl Descriptor<'_> {
    /// Writes the module's new definitions: side table, descriptor, functions that hooks call, and
    /// rehearsal (not in mode log).
    pub fn write(&self, code: &mut Code) {
        let table = self.names.of("table");
        let bytes = self.table.len();
        let _ = writeln!(
            code.out,
            "  llvm.mlir.global internal constant {table}(\"{}\") {{alignment = 1 : i64}} : \
             !llvm.array<{bytes} x i8> loc(unknown)",
            quoted(self.table.as_bytes())
        );
        self.descriptor(code, &table, bytes);
        self.hooks.write(code);
        if self.hooks.mode != Mode::Log {
            self.rehearse(code);
        }
    }

    fn descriptor(&self, code: &mut Code, table: &str, bytes: usize) {
        let _ = writeln!(
            code.out,
            "  llvm.mlir.global internal {}() {{addr_space = 0 : i32, alignment = 64 : i64}} : \
             {KIND} {{",
            self.names.of("module")
        );
        let mut fields: Vec<String> =
            vec![format!("llvm.mlir.constant(\"{}\") : !llvm.array<8 x i8>", quoted(&MAGIC))];
        let mode = self.hooks.mode;
        for number in [128, VERSION, self.ids, mode as u32] {
            fields.push(format!("llvm.mlir.constant({} : i32) : i32", number as i32));
        }
        fields.push(format!("llvm.mlir.constant(\"{}\") : !llvm.array<16 x i8>", quoted(&self.id)));
        fields.push(format!("llvm.mlir.addressof {table} : !llvm.ptr"));
        fields.push(format!("llvm.mlir.constant({bytes} : i64) : i64"));
        let null = "llvm.mlir.zero : !llvm.ptr".to_owned();
        fields.push(match mode {
            Mode::Log => null.clone(),
            _ => format!("llvm.mlir.addressof {} : !llvm.ptr", self.names.of("rehearse")),
        });
        fields.extend(std::iter::repeat_n(null.clone(), 4));
        for number in [100, 127] {
            fields.push(format!("llvm.mlir.constant({number} : i32) : i32"));
        }
        fields.push("llvm.mlir.constant(0 : i64) : i64".to_owned());
        fields.push(null);
        fields.push("llvm.mlir.constant(0 : i64) : i64".to_owned());
        let mut whole = code.value(format_args!("llvm.mlir.poison : {KIND}"));
        for (i, field) in fields.iter().enumerate() {
            let value = code.value(format_args!("{field}"));
            whole = code.value(format_args!("llvm.insertvalue {value}, {whole}[{i}] : {KIND}"));
        }
        code.line(format_args!("llvm.return {whole} : {KIND}"));
        code.close();
    }

    /// Writes the function that runs empty hits in an entry that its caller passes.
    fn rehearse(&self, code: &mut Code) {
        code.function(format_args!(
            "{}(%module: !llvm.ptr, %entry: !llvm.ptr, %times: i64) attributes {{passthrough = \
             [\"noinline\", \"nounwind\"]}}",
            self.names.of("rehearse")
        ));
        let one = code.value(format_args!("llvm.mlir.constant(1 : i64) : i64"));
        let zero = code.value(format_args!("llvm.mlir.constant(0 : i64) : i64"));
        let unknown = code.value(format_args!("llvm.mlir.constant(-1 : i64) : i64"));
        let id = code.value(format_args!("llvm.mlir.constant(0 : i32) : i32"));
        let no = code.value(format_args!("llvm.mlir.constant(false) : i1"));
        let null = code.value(format_args!("llvm.mlir.zero : !llvm.ptr"));
        let kept = code
            .value(format_args!("llvm.alloca {one} x !llvm.array<3 x i64> : (i64) -> !llvm.ptr"));
        let none = code.value(format_args!("llvm.icmp \"eq\" %times, {zero} : i64"));
        code.line(format_args!("llvm.cond_br {none}, ^done, ^hit(%times : i64)"));
        let _ = writeln!(code.out, "  ^hit(%left: i64):");
        let Hooks { begin, end, .. } = self.hooks;
        code.line(format_args!(
            "llvm.call {begin}(%entry, {id}, {kept}, {null}, {no}) : (!llvm.ptr, i32, !llvm.ptr, !llvm.ptr, i1) -> ()"
        ));
        if self.hooks.mode != Mode::Count {
            code.line(format_args!(
                "llvm.call {end}(%entry, {id}, {kept}, {null}, {null}, {unknown}, {no}) : (!llvm.ptr, i32, !llvm.ptr, !llvm.ptr, !llvm.ptr, i64, i1) -> ()"
            ));
        }
        let after = code.value(format_args!("llvm.sub %left, {one} : i64"));
        let more = code.value(format_args!("llvm.icmp \"ne\" {after}, {zero} : i64"));
        code.line(format_args!("llvm.cond_br {more}, ^hit({after} : i64), ^done"));
        code.label("done".to_owned());
        code.line(format_args!("llvm.return"));
        code.close();
    }
}
