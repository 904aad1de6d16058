//! Makes a dataset of many ranks, merges it, and says how long that took. For benchmarks:
//!
//! ```text
//! cargo run --release -p counterpoint-dataset --example scale -- DIR RANKS CALLS OPS [WITH_CALLS]
//! ```
//!
//! One rank is recorded (200 ops, durations with a heavy tail, two counters) and exported with its
//! calls to `DIR/one`. The others are this one with their own number, in `DIR/many`: the first WITH_CALLS
//! of them with their calls, which take 13 bytes each, and the others without. `DIR/merged` is the result,
//! without calls. Nothing of `DIR` may exist. Each step says its time, and the largest memory of a process
//! of its own.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use dataset::layout::{DATASET_NAME, dataset_json, rank_directory};
use dataset::schema::Kind;
use dataset::{Dataset, Only, Options, Part, Table, across, export, merge};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, Encoding};
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;
use profile::Profile;
use testkit::{CallScript, Item, ProfileScript, Random};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |text: &String| text.parse::<u64>().expect("a number");
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--merge", from, to] => return measure_merge(Path::new(from), Path::new(to)),
        ["--across", from] => return measure_across(Path::new(from)),
        _ => {}
    }
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
        rank: 0,
        part: format!("{:032x}", 0),
        world_size: Some(number(ranks) as u32),
        calls,
        redacted: false,
        unfinished: false,
    };
    let begin = Instant::now();
    export(&profile, &many, &options(false)).expect("exported");
    println!("export of one rank without calls: {:.2} s", begin.elapsed().as_secs_f64());
    export(&profile, &one, &options(true)).expect("exported");
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
    let first = Dataset::open(&many).expect("a dataset").parts.remove(0);
    for rank in 1..number(ranks) as u32 {
        again(&many, &many, &first, rank);
    }
    fs::write(many.join(DATASET_NAME), dataset_json()).expect("written");
    let own = std::env::current_exe().expect("this program");
    for words in [
        vec!["--merge".as_ref(), many.as_os_str(), merged.as_os_str()],
        vec!["--across".as_ref(), many.as_os_str()],
    ] {
        let done = Command::new(&own).args(words).status().expect("started");
        assert!(done.success(), "{done}");
    }
    for rank in 0..with_calls as u32 {
        again(&one, &many, &opened.parts[0], rank);
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

/// The largest memory so far, which may have been that of making the profile.
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
        // Pareto's distribution above what the op takes, with the exponent 5, and some noise.
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

/// A part of `from` with another rank, in `dir`.
fn again(from: &Path, dir: &Path, first: &Part, rank: u32) {
    let mut part = first.clone();
    part.members[0].rank = rank;
    part.members[0].part = format!("{rank:032x}");
    let below = rank_directory("r", rank);
    for (table, file) in &mut part.files {
        let reader = File::open(from.join(&file.path)).expect("a file");
        let reader = ParquetRecordBatchReaderBuilder::try_new(reader).expect("a Parquet file");
        let schema = reader.schema().clone();
        file.path = format!("{table}/{below}/part-{rank}.parquet");
        let path = dir.join(&file.path);
        fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        let of_table = Table::parse(table).expect("a table");
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_max_row_group_row_count(Some(1 << 16));
        for column in of_table.columns() {
            if column.kind == Kind::Whole || column.name == "bucket" {
                let column = ColumnPath::from(column.name);
                properties = properties
                    .set_column_dictionary_enabled(column.clone(), false)
                    .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
            }
        }
        let out = File::create(&path).expect("made");
        let mut out = ArrowWriter::try_new(out, schema.clone(), Some(properties.build()))
            .expect("a Parquet file");
        for batch in reader.build().expect("rows") {
            let batch = batch.expect("rows");
            let mut columns: Vec<ArrayRef> = batch.columns().to_vec();
            columns[1] = Arc::new(Int32Array::from(vec![rank as i32; batch.num_rows()]));
            let part = &*part.members[0].part;
            columns[2] = Arc::new(StringArray::from(vec![part; batch.num_rows()]));
            out.write(&RecordBatch::try_new(schema.clone(), columns).expect("rows"))
                .expect("written");
        }
        out.close().expect("written");
        file.bytes = path.metadata().expect("a file").len();
    }
    let name = format!("part-{}.json", part.members[0].part);
    let place = dir.join("parts").join(below);
    fs::create_dir_all(&place).expect("made");
    fs::write(place.join(name), serde_json::to_vec(&part).expect("JSON")).expect("written");
}
