//! IREE's executable library interface (`iree/hal/local/executable_library.h`), the contract
//! between compiled modules and the CPU runtime. Version 5 was spoken by releases 3.1 to 3.7,
//! version 6 by 3.8 and later (checked on 3.13). The two differ in the export table.
//!
//! Compiled modules export one function, [`QUERY_SYMBOL`]; it answers with a library whose
//! `exports.ptrs` the runtime calls, once per workgroup.

use core::ffi::{c_char, c_int, c_void};

/// The one symbol that every executable library exports.
pub const QUERY_SYMBOL: &str = "iree_hal_executable_library_query";

/// Interface versions with a known layout, in the order in which to ask for them.
pub const VERSIONS: [u32; 2] = [6, 5];

/// `iree_hal_executable_library_query_fn_t`: null if the version is not spoken. The result
/// points to a library whose first field is the header pointer.
pub type Query = unsafe extern "C-unwind" fn(
    max_version: u32,
    environment: *const Environment,
) -> *const LibraryHead;

/// `iree_hal_executable_dispatch_v0_t`: runs one workgroup; 0 is success.
pub type Dispatch = unsafe extern "C-unwind" fn(
    environment: *const Environment,
    dispatch_state: *const DispatchState,
    workgroup_state: *const WorkgroupState,
) -> c_int;

/// `iree_string_view_t`: bytes, not terminated.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct StringView {
    /// The first byte.
    pub data: *const c_char,
    /// How many.
    pub size: usize,
}

/// `iree_hal_executable_library_call_hook_begin` and `_end`, which a runtime built with
/// `IREE_HAL_EXECUTABLE_LIBRARY_CALL_HOOK` calls around each workgroup, on its thread, where such
/// a symbol exists. The view is the executable's name; nothing tells which workgroup it is.
pub type CallHook =
    unsafe extern "C" fn(executable: StringView, library: *const LibraryHead, ordinal: usize);

/// `iree_hal_executable_environment_v0_t`. All zero is what compiled modules need for a query.
#[repr(C)]
pub struct Environment {
    /// Specialisation constants.
    pub constants: *const u32,
    /// Calls imported functions.
    pub import_thunk: *const c_void,
    /// Imported functions.
    pub import_funcs: *const *const c_void,
    /// Their contexts.
    pub import_contexts: *const *const c_void,
    /// Processor features.
    pub processor: [u64; 8],
}

impl Environment {
    /// The environment of nobody.
    pub const ZERO: Self = Self {
        constants: core::ptr::null(),
        import_thunk: core::ptr::null(),
        import_funcs: core::ptr::null(),
        import_contexts: core::ptr::null(),
        processor: [0; 8],
    };
}

/// `iree_hal_executable_library_header_t`.
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

/// What all versions of a library start with.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct LibraryHead {
    /// The header.
    pub header: *const Header,
}

/// `iree_hal_executable_import_table_v0_t`: of no interest here but for its size.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ImportTable {
    /// Number of imports.
    pub count: u32,
    /// Their names.
    pub symbols: *const *const c_char,
}

/// `iree_hal_executable_library_v0_t` of version 6.
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

/// `iree_hal_executable_library_v0_t` of version 5.
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

/// `iree_hal_executable_export_table_v0_t` of version 6. Tables other than `ptrs` may be null.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ExportTableV6 {
    /// Length of the tables.
    pub count: u32,
    /// The functions.
    pub ptrs: *const *const c_void,
    /// Attributes of each.
    pub attrs: *const AttributesV6,
    /// Parameters of each.
    pub params: *const c_void,
    /// Occupancy hints.
    pub occupancy: *const c_void,
    /// Names, C strings.
    pub names: *const *const c_char,
    /// Tags, C strings.
    pub tags: *const *const c_char,
    /// Parameter names.
    pub parameter_names: *const c_void,
    /// Where each was compiled from.
    pub source_locations: *const SourceLocation,
    /// Where the stages of each were compiled from.
    pub stage_locations: *const c_void,
}

/// `iree_hal_executable_export_table_v0_t` of version 5.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ExportTableV5 {
    /// Length of the tables.
    pub count: u32,
    /// The functions.
    pub ptrs: *const *const c_void,
    /// Attributes of each.
    pub attrs: *const AttributesV5,
    /// Names, C strings.
    pub names: *const *const c_char,
    /// Tags, C strings.
    pub tags: *const *const c_char,
    /// Where each was compiled from.
    pub source_locations: *const SourceLocation,
    /// Where the stages of each were compiled from.
    pub stage_locations: *const c_void,
}

/// `iree_hal_executable_dispatch_attrs_v0_t` of version 6.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct AttributesV6 {
    /// Flags.
    pub flags: u64,
    /// Workgroup-local memory, pages of 4 KiB.
    pub local_memory_pages: u16,
    /// Number of 32-bit constants.
    pub constant_count: u8,
    /// Number of bindings.
    pub binding_count: u8,
    /// Workgroup size in x, 0 if dynamic.
    pub workgroup_size_x: u32,
    /// In y.
    pub workgroup_size_y: u32,
    /// In z.
    pub workgroup_size_z: u16,
    /// Number of parameters.
    pub parameter_count: u16,
    /// Room for more.
    pub reserved: [u64; 5],
}

/// `iree_hal_executable_dispatch_attrs_v0_t` of version 5.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct AttributesV5 {
    /// Workgroup-local memory, pages of 4 KiB.
    pub local_memory_pages: u16,
    /// Number of 32-bit constants.
    pub constant_count: u8,
    /// Number of bindings.
    pub binding_count: u8,
    /// Room for more.
    pub reserved: [u32; 17],
}

/// `iree_hal_executable_source_location_v0_t`. The path is not terminated.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct SourceLocation {
    /// Line, from 1.
    pub line: u32,
    /// Bytes of the path.
    pub path_length: u32,
    /// The path.
    pub path: *const c_char,
}

/// `iree_hal_executable_source_file_table_v0_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct SourceTable {
    /// Number of files.
    pub count: u32,
    /// The files.
    pub files: *const c_void,
}

/// `iree_hal_executable_dispatch_state_v0_t`: one dispatch. The same in versions 5 and 6.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct DispatchState {
    /// Size of a workgroup in x; 0 from `local-task` of 3.13.
    pub workgroup_size_x: u32,
    /// In y.
    pub workgroup_size_y: u32,
    /// In z.
    pub workgroup_size_z: u16,
    /// Number of constants.
    pub constant_count: u16,
    /// Workgroups in x.
    pub workgroup_count_x: u32,
    /// In y.
    pub workgroup_count_y: u32,
    /// In z.
    pub workgroup_count_z: u16,
    /// Most workgroups at a time.
    pub max_concurrency: u8,
    /// Number of bindings.
    pub binding_count: u8,
    /// Constants.
    pub constants: *const u32,
    /// Addresses of the bindings.
    pub binding_ptrs: *const *mut c_void,
    /// Their lengths in bytes.
    pub binding_lengths: *const usize,
}

/// `iree_hal_executable_workgroup_state_v0_t`: one workgroup.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct WorkgroupState {
    /// Its id in x.
    pub workgroup_id_x: u32,
    /// In y.
    pub workgroup_id_y: u32,
    /// In z.
    pub workgroup_id_z: u16,
    /// Room.
    pub reserved: u16,
    /// The worker that runs it.
    pub processor_id: u32,
    /// Scratch memory.
    pub local_memory: *mut c_void,
    /// Its size in bytes.
    pub local_memory_size: u32,
}

/// Offsets as measured with a C compiler on x86-64; 64-bit Arm has the same data model.
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
