//! Registers hosts that announce themselves, and their machines (such as loaded models). Of several
//! descriptions with the same host name, only the first is stored. So a program that announces many
//! machines of one host needs memory for one description only.

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use abi::host::{Host as Raw, Machine, PROGRAM_BETWEEN_OPS};
use record::host::{Host, Text};
use record::meta::{LONGEST_NAME, Role};

use crate::adapters::op_calls::vm::Vm;
use crate::os::sys::ErrnoGuard;
use crate::process::hosts::Described;
use crate::process::load;
use crate::process::lock::Lock;
use crate::process::panics::guarded_apart;
use crate::process::part::Process;
use crate::state::epoch;

const MOST_HOSTS: usize = 16;
const MOST_MACHINES: u32 = 65_536;

static HOSTS: [OnceLock<Described>; MOST_HOSTS] = [const { OnceLock::new() }; MOST_HOSTS];
static MACHINES: AtomicU32 = AtomicU32::new(0);

/// Registers a machine. Returns null if the description of the host is missing, too small or
/// without a name, if there are too many hosts or machines, or after an internal error.
///
/// # Safety
/// The caller must meet the requirements of `include/counterpoint/host.h`.
pub unsafe extern "C" fn add(host: *const Raw, name: *const c_char) -> Machine {
    let _errno = ErrnoGuard::new();
    let machine = guarded_apart(|| {
        point!(HostMachine);
        // SAFETY: host.h requires that `host` begins with its size and that its texts and `name`
        // are C strings or null. Fields are read only if the size covers all of them.
        let (host, name) = unsafe {
            if host.is_null() || ((*host).size as usize) < size_of::<Raw>() {
                return None;
            }
            (described(&*host), text(name))
        };
        let host = find_or_keep(host)?;
        if MACHINES.fetch_add(1, Ordering::Relaxed) >= MOST_MACHINES {
            MACHINES.store(MOST_MACHINES, Ordering::Relaxed);
            return None;
        }
        let vm = Vm::register(name.into_owned(), host)?;
        tell(vm);
        Some(vm)
    });
    machine.flatten().map_or(std::ptr::null(), |vm| std::ptr::from_ref(vm).cast())
}

/// Writes the machine's name to the profile, if one is being recorded, so that the machine is
/// listed even if it is never called.
fn tell(vm: &Vm) {
    if !epoch::wanted() {
        return;
    }
    let Some(run) = load::load() else { return };
    let Some(lock) = Lock::take() else { return };
    if let Some(process) = Process::current_locked(run, &lock) {
        vm.tell(&process, run);
    }
}

/// Returns the stored description that has the name of `host`. If there is none yet, stores and
/// returns `host`.
fn find_or_keep(host: Host) -> Option<&'static Described> {
    if host.name.is_empty() {
        return None;
    }
    let _lock = Lock::take()?;
    for slot in &HOSTS {
        match slot.get() {
            Some(known) if known.host.name == host.name => return Some(known),
            Some(_) => {}
            None => return Some(slot.get_or_init(|| Described::new(host))),
        }
    }
    None
}

/// # Safety
/// Each text of `raw` must be null or a C string.
unsafe fn described(raw: &Raw) -> Host {
    let kinds = Role::ALL.into_iter().zip(raw.kinds).filter(|(_, kind)| !kind.is_null());
    // SAFETY: by this function's contract, each text is null or a C string.
    let kinds = kinds.map(|(role, kind)| (role, unsafe { text(kind) })).collect();
    // SAFETY: by this function's contract, each text is null or a C string.
    unsafe {
        Host {
            name: text(raw.name),
            title: text(raw.title),
            calls_ops: true,
            dispatches: false,
            program_between_ops: raw.flags & PROGRAM_BETWEEN_OPS != 0,
            ops: text(raw.ops),
            library_key: text(raw.library_key),
            without_calls: text(raw.without_calls),
            bookkeeping: text(raw.bookkeeping),
            kinds,
            ..Host::UNKNOWN
        }
    }
    .within_bounds()
}

/// # Safety
/// `text` must be null or a C string.
unsafe fn text(text: *const c_char) -> Text {
    if text.is_null() {
        return Text::default();
    }
    // SAFETY: by this function's contract, `text` is a C string if it is not null, and null was
    // handled above.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST_NAME)]).into_owned().into()
}
