//! A conformance suite: calls a plugin's functions in many ways, and reports the plugin's mistakes.
//!
//! Each [`Probe`] must run in a process of its own, because a plugin may crash in it.
//!
//! A finding is based on a [`Clause`] of the interface. The finding is a violation if the plugin
//! contradicts the published header, or if the published host would refuse what the plugin does or
//! report it as an error. Everything else is advice. Some probes make calls that no published host
//! makes ([`Probe::is_published`]). A plugin that fails such a probe is still valid.

mod calls;
mod clauses;
mod events;
mod loading;
mod older;
mod sizes;

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use abi::kineto::{
    CreateParams, Function, HandleParams, ProcessParams, ProfilerInterface, PushParams,
    QueryParams, Registry,
};

pub use self::clauses::{CLAUSES, Clause, Source};
use crate::catch::{self, Left, call_one};
use crate::platform::Library;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The plugin could do better, but no data is lost.
    Style,
    /// The plugin is valid, but loses data or crashes in a less careful or newer host.
    Fragile,
    /// Violates the interface.
    Violation,
}

impl Level {
    /// All levels, the worst one first.
    pub const ALL: [Self; 3] = [Self::Violation, Self::Fragile, Self::Style];

    /// Returns the level's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Violation => "violation",
            Self::Fragile => "fragile",
            Self::Style => "style",
        }
    }

    /// Returns the level with this name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

/// A mistake of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The severity.
    pub level: Level,
    /// The clause on which the finding is based.
    pub clause: &'static Clause,
    /// What the plugin did.
    pub what: String,
}

/// The findings of one probe.
#[derive(Debug, Default)]
pub struct Findings(pub Vec<Finding>);

impl Findings {
    fn add(&mut self, level: Level, clause: &'static Clause, what: impl Into<String>) {
        self.0.push(Finding { level, clause, what: what.into() });
    }

    fn violation(&mut self, clause: &'static Clause, what: impl Into<String>) {
        self.add(Level::Violation, clause, what);
    }

    fn fragile(&mut self, clause: &'static Clause, what: impl Into<String>) {
        self.add(Level::Fragile, clause, what);
    }

    fn style(&mut self, clause: &'static Clause, what: impl Into<String>) {
        self.add(Level::Style, clause, what);
    }

    /// Limits the level of the findings so far, because no published host makes the calls that led
    /// to them.
    fn at_most(&mut self, level: Level) {
        self.0.iter_mut().for_each(|finding| finding.level = finding.level.min(level));
    }

    fn check(&mut self, is: bool, clause: &'static Clause, what: impl FnOnce() -> String) {
        if !is {
            self.violation(clause, what());
        }
    }
}

/// One test of a plugin.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// The test's name, in words that can follow "while".
    pub name: &'static str,
    /// The clause that a crash in the test violates.
    pub clause: &'static Clause,
    /// Whether the published host makes the test's calls.
    pub is_published: bool,
    /// Whether the test is run only after the plugin has crashed or failed in a recording.
    pub only_after_failure: bool,
    run: fn(&mut Plugin, &mut Findings),
}

impl Probe {
    const fn published(
        name: &'static str,
        clause: &'static Clause,
        run: fn(&mut Plugin, &mut Findings),
    ) -> Self {
        Self { name, clause, is_published: true, only_after_failure: false, run }
    }

    const fn beyond(
        name: &'static str,
        clause: &'static Clause,
        run: fn(&mut Plugin, &mut Findings),
    ) -> Self {
        Self { is_published: false, ..Self::published(name, clause, run) }
    }

    /// Returns the severity of a crash in this test.
    pub fn level_of_crash(&self) -> Level {
        if self.is_published { Level::Violation } else { Level::Fragile }
    }

    /// Runs the test, and crashes if the plugin does. `is_json` must return whether the bytes are a
    /// JSON value, because this crate has no parser for JSON.
    pub fn run(&self, file: &Path, is_json: fn(&[u8]) -> bool) -> Findings {
        let mut findings = Findings::default();
        match Library::open(file) {
            Ok(library) => {
                let mut plugin = Plugin { library, interfaces: Vec::new(), small: None, is_json };
                (self.run)(&mut plugin, &mut findings);
                let mut ends = ENDS.lock().unwrap_or_else(PoisonError::into_inner);
                let level = self.level_of_crash();
                ends.drain(..).for_each(|what| findings.add(level, clauses::RETURNS, what));
            }
            Err(why) => findings.violation(clauses::ENTRY, format!("cannot be loaded: {why}")),
        }
        findings
    }
}

/// Returns all probes, in the order of a report. The first one shows whether the plugin can be used
/// at all.
pub fn probes() -> Vec<Probe> {
    [loading::PROBES, calls::PROBES, events::PROBES, sizes::PROBES, older::PROBES].concat()
}

/// Texts about the plugin's functions that did not return: how each call ended. A process runs one
/// test at a time, so one list is enough.
static ENDS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Returns the result of a call. If the call did not return, notes this in `ENDS` and returns
/// `i32::MIN`.
fn returned(end: Result<i32, Left>) -> i32 {
    end.unwrap_or_else(|how| {
        let mut ends = ENDS.lock().unwrap_or_else(PoisonError::into_inner);
        let what = format!("{how}, where a function must return");
        if !ends.contains(&what) {
            ends.push(what);
        }
        i32::MIN
    })
}

/// A plugin whose functions are called directly.
struct Plugin {
    library: Library,
    interfaces: Vec<ProfilerInterface>,
    /// The size of a function table that the plugin registered and that is too small; 0 for a null
    /// pointer.
    small: Option<usize>,
    is_json: fn(&[u8]) -> bool,
}

#[derive(Default)]
struct Kept {
    interfaces: Vec<ProfilerInterface>,
    small: Option<usize>,
}

unsafe extern "C" fn keep(
    handle: *mut std::ffi::c_void,
    interface: *const ProfilerInterface,
) -> std::ffi::c_int {
    // SAFETY: `handle` is the `Kept` that `Plugin::register` passes, and no other reference to it
    // is in use.
    let kept = unsafe { &mut *handle.cast::<Kept>() };
    let size = match interface.is_null() {
        true => 0,
        // SAFETY: `interface` is not null, and its first field is its size.
        false => unsafe { interface.cast::<usize>().read_unaligned() },
    };
    if size < ProfilerInterface::SIZE {
        kept.small = Some(size);
        return -1;
    }
    // SAFETY: the interface states that it has at least as many bytes as are read.
    kept.interfaces.push(unsafe { interface.read_unaligned() });
    0
}

impl Plugin {
    /// Calls `KinetoPlugin_register` with a registry that states this size. Returns `None` if the
    /// plugin does not export this function.
    fn register(&mut self, size: usize) -> Option<i32> {
        let register = self.library.symbol(abi::kineto::REGISTER_SYMBOL)?;
        let mut kept = Kept::default();
        let registry = Registry {
            size,
            handle: std::ptr::from_mut(&mut kept).cast(),
            register_profiler: Some(keep),
        };
        // SAFETY: by the interface's definition, a function with this name takes a registry, which
        // outlives the call.
        let end = unsafe {
            catch::call(register.as_ptr(), (&raw const registry).cast(), std::ptr::null())
        };
        (self.interfaces, self.small) = (kept.interfaces, kept.small);
        Some(returned(end.map(|code| code as i32)))
    }

    /// Registers the plugin's profilers, if none is registered yet, and returns those that have all
    /// required functions.
    fn profilers(&mut self) -> Vec<ProfilerInterface> {
        if self.interfaces.is_empty() {
            self.register(Registry::SIZE);
        }
        let whole = |i: &ProfilerInterface| {
            i.create.is_some()
                && i.destroy.is_some()
                && i.query.is_some()
                && i.start.is_some()
                && i.stop.is_some()
                && i.process_events.is_some()
        };
        self.interfaces.iter().copied().filter(whole).collect()
    }
}

const ROOM: usize = 25;

fn supported(interface: &ProfilerInterface) -> Vec<u32> {
    let mut name = [0_u8; 64];
    let mut types = [0_u32; ROOM + 1];
    let mut params = QueryParams {
        size: QueryParams::SIZE,
        profiler: std::ptr::null_mut(),
        name: name.as_mut_ptr().cast(),
        name_length: abi::kineto::NAME_BYTES,
        types: types.as_mut_ptr(),
        types_length: ROOM,
    };
    if call(interface.query, &mut params) != Some(0) {
        return Vec::new();
    }
    types.into_iter().take_while(|number| *number != 0).collect()
}

fn call<P>(function: Function<P>, params: &mut P) -> Option<i32> {
    // SAFETY: `function` is a function of the plugin that takes a pointer to a `P`; `params` lives
    // during the call.
    function.map(|function| returned(unsafe { call_one(function, params) }))
}

fn call_null<P>(function: Function<P>) -> Option<i32> {
    // SAFETY: the probe asks whether the plugin copes with null; a fault ends this process, which
    // only runs one probe.
    function.map(|function| returned(unsafe { call_one(function, std::ptr::null_mut()) }))
}

/// A recording of one profiler, whose functions a probe calls one by one.
struct Raw<'i> {
    interface: &'i ProfilerInterface,
    handle: *mut std::ffi::c_void,
}

impl<'i> Raw<'i> {
    /// Creates a recording of all types that the profiler supports. The list of types and the
    /// arguments are overwritten after the call, to notice a plugin that still reads them.
    fn create(interface: &'i ProfilerInterface) -> Result<Self, i32> {
        Self::create_for(interface, &mut supported(interface))
    }

    fn create_for(interface: &'i ProfilerInterface, types: &mut [u32]) -> Result<Self, i32> {
        let mut params = CreateParams {
            size: CreateParams::SIZE,
            profiler: std::ptr::null_mut(),
            types: types.as_mut_ptr(),
            types_length: types.len(),
        };
        let code = call(interface.create, &mut params).unwrap_or(-1);
        let handle = params.profiler;
        types.fill(0xeeee_eeee);
        params = CreateParams {
            size: 0,
            profiler: std::ptr::null_mut(),
            types: std::ptr::null_mut(),
            types_length: usize::MAX,
        };
        std::hint::black_box(&mut params);
        if code == 0 { Ok(Self { interface, handle }) } else { Err(code) }
    }

    fn params(&self) -> HandleParams {
        HandleParams { size: HandleParams::SIZE, profiler: self.handle }
    }

    fn start(&self) -> i32 {
        call(self.interface.start, &mut self.params()).unwrap_or(-1)
    }

    fn stop(&self) -> i32 {
        call(self.interface.stop, &mut self.params()).unwrap_or(-1)
    }

    fn process(&self, builder: *const abi::kineto::TraceBuilder) -> i32 {
        let mut params =
            ProcessParams { size: ProcessParams::SIZE, profiler: self.handle, builder };
        call(self.interface.process_events, &mut params).unwrap_or(-1)
    }

    fn push(&self, id: u64) -> Option<i32> {
        let mut params = PushParams { size: PushParams::SIZE, id, profiler: self.handle };
        call(self.interface.push_correlation, &mut params)
    }

    fn pop(&self) -> Option<i32> {
        call(self.interface.pop_correlation, &mut self.params())
    }

    fn destroy(self) -> i32 {
        call(self.interface.destroy, &mut self.params()).unwrap_or(-1)
    }
}
