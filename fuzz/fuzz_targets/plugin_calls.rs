//! Makes random calls through the plugin interface: as a plugin to the host, or as a host to a
//! plugin.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use plugin_host::Host;

#[path = "../../crates/plugin/tests/support/calls.rs"]
mod calls;

/// Makes decisions from the fuzzer's bytes. After the last byte, each decision is 0.
struct Bytes {
    bytes: Vec<u8>,
    at: usize,
}

impl calls::Choose for Bytes {
    fn below(&mut self, end: u64) -> u64 {
        let mut number = 0;
        let mut most = end.max(1) - 1;
        while most > 0 {
            number = number << 8 | u64::from(self.bytes.get(self.at).copied().unwrap_or(0));
            self.at += 1;
            most >>= 8;
        }
        number % end.max(1)
    }
}

fuzz_target!(|data: &[u8]| {
    static HOST: OnceLock<&'static Host> = OnceLock::new();
    let host = HOST.get_or_init(|| Host::leak(|_, _| {}));
    let Some((way, bytes)) = data.split_first() else { return };
    let choose = Box::new(Bytes { bytes: bytes.to_vec(), at: 0 });
    if way % 2 == 0 {
        calls::hostile_plugin(host, choose);
    } else {
        calls::hostile_host(choose);
    }
});
