//! What a plugin knows about its host.

use abi::kineto::Host;

use crate::kind::Kind;

/// The facts about the host, which all sessions in the shared object share.
#[derive(Debug, Default)]
pub(crate) struct Extended {
    /// The host, if it has Counterpoint's extension.
    pub host: Option<Host>,
    /// The numbers for the plugin's own kinds: the host's, or those of the published kinds that are
    /// most like them.
    pub own: Vec<u32>,
}

// SAFETY: the extension lets any thread call the host's functions.
unsafe impl Send for Extended {}
// SAFETY: the extension lets any thread call the host's functions, also while others do.
unsafe impl Sync for Extended {}

impl Extended {
    /// Returns the host's number for a kind.
    pub fn number(&self, kind: Kind) -> u32 {
        match kind.own_index() {
            Some(index) => self.own.get(index).copied().unwrap_or_default(),
            None => kind.number(),
        }
    }
}

/// Copies a host's struct, which may come from an older or newer version of the interface. Fields
/// that the host's struct lacks are zero or null in the copy.
///
/// # Safety
/// `host` must point to as many bytes as its `size` says, at least [`Host::FIRST_SIZE`].
pub(crate) unsafe fn read(host: *const Host) -> Host {
    let mut copy = std::mem::MaybeUninit::<Host>::zeroed();
    // SAFETY: by contract, `host` points to as many bytes as its size says, and no more are copied
    // than fit. All fields may be zero: numbers, pointers and functions that may be null.
    unsafe {
        let bytes = (*host).size.min(size_of::<Host>());
        std::ptr::copy_nonoverlapping(host.cast::<u8>(), copy.as_mut_ptr().cast(), bytes);
        copy.assume_init()
    }
}
