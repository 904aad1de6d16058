//! IREE's executable library interface (`iree/hal/local/executable_library.h`), through which the
//! CPU runtime calls the functions of compiled modules. Releases 3.1 to 3.7 use version 5; 3.8 and
//! later use version 6 (checked on 3.13).
//!
//! Compiled modules export the function [`QUERY_SYMBOL`]. This function returns a description of
//! the module, called a library. For each workgroup, the runtime calls one of the functions in the
//! library's `exports.ptrs`.

use core::ffi::{c_char, c_int, c_void};

/// The symbol that every executable library exports.
pub const QUERY_SYMBOL: &str = "iree_hal_executable_library_query";

/// The versions of the interface whose layout is known. A library is asked for the newest one
/// first.
pub const VERSIONS: [u32; 2] = [6, 5];

/// `iree_hal_executable_library_query_fn_t`. Returns null if the version is not supported.
pub type Query = unsafe extern "C-unwind" fn(
    max_version: u32,
    environment: *const Environment,
) -> *const LibraryHead;

/// `iree_hal_executable_dispatch_v0_t`: runs one workgroup; returns 0 on success.
pub type Dispatch = unsafe extern "C-unwind" fn(
    environment: *const Environment,
    dispatch_state: *const DispatchState,
    workgroup_state: *const WorkgroupState,
) -> c_int;

/// `iree_string_view_t`: a text of `size` bytes without a terminator.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct StringView {
    /// The first byte.
    pub data: *const c_char,
    /// Number of bytes.
    pub size: usize,
}

/// `iree_hal_executable_library_call_hook_begin` and `_end`. A runtime built with
/// `IREE_HAL_EXECUTABLE_LIBRARY_CALL_HOOK` calls them before and after each workgroup, on the
/// workgroup's thread. `executable` is the executable's name. The workgroup's id is not passed.
pub type CallHook =
    unsafe extern "C" fn(executable: StringView, library: *const LibraryHead, ordinal: usize);

/// `iree_hal_executable_environment_v0_t`: what the runtime gives to a library. When the query
/// function of a compiled module is called, all fields may be zero.
#[repr(C)]
pub struct Environment {
    /// Specialisation constants.
    pub constants: *const u32,
    /// Function through which a library calls its imported functions.
    pub import_thunk: *const c_void,
    /// Imported functions.
    pub import_funcs: *const *const c_void,
    /// Contexts of the imported functions.
    pub import_contexts: *const *const c_void,
    /// Bits for the features of the processor.
    pub processor: [u64; 8],
}

impl Environment {
    /// The environment for queries: zeros.
    pub const ZERO: Self = Self {
        constants: core::ptr::null(),
        import_thunk: core::ptr::null(),
        import_funcs: core::ptr::null(),
        import_contexts: core::ptr::null(),
        processor: [0; 8],
    };
}

/// `iree_hal_executable_library_header_t`: the struct to which the first field of a library points.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Header {
    /// Version of the interface: 5 or 6.
    pub version: u32,
    /// Name of the library, a C string.
    pub name: *const c_char,
    /// Feature bits.
    pub features: u32,
    /// Kind of sanitizer.
    pub sanitizer: u32,
}

/// The first field of a library. In all versions of the interface, a library begins with this
/// field.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct LibraryHead {
    /// The header.
    pub header: *const Header,
}

/// `iree_hal_executable_import_table_v0_t`. The agent does not read this struct: it only needs the
/// offsets of the fields that follow it in a library.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ImportTable {
    /// Number of imports.
    pub count: u32,
    /// Names of the imports.
    pub symbols: *const *const c_char,
}

/// `iree_hal_executable_library_v0_t`: a library of version 6.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct LibraryV6 {
    /// The header.
    pub header: *const Header,
    /// Imported functions.
    pub imports: ImportTable,
    /// Exported functions.
    pub exports: ExportTableV6,
    /// Number of constants.
    pub constants: u32,
    /// Embedded source files.
    pub sources: SourceTable,
}

/// `iree_hal_executable_library_v0_t`: a library of version 5.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct LibraryV5 {
    /// The header.
    pub header: *const Header,
    /// Imported functions.
    pub imports: ImportTable,
    /// Exported functions.
    pub exports: ExportTableV5,
    /// Number of constants.
    pub constants: u32,
    /// Embedded source files.
    pub sources: SourceTable,
}

/// `iree_hal_executable_export_table_v0_t`: the exported functions of a library of version 6. All
/// arrays except `ptrs` may be null.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ExportTableV6 {
    /// Number of functions, which is the length of each array.
    pub count: u32,
    /// Addresses of the functions.
    pub ptrs: *const *const c_void,
    /// Attributes of each function.
    pub attrs: *const AttributesV6,
    /// Parameters of each function.
    pub params: *const c_void,
    /// Occupancy hints.
    pub occupancy: *const c_void,
    /// Names of the functions as C strings.
    pub names: *const *const c_char,
    /// Tags of the functions as C strings.
    pub tags: *const *const c_char,
    /// Names of the parameters of each function.
    pub parameter_names: *const c_void,
    /// Source location of each function.
    pub source_locations: *const SourceLocation,
    /// Source locations of the compilation stages of each function.
    pub stage_locations: *const c_void,
}

/// `iree_hal_executable_export_table_v0_t`: the exported functions of a library of version 5.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ExportTableV5 {
    /// Number of functions, which is the length of each array.
    pub count: u32,
    /// Addresses of the functions.
    pub ptrs: *const *const c_void,
    /// Attributes of each function.
    pub attrs: *const AttributesV5,
    /// Names of the functions as C strings.
    pub names: *const *const c_char,
    /// Tags of the functions as C strings.
    pub tags: *const *const c_char,
    /// Source location of each function.
    pub source_locations: *const SourceLocation,
    /// Source locations of the compilation stages of each function.
    pub stage_locations: *const c_void,
}

/// `iree_hal_executable_dispatch_attrs_v0_t`: attributes of a function in version 6.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct AttributesV6 {
    /// Flags.
    pub flags: u64,
    /// Workgroup-local memory in pages of 4 KiB.
    pub local_memory_pages: u16,
    /// Number of 32-bit constants.
    pub constant_count: u8,
    /// Number of bindings.
    pub binding_count: u8,
    /// Workgroup size in x; 0 if dynamic.
    pub workgroup_size_x: u32,
    /// Workgroup size in y.
    pub workgroup_size_y: u32,
    /// Workgroup size in z.
    pub workgroup_size_z: u16,
    /// Number of parameters.
    pub parameter_count: u16,
    /// Reserved for later versions.
    pub reserved: [u64; 5],
}

/// `iree_hal_executable_dispatch_attrs_v0_t`: attributes of a function in version 5.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct AttributesV5 {
    /// Workgroup-local memory in pages of 4 KiB.
    pub local_memory_pages: u16,
    /// Number of 32-bit constants.
    pub constant_count: u8,
    /// Number of bindings.
    pub binding_count: u8,
    /// Reserved for later versions.
    pub reserved: [u32; 17],
}

/// `iree_hal_executable_source_location_v0_t`: a place in a source file. The path has no
/// terminator.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct SourceLocation {
    /// Line number, starting at 1.
    pub line: u32,
    /// Length of the path in bytes.
    pub path_length: u32,
    /// The path.
    pub path: *const c_char,
}

/// `iree_hal_executable_source_file_table_v0_t`: the source files that a library contains.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct SourceTable {
    /// Number of files.
    pub count: u32,
    /// The files.
    pub files: *const c_void,
}

/// `iree_hal_executable_dispatch_state_v0_t`: one dispatch. This struct is the same in versions 5
/// and 6 of the interface.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct DispatchState {
    /// Size of a workgroup in x; the device `local-task` of IREE 3.13 passes 0.
    pub workgroup_size_x: u32,
    /// Size of a workgroup in y.
    pub workgroup_size_y: u32,
    /// Size of a workgroup in z.
    pub workgroup_size_z: u16,
    /// Number of constants.
    pub constant_count: u16,
    /// Number of workgroups in x.
    pub workgroup_count_x: u32,
    /// Number of workgroups in y.
    pub workgroup_count_y: u32,
    /// Number of workgroups in z.
    pub workgroup_count_z: u16,
    /// Maximum number of workgroups that run at a time.
    pub max_concurrency: u8,
    /// Number of bindings.
    pub binding_count: u8,
    /// Array of constants.
    pub constants: *const u32,
    /// Addresses of the bindings.
    pub binding_ptrs: *const *mut c_void,
    /// Lengths of the bindings in bytes.
    pub binding_lengths: *const usize,
}

/// `iree_hal_executable_workgroup_state_v0_t`: one workgroup.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct WorkgroupState {
    /// Id of the workgroup in x.
    pub workgroup_id_x: u32,
    /// Id of the workgroup in y.
    pub workgroup_id_y: u32,
    /// Id of the workgroup in z.
    pub workgroup_id_z: u16,
    /// Reserved.
    pub reserved: u16,
    /// Number of the worker that runs the workgroup.
    pub processor_id: u32,
    /// Scratch memory.
    pub local_memory: *mut c_void,
    /// Size of the scratch memory in bytes.
    pub local_memory_size: u32,
}

/// These offsets were measured with a C compiler on x86-64; 64-bit Arm has the same data model.
#[cfg(target_pointer_width = "64")]
mod layout {
    use super::*;
    use core::mem::offset_of;

    const _: () = {
        assert!(size_of::<Environment>() == 96 && offset_of!(Environment, processor) == 32);
        assert!(size_of::<Header>() == 24);
        assert!(offset_of!(Header, name) == 8 && offset_of!(Header, features) == 16);
        assert!(offset_of!(Header, sanitizer) == 20);
        assert!(size_of::<LibraryV6>() == 128 && offset_of!(LibraryV6, exports) == 24);
        assert!(offset_of!(LibraryV6, constants) == 104 && offset_of!(LibraryV6, sources) == 112);
        assert!(size_of::<LibraryV5>() == 104 && offset_of!(LibraryV5, exports) == 24);
        assert!(offset_of!(LibraryV5, constants) == 80 && offset_of!(LibraryV5, sources) == 88);
        assert!(size_of::<ExportTableV6>() == 80 && offset_of!(ExportTableV6, names) == 40);
        assert!(offset_of!(ExportTableV6, tags) == 48);
        assert!(offset_of!(ExportTableV6, source_locations) == 64);
        assert!(size_of::<ExportTableV5>() == 56 && offset_of!(ExportTableV5, names) == 24);
        assert!(offset_of!(ExportTableV5, tags) == 32);
        assert!(offset_of!(ExportTableV5, source_locations) == 40);
        assert!(
            size_of::<AttributesV6>() == 64 && offset_of!(AttributesV6, workgroup_size_x) == 12
        );
        assert!(offset_of!(AttributesV6, local_memory_pages) == 8);
        assert!(offset_of!(AttributesV6, constant_count) == 10);
        assert!(offset_of!(AttributesV6, binding_count) == 11);
        assert!(offset_of!(AttributesV6, workgroup_size_z) == 20);
        assert!(offset_of!(AttributesV6, parameter_count) == 22);
        assert!(size_of::<AttributesV5>() == 72 && offset_of!(AttributesV5, binding_count) == 3);
        assert!(size_of::<SourceLocation>() == 16 && offset_of!(SourceLocation, path) == 8);
        assert!(size_of::<DispatchState>() == 48);
        assert!(offset_of!(DispatchState, workgroup_count_x) == 12);
        assert!(offset_of!(DispatchState, workgroup_count_z) == 20);
        assert!(offset_of!(DispatchState, max_concurrency) == 22);
        assert!(offset_of!(DispatchState, binding_lengths) == 40);
        assert!(
            size_of::<WorkgroupState>() == 32 && offset_of!(WorkgroupState, processor_id) == 12
        );
        assert!(offset_of!(WorkgroupState, local_memory) == 16);
    };
}
