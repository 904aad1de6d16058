//! Makes a dataset of many ranks, merges it, and prints how long each step took, for benchmarks:
//!
//! ```text
//! cargo run --release -p counterpoint-dataset --example scale -- [--make] DIR RANKS CALLS OPS [WITH_CALLS]
//! ```
//!
//! The program makes a profile of one rank (durations with a heavy tail, two counters), and exports
//! it with its calls to `DIR/one`, and without them to `DIR/sums`. The ranks in `DIR/many` are
//! copies of this rank with their own rank numbers. `DIR/merged` is the merged dataset, without
//! calls. `DIR` must be absent. Merging, and comparing the ranks, run in separate processes, which
//! print their time and the most memory that they used. With `--make`, both are left out. At the
//! end, the program adds the calls of the first WITH_CALLS ranks to `DIR/many`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use dataset::layout::{DATASET_NAME, dataset_json, rank_directory};
use dataset::{Dataset, Only, Options, Part, Table, across, export, merge};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use profile::Profile;
use testkit::{CallScript, Item, ProfileScript, Random};

/// The rank and the id of the recording from which the other ranks are made. These bytes occur
/// nowhere else in the files of this rank.
const PATTERN_RANK: u32 = 0x51a7_c3d9;
const PATTERN_PART: &str = "c0ffee5ca1ab1e0ddba11f005ba11adb";

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let number = |text: &String| text.parse::<u64>().expect("a number");
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--merge", from, to] => return measure_merge(Path::new(from), Path::new(to)),
        ["--across", from] => return measure_across(Path::new(from)),
        _ => {}
    }
    let only_makes = args.first().is_some_and(|first| first == "--make");
    args.drain(..usize::from(only_makes));
    let (dir, ranks, calls, ops, with_calls) = match &args[..] {
        [dir, ranks, calls, ops] => (dir, ranks, calls, ops, 0),
        [dir, ranks, calls, ops, with_calls] => (dir, ranks, calls, ops, number(with_calls)),
        _ => panic!("DIR RANKS CALLS OPS [WITH_CALLS]"),
    };
    let dir = Path::new(dir);
    fs::create_dir(dir).expect("a new directory");
    let (one, many, merged) = (dir.join("one"), dir.join("many"), dir.join("merged"));
    let path = dir.join("rank0.cpt");
    script(number(calls), number(ops)).write(&path);
    let profile = Profile::open(&path).expect("a profile");
    let options = |calls| Options {
        run: "r".to_owned(),
        rank: PATTERN_RANK,
        part: PATTERN_PART.to_owned(),
        world_size: Some(number(ranks) as u32),
        calls,
        redacted: false,
        unfinished: false,
    };
    let begin = Instant::now();
    export(&profile, &dir.join("sums"), &options(false)).expect("exported");
    println!("export of one rank without calls: {:.2} s", begin.elapsed().as_secs_f64());
    let begin = Instant::now();
    export(&profile, &one, &options(true)).expect("exported");
    println!("export of one rank with calls: {:.2} s", begin.elapsed().as_secs_f64());
    drop(profile);
    let opened = Dataset::open(&one).expect("a dataset");
    let mut small = 0;
    for table in Table::ALL {
        for file in opened.files(table) {
            let per_row = file.bytes as f64 / file.rows as f64;
            println!("{table}: {} rows, {} bytes, {per_row:.2} per row", file.rows, file.bytes);
            small += if matches!(table, Table::Stats | Table::Hist) { file.bytes } else { 0 };
        }
    }
    println!("statistics and histograms of a rank: {small} bytes");
    let first = Dataset::open(&dir.join("sums")).expect("a dataset").parts.remove(0);
    let sums = dir.join("sums");
    let mut pattern = Pattern::of(&sums, &first);
    for rank in 0..number(ranks) as u32 {
        pattern.add(&many, rank);
    }
    fs::write(many.join(DATASET_NAME), dataset_json()).expect("written");
    let own = std::env::current_exe().expect("this program");
    let steps = [
        vec!["--merge".as_ref(), many.as_os_str(), merged.as_os_str()],
        vec!["--across".as_ref(), many.as_os_str()],
    ];
    for words in steps.into_iter().filter(|_| !only_makes) {
        let done = Command::new(&own).args(words).status().expect("started");
        assert!(done.success(), "{done}");
    }
    let mut pattern = Pattern::of(&one, &opened.parts[0]);
    for rank in 0..with_calls as u32 {
        pattern.add(&many, rank);
    }
}

fn measure_merge(from: &Path, to: &Path) {
    let begin = Instant::now();
    let opened = Dataset::open(from).expect("a dataset");
    let ranks = opened.members().len();
    println!("opened {ranks} ranks: {:.2} s", begin.elapsed().as_secs_f64());
    fs::create_dir(to).expect("a new directory");
    let found = merge(&[opened], to).expect("merged");
    assert!(found.gaps.is_empty() && found.members.len() == ranks);
    println!("merged in {:.2} s; {}", begin.elapsed().as_secs_f64(), most_memory());
}

fn measure_across(from: &Path) {
    let begin = Instant::now();
    let opened = Dataset::open(from).expect("a dataset");
    let found = across(&opened, &Only::default()).expect("read");
    let ranks = found.iter().map(|run| run.ranks.len()).sum::<usize>();
    println!(
        "{ranks} ranks beside each other in {:.2} s; {}",
        begin.elapsed().as_secs_f64(),
        most_memory()
    );
}

fn most_memory() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default().to_owned()
}

fn script(calls: u64, ops: u64) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.counter("instructions:u", 0);
    script.counter("cycles:u", 0);
    let process = script.process(1);
    let names: Vec<String> = (0..ops).map(|op| format!("op_{op}_matmul_f32")).collect();
    process.library("model", &names.iter().map(String::as_str).collect::<Vec<_>>());
    let thread = process.thread("main");
    let mut random = Random(42);
    let mut at = 1_000;
    for i in 0..calls {
        let op = i % ops;
        // The durations have Pareto's distribution with the exponent 5 and some noise. The smallest
        // duration depends on the op.
        let part = (random.next() >> 11) as f64 / (1u64 << 53) as f64;
        let long = (1_000 + 97 * op) as f64 * part.max(1e-9).powf(-0.2);
        let duration = long as u64 + random.below(50);
        if i % 1_000 == 999 {
            thread.then(Item::NextPage(at, 0, 0));
        }
        let values = [duration * 3 + random.below(100), duration * 2 + random.below(1_000)];
        thread.call(CallScript::new(op as u32, at, duration).group(duration, &values));
        at += duration + random.below(300);
    }
    script
}

/// The files of one recording (a part of a dataset), from which the parts of all ranks are made. In
/// the copies, the rank and the id of the recording are replaced. Both must be uncompressed in the
/// original files.
struct Pattern<'a> {
    from: &'a Path,
    part: &'a Part,
    /// By table: the file's bytes, the offsets of the rank, and the offsets of the recording's id.
    files: BTreeMap<&'a str, (Vec<u8>, [Vec<usize>; 2])>,
}

impl<'a> Pattern<'a> {
    fn of(from: &'a Path, part: &'a Part) -> Self {
        let file = |(table, file): (&'a String, &dataset::layout::File)| {
            let bytes = fs::read(from.join(&file.path)).expect("a file");
            let rank = PATTERN_RANK.to_le_bytes();
            let places = [&rank[..], PATTERN_PART.as_bytes()].map(|text| {
                let places = bytes.windows(text.len()).enumerate();
                places.filter(|(_, found)| *found == text).map(|(place, _)| place).collect()
            });
            assert!(places.iter().all(|all: &Vec<usize>| !all.is_empty()), "they are compressed");
            (table.as_str(), (bytes, places))
        };
        Self { from, part, files: part.files.iter().map(file).collect() }
    }

    fn add(&mut self, dir: &Path, rank: u32) {
        let mut part = self.part.clone();
        part.members[0].rank = rank;
        part.members[0].part = format!("{rank:032x}");
        let below = rank_directory("r", rank);
        for (table, file) in &mut part.files {
            let (bytes, places) = self.files.get_mut(table.as_str()).expect("a file");
            let rank_bytes = rank.to_le_bytes();
            let texts = [&rank_bytes[..], part.members[0].part.as_bytes()];
            for (places, text) in places.iter().zip(texts) {
                for place in places {
                    bytes[*place..place + text.len()].copy_from_slice(text);
                }
            }
            file.path = format!("{table}/{below}/part-{rank}.parquet");
            let path = dir.join(&file.path);
            fs::create_dir_all(path.parent().expect("a directory")).expect("made");
            fs::write(&path, bytes).expect("written");
        }
        let name = format!("part-{}.json", part.members[0].part);
        let place = dir.join("parts").join(below);
        fs::create_dir_all(&place).expect("made");
        fs::write(place.join(name), serde_json::to_vec(&part).expect("JSON")).expect("written");
        if rank == 0 {
            check(self.from, self.part, dir, &part);
        }
    }
}

/// Checks that `copy`, the part of rank 0, has the rows of `first`, but its own rank and recording
/// id.
fn check(from: &Path, first: &Part, dir: &Path, copy: &Part) {
    for (table, file) in &first.files {
        let rows = |path: &Path| {
            let reader =
                ParquetRecordBatchReaderBuilder::try_new(File::open(path).expect("a file"));
            reader.expect("a Parquet file").build().expect("rows").map(|batch| batch.expect("rows"))
        };
        let pairs = rows(&from.join(&file.path)).zip(rows(&dir.join(&copy.files[table].path)));
        for (a, b) in pairs {
            let own = (b.column(1).as_primitive::<Int32Type>(), b.column(2).as_string::<i32>());
            let is_own = |row| own.0.value(row) == 0 && own.1.value(row) == copy.members[0].part;
            assert!((0..b.num_rows()).all(is_own), "{table}: rank and recording");
            let others: Vec<usize> =
                (0..a.num_columns()).filter(|at| ![1, 2].contains(at)).collect();
            assert_eq!(a.project(&others).ok(), b.project(&others).ok(), "{table}");
        }
    }
}
