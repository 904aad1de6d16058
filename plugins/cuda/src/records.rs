//! CUPTI's activity records. Later versions of CUPTI add fields at the end of a record: the fields
//! that are read here have the same offsets in the headers of CUDA 11.8, 12.4, 13.0 and 13.5. A
//! record does not contain its version or its size. So the distance to the next record, or to the
//! end of the valid bytes, is taken as the size, and reads are checked against it.
//!
//! ```text
//!  buffer:  │ record │ record │ record │      free      │
//!           ▲        ▲                 ▲
//!           kind u32 at 0              valid
//! ```

/// `CUpti_ActivityKind`.
pub mod kind {
    pub const MEMCPY: u32 = 1;
    pub const MEMSET: u32 = 2;
    pub const KERNEL: u32 = 3;
    pub const DRIVER: u32 = 4;
    pub const RUNTIME: u32 = 5;
    pub const DEVICE: u32 = 8;
    pub const CONTEXT: u32 = 9;
    pub const CONCURRENT_KERNEL: u32 = 10;
    pub const MARKER: u32 = 12;
    pub const OVERHEAD: u32 = 17;
    pub const MEMCPY_PEER: u32 = 22;
    pub const SYNCHRONIZATION: u32 = 38;
    pub const EXTERNAL_CORRELATION: u32 = 39;
}

/// `CUPTI_SYNCHRONIZATION_INVALID_VALUE`: the wait is not for one particular stream.
const NO_STREAM: u32 = u32::MAX;

/// `CUPTI_ACTIVITY_OBJECT_THREAD`.
const OBJECT_THREAD: u32 = 2;

#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a>(pub &'a [u8]);

impl Bytes<'_> {
    fn array<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..at + N)?.try_into().ok()
    }

    fn u16(self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_ne_bytes)
    }

    fn u32(self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_ne_bytes)
    }

    fn i32(self, at: usize) -> Option<i32> {
        self.array(at).map(i32::from_ne_bytes)
    }

    fn u64(self, at: usize) -> Option<u64> {
        self.array(at).map(u64::from_ne_bytes)
    }

    fn three(self, at: usize) -> Option<[i32; 3]> {
        Some([self.i32(at)?, self.i32(at + 4)?, self.i32(at + 8)?])
    }

    pub fn kind(self) -> Option<u32> {
        self.u32(0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// True for a function of CUDA's driver (`cu…`), false for one of the runtime (`cuda…`).
    pub is_driver: bool,
    pub function: u32,
    pub start: u64,
    pub end: u64,
    pub thread: u32,
    pub correlation: u32,
    /// 0, or an error.
    pub code: u32,
}

/// What the records of kernels, copies and fills have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    pub start: u64,
    pub end: u64,
    pub device: u32,
    pub context: u32,
    pub stream: u32,
    pub correlation: u32,
    /// The id of the graph node that the work belongs to; 0 if no CUDA graph launched it.
    pub graph_node: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    Moment,
    Begin,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    Call(Call),
    Kernel {
        work: Work,
        /// The address of the kernel's name, a C string.
        name: usize,
        grid: [i32; 3],
        block: [i32; 3],
        registers: u16,
        /// The bytes of shared memory that the kernel declares, and those that its launch adds.
        shared: [i32; 2],
    },
    Copy {
        work: Work,
        /// The `CUpti_ActivityMemcpyKind`, and the `CUpti_ActivityMemoryKind`s of source and
        /// destination.
        kinds: [u8; 3],
        bytes: u64,
        /// Source and destination device of a `MEMCPY_PEER`.
        peers: Option<[u32; 2]>,
    },
    Fill {
        work: Work,
        memory: u16,
        bytes: u64,
    },
    Wait {
        /// `CUpti_ActivitySynchronizationType`.
        what: u32,
        start: u64,
        end: u64,
        context: u32,
        stream: Option<u32>,
        correlation: u32,
    },
    Overhead {
        what: u32,
        start: u64,
        end: u64,
        thread: Option<u32>,
    },
    Device {
        id: u32,
        /// The address of the device's name, a C string.
        name: usize,
        memory: u64,
        multiprocessors: u32,
        capability: [u32; 2],
        /// For an instance of a GPU that MIG divides: the numbers of the GPU instance and of the
        /// compute instance.
        mig: Option<[u32; 2]>,
    },
    Context {
        context: u32,
        device: u32,
    },
    External {
        kind: u32,
        id: u64,
        correlation: u32,
    },
    Marker {
        what: Mark,
        time: u64,
        /// A number that is the same at the start and at the end of a range.
        id: u32,
        thread: Option<u32>,
        /// The address of the marker's name; 0 at the end of a range.
        name: usize,
        /// The address of the name of the marker's domain.
        domain: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// The kind is not one of those in [`kind`].
    Unknown(u32),
    /// The record has fewer bytes than its fields need, or the flags of a marker are not known.
    Short,
}

/// # Errors
/// The kind is not known, the record is too short, or the flags of a marker are not known.
pub fn read(bytes: Bytes<'_>) -> Result<Record, Unreadable> {
    let kind = bytes.kind().ok_or(Unreadable::Short)?;
    let record = match kind {
        kind::RUNTIME | kind::DRIVER => call(bytes, kind == kind::DRIVER),
        kind::KERNEL | kind::CONCURRENT_KERNEL => kernel(bytes),
        kind::MEMCPY => copy(bytes, 44, false),
        kind::MEMCPY_PEER => copy(bytes, 60, true),
        kind::MEMSET => fill(bytes),
        kind::SYNCHRONIZATION => wait(bytes),
        kind::OVERHEAD => overhead(bytes),
        kind::DEVICE => device(bytes),
        kind::CONTEXT => context(bytes),
        kind::EXTERNAL_CORRELATION => external(bytes),
        kind::MARKER => marker(bytes),
        unknown => return Err(Unreadable::Unknown(unknown)),
    };
    record.ok_or(Unreadable::Short)
}

/// Reads a `CUpti_ActivityAPI`.
fn call(bytes: Bytes<'_>, is_driver: bool) -> Option<Record> {
    Some(Record::Call(Call {
        is_driver,
        function: bytes.u32(4)?,
        start: bytes.u64(8)?,
        end: bytes.u64(16)?,
        thread: bytes.u32(28)?,
        correlation: bytes.u32(32)?,
        code: bytes.u32(36)?,
    }))
}

/// Reads a `CUpti_ActivityKernel8`, or a later version.
fn kernel(bytes: Bytes<'_>) -> Option<Record> {
    let work = Work {
        start: bytes.u64(16)?,
        end: bytes.u64(24)?,
        device: bytes.u32(40)?,
        context: bytes.u32(44)?,
        stream: bytes.u32(48)?,
        correlation: bytes.u32(92)?,
        graph_node: bytes.u64(144)?,
    };
    Some(Record::Kernel {
        work,
        name: bytes.u64(104)? as usize,
        grid: bytes.three(52)?,
        block: bytes.three(64)?,
        registers: bytes.u16(6)?,
        shared: [bytes.i32(76)?, bytes.i32(80)?],
    })
}

/// Reads a `CUpti_ActivityMemcpy5`, a `CUpti_ActivityMemcpyPtoP4`, or a later version of them. The
/// two structs differ from byte 44 on.
fn copy(bytes: Bytes<'_>, correlation: usize, is_peer: bool) -> Option<Record> {
    let work = Work {
        start: bytes.u64(16)?,
        end: bytes.u64(24)?,
        device: bytes.u32(32)?,
        context: bytes.u32(36)?,
        stream: bytes.u32(40)?,
        correlation: bytes.u32(correlation)?,
        graph_node: bytes.u64(if is_peer { 72 } else { 64 })?,
    };
    Some(Record::Copy {
        work,
        kinds: bytes.array(4)?,
        bytes: bytes.u64(8)?,
        peers: if is_peer { Some([bytes.u32(44)?, bytes.u32(52)?]) } else { None },
    })
}

/// Reads a `CUpti_ActivityMemset4`, or a later version.
fn fill(bytes: Bytes<'_>) -> Option<Record> {
    let work = Work {
        start: bytes.u64(16)?,
        end: bytes.u64(24)?,
        device: bytes.u32(32)?,
        context: bytes.u32(36)?,
        stream: bytes.u32(40)?,
        correlation: bytes.u32(44)?,
        graph_node: bytes.u64(64)?,
    };
    Some(Record::Fill { work, memory: bytes.u16(50)?, bytes: bytes.u64(8)? })
}

/// Reads a `CUpti_ActivitySynchronization`, or a later version.
fn wait(bytes: Bytes<'_>) -> Option<Record> {
    Some(Record::Wait {
        what: bytes.u32(4)?,
        start: bytes.u64(8)?,
        end: bytes.u64(16)?,
        correlation: bytes.u32(24)?,
        context: bytes.u32(28)?,
        stream: Some(bytes.u32(32)?).filter(|stream| *stream != NO_STREAM),
    })
}

/// Reads a `CUpti_ActivityOverhead`, or a later version.
fn overhead(bytes: Bytes<'_>) -> Option<Record> {
    let of_thread = bytes.u32(8)? == OBJECT_THREAD;
    Some(Record::Overhead {
        what: bytes.u32(4)?,
        // In `CUpti_ActivityObjectKindId` (at byte 12), the thread's id follows the process's id.
        thread: if of_thread { Some(bytes.u32(16)?) } else { None },
        start: bytes.u64(24)?,
        end: bytes.u64(32)?,
    })
}

/// Reads a `CUpti_ActivityDevice4`, or a later version.
fn device(bytes: Bytes<'_>) -> Option<Record> {
    Some(Record::Device {
        id: bytes.u32(112)?,
        name: bytes.u64(136)? as usize,
        memory: bytes.u64(16)?,
        multiprocessors: bytes.u32(44)?,
        capability: [bytes.u32(104)?, bytes.u32(108)?],
        mig: match bytes.array::<1>(145)? {
            [0] => None,
            _ => Some([bytes.u32(152)?, bytes.u32(156)?]),
        },
    })
}

/// Reads a `CUpti_ActivityContext`, or a later version.
fn context(bytes: Bytes<'_>) -> Option<Record> {
    Some(Record::Context { context: bytes.u32(4)?, device: bytes.u32(8)? })
}

/// Reads a `CUpti_ActivityExternalCorrelation`.
fn external(bytes: Bytes<'_>) -> Option<Record> {
    Some(Record::External { kind: bytes.u32(4)?, id: bytes.u64(8)?, correlation: bytes.u32(16)? })
}

/// Reads a `CUpti_ActivityMarker2`.
fn marker(bytes: Bytes<'_>) -> Option<Record> {
    // The bits are `CUPTI_ACTIVITY_FLAG_MARKER_…`.
    let what = match bytes.u32(4)? & 7 {
        1 => Mark::Moment,
        2 => Mark::Begin,
        4 => Mark::End,
        _ => return None,
    };
    let of_thread = bytes.u32(20)? == OBJECT_THREAD;
    Some(Record::Marker {
        what,
        time: bytes.u64(8)?,
        id: bytes.u32(16)?,
        thread: if of_thread { Some(bytes.u32(28)?) } else { None },
        name: bytes.u64(40)? as usize,
        domain: bytes.u64(48)? as usize,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a record in which each u32 except the kind is its own offset, so that a read at a
    /// wrong offset has a wrong value.
    fn places(kind: u32, length: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..length as u32).step_by(4).flat_map(u32::to_ne_bytes).collect();
        bytes[..4].copy_from_slice(&kind.to_ne_bytes());
        bytes
    }

    fn both(at: u64) -> u64 {
        (at + 4) << 32 | at
    }

    /// A C compiler computed the offsets from the headers of CUDA 13.0.
    #[test]
    fn fields_stand_where_the_headers_have_them() {
        let bytes = places(kind::CONCURRENT_KERNEL, 216);
        let Ok(Record::Kernel { work, name, grid, block, registers, shared }) = read(Bytes(&bytes))
        else {
            panic!("a kernel")
        };
        let expected = Work {
            start: both(16),
            end: both(24),
            device: 40,
            context: 44,
            stream: 48,
            correlation: 92,
            graph_node: both(144),
        };
        assert_eq!(work, expected);
        assert_eq!((name as u64, grid, block), (both(104), [52, 56, 60], [64, 68, 72]));
        assert_eq!((registers, shared), (0, [76, 80]));

        let bytes = places(kind::MEMCPY, 96);
        let Ok(Record::Copy { work, bytes, peers, .. }) = read(Bytes(&bytes)) else {
            panic!("a copy")
        };
        assert_eq!(
            (work.correlation, work.graph_node, bytes, peers),
            (44, both(64), both(8), None)
        );
        let bytes = places(kind::MEMCPY_PEER, 96);
        let Ok(Record::Copy { work, peers, .. }) = read(Bytes(&bytes)) else { panic!("a copy") };
        assert_eq!((work.correlation, work.graph_node, peers), (60, both(72), Some([44, 52])));
        let bytes = places(kind::MEMSET, 88);
        let Ok(Record::Fill { work, memory, .. }) = read(Bytes(&bytes)) else { panic!("a fill") };
        assert_eq!((work.correlation, memory), (44, 0));
        let call = read(Bytes(&places(kind::RUNTIME, 40)));
        let expected = Call {
            is_driver: false,
            function: 4,
            start: both(8),
            end: both(16),
            thread: 28,
            correlation: 32,
            code: 36,
        };
        assert_eq!(call, Ok(Record::Call(expected)));
        let wait = read(Bytes(&places(kind::SYNCHRONIZATION, 56)));
        let expected = Record::Wait {
            what: 4,
            start: both(8),
            end: both(16),
            correlation: 24,
            context: 28,
            stream: Some(32),
        };
        assert_eq!(wait, Ok(expected));
        // Byte 145 is 0, as on a device without MIG.
        let device = read(Bytes(&places(kind::DEVICE, 184)));
        let expected = Record::Device {
            id: 112,
            name: both(136) as usize,
            memory: both(16),
            multiprocessors: 44,
            capability: [104, 108],
            mig: None,
        };
        assert_eq!(device, Ok(expected));
        let mut bytes = places(kind::DEVICE, 184);
        bytes[145] = 1;
        let device = read(Bytes(&bytes));
        assert!(matches!(device, Ok(Record::Device { mig: Some([152, 156]), .. })), "{device:?}");
        let context = read(Bytes(&places(kind::CONTEXT, 32)));
        assert_eq!(context, Ok(Record::Context { context: 4, device: 8 }));
        let external = read(Bytes(&places(kind::EXTERNAL_CORRELATION, 24)));
        assert_eq!(external, Ok(Record::External { kind: 4, id: both(8), correlation: 16 }));
        let mut bytes = places(kind::MARKER, 56);
        bytes[20..24].copy_from_slice(&2_u32.to_ne_bytes());
        let marker = read(Bytes(&bytes));
        let expected = Record::Marker {
            what: Mark::End,
            time: both(8),
            id: 16,
            thread: Some(28),
            name: both(40) as usize,
            domain: both(48) as usize,
        };
        assert_eq!(marker, Ok(expected));
    }

    /// The sizes are those of CUDA 11.8, the oldest supported version.
    #[test]
    fn every_shorter_record_is_short_and_no_read_leaves_it() {
        for (kind, size) in [
            (kind::CONCURRENT_KERNEL, 200),
            (kind::MEMCPY, 88),
            (kind::MEMCPY_PEER, 96),
            (kind::MEMSET, 88),
            (kind::RUNTIME, 40),
            (kind::DRIVER, 40),
            (kind::SYNCHRONIZATION, 40),
            (kind::OVERHEAD, 40),
            (kind::DEVICE, 176),
            (kind::CONTEXT, 16),
            (kind::EXTERNAL_CORRELATION, 24),
            (kind::MARKER, 56),
        ] {
            let bytes = places(kind, size);
            assert!(read(Bytes(&bytes)).is_ok(), "{kind}");
            let readable = (0..size).filter(|length| read(Bytes(&bytes[..*length])).is_ok());
            // The last field that is read may be some bytes before the end of the record.
            assert!(readable.clone().min().is_none_or(|least| least + 60 > size), "{kind}");
            assert_eq!(read(Bytes(&bytes[..11])), Err(Unreadable::Short), "{kind}");
        }
        assert_eq!(read(Bytes(&[])), Err(Unreadable::Short));
        assert_eq!(read(Bytes(&places(4_000, 64))), Err(Unreadable::Unknown(4_000)));
    }
}
