//! Sets up, describes and switches off the guest machine.

use std::ffi::CString;
use std::fs;

use crate::report::tell;

/// Mounts the kernel's file systems. Missing mount points are created first.
pub fn mount_all() {
    for (kind, place) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/tmp"),
        ("tracefs", "/sys/kernel/tracing"),
    ] {
        let _ = fs::create_dir_all(place);
        let [kind_c, place_c] = [kind, place].map(|s| CString::new(s).expect("no zero in it"));
        // SAFETY: mount(2) gets three C strings that outlive the call, and no data.
        let ret = unsafe {
            let kind = kind_c.as_ptr();
            libc::mount(kind, place_c.as_ptr(), kind, 0, std::ptr::null())
        };
        if ret != 0 {
            println!("mount {kind} on {place}: {}", std::io::Error::last_os_error());
        }
    }
}

/// Sets the two sysctls that tests change to the values with which every test begins.
pub fn reset() -> std::io::Result<()> {
    fs::write(USER_ACCESS, "0")?;
    fs::write(PARANOID, "2")
}

pub const USER_ACCESS: &str = "/proc/sys/kernel/perf_user_access";
pub const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";

pub fn describe() {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let pmus: Vec<String> = fs::read_dir("/sys/bus/event_source/devices")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with("armv8"))
        .collect();
    let words = [
        "boot",
        &format!("kernel={}", kernel.trim()),
        &format!("pmu={}", if pmus.is_empty() { "none".into() } else { pmus.join(",") }),
        &format!("counters={}", counters().map_or("?".into(), |n| n.to_string())),
        &format!("cpus={}", cpus()),
        &format!("seed={}", seed()),
    ];
    tell(&words);
}

pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(0, usize::from)
}

/// Returns the number of counters, including the cycle counter, from the driver's message `hw
/// perfevents: enabled with armv8_pmuv3_0 PMU driver, 7 counters available`.
fn counters() -> Option<u32> {
    // SAFETY: the first call gets no buffer; the second one writes at most as many bytes as the
    // buffer has (SYSLOG_ACTION_READ_ALL).
    let log = unsafe {
        let size = libc::klogctl(10, std::ptr::null_mut(), 0).max(0);
        let mut log = vec![0u8; size as usize];
        let got = libc::klogctl(3, log.as_mut_ptr().cast(), size).max(0);
        log.truncate(got as usize);
        log
    };
    let log = String::from_utf8_lossy(&log).into_owned();
    let (before, _) = log.split_once(" counters available")?;
    before.rsplit(' ').next()?.parse().ok()
}

/// Returns the random seed that the host put on the kernel's command line, or 1 if there is none.
pub fn seed() -> u64 {
    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let word = line.split_whitespace().find_map(|word| word.strip_prefix("seed="));
    word.and_then(|word| word.parse().ok()).unwrap_or(1)
}

/// Switches the machine off, which ends the emulator.
pub fn power_off() -> ! {
    // SAFETY: all arguments are numbers. This is process 1, and all other processes have ended or
    // may be ended.
    unsafe {
        libc::sync();
        libc::reboot(libc::RB_POWER_OFF);
    }
    unreachable!("the machine is off")
}
