//! Tests instrumented loops under `counterpoint run --loops`, in programs that were instrumented by
//! hand (`tests/programs/loops/instrumented.h`). A hit is one execution of a function or of a whole
//! loop. In `loops_host.c`, `nest(n, m)` causes one hit of the function (id 0) and, if n > 0, one
//! hit of its outer loop (id 1). If m > 0, it also causes n hits of the inner loop (id 2).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use profile::Profile;
use profile::loops::Loops;

use crate::support::{self, Programs, Recorded};

/// The number of hits by the id of the loop or function.
type Hits = BTreeMap<u32, u64>;

fn nest(n: u64, m: u64) -> Hits {
    let all = [(0, 1), (1, u64::from(n > 0)), (2, if m > 0 { n } else { 0 })];
    all.into_iter().filter(|(_, hits)| *hits > 0).collect()
}

fn plus(mut one: Hits, other: &Hits) -> Hits {
    other.iter().for_each(|(id, hits)| *one.entry(*id).or_default() += hits);
    one
}

struct Looped {
    recorded: Recorded,
    loops: Loops,
}

impl Looped {
    fn run(program: &Path, host: &Path, arguments: &[&str]) -> Self {
        Self::run_with(program, "none", "--loops", host, arguments)
    }

    fn run_with(
        program: &Path,
        events: &str,
        option: &str,
        host: &Path,
        arguments: &[&str],
    ) -> Self {
        let mut command = Command::new(host);
        command.args(arguments);
        let recorded = Recorded::run_with(program, events, &[option], &mut command);
        let loops = recorded.profile().loops().unwrap();
        Self { recorded, loops }
    }

    /// Returns the hits of each thread in each module, sorted.
    fn threads(&self) -> Vec<Hits> {
        let mut all: BTreeMap<(usize, u32), Hits> = BTreeMap::new();
        for row in &self.loops.rows {
            let thread = all.entry((row.module, row.tid)).or_default();
            *thread.entry(row.id).or_default() += row.hits;
        }
        let mut all: Vec<Hits> = all.into_values().collect();
        all.sort();
        all
    }

    fn is_without_losses(&self) {
        let losses = self.recorded.losses();
        assert!(losses.is_empty() && self.loops.losses.is_empty(), "{losses:?} {:?}", self.loops);
    }

    /// Checks that every timed hit ended and took time.
    fn all_ended(&self) {
        for row in &self.loops.rows {
            assert_eq!(row.begun, row.ended, "{row:?}");
            assert!(row.ended == 0 || row.ticks > 0 && row.squares > 0, "{row:?}");
        }
    }
}

fn host(flags: &[&str]) -> PathBuf {
    let name = format!("loops_host{}", flags.concat());
    Programs::get().loops(&name, flags)
}

fn sorted(mut all: Vec<Hits>) -> Vec<Hits> {
    all.sort();
    all
}

#[test]
fn hits_are_those_of_the_source_in_every_mode() {
    let Some(program) = support::counterpoint("loops: modes") else { return };
    for mode in ["0", "1", "2", "3"] {
        let host = host(&[&format!("-DMODE={mode}")]);
        let run = Looped::run(&program, &host, &["nest", "7", "3"]);
        assert_eq!(run.recorded.stdout(), "0 21\n", "mode {mode}");
        assert_eq!(run.threads(), [nest(7, 3)], "mode {mode}");
        run.is_without_losses();
        let module = &run.loops.modules[0];
        assert_eq!((module.mode.to_string(), module.ids), (mode.to_owned(), 8));
        assert_eq!(module.id, *b"0123456789abcdef");
        assert_eq!(module.table.as_deref(), Some("{}"));
        let object = fs::canonicalize(&host).unwrap();
        assert_eq!(module.object.as_deref(), object.to_str());
        assert!(module.ticks_per_second > 1e6, "{module:?}");
        for row in &run.loops.rows {
            let timed = if mode == "2" { 0 } else { row.hits };
            assert_eq!((row.begun, row.ended), (timed, timed), "mode {mode}: {row:?}");
            assert_eq!(row.ticks > 0, ["0", "1"].contains(&mode), "mode {mode}: {row:?}");
        }
    }
}

#[test]
fn costs_are_measured_with_the_module_s_own_code() {
    let Some(program) = support::counterpoint("loops: costs") else { return };
    // Each tuple is a mode of instrumentation, whether it has timed hits, and whether it has hits
    // that are only counted.
    for (mode, timed, counted) in [("0", true, true), ("1", true, false), ("2", false, true)] {
        let run = Looped::run(&program, &host(&[&format!("-DMODE={mode}")]), &["nest", "1", "1"]);
        let module = &run.loops.modules[0];
        let (cost, [low, high]) = (module.cost.unwrap(), module.cost_range.unwrap());
        assert_eq!([cost.inside > 0.0, cost.timed > 0.0], [timed; 2], "{cost:?}");
        assert_eq!(cost.counted > 0.0, counted, "{cost:?}");
        assert!(low.timed <= cost.timed && cost.timed <= high.timed, "{low:?} {cost:?} {high:?}");
    }
}

/// The first hits of a loop (the option `first`) are timed; after them, the distance between timed
/// hits is a random number from 1 to the option `gap`.
#[test]
fn sampling_follows_the_options() {
    let Some(program) = support::counterpoint("loops: sampling") else { return };
    let inner = |option: &str| {
        let run = Looped::run_with(&program, "none", option, &host(&[]), &["nest", "100000", "1"]);
        assert_eq!(run.threads(), [nest(100_000, 1)]);
        run.all_ended();
        run.loops.rows.into_iter().find(|row| row.id == 2).unwrap()
    };
    let row = inner("--loops");
    // By default, the first 100 hits are timed, and then at least one of 128, which is 780 of
    // 99,900.
    assert!(row.begun >= 100 + 780 && row.begun < 10_000, "{row:?}");
    assert_eq!(row.first_ended, 100);
    assert!(row.first_ticks <= row.ticks && row.first_squares <= row.squares, "{row:?}");
    let row = inner("--loops=first=10,gap=1");
    assert_eq!((row.begun, row.first_ended), (100_000, 10));
    let row = inner("--loops=first=200000");
    assert_eq!((row.begun, row.first_ended), (100_000, 0));
}

#[test]
fn each_thread_has_its_own_numbers() {
    let Some(program) = support::counterpoint("loops: threads") else { return };
    let run = Looped::run(&program, &host(&[]), &["threads", "10", "3"]);
    // `main` calls nest(10, 3) before it starts two threads.
    assert_eq!(run.threads(), sorted(vec![nest(10, 3), nest(10, 3), nest(20, 3)]));
    run.all_ended();
    run.is_without_losses();
    // Two threads execute the same loops, and meet at a barrier every thousand iterations.
    let run = Looped::run(&program, &host(&[]), &["parallel", "50000"]);
    assert_eq!(run.threads(), [nest(50_000, 3), nest(50_000, 3)]);
    run.is_without_losses();
}

#[test]
fn a_thousand_short_threads_need_no_more_room_than_one() {
    let Some(program) = support::counterpoint("loops: storm") else { return };
    let run = Looped::run(&program, &host(&[]), &["storm", "3000"]);
    let all = run.threads().iter().fold(Hits::new(), plus);
    let expected = [(0, 3000), (1, 3000), (2, 6000)].into_iter().collect();
    assert_eq!(all, expected);
    // Each thread has its own rows, although Linux reuses the ids of threads that have ended.
    assert_eq!(run.loops.rows.len(), 9000);
    run.is_without_losses();
}

/// The pool (the shared memory for counts) has 2048 pages, and each thread needs one.
#[test]
fn more_threads_at_a_time_than_the_pool_has_pages() {
    let Some(program) = support::counterpoint("loops: many threads") else { return };
    let run = Looped::run(&program, &host(&[]), &["many", "2500"]);
    if run.recorded.output.status.code() == Some(3) {
        return testkit::skip("loops: many threads", "2500 threads cannot be made here");
    }
    let all = run.threads().iter().fold(Hits::new(), plus);
    assert_eq!(all, [(0, 4096), (1, 4096), (2, 8192)].into());
    assert_eq!(run.recorded.losses(), [("loop_no_room".to_owned(), 2500 - 2048)].into());
}

/// Twelve threads load and unload two libraries, and one of the threads forks now and then.
#[test]
fn threads_load_and_unload_while_one_forks() {
    let Some(program) = support::counterpoint("loops: stress") else { return };
    let library = Programs::get().shared("loops_library.c", "loops_library.so", &[]);
    let scratch = testkit::Scratch::new();
    let copy = scratch.join("copy.so");
    fs::copy(&library, &copy).unwrap();
    let paths = [library.to_str().unwrap(), copy.to_str().unwrap()];
    let run = Looped::run(&program, &host(&[]), &["stress", paths[0], paths[1]]);
    assert_eq!(run.recorded.output.status.code(), Some(0), "{}", run.recorded.stderr());
    let all = run.threads().iter().fold(Hits::new(), plus);
    // The library's function `run` is called 3600 times, and once more in each of the 6 forked
    // children.
    assert_eq!(all, [(0, 3606), (1, 3606), (2, 10_818)].into());
    run.is_without_losses();
}

#[test]
fn a_forked_child_counts_for_itself() {
    let Some(program) = support::counterpoint("loops: fork") else { return };
    let run = Looped::run(&program, &host(&[]), &["fork", "4"]);
    // The parent forks in the middle of nest(4, 3). The child cannot count the rest of this call,
    // because it has no table of counts yet. Then the child calls nest(5, 6).
    assert_eq!(run.loops.modules.len(), 2);
    assert_eq!(run.threads(), sorted(vec![nest(4, 3), nest(5, 6)]));
    run.all_ended();
    run.is_without_losses();
}

#[test]
fn a_killed_process_loses_nothing_that_it_had_counted() {
    let Some(program) = support::counterpoint("loops: kill") else { return };
    let run = Looped::run(&program, &host(&[]), &["kill", "1000"]);
    assert_eq!(run.recorded.output.status.signal(), Some(libc::SIGKILL));
    // The process kills itself before the last hit of the inner loop.
    let expected = [(0, 1), (1, 1), (2, 999)].into_iter().collect();
    assert_eq!(run.threads(), [expected]);
    for row in &run.loops.rows {
        let open = u64::from(row.id < 2);
        assert_eq!(row.begun - row.ended, open, "{row:?}");
    }
    run.is_without_losses();
}

/// With `ulimit -f 0`, no file can grow, so the counts and the description of the module stay in
/// shared memory (the pool).
#[test]
fn a_program_that_may_write_no_file_loses_no_hit() {
    let Some(program) = support::counterpoint("loops: file size") else { return };
    let script = "ulimit -f 0; exec \"$0\" storm 5";
    let host = host(&[]);
    let run = Looped::run(&program, Path::new("sh"), &["-c", script, host.to_str().unwrap()]);
    let all = run.threads().iter().fold(Hits::new(), plus);
    assert_eq!(all, [(0, 5), (1, 5), (2, 10)].into());
    let module = &run.loops.modules[0];
    assert_eq!((&module.id, module.ids, module.first), (b"0123456789abcdef", 8, 100));
    assert_eq!(run.loops.losses, []);
    assert!(run.recorded.losses().contains_key("part_unwritable"));
}

#[test]
fn exec_exit_and_exceptions_lose_nothing() {
    let Some(program) = support::counterpoint("loops: exec") else { return };
    let run = Looped::run(&program, &host(&[]), &["exec"]);
    assert_eq!(run.loops.modules.len(), 2);
    assert_eq!(run.threads(), sorted(vec![nest(1, 1), nest(2, 2)]));
    run.is_without_losses();
    // The host calls `exit` in the third iteration, and its exit handler runs nest(1, 1).
    let run = Looped::run(&program, &host(&[]), &["exit", "3"]);
    assert_eq!(run.threads(), [plus(nest(2, 1), &[(0, 1), (1, 1), (2, 1)].into())]);
    run.is_without_losses();
    // In each of five calls, `longjmp` leaves the outer loop in its first iteration.
    let run = Looped::run(&program, &host(&[]), &["longjmp", "5"]);
    assert_eq!(run.threads(), [[(0, 5), (1, 5)].into()]);
    assert!(run.loops.rows.iter().all(|row| (row.begun, row.ended) == (5, 0)), "{:?}", run.loops);
    run.is_without_losses();
    let run = Looped::run(&program, &host(&[]), &["recurse", "30"]);
    assert_eq!(run.threads(), [[(0, 30), (1, 30), (2, 30)].into()]);
    run.all_ended();
    if let Some(throws) = Programs::get().cpp("loops: exceptions", "loops_throws") {
        let run = Looped::run(&program, &throws, &[]);
        assert_eq!(run.recorded.stdout(), "5\n");
        // Five times, the second iteration of the outer loop throws an exception.
        assert_eq!(run.threads(), [[(0, 5), (1, 5), (2, 5)].into()]);
        run.is_without_losses();
    }
}

#[test]
fn libraries_come_go_and_come_again() {
    let Some(program) = support::counterpoint("loops: dlopen") else { return };
    let library = Programs::get().shared("loops_library.c", "loops_library.so", &[]);
    let path = library.to_str().unwrap();
    let run = Looped::run(&program, &host(&[]), &["library", path, "200"]);
    assert_eq!(run.loops.modules.len(), 2);
    assert_eq!(run.threads(), [[(0, 200), (1, 200), (2, 600)].into()]);
    run.is_without_losses();
    // Two copies of the library are two modules with the same identity.
    let copy = run.recorded.directory.join("copy.so");
    fs::copy(&library, &copy).unwrap();
    let run = Looped::run(&program, &host(&[]), &["early", path, copy.to_str().unwrap()]);
    let of_library = |id: &[u8; 16]| id == b"library library ";
    assert_eq!(run.loops.modules.iter().filter(|module| of_library(&module.id)).count(), 2);
    assert_eq!(run.threads(), [[(0, 1), (1, 1), (2, 3)].into(), [(0, 2), (1, 2), (2, 6)].into()]);
    run.is_without_losses();
}

/// The dynamic linker runs the library's constructor before the preloaded recorder is initialised.
#[test]
fn a_library_whose_constructor_runs_first_is_found() {
    let Some(program) = support::counterpoint("loops: linked") else { return };
    let library = Programs::get().shared("loops_library.c", "loops_library.so", &[]);
    let scratch = testkit::Scratch::new();
    let source = scratch.join("linked.c");
    fs::write(&source, "void run(void);\nint main(void) { run(); return 0; }\n").unwrap();
    let linked = scratch.join("linked");
    let done = Command::new("cc").arg("-o").arg(&linked).arg(&source).arg(&library).status();
    assert!(done.unwrap().success());
    let run = Looped::run(&program, &linked, &[]);
    assert_eq!(run.threads(), [nest(3, 4)]);
    run.is_without_losses();
}

#[test]
fn a_hundred_thousand_ids_and_more_than_there_is_room_for() {
    let Some(program) = support::counterpoint("loops: many ids") else { return };
    let run = Looped::run(&program, &host(&["-DIDS=100000"]), &["all"]);
    assert_eq!(run.recorded.stdout(), "1\n");
    assert_eq!(run.loops.rows.len(), 100_000);
    assert!(run.loops.rows.iter().all(|row| row.hits == 1), "each once");
    run.is_without_losses();
    // The pool has 2^27 bytes, which are 1,048,576 entries of 128 bytes. Because the pool also has
    // headers, the entries of so many loops do not fit.
    let run = Looped::run(&program, &host(&["-DIDS=1048576"]), &["all"]);
    assert_eq!(run.recorded.stdout(), "0\n");
    assert_eq!(run.loops.rows, []);
    assert_eq!(run.recorded.losses(), [("loop_no_room".to_owned(), 1)].into());
}

#[test]
fn what_is_no_descriptor_is_left_alone() {
    let Some(program) = support::counterpoint("loops: refused") else { return };
    let run = Looped::run(&program, &host(&[]), &["bad"]);
    let expected = "magic -1\nversion -1\nsize -1\nmode -1\nnull -1\nagain 0\n";
    assert_eq!(run.recorded.stdout(), expected);
    assert_eq!(run.recorded.losses(), [("library_rejected".to_owned(), 4)].into());
    assert_eq!(run.loops.modules.len(), 1);
}

#[test]
fn without_the_option_nothing_is_counted() {
    let Some(program) = support::counterpoint("loops: off") else { return };
    let mut command = Command::new(host(&[]));
    let recorded = Recorded::run(&program, "none", command.args(["nest", "2", "3"]));
    // The host prints 1: its module was registered, but no loops are recorded.
    assert_eq!(recorded.stdout(), "1 6\n");
    assert_eq!(recorded.profile().loops().unwrap(), Loops::default());
    assert_eq!(recorded.profile().processes.len(), 0);
    // The host prints -2: the module's constructor finds no runtime.
    let alone = Command::new(host(&[])).args(["nest", "2", "3"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&alone.stdout), "-2 6\n");
}

#[test]
fn the_log_has_the_first_hits_and_where_they_were() {
    let Some(program) = support::counterpoint("loops: log") else { return };
    let host = host(&["-DMODE=3"]);
    let run = Looped::run_with(&program, "none", "--loops=log=2", &host, &["nest", "3", "1"]);
    let seen: Vec<_> = run.loops.events.iter().map(|event| (event.id, event.end)).collect();
    let expected = [
        (0, false),
        (1, false),
        (2, false),
        (2, true),
        (2, false),
        (2, true),
        // The third hit of the inner loop is not logged, because `log=2` logs two hits of each
        // loop.
        (1, true),
        (0, true),
    ];
    assert_eq!(seen, expected);
    assert_eq!(run.threads(), [nest(3, 1)]);
    let events = &run.loops.events;
    assert!(events.windows(2).all(|pair| pair[0].ticks < pair[1].ticks), "{events:?}");
    // The events' addresses are offsets in the program's executable file.
    assert_eq!(events[2].address, events[4].address);
    let length = fs::metadata(&host).unwrap().len();
    assert!(events.iter().all(|event| event.address < length), "{events:?}");
    run.is_without_losses();
    // The log of 1 MiB has room for 43,690 events.
    let run =
        Looped::run_with(&program, "none", "--loops=log=1000000", &host, &["nest", "100000", "1"]);
    assert_eq!(run.threads(), [nest(100_000, 1)]);
    let room = (1 << 20) / 24;
    assert_eq!(run.loops.events.len(), room);
    let lost = 2 * (1 + 1 + 100_000) - room as u64;
    assert_eq!(run.recorded.losses(), [("loop_log_full".to_owned(), lost)].into());
}

#[test]
fn counters_are_summed_by_id() {
    let Some(program) = support::counterpoint("loops: counters") else { return };
    let run = Looped::run_with(&program, "page-faults:u", "--loops", &host(&[]), &["faults", "60"]);
    run.is_without_losses();
    let of = |id: u32| run.loops.rows.iter().find(|row| row.id == id).unwrap();
    // In one hit of the outer loop, the host touches sixty new pages.
    assert_eq!((of(1).hits, of(1).counted, &of(1).counters[..]), (2, 2, &[60][..]));
    assert_eq!((of(2).hits, of(2).counted, &of(2).counters[..]), (61, 61, &[0][..]));
    let cost = run.loops.modules[0].cost.unwrap();
    assert!(cost.reading > cost.counted, "{cost:?}");
    // The runtime has room for 32 hits that have begun and not ended. `longjmp` leaves 100 hits
    // before they end, so the runtime must reuse the room of such hits.
    let run =
        Looped::run_with(&program, "page-faults:u", "--loops", &host(&[]), &["longjmp", "100"]);
    assert_eq!(run.threads(), [[(0, 100), (1, 100)].into()]);
    assert!(run.loops.rows.iter().all(|row| row.counted == 0), "{:?}", run.loops.rows);
}

/// When the host starts, its module finds no runtime, but the executable has an ELF note about the
/// module. The host loads `libcounterpoint.so` much later, and this library finds the module by the
/// note.
#[test]
fn a_late_library_finds_what_was_there_before() {
    let Some(program) = support::counterpoint("loops: late") else { return };
    let scratch = testkit::Scratch::new();
    let path = scratch.join("s.cpt");
    let prepared = Command::new(&program)
        .args(["session", "prepare", "--loops", "-e", "none", "-o"])
        .arg(&path)
        .output()
        .unwrap();
    assert!(prepared.status.success(), "{}", String::from_utf8_lossy(&prepared.stderr));
    let text: serde_json::Value = serde_json::from_slice(&prepared.stdout).unwrap();
    let library = program.parent().unwrap().join("../lib/libcounterpoint.so");
    let output = Command::new(host(&[]))
        .args(["late", text["run_file"].as_str().unwrap()])
        .arg(library)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n0\n", "{output:?}");
    let before = Profile::open(&path).unwrap().loops().unwrap();
    let finished = Command::new(&program).args(["session", "finish"]).arg(&path).output().unwrap();
    assert!(finished.status.success(), "{finished:?}");
    let after = Profile::open(&path).unwrap().loops().unwrap();
    assert_eq!(before.rows, after.rows);
    let hits: Hits = after.rows.iter().map(|row| (row.id, row.hits)).collect();
    assert_eq!(hits, nest(4, 5));
}

/// The client library in the program also has a function `counterpoint_loops_register`. The client
/// must find the recorder's function, and not its own.
#[test]
fn a_program_may_link_the_client() {
    let Some(program) = support::counterpoint("loops: client") else { return };
    let client = program.parent().unwrap().join("../lib/libcounterpoint_loops.a");
    let client = client.to_str().unwrap();
    let asked = "-Wl,-u,counterpoint_loops_register";
    for (name, flags) in [("client", &[][..]), ("client_no_pie", &["-no-pie"])] {
        let host = Programs::get().loops(name, &[&[asked, client], flags].concat());
        let alone = Command::new(&host).args(["nest", "2", "3"]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&alone.stdout), "1 6\n", "{name}");
        let run = Looped::run(&program, &host, &["nest", "2", "3"]);
        assert_eq!(run.recorded.stdout(), "0 6\n", "{name}");
        assert_eq!(run.threads(), [nest(2, 3)], "{name}");
        run.is_without_losses();
    }
}

/// After a thread's tables of counts are freed, a destructor of thread-specific data enters
/// instrumented functions.
#[test]
fn a_thread_that_comes_back_in_its_destructors_is_counted() {
    let Some(program) = support::counterpoint("loops: destructors") else { return };
    let run = Looped::run(&program, &host(&[]), &["destructor"]);
    assert_eq!(run.threads(), [[(0, 2), (1, 2), (2, 2)].into()]);
    run.is_without_losses();
}

/// The test cuts `loops.cps` at every byte, and then changes single bytes of the whole file. The
/// rows before a cut are kept.
#[test]
fn damage_is_a_loss() {
    let Some(program) = support::counterpoint("loops: damage") else { return };
    let run = Looped::run(&program, &host(&[]), &["threads", "2", "1"]);
    let parts = run.recorded.path().join("processes");
    let part = fs::read_dir(parts).unwrap().next().unwrap().unwrap().path();
    let file = part.join("loops.cps");
    let bytes = fs::read(&file).unwrap();
    let whole = run.loops.rows.len();
    let read = |bytes: &[u8]| {
        fs::write(&file, bytes).unwrap();
        run.recorded.profile().loops().unwrap()
    };
    let mut seen = 0;
    for cut in 0..bytes.len() {
        let rows = read(&bytes[..cut]).rows.len();
        assert!(rows >= seen && rows <= whole, "cut at {cut}: {rows}");
        seen = rows;
    }
    // The bytes with the kinds of frames (blocks of the file) are left out: a frame of an unknown
    // kind is skipped without a loss.
    let mut kinds = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        kinds.push(at + 4);
        at += 16 + u32::from_le_bytes(*bytes[at..].first_chunk().unwrap()) as usize;
    }
    for at in (0..bytes.len()).filter(|at| !kinds.contains(at)) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x20;
        let loops = read(&damaged);
        assert_eq!(loops.losses.len(), 1, "byte {at}");
        assert_eq!(loops.losses[0].name, "torn_loops");
        assert!(loops.rows.len() <= whole);
    }
    // Here, `loops.cps` becomes a terabyte long. The added part is a hole (it has no data), which
    // counts as one damaged place.
    fs::write(&file, &bytes).unwrap();
    fs::File::options().write(true).open(&file).unwrap().set_len(1 << 40).unwrap();
    let loops = run.recorded.profile().loops().unwrap();
    assert_eq!((loops.rows.len(), loops.losses[0].count), (whole, 1));
    fs::remove_file(&file).unwrap();
    assert_eq!(run.recorded.profile().loops().unwrap(), Loops::default());
}
