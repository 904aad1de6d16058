//! Creates a profile with many calls of a virtual machine's ops, for measuring `counterpoint ops`:
//! `cargo run -p counterpoint-testkit --release --example big-ops -- DIR CALLS COUNTERS`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use record::meta::{PAGES_NAME, PARTS_NAME, Role, part_name};
use record::page::{KEY_CORRELATION, KEY_STORAGE_BYTES, PageStart};
use testkit::{CallScript, Item, PageMaker, ProfileScript};

const OPS_OF_A_RUN: u64 = 100;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, calls, counters] = args.as_slice() else {
        panic!("usage: big-ops DIR CALLS COUNTERS");
    };
    let calls: u64 = calls.parse().expect("CALLS is a number");
    let counters: u32 = counters.parse().expect("COUNTERS is a number");
    let dir = Path::new(dir);
    let mut script = ProfileScript::monotonic();
    for i in 0..counters {
        script.counter(&format!("counter-{i}"), 0);
    }
    let process = script.process(100);
    let vm = process.machine("vm 0");
    let main = process.op(vm, Role::Run, "main", "");
    let ops: Vec<u32> = (0..40)
        .map(|i| {
            let arguments = "float32[32, 1024], float32[1024, 256], float32[32, 256]";
            process.op(vm, Role::Op, &format!("fused_matmul{i}_add_relu"), arguments)
        })
        .collect();
    let alloc = process.op(vm, Role::Op, "vm.builtin.alloc_storage", "");
    let region = process.op(vm, Role::Region, "fused_matmul0_add_relu", "");
    let task = process.op(vm, Role::Task, "fused_matmul0_add_relu", "");
    // The pages with the calls are appended below.
    for name in ["main", "worker"] {
        process.thread(name).then(Item::Clock(2_000, 900, 2_000));
    }
    script.write(dir);

    let part = dir.join(PARTS_NAME).join(part_name(100, 1_000, 0));
    let file = File::options().append(true).open(part.join(PAGES_NAME)).expect("open the pages");
    let mut file = BufWriter::with_capacity(1 << 20, file);
    let [mut launching, mut working] = [0, 1].map(|thread| Writer::new(thread, counters));
    let (mut now, mut left, mut regions) = (10_000u64, calls, 0u64);
    while left > 0 {
        let begin = now;
        for i in 0..OPS_OF_A_RUN.min(left) {
            let (start, end) = (now + 100, now + 2_100);
            match i {
                10 => {
                    let call = CallScript::op(alloc, start, 500).value(KEY_STORAGE_BYTES, 4_096);
                    launching.call(&mut file, call);
                }
                20 => {
                    regions += 1;
                    for (writer, number) in [(&mut launching, 0), (&mut working, 1)] {
                        let call = CallScript::new(task, start + 200, 1_000)
                            .workgroup(number, 2)
                            .on(number, 0);
                        writer.call(&mut file, call.value(KEY_CORRELATION, regions));
                    }
                    let call = CallScript::op(region, start + 100, 1_800);
                    launching.call(&mut file, call.value(KEY_CORRELATION, regions));
                    launching.call(&mut file, CallScript::op(ops[0], start, end - start));
                }
                30 => {
                    launching.call(&mut file, CallScript::op(ops[1], start + 100, 700));
                    launching.call(&mut file, CallScript::op(ops[2], start, end - start));
                }
                _ => {
                    let op = ops[(i % 40) as usize];
                    launching.call(&mut file, CallScript::op(op, start, end - start));
                }
            }
            now = end;
        }
        left -= OPS_OF_A_RUN.min(left);
        launching.call(&mut file, CallScript::op(main, begin, now + 50 - begin));
        now += 1_000;
    }
    launching.finish(&mut file);
    working.finish(&mut file);
    file.flush().expect("write");
}

struct Writer {
    start: PageStart,
    page: PageMaker,
    counters: u32,
    last: u64,
}

impl Writer {
    fn new(thread: u32, counters: u32) -> Self {
        let mut thread_name = [0u8; 16];
        let name: &[u8] = if thread == 0 { b"main" } else { b"worker" };
        thread_name[..name.len()].copy_from_slice(name);
        let start = PageStart {
            pid: 100,
            start_time: 1_000,
            thread_uid: thread,
            tid: 100 + thread,
            thread_name,
            sequence: 1,
            counters: ((1u64 << counters) - 1) as u32,
            base_ticks: 3_000,
            ..PageStart::default()
        };
        Self { start, page: PageMaker::new(start), counters, last: 3_000 }
    }

    fn call(&mut self, file: &mut impl Write, mut call: CallScript) {
        if !self.page.has_room() {
            file.write_all(&self.page.seal(false)).expect("write");
            let now = self.last;
            self.start.sequence += 1;
            self.start.base_ticks = now;
            (self.start.base_cpu_ns, self.start.base_monotonic_ns) = (now, now);
            self.page.next(self.start);
        }
        self.last = call.call.end;
        if self.counters > 0 {
            let time = call.call.end - call.call.start;
            let values: Vec<u64> = (0..u64::from(self.counters))
                .map(|i| time * (i + 1) + call.call.start % 7)
                .collect();
            call = call.group(time, &values);
        }
        self.page.call(&call);
    }

    fn finish(mut self, file: &mut impl Write) {
        self.page.clock(self.last, self.last, self.last);
        file.write_all(&self.page.seal(true)).expect("write");
    }
}
