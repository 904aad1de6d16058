//! Creates a profile with many calls, for measuring readers: `cargo run -p counterpoint-testkit
//! --release --example big-profile -- DIR CALLS COUNTERS [EXPORTS [BITS]]`. BITS is the number of
//! bits of each counter's values. Without BITS, the values of some counters have fewer bits than
//! those of others.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use record::meta::{PAGES_NAME, PARTS_NAME, part_name};
use record::page::PageStart;
use testkit::{CallScript, Item, PageMaker, ProfileScript, Random};

const THREADS: u32 = 4;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, calls, counters, rest @ ..] = args.as_slice() else {
        panic!("usage: big-profile DIR CALLS COUNTERS [EXPORTS [BITS]]");
    };
    let exports: u32 = rest.first().map_or(24, |n| n.parse().expect("EXPORTS is a number"));
    let bits: Option<u32> = rest.get(1).map(|n| n.parse().expect("BITS is a number"));
    let calls: u64 = calls.parse().expect("CALLS is a number");
    let counters: u32 = counters.parse().expect("COUNTERS is a number");
    let dir = Path::new(dir);
    let mut script = ProfileScript::monotonic();
    for i in 0..counters {
        script.counter(&format!("counter-{i}"), 0);
    }
    let process = script.process(100);
    let names: Vec<String> = (0..exports).map(|i| format!("model_dispatch_{i}_matmul")).collect();
    process.library("model", &names.iter().map(String::as_str).collect::<Vec<_>>());
    for i in 0..THREADS {
        let groups = if counters > 0 { 1 } else { 0 };
        let mut call = CallScript::new(0, 1_000, 10);
        (0..groups)
            .for_each(|_| call = std::mem::take(&mut call).group(10, &vec![1; counters as usize]));
        process.thread(&format!("worker-{i}")).call(call).then(Item::Clock(2_000, 900, 2_000));
    }
    script.write(dir);

    let part = dir.join(PARTS_NAME).join(part_name(100, 1_000, 0));
    let file = File::options().append(true).open(part.join(PAGES_NAME)).expect("open the pages");
    let mut file = BufWriter::with_capacity(1 << 20, file);
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for thread in 0..THREADS {
        let mut thread_name = [0u8; 16];
        let name = format!("worker-{thread}");
        thread_name[..name.len()].copy_from_slice(name.as_bytes());
        let mut now = 3_000u64;
        let mut start = PageStart {
            pid: 100,
            start_time: 1_000,
            thread_uid: thread,
            tid: 100 + thread,
            thread_name,
            sequence: 1,
            counters: ((1u64 << counters) - 1) as u32,
            base_ticks: now,
            ..PageStart::default()
        };
        let mut page = PageMaker::new(start);
        let mine = calls / u64::from(THREADS);
        for i in 0..mine {
            if !page.has_room() {
                file.write_all(&page.seal(false)).expect("write");
                start.sequence += 1;
                (start.base_ticks, start.base_cpu_ns, start.base_monotonic_ns) = (now, now, now);
                page.next(start);
            }
            let duration = 20_000 + random.below(400_000);
            let tile = (i % 16) as u32;
            let mut call = CallScript::new((i / 16) as u32 % exports, now + 500, duration)
                .workgroup(tile, 16)
                .on(thread, 0);
            if counters > 0 {
                let values: Vec<u64> = (0..counters)
                    .map(|c| random.next() >> (64 - bits.unwrap_or(4 + 8 * (c % 4)).clamp(1, 64)))
                    .collect();
                call = call.group(duration + 300, &values);
            }
            page.call(&call);
            now += 500 + duration;
        }
        page.clock(now, now - 5_000, now);
        file.write_all(&page.seal(true)).expect("write");
    }
    file.flush().expect("write");
}
