//! Makes random calls through the plugin interface, in both directions: a random plugin in our
//! host, and a plugin of the SDK in a random host. `fuzzed.rs` and
//! `fuzz/fuzz_targets/plugin_calls.rs` call the functions of this file.
//!
//! The file contains a second implementation of what a host must do with each call, written from
//! the published interface (`include/counterpoint/kineto_plugin.h`). Counterpoint's host is
//! compared with it.
//!
//! above 600 lines: a fuzz target includes this file by its path, so it is one file.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

use abi::kineto::{
    Counter as RawCounter, CreateParams, Extension, HandleParams, Host as RawHost, ProcessParams,
    ProfileDeviceInfo, ProfileEvent, ProfileEventFlow, ProfileResourceInfo, ProfilerInterface,
    PushParams, QueryParams, Registry, TraceBuilder,
};
use plugin::{Error, Event as SdkEvent, Kind, Profiler, Session, Trace};
use plugin_host::session::Stack;
use plugin_host::stream::{Ending, Reader, Writer};
use plugin_host::{Counter, Event, Host, Metadata, Plugin, Setup, Sink};

/// A source of decisions: a fuzzer's bytes, or a generator of random numbers.
pub trait Choose {
    /// Returns a number below `end`.
    fn below(&mut self, end: u64) -> u64;

    fn odd(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    fn number(&mut self) -> i64 {
        let any = (self.below(1 << 32) << 32 | self.below(1 << 32)) as i64;
        let small = self.below(1000) as i64;
        [0, small, -small, any, i64::MAX, i64::MIN, 1_700_000_000_000_000_000]
            [self.below(7) as usize]
    }

    /// Makes a text without a zero byte, mostly one of a few usual texts.
    fn text(&mut self) -> CString {
        const USUAL: [&[u8]; 6] = [b"gemm", b"", b"a\"b\\", b"\xff\xfe", b"{\"a\": [1]}", b"7"];
        if self.odd(4) {
            let bytes: Vec<u8> = (0..self.below(40)).map(|_| 1 + self.below(255) as u8).collect();
            return CString::new(bytes).expect("no zero byte");
        }
        CString::new(USUAL[self.below(6) as usize]).expect("no zero byte")
    }
}

#[derive(Default)]
struct Lines(Vec<String>);

impl Sink for Lines {
    fn missing(&mut self, what: u32, count: u64) {
        self.0.push(format!("missing {what} {count}"));
    }
    fn event(&mut self, event: &Event, name: &[u8], metadata: &Metadata) {
        let pairs: Vec<_> = metadata.iter().collect();
        let flow = event.flow.map(|flow| (flow.flow_type, flow.id, flow.is_start));
        self.0.push(format!(
            "{} {}..{} {} {}/{} {flow:?} {name:?} {pairs:?}",
            event.event_type, event.start_ns, event.end_ns, event.id, event.device, event.resource
        ));
    }
    fn device(&mut self, device: i64, sort_index: i64, name: Option<&[u8]>, label: &[u8]) {
        self.0.push(format!("device {device} {sort_index} {name:?} {label:?}"));
    }
    fn resource(&mut self, device: i32, resource: i32, order: i32, name: Option<&[u8]>) {
        self.0.push(format!("resource {device} {resource} {order} {name:?}"));
    }
    fn thread_name(&mut self, process: i32, thread: i32, name: &[u8]) {
        self.0.push(format!("thread {process} {thread} {name:?}"));
    }
    fn counter(&mut self, c: &Counter<'_>) {
        let Counter { time_ns, device, track, series, unit, value } = c;
        self.0.push(format!("counter {time_ns} {device} {track:?} {series:?} {unit:?} {value:?}"));
    }
}

struct Tee<'a, 'b>(&'a mut Lines, &'a mut Writer<&'b mut Vec<u8>>);

impl Sink for Tee<'_, '_> {
    fn missing(&mut self, what: u32, count: u64) {
        self.0.missing(what, count);
        self.1.missing(what, count);
    }
    fn event(&mut self, event: &Event, name: &[u8], metadata: &Metadata) {
        self.0.event(event, name, metadata);
        self.1.event(event, name, metadata);
    }
    fn device(&mut self, device: i64, sort_index: i64, name: Option<&[u8]>, label: &[u8]) {
        self.0.device(device, sort_index, name, label);
        self.1.device(device, sort_index, name, label);
    }
    fn resource(&mut self, device: i32, resource: i32, order: i32, name: Option<&[u8]>) {
        self.0.resource(device, resource, order, name);
        self.1.resource(device, resource, order, name);
    }
    fn thread_name(&mut self, process: i32, thread: i32, name: &[u8]) {
        self.0.thread_name(process, thread, name);
        self.1.thread_name(process, thread, name);
    }
    fn counter(&mut self, counter: &Counter<'_>) {
        self.0.counter(counter);
        self.1.counter(counter);
    }
}

/// The records that the host must have kept, and the number of problems that it must have found.
#[derive(Default)]
struct Model {
    lines: Vec<String>,
    wrong: u64,
    any: bool,
    last: Option<Pending>,
}

struct Pending {
    head: String,
    flow: Option<(u32, u32, bool)>,
    name: Option<Vec<u8>>,
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Model {
    fn finish(&mut self) {
        let Some(last) = self.last.take() else { return };
        self.wrong += u64::from(last.name.is_none());
        let name = last.name.unwrap_or_default();
        let pairs: Vec<(&[u8], &[u8])> = last.pairs.iter().map(|(k, v)| (&**k, &**v)).collect();
        self.lines.push(format!("{} {:?} {name:?} {pairs:?}", last.head, last.flow));
    }

    /// Checks that a call succeeded or failed as it should. The host must count a failed call as a
    /// problem.
    fn expect(&mut self, code: c_int, succeeds: bool) {
        assert_eq!(code, if succeeds { 0 } else { -1 });
        self.wrong += u64::from(!succeeds);
    }
}

/// The test plugin's state in one round: its source of decisions, what the host must have kept, and
/// the requested types.
struct Script {
    choose: Box<dyn Choose>,
    model: Model,
    asked: Vec<u32>,
}

thread_local! {
    static SCRIPT: RefCell<Option<Script>> = const { RefCell::new(None) };
}

fn script<R>(run: impl FnOnce(&mut Script) -> R) -> R {
    SCRIPT.with_borrow_mut(|script| run(script.as_mut().expect("set by the round")))
}

/// Returns mostly success. The host must report any code other than 0 as a problem.
fn code() -> c_int {
    script(|script| {
        let code = if script.choose.odd(8) { script.choose.number() as c_int } else { 0 };
        script.model.wrong += u64::from(code != 0);
        code
    })
}

const KERNEL: u32 = 6;
const RUNTIME: u32 = 8;
const TYPES: [u32; 2] = [KERNEL, RUNTIME];

static HOST: OnceLock<usize> = OnceLock::new();

unsafe extern "C" fn extend(host: *const RawHost, extension: *mut Extension) -> c_int {
    HOST.get_or_init(|| host as usize);
    // SAFETY: the host passes a struct of its own, which may be written to during the call.
    unsafe { (*extension).flush = Some(process) };
    0
}

unsafe extern "C" fn create(params: *mut CreateParams) -> c_int {
    // SAFETY: the host passes a struct of its own, which may be written to during the call.
    unsafe { (*params).profiler = params.cast() };
    code()
}

unsafe extern "C" fn simple(_: *mut HandleParams) -> c_int {
    code()
}

unsafe extern "C" fn push(_: *mut PushParams) -> c_int {
    code()
}

unsafe extern "C" fn query(params: *mut QueryParams) -> c_int {
    // SAFETY: the host passes a struct of its own, with room for the name and for all types.
    unsafe {
        (*params).name.cast::<u8>().copy_from_nonoverlapping(c"fuzzed".as_ptr().cast(), 7);
        (*params).types.copy_from_nonoverlapping(TYPES.as_ptr(), TYPES.len());
    }
    0
}

unsafe extern "C" fn register(registry: *const Registry) -> c_int {
    let interface = ProfilerInterface {
        size: ProfilerInterface::SIZE,
        create: Some(create),
        destroy: Some(simple),
        query: Some(query),
        start: Some(simple),
        stop: Some(simple),
        push_correlation: Some(push),
        pop_correlation: Some(simple),
        push_user_correlation: None,
        pop_user_correlation: None,
        process_events: Some(process),
    };
    // SAFETY: the host passes its registry. The registry's function gets the registry's handle, and
    // an interface that lives during the call.
    unsafe { (*registry).register_profiler.expect("there")((*registry).handle, &interface) }
}

unsafe extern "C" fn process(params: *mut ProcessParams) -> c_int {
    // SAFETY: the host passes a struct of its own, with a builder that is valid during the call.
    let builder = unsafe { *(*params).builder };
    let calls = script(|script| script.choose.below(40));
    for _ in 0..calls {
        script(|script| one_call(&builder, script));
    }
    script(|script| script.model.finish());
    script(|script| script.model.any = false);
    code()
}

/// Returns a pointer to `value` or, sometimes, null.
fn maybe<T>(choose: &mut dyn Choose, value: &T) -> *const T {
    if choose.odd(16) { null() } else { value }
}

fn maybe_text(choose: &mut dyn Choose, text: &CString) -> *const c_char {
    if choose.odd(16) { null() } else { text.as_ptr() }
}

/// Returns mostly the right size, sometimes a larger or a smaller one.
fn size(choose: &mut dyn Choose, right: usize) -> usize {
    match choose.below(12) {
        0 => choose.below(right as u64) as usize,
        1 => right + 64,
        2 => usize::MAX,
        _ => right,
    }
}

/// Makes one random call, and notes what the host must do.
fn one_call(builder: &TraceBuilder, script: &mut Script) {
    let Script { choose, model, asked } = script;
    let choose = &mut **choose;
    let handle = builder.handle;
    // SAFETY, for all calls: the builder is open, and the arguments live during the call.
    match choose.below(10) {
        0..4 => {
            let event_type = match choose.below(10) {
                0 => choose.number() as u32,
                1 => 4,
                2..6 => RUNTIME,
                _ => KERNEL,
            };
            let event = ProfileEvent {
                size: size(choose, ProfileEvent::SIZE),
                event_type,
                start_ns: choose.number(),
                end_ns: choose.number(),
                id: choose.number(),
                device: choose.number() as i32,
                resource: choose.number() as i32,
            };
            let pointer = maybe(choose, &event);
            // SAFETY: the host checks what it gets, and `event` is null or lives during the call.
            let code = unsafe { builder.add_event.expect("there")(handle, pointer) };
            let succeeds = !pointer.is_null() && event.size >= 48;
            model.expect(code, succeeds);
            // After a refused event, the functions for the last event must not change the event
            // before it.
            model.finish();
            model.any = true;
            if !succeeds {
                return;
            }
            let exists = (1..=24).contains(&event_type);
            model.wrong += u64::from(!asked.contains(&event_type));
            if exists && !asked.contains(&event_type) {
                return;
            }
            model.wrong += u64::from(event.end_ns < event.start_ns);
            let head = format!(
                "{} {}..{} {} {}/{}",
                event_type,
                event.start_ns,
                event.end_ns.max(event.start_ns),
                event.id,
                event.device,
                event.resource
            );
            model.last = Some(Pending { head, flow: None, name: None, pairs: Vec::new() });
        }
        4 => {
            let name = choose.text();
            let pointer = maybe_text(choose, &name);
            // SAFETY: the host checks what it gets, and `name` is null or lives during the call.
            let code = unsafe { builder.set_last_name.expect("there")(handle, pointer) };
            let succeeds = model.any && !pointer.is_null();
            model.expect(code, succeeds);
            if let Some(last) = model.last.as_mut().filter(|_| succeeds) {
                last.name = Some(name.into_bytes());
            }
        }
        5 => {
            let flow = ProfileEventFlow {
                size: size(choose, ProfileEventFlow::SIZE),
                flow_type: choose.below(4) as u32,
                id: choose.below(3) as u32,
                is_start: choose.below(3) as u8,
            };
            let pointer = maybe(choose, &flow);
            // SAFETY: the host checks what it gets, and `flow` is null or lives during the call.
            let code = unsafe { builder.set_last_flow.expect("there")(handle, pointer) };
            let succeeds = model.any && !pointer.is_null() && flow.size >= 17;
            model.expect(code, succeeds);
            if !succeeds {
                return;
            }
            let is_one = [1, 2].contains(&flow.flow_type) && flow.id != 0;
            model.wrong += u64::from(!is_one);
            if let Some(last) = model.last.as_mut().filter(|_| is_one) {
                last.flow = Some((flow.flow_type, flow.id, flow.is_start != 0));
            }
        }
        6 => {
            let (key, value) = (choose.text(), choose.text());
            let (k, v) = (maybe_text(choose, &key), maybe_text(choose, &value));
            // SAFETY: the host checks what it gets, and both texts are null or live during the
            // call.
            let code = unsafe { builder.add_last_metadata.expect("there")(handle, k, v) };
            let succeeds = model.any && !k.is_null() && !v.is_null();
            model.expect(code, succeeds);
            // The first value of a key is kept.
            if let Some(last) = model.last.as_mut().filter(|_| succeeds)
                && !last.pairs.iter().any(|(known, _)| *known == key.as_bytes())
            {
                last.pairs.push((key.into_bytes(), value.into_bytes()));
            }
        }
        7 => {
            let (name, label) = (choose.text(), choose.text());
            let info = ProfileDeviceInfo {
                size: size(choose, ProfileDeviceInfo::SIZE),
                device: choose.number(),
                sort_index: choose.number(),
                name: maybe_text(choose, &name),
                label: maybe_text(choose, &label),
            };
            let pointer = maybe(choose, &info);
            // SAFETY: the host checks what it gets, and `info` is null or lives during the call.
            let code = unsafe { builder.add_device.expect("there")(handle, pointer) };
            let succeeds = !pointer.is_null() && info.size >= 40;
            model.expect(code, succeeds);
            if succeeds {
                let name = (!info.name.is_null()).then_some(name.as_bytes());
                let label = if info.label.is_null() { b"" } else { label.as_bytes() };
                let (device, sort_index) = (info.device, info.sort_index);
                model.lines.push(format!("device {device} {sort_index} {name:?} {label:?}"));
            }
        }
        8 => {
            let name = choose.text();
            let info = ProfileResourceInfo {
                size: size(choose, ProfileResourceInfo::SIZE),
                device: choose.number() as i32,
                resource: choose.number() as i32,
                order: choose.number() as i32,
                name: maybe_text(choose, &name),
            };
            let pointer = maybe(choose, &info);
            // SAFETY: the host checks what it gets, and `info` is null or lives during the call.
            let code = unsafe { builder.add_resource.expect("there")(handle, pointer) };
            let succeeds = !pointer.is_null() && info.size >= 32;
            model.expect(code, succeeds);
            if succeeds {
                let name = (!info.name.is_null()).then_some(name.as_bytes());
                let ProfileResourceInfo { device, resource, order, .. } = info;
                model.lines.push(format!("resource {device} {resource} {order} {name:?}"));
            }
        }
        _ => extended_call(handle, choose, model),
    }
}

fn extended_call(handle: *mut c_void, choose: &mut dyn Choose, model: &mut Model) {
    // SAFETY: `extend` stored the host's address, and the host is never freed.
    let host = unsafe { &*(*HOST.get().expect("it has extended") as *const RawHost) };
    if choose.odd(8) {
        let (what, count) = (1 + choose.below(3) as u32, choose.number() as u64);
        // SAFETY: the host checks what it gets, here two numbers.
        let code = unsafe { host.add_missing.expect("there")(handle, what, count) };
        model.expect(code, true);
        model.lines.push(format!("missing {what} {count}"));
        return;
    }
    let [a, b, c] = [choose.text(), choose.text(), choose.text()];
    if choose.odd(3) {
        let (process, thread) = (choose.number() as i32, choose.number() as i32);
        let pointer = maybe_text(choose, &a);
        // SAFETY: the host checks what it gets, and `a` is null or lives during the call.
        let code =
            unsafe { host.set_thread_name.expect("there")(handle, process, thread, pointer) };
        model.expect(code, !pointer.is_null());
        if !pointer.is_null() {
            model.lines.push(format!("thread {process} {thread} {:?}", a.as_bytes()));
        }
        return;
    }
    let value = match choose.below(8) {
        0 => f64::NAN,
        1 => f64::INFINITY,
        _ => choose.number() as f64 / 8.0,
    };
    let counter = RawCounter {
        size: size(choose, RawCounter::SIZE),
        time_ns: choose.number(),
        device: choose.number() as i32,
        reserved: 0,
        track: maybe_text(choose, &a),
        series: maybe_text(choose, &b),
        unit: maybe_text(choose, &c),
        value,
    };
    let pointer = maybe(choose, &counter);
    // SAFETY: the host checks what it gets, and `counter` is null or lives during the call.
    let code = unsafe { host.add_counter.expect("there")(handle, pointer) };
    let succeeds = !pointer.is_null()
        && counter.size >= 56
        && !counter.track.is_null()
        && !counter.series.is_null()
        && value.is_finite();
    model.expect(code, succeeds);
    if succeeds {
        model.finish();
        let unit = if counter.unit.is_null() { b"" } else { c.as_bytes() };
        model.lines.push(format!(
            "counter {} {} {:?} {:?} {unit:?} {value:?}",
            counter.time_ns,
            counter.device,
            a.as_bytes(),
            b.as_bytes()
        ));
    }
}

pub fn hostile_plugin(host: &'static Host, mut choose: Box<dyn Choose>) {
    // SAFETY: `register` and `extend`, which are defined above, have the function types that the
    // interface requires.
    let plugin = unsafe { Plugin::linked(Path::new("fuzzed"), register, Some(extend), host) };
    assert_eq!(plugin.problems.all(), []);
    let types = [KERNEL, RUNTIME, 21];
    let types = &types[choose.below(2) as usize..];
    let asked: Vec<u32> = TYPES.into_iter().filter(|number| types.contains(number)).collect();
    let (before, after, early) = (choose.below(3), choose.below(3), choose.odd(4));
    SCRIPT.set(Some(Script { choose, model: Model::default(), asked }));
    let (mut lines, mut bytes) = (Lines::default(), Vec::new());
    {
        let mut writer = Writer::new(&mut bytes, None);
        let setup = Setup { types, ..Setup::default() };
        if let Some(mut session) = plugin.profilers[0].create(&setup) {
            let correlation = session.correlation();
            let mut tee = Tee(&mut lines, &mut writer);
            // Before `start`, the host must not pass calls of `process`, `flush` and `stop` on to
            // the plugin.
            if early {
                assert!(!session.process(&mut tee) && !session.flush(&mut tee) && !session.stop());
            }
            session.start();
            for _ in 0..before {
                correlation.push(Stack::Ops, 1);
                correlation.pop(Stack::Ops);
                session.flush(&mut tee);
            }
            assert!(!session.start(), "twice");
            session.stop();
            session.process(&mut tee);
            drop(session);
            for _ in 0..after {
                correlation.push(Stack::Ops, 1);
            }
        }
        assert_eq!(writer.finish().expect("a Vec takes all"), 0);
    }
    let script = SCRIPT.take().expect("set above");
    let wrong: u64 = plugin.problems.all().iter().map(|(_, count)| count).sum();
    assert_eq!(lines.0, script.model.lines);
    assert_eq!(wrong, script.model.wrong, "{:?}", plugin.problems.all());
    let mut read = Lines::default();
    let ending = Reader::new(&bytes[..]).replay(&mut read).expect("reads");
    assert_eq!(
        (ending, read.0),
        (Ending::Whole { dropped: 0 }, lines.0),
        "the stream has what the sink got"
    );
}

struct Sdk;
/// A recording. Because of the field, the struct is not empty, and so each recording has an address
/// of its own.
struct Recording(u64);

static LIVE: AtomicI64 = AtomicI64::new(0);

impl Profiler for Sdk {
    const NAME: &'static str = "fuzzed SDK";
    const KINDS: &'static [Kind] = &[Kind::KERNEL, Kind::COUNTER];
    const OWN_KINDS: &'static [(&'static str, Kind)] = &[("tile", Kind::KERNEL)];
    type Session = Recording;

    fn create(requested: &[Kind]) -> Result<Recording, Error> {
        if requested.is_empty() {
            return Err("nothing was requested".into());
        }
        LIVE.fetch_add(1, Ordering::Relaxed);
        Ok(Recording(0x005e_c04d))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Session for Recording {
    fn start(&self) -> Result<(), Error> {
        assert_eq!(self.0, 0x005e_c04d, "alive");
        Ok(())
    }
    fn stop(&self) -> Result<(), Error> {
        Err("never".into())
    }
    fn process(&self, trace: &mut Trace<'_>) -> Result<(), Error> {
        trace.device(1, "a\0b", "");
        trace
            .event(&SdkEvent::new(Kind::KERNEL, 1, 2).device(1).stream(2).correlation(3))
            .name("k\0")
            .launches(4)
            .arg("text", "é\n\"");
        trace.counter(5, None, "track", "series", "W", f64::NAN);
        trace.thread_name(1, 2, "t");
        if trace.declined() > 6 { panic!("the host declines everything") } else { Ok(()) }
    }
}

unsafe extern "C" fn keep(handle: *mut c_void, interface: *const ProfilerInterface) -> c_int {
    // SAFETY: `handle` points to the variable `kept` of `hostile_host`, and the plugin passes an
    // interface that is valid during the call.
    unsafe { *handle.cast::<Option<ProfilerInterface>>() = Some(*interface) };
    0
}

/// A function of the host's trace builder; it declines (returns -1) at random.
unsafe extern "C" fn any_event(handle: *mut c_void, event: *const ProfileEvent) -> c_int {
    // SAFETY: the plugin passes a struct that is valid during the call.
    assert!(unsafe { (*event).size } >= 48);
    decline(handle)
}
unsafe extern "C" fn any_text(handle: *mut c_void, text: *const c_char) -> c_int {
    assert!(!text.is_null());
    decline(handle)
}
unsafe extern "C" fn any_flow(handle: *mut c_void, _: *const ProfileEventFlow) -> c_int {
    decline(handle)
}
unsafe extern "C" fn any_pair(handle: *mut c_void, k: *const c_char, v: *const c_char) -> c_int {
    assert!(!k.is_null() && !v.is_null());
    decline(handle)
}
unsafe extern "C" fn any_device(handle: *mut c_void, _: *const ProfileDeviceInfo) -> c_int {
    decline(handle)
}
unsafe extern "C" fn any_resource(handle: *mut c_void, _: *const ProfileResourceInfo) -> c_int {
    decline(handle)
}
fn decline(handle: *mut c_void) -> c_int {
    // SAFETY: `handle` is the `Box<dyn Choose>` of `hostile_host`, which nobody else uses during
    // the call.
    let choose = unsafe { &mut *handle.cast::<Box<dyn Choose>>() };
    if choose.odd(2) { -1 } else { 0 }
}

/// Calls the functions of the plugin `Sdk` in random order, sometimes with wrong sizes or null
/// pointers. Each handle that is passed belongs to a live recording or is null.
pub fn hostile_host(mut choose: Box<dyn Choose>) {
    let mut kept: Option<ProfilerInterface> = None;
    let registry_size = size(&mut *choose, Registry::SIZE);
    let registry = Registry {
        size: registry_size,
        handle: (&raw mut kept).cast(),
        register_profiler: Some(keep),
    };
    // SAFETY: the registry is null or lives during the call.
    unsafe {
        assert_eq!(plugin::export::register::<Sdk>(null()), -1);
        let code = plugin::export::register::<Sdk>(&registry);
        assert_eq!(code, if registry_size < 24 { -1 } else { 0 });
        assert_eq!(plugin::export::extend::<Sdk>(null(), null_mut()), -1);
    }
    let Some(interface) = kept else { return };
    let mut live: Vec<*mut c_void> = Vec::new();
    for _ in 0..choose.below(30) {
        let wrong = choose.odd(6);
        let handle = live.get(choose.below(4) as usize).copied().unwrap_or(null_mut());
        let length = |right: usize| if wrong { right - 1 } else { right };
        let mut params = HandleParams { size: length(HandleParams::SIZE), profiler: handle };
        let mut pushed = PushParams { size: length(PushParams::SIZE), id: 1, profiler: handle };
        let is_good = !wrong && !handle.is_null();
        // SAFETY, for all calls: the structs are our own, and the handles are alive or null.
        let (code, good) = match choose.below(9) {
            0 => {
                let mut types = [KERNEL, 0, 22, 1024];
                let given = choose.below(5) as usize;
                let is_null = choose.odd(8);
                let mut params = CreateParams {
                    size: length(CreateParams::SIZE),
                    profiler: null_mut(),
                    types: if is_null { null_mut() } else { types.as_mut_ptr() },
                    types_length: given,
                };
                // SAFETY: the plugin registered `create` for this struct, which lives during the
                // call.
                let code = unsafe { interface.create.expect("there")(&mut params) };
                if code == 0 {
                    live.push(params.profiler);
                }
                (code, !wrong && !is_null && given > 0)
            }
            1 => {
                // SAFETY: the plugin registered `destroy` for this struct, which lives during the
                // call.
                let code = unsafe { interface.destroy.expect("there")(&mut params) };
                if code == 0 {
                    live.retain(|known| *known != handle);
                }
                (code, is_good)
            }
            2 => {
                let (mut name, mut types) = ([1_u8; 40], [7_u32; 30]);
                let (room, few) = (choose.below(32) as usize, choose.below(26) as usize);
                let mut params = QueryParams {
                    size: length(QueryParams::SIZE),
                    profiler: null_mut(),
                    name: name.as_mut_ptr().cast(),
                    name_length: room,
                    types: types.as_mut_ptr(),
                    types_length: few,
                };
                // SAFETY: the plugin registered `query` for this struct, which lives during the
                // call.
                let code = unsafe { interface.query.expect("there")(&mut params) };
                assert!(name[room + 1..].iter().all(|byte| *byte == 1), "beyond the room");
                assert!(types[few..].iter().all(|number| *number == 7), "beyond the room");
                (code, !wrong)
            }
            // SAFETY: the plugin registered `start` for this struct, which lives during the call.
            3 => (unsafe { interface.start.expect("there")(&mut params) }, is_good),
            // SAFETY: the plugin registered `stop` for this struct, which lives during the call.
            4 => (unsafe { interface.stop.expect("there")(&mut params) }, false),
            // SAFETY: the plugin registered `push_correlation` for this struct, which lives during
            // the call.
            5 => (unsafe { interface.push_correlation.expect("there")(&mut pushed) }, is_good),
            // SAFETY: the plugin registered `pop_user_correlation` for this struct, which lives
            // during the call.
            6 => (unsafe { interface.pop_user_correlation.expect("there")(&mut params) }, is_good),
            // SAFETY: the plugin must refuse null.
            7 => (unsafe { interface.start.expect("there")(null_mut()) }, false),
            _ => {
                let has = |choose: &mut Box<dyn Choose>| !choose.odd(8);
                let builder = TraceBuilder {
                    size: size(&mut *choose, TraceBuilder::SIZE),
                    handle: (&raw mut choose).cast(),
                    add_event: has(&mut choose).then_some(any_event as _),
                    set_last_name: has(&mut choose).then_some(any_text as _),
                    set_last_flow: has(&mut choose).then_some(any_flow as _),
                    add_last_metadata: has(&mut choose).then_some(any_pair as _),
                    add_device: has(&mut choose).then_some(any_device as _),
                    add_resource: has(&mut choose).then_some(any_resource as _),
                };
                let mut params = ProcessParams {
                    size: length(ProcessParams::SIZE),
                    profiler: handle,
                    builder: if choose.odd(8) { null() } else { &builder },
                };
                // SAFETY: the plugin registered `process_events` for this struct. The struct and
                // its builder live during the call.
                let code = unsafe { interface.process_events.expect("there")(&mut params) };
                let usable = is_good && !params.builder.is_null() && builder.size >= 64;
                // A correct call may also fail, because the builder's functions decline at random.
                (if usable && code == -1 { 0 } else { code }, usable)
            }
        };
        assert_eq!(code, if good { 0 } else { -1 });
    }
    for handle in live {
        let mut params = HandleParams { size: HandleParams::SIZE, profiler: handle };
        // SAFETY: the recording of this handle is alive: it was created, and not destroyed yet.
        assert_eq!(unsafe { interface.destroy.expect("there")(&mut params) }, 0);
    }
    assert_eq!(LIVE.load(Ordering::Relaxed), 0, "each recording was dropped once");
}
