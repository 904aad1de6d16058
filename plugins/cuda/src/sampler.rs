//! The thread that samples counters of devices (`cuda.counters=…`). It begins to sample a device
//! when the program makes a context on it. CUPTI reports the context in a callback on the program's
//! thread. This callback must not do much, so a thread of the plugin does the work.
//!
//! ```text
//!  program ── context made ──► CUPTI ── made ──► Message::Device ─┐
//!  host ── flush, pause, stop ──────────────────► Message::…  ────┴─► thread: pm::Sampling of each device
//!                                                                       │ each PASS
//!                                                       taker ◄─ values ┘
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use crate::cupti::{self, Cupti};
use crate::lock::lock;
use crate::pm::{self, Sample, Sampling};
use crate::settings::Counters;

/// The usual time between two fetches of samples.
const PASS: Duration = Duration::from_millis(50);
/// Each wait for the sampling thread (in a flush, in a pause, or at the end of a pause or
/// recording) lasts at most this long.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    /// The time on CUPTI's clock at which the sample's interval begins.
    pub time: u64,
    pub device: u32,
    /// Index in the list of requested counters.
    pub counter: u32,
    pub value: f64,
}

#[derive(Clone, Copy, Debug)]
pub struct Taker {
    pub value: fn(Value),
    /// Called after each successful fetch of a device's samples, with the number of times that
    /// samples were lost since the last fetch.
    pub lost: fn(u64),
}

enum Message {
    /// The program has begun to use this device.
    Device(u32),
    /// Asks for the samples so far, and for a message on `done` when [`Taker::value`] was called
    /// with all of them. Afterwards, sampling is on (`Some(true)`), off (`Some(false)`) or as
    /// before (`None`).
    Fetch { goes_on: Option<bool>, done: Sender<()> },
}

static THREAD: Mutex<Option<Sender<Message>>> = Mutex::new(None);
static WHY: Mutex<Option<String>> = Mutex::new(None);

pub fn begin(cupti: &'static Cupti, counters: &Counters, subscriber: usize, taker: Taker) {
    *lock(&WHY) = None;
    if counters.names.is_empty() {
        return;
    }
    if let Err(why) = pm::check(cupti) {
        return note(why);
    }
    let (send, receive) = channel();
    let counters = counters.clone();
    // Signals are blocked here because the new thread inherits this signal mask: the program's
    // signal handlers must not run on that thread.
    let blocked = plugin::signals::Blocked::new();
    let started = std::thread::Builder::new().name("cp-cuda-pm".to_owned()).spawn(move || {
        let _ = catch_unwind(AssertUnwindSafe(|| work(cupti, &counters, &receive, taker)));
    });
    drop(blocked);
    match started {
        Ok(_) => *lock(&THREAD) = Some(send),
        Err(error) => return note(format!("no thread: {error}")),
    }
    let asked = cupti.enable_callback(subscriber, cupti::DOMAIN_RESOURCE, cupti::CONTEXT_CREATED);
    if let Err(code) = asked {
        note(format!("cuptiEnableCallback: {}", cupti.said(code)));
    }
}

pub fn used(device: u32) {
    if let Some(thread) = &*lock(&THREAD) {
        let _ = thread.send(Message::Device(device));
    }
}

/// Makes the sampling thread hand over its samples, and waits for that up to `PATIENCE`.
/// `goes_on` says whether the thread samples from now on; `None` means no change.
pub fn fetch(goes_on: Option<bool>) {
    let Some(thread) = lock(&THREAD).clone() else { return };
    let (done, answer) = channel();
    if thread.send(Message::Fetch { goes_on, done }).is_ok() {
        // If the answer takes longer, CUPTI probably hangs, and the program should not wait for it.
        let _ = answer.recv_timeout(PATIENCE);
    }
}

pub fn end() {
    fetch(Some(false));
    *lock(&THREAD) = None;
}

pub fn why() -> Option<String> {
    lock(&WHY).clone()
}

fn note(why: String) {
    lock(&WHY).get_or_insert(why);
}

fn work(cupti: &'static Cupti, counters: &Counters, messages: &Receiver<Message>, taker: Taker) {
    let mut used = BTreeSet::new();
    let mut running: BTreeMap<u32, Sampling> = BTreeMap::new();
    let mut is_on = true;
    loop {
        let mut done = None;
        match messages.recv_timeout(PASS) {
            Ok(Message::Device(device)) if !used.insert(device) => continue,
            Ok(Message::Device(device)) => {
                if is_on {
                    start(cupti, counters, device, &mut running);
                }
                continue;
            }
            Ok(Message::Fetch { goes_on, done: answer }) => {
                let goes_on = goes_on.unwrap_or(is_on);
                if !goes_on {
                    running.values_mut().for_each(Sampling::stop);
                }
                done = Some((goes_on, answer));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        running.retain(|device, sampling| {
            match sampling.decode(|sample| keep(*device, &sample, taker)) {
                Ok(lost) => {
                    (taker.lost)(lost);
                    true
                }
                Err(why) => {
                    note(format!("device {device}: {why}"));
                    false
                }
            }
        });
        let Some((goes_on, answer)) = done else { continue };
        if !goes_on {
            running.clear();
        } else if !is_on {
            for device in &used {
                start(cupti, counters, *device, &mut running);
            }
        }
        is_on = goes_on;
        let _ = answer.send(());
    }
}

fn start(
    cupti: &'static Cupti,
    counters: &Counters,
    device: u32,
    running: &mut BTreeMap<u32, Sampling>,
) {
    match Sampling::begin(cupti, device, &counters.names, counters.interval, PASS) {
        Ok(sampling) => _ = running.insert(device, sampling),
        Err(why) => note(format!("device {device}: {why}")),
    }
}

fn keep(device: u32, sample: &Sample<'_>, taker: Taker) {
    for (counter, value) in sample.values.iter().enumerate() {
        // CUPTI returns NaN for a ratio whose divisor is 0.
        if value.is_finite() {
            let value =
                Value { time: sample.start, device, counter: counter as u32, value: *value };
            (taker.value)(value);
        }
    }
}
