//! Loads a plugin: opens the file, and lets the plugin use the extension and register its
//! profilers.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use abi::kineto::{
    EXTENSION_VERSION, Extend, Extension, FIRST_OWN_TYPE, NAME_BYTES, ProfilerInterface,
    QueryParams, Register, Registry,
};

use crate::catch::{self, call_one};
use crate::event_checks::{Builder, add_counter, add_missing, set_thread_name};
use crate::known::Known;
use crate::platform::Library;
use crate::problem::{Problem, Problems};

/// Shows messages of plugins to the user. `level` is as in KINETO_LOG_LEVEL.
pub type Say = fn(level: u32, text: &str);

#[derive(Clone, Copy, Debug)]
enum Says {
    Anybody(Say),
    /// A function that also gets the number that the user of this crate has given to the host.
    Numbered(u32, fn(number: u32, level: u32, text: &str)),
}

/// The largest number of types that the plugins of a host may declare.
const MOST_OWN_TYPES: usize = 1024;

static HOSTS: Known<Host> = Known::new();

/// The host, as its plugins see it. It exists as long as the process. Plugins may share a host.
#[derive(Debug)]
pub struct Host {
    types: Mutex<Vec<(String, u32)>>,
    /// One more than the number of the last declared type.
    own_end: AtomicU32,
    says: Says,
    /// A [`TakeEvents`], or null.
    takes: AtomicPtr<()>,
    raw: abi::kineto::Host,
}

/// Takes a recording's events from the plugin with this number, which has asked for this on the
/// calling thread. `session` is what the plugin's `create` returned; it must not be dereferenced.
/// Returns whether the events were handed over.
pub type TakeEvents = fn(number: u32, session: *mut c_void) -> bool;

// SAFETY: the pointer in `raw` is the address of the host itself, which is never freed.
unsafe impl Send for Host {}
// SAFETY: the pointer in `raw` is only passed on, and everything that changes is atomic or behind
// a lock.
unsafe impl Sync for Host {}

impl Host {
    /// Makes a host; `say` shows the messages of its plugins.
    pub fn leak(say: Say) -> &'static Self {
        Self::leak_with(Says::Anybody(say))
    }

    /// Makes a host for one of several plugins. `say` also gets `number`, to name the plugin.
    pub fn leak_numbered(
        number: u32,
        say: fn(number: u32, level: u32, text: &str),
    ) -> &'static Self {
        Self::leak_with(Says::Numbered(number, say))
    }

    fn leak_with(says: Says) -> &'static Self {
        let raw = abi::kineto::Host {
            size: abi::kineto::Host::SIZE,
            version: EXTENSION_VERSION,
            handle: std::ptr::null_mut(),
            declare_type: Some(declare_type),
            add_counter: Some(add_counter),
            set_thread_name: Some(set_thread_name),
            log: Some(log),
            request_flush: Some(request_flush),
            add_missing: Some(add_missing),
        };
        let host = Box::leak(Box::new(Self {
            types: Mutex::default(),
            own_end: AtomicU32::new(FIRST_OWN_TYPE),
            says,
            takes: AtomicPtr::new(std::ptr::null_mut()),
            raw,
        }));
        host.raw.handle = std::ptr::from_mut(host).cast();
        HOSTS.add(host);
        host
    }

    /// Sets the function that takes the events of a recording when a plugin requests it. The host
    /// must have been made by [`Host::leak_numbered`]. Without this function, the plugins' requests
    /// fail.
    pub fn take_events_with(&self, take: TakeEvents) {
        self.takes.store(take as *mut (), Ordering::Release);
    }

    /// Returns the declared types in the order of their numbers, which begin with
    /// [`FIRST_OWN_TYPE`]. Each has its name and, as its plugin states, the published type that is
    /// most like it.
    pub fn types(&self) -> Vec<(String, u32)> {
        self.types.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns whether this type is published or declared.
    pub fn knows(&self, number: u32) -> bool {
        abi::kineto::event_type(number).is_some()
            || (FIRST_OWN_TYPE..self.own_end.load(Ordering::Acquire)).contains(&number)
    }

    fn declare(&self, name: &str, base: u32) -> u32 {
        let mut types = self.types.lock().unwrap_or_else(PoisonError::into_inner);
        let index = match types.iter().position(|(known, _)| known == name) {
            Some(index) => index,
            None if types.len() < MOST_OWN_TYPES => {
                types.push((name.to_owned(), base));
                self.own_end.store(FIRST_OWN_TYPE + types.len() as u32, Ordering::Release);
                types.len() - 1
            }
            None => return 0,
        };
        FIRST_OWN_TYPE + index as u32
    }
}

unsafe extern "C" fn declare_type(handle: *mut c_void, name: *const c_char, base: u32) -> u32 {
    let Some(host) = HOSTS.find(handle).filter(|_| !name.is_null()) else { return 0 };
    // SAFETY: the plugin passes a C string, and null was refused above.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    if name.is_empty() { 0 } else { host.declare(&name, base) }
}

unsafe extern "C" fn log(handle: *mut c_void, level: u32, text: *const c_char) {
    let Some(host) = HOSTS.find(handle).filter(|_| !text.is_null()) else { return };
    // SAFETY: the plugin passes a C string, and null was refused above.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    match host.says {
        Says::Anybody(say) => say(level, &text),
        Says::Numbered(number, say) => say(number, level, &text),
    }
}

unsafe extern "C" fn request_flush(handle: *mut c_void, session: *mut c_void) -> c_int {
    let Some(host) = HOSTS.find(handle) else { return -1 };
    let take = host.takes.load(Ordering::Acquire);
    let Says::Numbered(number, _) = host.says else { return -1 };
    if take.is_null() {
        return -1;
    }
    // SAFETY: only `take_events_with` stores this pointer, and what it stores is a `TakeEvents`.
    let take = unsafe { std::mem::transmute::<*mut (), TakeEvents>(take) };
    let taken = std::panic::catch_unwind(|| take(number, session)).unwrap_or(false);
    if taken { 0 } else { -1 }
}

/// A plugin's file.
#[derive(Debug)]
pub struct Plugin {
    /// The path.
    pub file: PathBuf,
    /// The mistakes so far.
    pub problems: Arc<Problems>,
    pub profilers: Vec<Profiler>,
    /// The plugin's registry, which is leaked because the plugin may use it at any time. A leak
    /// checker finds it through this pointer.
    registry: *const Registry,
}

// SAFETY: the pointer to the registry is only passed to the plugin, and the registry is never
// freed.
unsafe impl Send for Plugin {}
// SAFETY: the pointer to the registry is only passed to the plugin, and the registry is never
// freed.
unsafe impl Sync for Plugin {}

/// One profiler of a plugin.
#[derive(Debug)]
pub struct Profiler {
    /// The profiler's name, or the name of the plugin's file if the profiler has none.
    pub name: String,
    /// The event types that the profiler supports, each once, in the profiler's order.
    pub types: Vec<u32>,
    /// The size of the interface, as the profiler states it, in bytes.
    pub interface_bytes: usize,
    /// The functions of the extension, if the plugin uses it.
    pub extension: Option<Extension>,
    pub(crate) interface: ProfilerInterface,
    pub(crate) builder: &'static Builder,
    pub(crate) problems: Arc<Problems>,
    /// Locked during the calls that control the profiler.
    pub(crate) control: Mutex<()>,
}

// SAFETY: the interface contains addresses of functions. The module `session` calls them only on
// threads and at times that the interface allows.
unsafe impl Send for Profiler {}
// SAFETY: the interface contains addresses of functions. The module `session` calls them only on
// threads and at times that the interface allows.
unsafe impl Sync for Profiler {}

static REGISTRIES: Known<Mutex<Collecting>> = Known::new();

/// What `registerProfiler` collects during one call of `KinetoPlugin_register`.
#[derive(Debug)]
struct Collecting {
    open: bool,
    interfaces: Vec<ProfilerInterface>,
    problems: Arc<Problems>,
}

unsafe extern "C" fn register_profiler(
    handle: *mut c_void,
    interface: *const ProfilerInterface,
) -> c_int {
    let Some(collecting) = REGISTRIES.find(handle) else { return -1 };
    let mut collecting = collecting.lock().unwrap_or_else(PoisonError::into_inner);
    if !collecting.open {
        collecting.problems.add(Problem::Late { call: "registerProfiler" });
        return -1;
    }
    if interface.is_null() {
        collecting.problems.add(Problem::NullInterface);
        return -1;
    }
    // SAFETY: `interface` is not null. The first field of `interface` is its size; the read needs
    // no alignment.
    let size = unsafe { interface.cast::<usize>().read_unaligned() };
    if size < ProfilerInterface::SIZE {
        collecting.problems.add(Problem::SmallInterface(size));
        return -1;
    }
    // SAFETY: the interface states that it has at least as many bytes as are read.
    collecting.interfaces.push(unsafe { interface.read_unaligned() });
    0
}

impl Plugin {
    /// Loads a file and lets it register its profilers. If the file cannot be used, the plugin has
    /// no profilers, and `problems` says why.
    pub fn load(file: &Path, host: &'static Host) -> Self {
        let problems = Arc::new(Problems::of(file));
        let mut plugin = Self {
            file: file.to_owned(),
            problems: Arc::clone(&problems),
            profilers: Vec::new(),
            registry: std::ptr::null(),
        };
        let library = match Library::open(file) {
            Ok(library) => library,
            Err(why) => {
                problems.add(Problem::NotLoaded(why));
                return plugin;
            }
        };
        let Some(register) = library.symbol(abi::kineto::REGISTER_SYMBOL) else {
            problems.add(Problem::NoRegister);
            // SAFETY: only the library's constructors were called, and no address of it is kept.
            unsafe { library.close() };
            return plugin;
        };
        // From here on the file stays loaded, because its code may have started threads or given
        // out addresses.
        let extend = library.symbol(abi::kineto::EXTEND_SYMBOL);
        plugin.register(register.as_ptr(), extend.map(|extend| extend.as_ptr().cast_const()), host);
        plugin
    }

    /// Makes a plugin of functions that are linked into this program.
    ///
    /// # Safety
    /// The functions must be those of a plugin, and all pointers that it gives out must stay valid.
    pub unsafe fn linked(
        name: &Path,
        register: Register,
        extend: Option<Extend>,
        host: &'static Host,
    ) -> Self {
        let problems = Arc::new(Problems::of(name));
        let mut plugin = Self {
            file: name.to_owned(),
            problems,
            profilers: Vec::new(),
            registry: std::ptr::null(),
        };
        let extend = extend.map(|extend| extend as *const c_void);
        plugin.register(register as *const c_void, extend, host);
        plugin
    }

    /// Lets the plugin extend its host and register its profilers.
    fn register(
        &mut self,
        register: *const c_void,
        extend_with: Option<*const c_void>,
        host: &'static Host,
    ) {
        let problems = Arc::clone(&self.problems);
        let extension = extend_with.and_then(|function| extend(function, host, &problems));
        let collecting: &'static Mutex<Collecting> = Box::leak(Box::new(Mutex::new(Collecting {
            open: true,
            interfaces: Vec::new(),
            problems: Arc::clone(&problems),
        })));
        REGISTRIES.add(collecting);
        // The registry is leaked, because the plugin may use it at any time.
        let registry: &'static mut Registry = Box::leak(Box::new(Registry {
            size: Registry::SIZE,
            handle: std::ptr::from_ref(collecting).cast_mut().cast(),
            register_profiler: Some(register_profiler),
        }));
        let registry = std::ptr::from_mut(registry).cast_const();
        self.registry = registry;
        // SAFETY: by the interface's definition, `register` takes a registry, which is never freed.
        let end = unsafe { catch::call(register, registry.cast(), std::ptr::null()) };
        let interfaces = {
            let mut collecting = collecting.lock().unwrap_or_else(PoisonError::into_inner);
            collecting.open = false;
            std::mem::take(&mut collecting.interfaces)
        };
        match end.map(|code| code as c_int) {
            Ok(0) => {}
            Ok(code) => {
                problems.add(Problem::RegisterFailed { code, registered: interfaces.len() });
                return;
            }
            Err(how) => {
                problems.add(Problem::Left { function: "KinetoPlugin_register", how });
                return;
            }
        }
        if interfaces.is_empty() {
            problems.add(Problem::NothingRegistered);
        }
        self.profilers = interfaces
            .into_iter()
            .filter_map(|interface| {
                Profiler::query(interface, extension, host, &problems, &self.file)
            })
            .collect();
    }
}

impl Plugin {
    /// Returns the types to request from this plugin: `types`, which the user named, or all that it
    /// supports if the user named none. Users cannot name the types that a plugin declares, because
    /// they are known only after loading. Such a type is requested if the user named the published
    /// type that is most like it.
    pub fn wanted(&self, host: &Host, types: &[u32]) -> Vec<u32> {
        if types.is_empty() {
            return self.profilers.iter().flat_map(|profiler| profiler.types.clone()).collect();
        }
        let declared = host.types();
        let own = declared.iter().enumerate().filter(|(_, (_, base))| types.contains(base));
        let own = own.map(|(index, _)| FIRST_OWN_TYPE + index as u32);
        types.iter().copied().chain(own).collect()
    }
}

fn extend(function: *const c_void, host: &'static Host, problems: &Problems) -> Option<Extension> {
    let mut extension =
        Extension { size: Extension::SIZE, configure: None, toggle: None, flush: None };
    // SAFETY: by the extension's definition, `function` takes a host, which is never freed, and an
    // extension, which outlives the call.
    let end = unsafe {
        let extension = (&raw mut extension).cast::<c_void>();
        catch::call(function, (&raw const host.raw).cast(), extension)
    };
    match end.map(|code| code as c_int) {
        Ok(0) => return Some(extension),
        Ok(code) => problems.add(Problem::ExtendFailed(code)),
        Err(how) => problems.add(Problem::Left { function: "CounterpointPlugin_extend", how }),
    }
    None
}

impl Profiler {
    fn query(
        interface: ProfilerInterface,
        extension: Option<Extension>,
        host: &'static Host,
        problems: &Arc<Problems>,
        file: &Path,
    ) -> Option<Self> {
        let needed = [
            ("profilerCreate", interface.create.is_some()),
            ("profilerDestroy", interface.destroy.is_some()),
            ("profilerQuery", interface.query.is_some()),
            ("profilerStart", interface.start.is_some()),
            ("profilerStop", interface.stop.is_some()),
            ("profilerProcessEvents", interface.process_events.is_some()),
        ];
        for (name, _) in needed.iter().filter(|(_, there)| !there) {
            problems.add(Problem::MissingFunction(name));
        }
        let query = interface.query?;
        if needed.iter().any(|(_, there)| !there) {
            return None;
        }
        // The array has one byte more than a name may take, so that a name that is too long is
        // noticed.
        let mut name = [0_u8; NAME_BYTES + 1];
        let mut types = [0_u32; abi::kineto::EVENT_TYPES.len() + 1 + OWN_ROOM];
        let mut arguments = QueryParams {
            size: QueryParams::SIZE,
            profiler: std::ptr::null_mut(),
            name: name.as_mut_ptr().cast(),
            name_length: NAME_BYTES,
            types: types.as_mut_ptr(),
            types_length: types.len(),
        };
        // SAFETY: the plugin registered `query` for these arguments, which outlive the call and
        // have as much room as they state.
        let end = unsafe { call_one(query, &mut arguments) };
        let succeeded = end == Ok(0);
        if !succeeded {
            problems.add(match end {
                Ok(code) => Problem::Failed { function: "profilerQuery", code },
                Err(how) => Problem::Left { function: "profilerQuery", how },
            });
            name = [0; NAME_BYTES + 1];
            types.fill(0);
        }
        let length = name.iter().position(|byte| *byte == 0).unwrap_or_else(|| {
            problems.add(Problem::LongName);
            NAME_BYTES
        });
        let mut shown = String::from_utf8_lossy(&name[..length]).into_owned();
        if shown.is_empty() {
            if succeeded {
                problems.add(Problem::NoName);
            }
            shown = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        }
        let mut supported = Vec::new();
        for number in types.into_iter().take_while(|number| *number != 0) {
            if !host.knows(number) {
                problems.add(Problem::UnknownSupported(number));
            } else if !supported.contains(&number) {
                supported.push(number);
            }
        }
        if supported.is_empty() {
            problems.add(Problem::SupportsNothing);
        }
        Some(Self {
            name: shown,
            types: supported,
            interface_bytes: interface.size,
            extension,
            interface,
            builder: Builder::leak(Arc::clone(problems), &host.own_end),
            problems: Arc::clone(problems),
            control: Mutex::new(()),
        })
    }
}

/// The room for declared types in the list that a profiler fills.
const OWN_ROOM: usize = 64;
