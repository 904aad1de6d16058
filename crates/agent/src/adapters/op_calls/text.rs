//! Converts data types, shapes and devices to text, spelled as TVM does.

use std::fmt::Write;

use abi::dlpack::{DataType, Device};

/// Names of the values of `DLDataTypeCode`. The names from `float8_e3m4` on contain the number of
/// bits.
const CODES: [&str; 18] = [
    "int",
    "uint",
    "float",
    "handle",
    "bfloat",
    "complex",
    "bool",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float4_e2m1fn",
];
const HANDLE: u8 = 3;
const BOOL: u8 = 6;
const FIRST_WITH_BITS: u8 = 7;

/// Names of the values of `DLDeviceType`; empty for values that are not used.
const DEVICES: [&str; 19] = [
    "",
    "cpu",
    "cuda",
    "cuda_host",
    "opencl",
    "",
    "",
    "vulkan",
    "metal",
    "vpi",
    "rocm",
    "rocm_host",
    "ext_dev",
    "cuda_managed",
    "oneapi",
    "webgpu",
    "hexagon",
    "maia",
    "trn",
];
/// For a device of another computer, TVM adds a multiple of this number to the device type. The
/// factor is the number of the RPC session plus 1.
const REMOTE: i32 = 128;

/// Appends a data type, for example `float32`, `int8x4`, `bool` or `custom[130]16`.
pub fn data_type(to: &mut String, dtype: DataType) {
    let name = CODES.get(usize::from(dtype.code));
    let _ = match name {
        Some(name) => write!(to, "{name}"),
        None => write!(to, "custom[{}]", dtype.code),
    };
    if dtype.code == HANDLE {
        return;
    }
    let has_bits = match dtype.code {
        BOOL => dtype.bits != 8,
        code => code < FIRST_WITH_BITS,
    };
    if has_bits || name.is_none() {
        let _ = write!(to, "{}", dtype.bits);
    }
    let lanes = dtype.lanes as i16;
    if lanes > 1 {
        let _ = write!(to, "x{lanes}");
    } else if lanes < -1 {
        let _ = write!(to, "xvscalex{}", -i32::from(lanes));
    }
}

/// Appends a tensor's type and shape, for example `float32[2, 3]`. An unknown shape becomes `[?]`.
pub fn tensor(to: &mut String, dtype: DataType, shape: Option<&[u64]>) {
    data_type(to, dtype);
    let Some(shape) = shape else {
        to.push_str("[?]");
        return;
    };
    to.push('[');
    for (i, extent) in shape.iter().enumerate() {
        let comma = if i > 0 { ", " } else { "" };
        let _ = write!(to, "{comma}{}", *extent as i64);
    }
    to.push(']');
}

/// Returns a device as text, for example `cpu0` or `remote[1]-cuda0`. A device whose type has no
/// name in [`DEVICES`] becomes, for example, `device20:3`.
pub fn device(device: Device) -> String {
    let mut text = String::new();
    let mut kind = device.kind;
    if kind >= REMOTE {
        let _ = write!(text, "remote[{}]-", kind / REMOTE - 1);
        kind %= REMOTE;
    }
    let known = usize::try_from(kind).ok().and_then(|kind| DEVICES.get(kind));
    let _ = match known.filter(|name| !name.is_empty()) {
        Some(name) => write!(text, "{name}{}", device.id),
        None => write!(text, "device{kind}:{}", device.id),
    };
    text
}

/// Returns whether an op on this device may return before the device has finished the op's work.
/// Unknown devices are treated as asynchronous. Otherwise, reports might show the time of a launch
/// as if it were the time of the op.
pub fn is_asynchronous(device: Device) -> bool {
    const CPU_AND_ITS_MEMORY: [i32; 3] = [1, 3, 11];
    !CPU_AND_ITS_MEMORY.contains(&device.kind)
}

/// Returns the number of bytes of one element of the data type that `text` names. TVM's virtual
/// machine passes data types as texts.
pub fn element_bytes(text: &[u8]) -> Option<u64> {
    let digits = |from: usize| {
        let rest = text.get(from..).unwrap_or_default();
        let count = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let number = std::str::from_utf8(rest.get(..count)?).ok()?.parse::<u64>().ok();
        Some((number?, from + count))
    };
    let (bits, after) = if text == b"bool" || text.starts_with(b"boolx") {
        (8, b"bool".len())
    } else {
        // A custom type has a number in brackets before its bits.
        let from = text.iter().position(|b| *b == b']').map_or(0, |at| at + 1);
        let first = text.iter().skip(from).position(u8::is_ascii_digit)?;
        digits(from + first)?
    };
    let lanes = match text.get(after) {
        Some(b'x') => digits(after + 1)?.0,
        _ => 1,
    };
    Some(bits.checked_mul(lanes)?.div_ceil(8))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dtype(code: u8, bits: u8, lanes: u16) -> String {
        let mut text = String::new();
        data_type(&mut text, DataType { code, bits, lanes });
        text
    }

    /// The expected values are the results of `str(tvm_ffi.dtype(…))` for the same types, and
    /// follow the rules in TVM FFI's `dtype.cc`.
    #[test]
    fn data_types_are_spelled_as_tvm_does() {
        assert_eq!(dtype(2, 32, 1), "float32");
        assert_eq!(dtype(2, 32, 4), "float32x4");
        assert_eq!(dtype(0, 8, 1), "int8");
        assert_eq!(dtype(1, 1, 1), "uint1");
        assert_eq!(dtype(4, 16, 1), "bfloat16");
        assert_eq!(dtype(6, 8, 1), "bool");
        assert_eq!(dtype(6, 8, 4), "boolx4");
        assert_eq!(dtype(6, 1, 1), "bool1");
        assert_eq!(dtype(10, 8, 1), "float8_e4m3fn");
        assert_eq!(dtype(17, 4, 2), "float4_e2m1fnx2");
        assert_eq!(dtype(3, 64, 1), "handle");
        assert_eq!(dtype(0, 32, (-4i16) as u16), "int32xvscalex4");
        assert_eq!(dtype(130, 16, 1), "custom[130]16");
        assert_eq!(dtype(18, 6, 1), "custom[18]6");
    }

    #[test]
    fn shapes_and_devices() {
        let float = DataType { code: 2, bits: 32, lanes: 1 };
        let text = |shape: Option<&[u64]>| {
            let mut text = String::new();
            tensor(&mut text, float, shape);
            text
        };
        assert_eq!(text(Some(&[1, 64])), "float32[1, 64]");
        assert_eq!(text(Some(&[])), "float32[]");
        assert_eq!(text(Some(&[(-1i64) as u64])), "float32[-1]");
        assert_eq!(text(None), "float32[?]");
        let name = |kind, id| device(Device { kind, id });
        assert_eq!(name(1, 0), "cpu0");
        assert_eq!(name(2, 3), "cuda3");
        assert_eq!(name(128 + 2, 1), "remote[0]-cuda1");
        assert_eq!(name(5, 0), "device5:0");
        assert_eq!(name(-7, 0), "device-7:0");
        assert!(!is_asynchronous(Device { kind: 1, id: 0 }));
        assert!(!is_asynchronous(Device { kind: 11, id: 0 }));
        assert!(is_asynchronous(Device { kind: 2, id: 0 }));
        assert!(is_asynchronous(Device { kind: 99, id: 0 }));
    }

    #[test]
    fn bytes_of_an_element() {
        let bytes = |text: &str| element_bytes(text.as_bytes());
        assert_eq!(bytes("float32"), Some(4));
        assert_eq!(bytes("uint8"), Some(1));
        assert_eq!(bytes("float32x4"), Some(16));
        assert_eq!(bytes("float8_e4m3fn"), Some(1));
        assert_eq!(bytes("int4"), Some(1));
        assert_eq!(bytes("bool"), Some(1));
        assert_eq!(bytes("boolx4"), Some(4));
        assert_eq!(bytes("custom[130]16x2"), Some(4));
        assert_eq!(bytes("custom[130]"), None);
        assert_eq!(bytes("handle"), None);
        assert_eq!(bytes(""), None);
        assert_eq!(bytes("int99999999999999999999"), None);
    }
}
