//! `counterpoint roofline`: measures this machine's highest rates of computing and memory.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::ValueEnum;
use machine::Machine;
use machine::roofs::{Cpus, measure};

use crate::failure::Failure;
use crate::roofs::{ComputeOut, Document, MemoryOut, RateOut, keep, kept};
use crate::terminal::{self, known_width, note, progress, say, stdout, visible};
use crate::view::layout::{Kind, Names, Shown, layout};
use crate::view::units::{bytes, moment, number, plural};
use crate::view::wrap::{PROSE_WIDTH, wrapped};

/// Measure how fast this machine computes and moves bytes at most
///
/// Takes about ten seconds, in which nothing else should run, and keeps the result in the user's cache.
/// `report --roofline` then says how far each op is from it.
#[derive(clap::Args)]
pub struct Args {
    /// Measure again, although the result of an earlier measurement is kept
    #[arg(long)]
    again: bool,
    /// How long to measure
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u64).range(1..=120))]
    seconds: u64,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Width of the tables in characters, as for `report --width`
    #[arg(long, value_name = "N")]
    width: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Tables that fit the terminal
    #[default]
    #[value(alias = "text")]
    Table,
    /// One JSON document; docs/schema.md describes it
    Json,
}

/// If the median rate is below this fraction of the best rate, other programs probably disturbed
/// most repetitions.
const QUIET: f64 = 0.7;

pub fn main(args: Args) -> Result<ExitCode, Failure> {
    let machine = Machine::here();
    let cpus = Cpus::of(&machine);
    let known = if args.again { None } else { kept(&cpus) };
    let document = match known {
        Some(document) => document,
        None => {
            let cores = plural(cpus.cores.len() as u128, "core");
            note!("measuring {cores} for about {} s", args.seconds);
            let measuring = progress::step("measuring");
            let roofs = measure(&machine, &cpus, Duration::from_secs(args.seconds));
            drop(measuring);
            let roofs = roofs.map_err(|error| Failure::new(format!("roofline: {error}")))?;
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let document = Document::of(&cpus, &roofs, now.map_or(0, |now| now.as_nanos() as u64));
            if let Err(why) = keep(&document) {
                say!("the result is not kept: {why}");
            }
            document
        }
    };
    let mut out = stdout(match args.format {
        Format::Table => terminal::Kind::People,
        Format::Json => terminal::Kind::Json,
    });
    match args.format {
        Format::Table => {
            let width = args.width.or_else(known_width).unwrap_or(PROSE_WIDTH).max(40);
            text(&document, &mut out, width)?;
        }
        Format::Json => {
            serde_json::to_writer_pretty(&mut out, &document).map_err(io::Error::from)?;
            writeln!(out)?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn text(document: &Document, out: &mut impl Write, width: usize) -> io::Result<()> {
    let machine = &document.machine;
    let caches = machine.caches.iter().map(|cache| {
        let each =
            if cache.instances > 1 { format!("{} × ", cache.instances) } else { String::new() };
        format!("L{} {each}{}", cache.level, bytes(cache.bytes as f64))
    });
    let parts: Vec<String> = [visible(&machine.cpu_model).into_owned()]
        .into_iter()
        .chain([plural(machine.cores.into(), "core")])
        .chain(caches)
        .collect();
    wrapped(out, "machine   ", &parts.join(", "), width)?;
    wrapped(out, "measured  ", &moment(document.measured_unix_ns), width)?;
    writeln!(out)?;
    compute(document, out, width)?;
    writeln!(out)?;
    memory(document, out, width)?;
    let rates = document.compute.iter().map(|one| one.flop_per_s);
    let rates = rates.chain(document.memory.iter().map(|one| one.bytes_per_s));
    let disturbed = rates.filter(|rate| rate.median < QUIET * rate.best).count();
    if disturbed > 0 {
        let text = format!(
            "{} had a median below {:.0} % of the best: other programs ran. The best is used; \
             --again measures again",
            plural(disturbed as u128, "measurement"),
            QUIET * 100.0
        );
        wrapped(out, "note: ", &text, width)?;
    }
    Ok(())
}

/// Formats a rate in G/s as two texts: the best value (`91.4`) and the median (`88.0`).
fn rate(rate: Option<RateOut>) -> [String; 2] {
    match rate {
        Some(rate) => [number(rate.best / 1e9), number(rate.median / 1e9)],
        None => ["–".to_owned(), "–".to_owned()],
    }
}

fn table(
    out: &mut impl Write,
    width: usize,
    heads: &[(&'static str, &str)],
    rows: &[Vec<String>],
) -> io::Result<()> {
    let column = |(at, (name, title)): (usize, &(&'static str, &str))| Shown {
        name,
        title: (*title).to_owned(),
        rank: at as u8,
        kind: if at == 0 { Kind::Text } else { Kind::Number },
        cells: rows.iter().map(|row| row[at].clone()).collect(),
    };
    let columns = heads.iter().enumerate().map(column).collect();
    layout(out, columns, Names::Whole, Some(width))?.say_left_out(out, Some(width))
}

const CORES: [(&str, &str); 4] =
    [("one", "1 core"), ("one_median", "median"), ("all", "all cores"), ("all_median", "median")];

fn compute(document: &Document, out: &mut impl Write, width: usize) -> io::Result<()> {
    let all = document.machine.cores;
    let of = |one: &ComputeOut, cores| {
        let same = |other: &&ComputeOut| {
            (other.bits, other.scalar, &other.number, other.cores)
                == (one.bits, one.scalar, &one.number, cores)
        };
        document.compute.iter().find(same).map(|found| found.flop_per_s)
    };
    let row = |one: &ComputeOut| {
        let number = visible(&one.number);
        let what = if one.scalar { "scalar".to_owned() } else { format!("{}-bit", one.bits) };
        let fused = if one.fused { "FMA" } else { "multiply, add" };
        let first = format!("{what} {number} {fused}");
        [vec![first], rate(of(one, 1)).to_vec(), rate(of(one, all)).to_vec()].concat()
    };
    let rows: Vec<_> = document.compute.iter().filter(|one| one.cores == 1).map(row).collect();
    table(out, width, &[&[("what", "GFLOP/s")], &CORES[..]].concat(), &rows)
}

fn memory(document: &Document, out: &mut impl Write, width: usize) -> io::Result<()> {
    let all = document.machine.cores;
    let of = |one: &MemoryOut, cores| {
        let same = |other: &&MemoryOut| {
            (other.level, &other.kernel, other.cores) == (one.level, &one.kernel, cores)
        };
        document.memory.iter().find(same).map(|found| found.bytes_per_s)
    };
    let row = |one: &MemoryOut| {
        let level = one.level.map_or_else(|| "memory".to_owned(), |level| format!("L{level}"));
        let first = format!("{level} {}", visible(&one.kernel));
        [vec![first], rate(of(one, 1)).to_vec(), rate(of(one, all)).to_vec()].concat()
    };
    let rows: Vec<_> = document.memory.iter().filter(|one| one.cores == 1).map(row).collect();
    table(out, width, &[&[("what", "GB/s")], &CORES[..]].concat(), &rows)
}
