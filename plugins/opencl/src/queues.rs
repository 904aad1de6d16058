//! The program's queues and devices, and commands whose times are not known yet.
//!
//! No lock of this file is held while the layer calls the implementation. The implementation may
//! run callbacks of the program that enqueue commands, which would wait for the lock forever.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use plugin::Clock;

use crate::api::{self, Handle};
use crate::ask;
use crate::record::{Call, Command, unix_ns};

/// The largest number of pending commands, in all queues together. Each pending command keeps an
/// event of the implementation alive.
pub const MOST_PENDING: usize = 65_536;

#[derive(Debug)]
pub struct Device {
    handle: usize,
    /// The device's number. Devices are numbered from 0, in the order of their first queues.
    pub number: i32,
    /// The implementation's name for the device.
    pub name: String,
    /// The device's vendor, and the version of its driver.
    pub label: String,
    clock: Mutex<Clock>,
    /// False after the implementation has failed to read the device's clock.
    readable: AtomicBool,
}

#[derive(Debug)]
pub struct Queue {
    /// The queue's number, from 1, in the order in which the layer got to know the queues.
    pub number: i32,
    pub device: Arc<Device>,
    pub out_of_order: bool,
    /// Whether only the layer, and not the program, asked for the times of the queue's commands.
    hidden: AtomicBool,
    /// The list of properties that the program gave to `clCreateCommandQueueWithProperties`;
    /// `Some(None)` if the program gave none. It is `None` if the list is too long, or if another
    /// function made the queue.
    pub asked: Option<Option<Vec<u64>>>,
    pending: Mutex<VecDeque<Pending>>,
}

/// A command whose times are not known yet.
#[derive(Debug)]
pub struct Pending {
    /// The command's event, to which the layer holds a reference.
    pub event: usize,
    /// Whether the program asked for the event, too.
    pub shared: bool,
    pub generation: u32,
    pub call: Call,
    pub command: Command,
    pub queue: Arc<Queue>,
    /// The number that the command and its call have in common in the trace.
    pub correlation: u32,
}

#[derive(Debug)]
struct Queues {
    by_handle: BTreeMap<usize, Arc<Queue>>,
    /// Released queues that still had pending commands when new queues got their handles.
    retired: Vec<Arc<Queue>>,
}

static QUEUES: RwLock<Queues> =
    RwLock::new(Queues { by_handle: BTreeMap::new(), retired: Vec::new() });
static DEVICES: Mutex<Vec<Arc<Device>>> = Mutex::new(Vec::new());
static NEXT_QUEUE: AtomicI32 = AtomicI32::new(1);
static PENDING: AtomicUsize = AtomicUsize::new(0);
/// Whether there ever was a hidden queue: one for which only the layer asked for times.
static ANY_HIDDEN: AtomicBool = AtomicBool::new(false);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Device {
    fn of(handle: Handle) -> Arc<Self> {
        let known = |devices: &[Arc<Self>]| {
            devices.iter().find(|device| device.handle == handle as usize).cloned()
        };
        if let Some(device) = known(&lock(&DEVICES)) {
            return device;
        }
        let text = |param| ask::device_text(handle, param).unwrap_or_default();
        let (name, vendor) = (text(api::DEVICE_NAME), text(api::DEVICE_VENDOR));
        let label = format!("{vendor}, driver {}", text(api::DRIVER_VERSION));
        let mut devices = lock(&DEVICES);
        if let Some(device) = known(&devices) {
            return device;
        }
        let device = Arc::new(Self {
            handle: handle as usize,
            number: i32::try_from(devices.len()).unwrap_or(i32::MAX),
            name,
            label,
            clock: Mutex::default(),
            readable: AtomicBool::new(true),
        });
        devices.push(Arc::clone(&device));
        device
    }

    /// Compares the device's clock with UTC, if the clock can be read.
    pub fn read_clock(&self) {
        // The clock is read several times, because the quickest reading is the most exact, and the
        // first one may be slow.
        for _ in 0..5 {
            let before_ns = unix_ns();
            let time = ask::device_time(self.handle as Handle);
            let after_ns = unix_ns();
            let Some(time) = time else {
                self.readable.store(false, Ordering::Relaxed);
                return;
            };
            lock(&self.clock).compare(time, before_ns, after_ns);
        }
    }

    /// Compares the device's clock with UTC. If the clock can be read, it is read when a comparison
    /// is due. Otherwise the time at which a command was queued is compared: the call that enqueued
    /// the command lasted from `before_ns` to `after_ns`.
    pub fn learn(&self, times: &[u64; 4], before_ns: i64, after_ns: i64) {
        if !self.readable.load(Ordering::Relaxed) {
            lock(&self.clock).compare(times[0], before_ns, after_ns);
        } else if lock(&self.clock).is_due(times[3]) {
            self.read_clock();
        }
    }

    /// Returns what must be added to this device time to get UTC, in ns; `None` if the clocks were
    /// never compared.
    pub fn offset(&self, device_ns: u64) -> Option<i64> {
        lock(&self.clock).offset(device_ns)
    }

    /// Returns the largest possible error of device times that are converted to UTC, in ns. It
    /// holds at the moments at which the clocks were compared.
    pub fn accuracy_ns(&self) -> Option<u64> {
        lock(&self.clock).accuracy_ns()
    }
}

pub fn devices() -> Vec<Arc<Device>> {
    lock(&DEVICES).clone()
}

impl Queue {
    /// Returns whether the queue records times without the program's knowledge.
    pub fn is_hidden(&self) -> bool {
        self.hidden.load(Ordering::Relaxed)
    }

    /// Notes that the program itself has turned the times of the queue's commands on or off, so the
    /// layer no longer hides them.
    pub fn show(&self) {
        self.hidden.store(false, Ordering::Relaxed);
    }

    pub fn pending(&self) -> usize {
        lock(&self.pending).len()
    }

    /// Adds a command, for which [`reserve`] has made room. Returns how many commands of the queue
    /// are pending now.
    pub fn push(&self, pending: Pending) -> usize {
        let mut all = lock(&self.pending);
        all.push_back(pending);
        all.len()
    }

    pub fn take_oldest(&self) -> Option<Pending> {
        lock(&self.pending).pop_front()
    }

    /// Puts back a command that has not ended. In an in-order queue it goes to the front. In an
    /// out-of-order queue it goes to the end, so that the other commands are examined, too.
    pub fn put_back(&self, pending: Pending) {
        let mut all = lock(&self.pending);
        if self.out_of_order {
            all.push_back(pending);
        } else {
            all.push_front(pending);
        }
    }

    /// Returns the earliest start among the calls whose commands are still pending.
    pub fn oldest_ns(&self) -> Option<i64> {
        lock(&self.pending).iter().map(|one| one.call.start_ns).min()
    }

    fn holds(&self, event: Handle) -> bool {
        lock(&self.pending).iter().any(|one| one.shared && one.event == event as usize)
    }
}

/// Reserves room for a pending command. Returns false if no room is left.
pub fn reserve() -> bool {
    let room = PENDING.fetch_add(1, Ordering::Relaxed) < MOST_PENDING;
    if !room {
        one_ended();
    }
    room
}

/// Gives back the room that [`reserve`] made for a command.
pub fn one_ended() {
    PENDING.fetch_sub(1, Ordering::Relaxed);
}

pub fn any_pending() -> bool {
    PENDING.load(Ordering::Relaxed) != 0
}

/// Returns whether there ever was a hidden queue.
pub fn any_hidden() -> bool {
    ANY_HIDDEN.load(Ordering::Relaxed)
}

/// Returns whether the layer holds a reference to this event of the program.
pub fn holds(event: Handle) -> bool {
    any_pending() && all().iter().any(|queue| queue.holds(event))
}

/// Returns the queues that may have pending commands.
pub fn all() -> Vec<Arc<Queue>> {
    let queues = QUEUES.read().unwrap_or_else(PoisonError::into_inner);
    queues.by_handle.values().chain(&queues.retired).cloned().collect()
}

pub fn known(handle: Handle) -> Option<Arc<Queue>> {
    let queues = QUEUES.read().unwrap_or_else(PoisonError::into_inner);
    queues.by_handle.get(&(handle as usize)).cloned()
}

/// Returns the queue with this handle. If the layer does not know the queue, because a function of
/// an extension made it, the layer asks the implementation for the queue's properties. The commands
/// of such a queue have times only if the program asked for times.
pub fn find(handle: Handle) -> Option<Arc<Queue>> {
    known(handle).or_else(|| {
        let properties = ask::queue_number(handle, api::QUEUE_PROPERTIES).ok()?;
        add(handle, properties, false, None)
    })
}

pub fn add(
    handle: Handle,
    properties: u64,
    hidden: bool,
    asked: Option<Option<Vec<u64>>>,
) -> Option<Arc<Queue>> {
    let device = ask::queue_number(handle, api::QUEUE_DEVICE).ok()?;
    let queue = Arc::new(Queue {
        number: NEXT_QUEUE.fetch_add(1, Ordering::Relaxed),
        device: Device::of(device as usize as Handle),
        out_of_order: properties & api::QUEUE_OUT_OF_ORDER != 0,
        hidden: AtomicBool::new(hidden),
        asked,
        pending: Mutex::default(),
    });
    if hidden {
        ANY_HIDDEN.store(true, Ordering::Relaxed);
    }
    let mut queues = QUEUES.write().unwrap_or_else(PoisonError::into_inner);
    let old = queues.by_handle.insert(handle as usize, Arc::clone(&queue));
    queues.retired.retain(|queue| queue.pending() != 0);
    if let Some(old) = old.filter(|old| old.pending() != 0) {
        queues.retired.push(old);
    }
    Some(queue)
}
