//! The options of the commands that record.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use record::job::{Job, RANK_VARIABLE, WORLD_SIZE_VARIABLE, job_name};
use record::pool::Layout;
use record::run_file::LoopOptions;

use super::plugins::PluginArgs;
use crate::config::{self, Key};
use crate::failure::Failure;
use crate::metrics::MetricArgs;
use crate::naming::Naming;

const DEFAULT_OUTPUT: &str = "counterpoint.cpt";

/// What to record and where to.
#[derive(clap::Args)]
pub struct Recording {
    /// Counters, separated by commas (`page-faults,task-clock:u`); `none` records times only.
    /// By default, the variables COUNTERPOINT_CPU_METRICS, COUNTERPOINT_CUDA_METRICS, … choose
    /// the counters. Without them, cycles, stalls, instructions and cache misses are counted if
    /// a program can read them without a system call; otherwise only times are recorded
    #[arg(short = 'e', long = "events", value_name = "LIST", allow_hyphen_values = true)]
    pub events: Vec<String>,
    #[command(flatten)]
    pub naming: Naming,
    /// Allow more counters than the machine can count at once. They take turns, and their
    /// values are estimates, which are marked
    #[arg(long)]
    pub multiplex: bool,
    /// Profile directory to create. An existing profile is moved to `DIR.old` [default:
    /// counterpoint.cpt]
    #[arg(short, long, value_name = "DIR", value_parser = crate::input::profile())]
    pub output: Option<PathBuf>,
    /// Say something about the run, for example --label commit=1a2b3c. Views show it. Repeatable
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub labels: Vec<(String, String)>,
    /// Record only functions whose name matches. `*` matches any text, `?` any character.
    /// Repeatable
    #[arg(long, value_name = "GLOB")]
    pub filter: Vec<String>,
    /// Also read counters around the book-keeping ops of TVM's virtual machine (`vm.builtin.…`).
    /// By default they are only timed, and their counts are part of whatever called them
    #[arg(long)]
    pub bookkeeping: bool,
    /// Let recording take at most this part of each thread's processor time: `2%`, `0.5%` or `0.02`.
    /// Then every call is counted, but only some are timed, and counters are read in some of those.
    /// They are drawn at random, and views estimate totals and means from them. `0` counts calls and
    /// nothing else
    #[arg(long, value_name = "PART", value_parser = budget,
          conflicts_with_all = ["loops", "plugin_ids"])]
    pub budget: Option<f64>,
    /// With --budget: have PyTorch announce each op, so that numbers of calls are exact. Without it, PyTorch
    /// announces its ops in some steps of a training loop only where announcing all of them would exceed the
    /// budget, and the calls in the other steps are estimated
    #[arg(long, requires = "budget")]
    pub exact_counts: bool,
    /// Rank of the program in a distributed job, from 0. By default, each process has the rank that its
    /// launcher says: torchrun (RANK and WORLD_SIZE), mpirun (OMPI_COMM_WORLD_RANK, PMI_RANK), srun
    /// (SLURM_PROCID)
    #[arg(long, value_name = "N")]
    pub rank: Option<u32>,
    /// Number of ranks in the job
    #[arg(long, value_name = "N", requires = "rank")]
    pub world_size: Option<u32>,
    /// Tell the ops of PyTorch apart by the types, shapes and devices of their tensors, too. This
    /// costs more than recording an op
    #[arg(long)]
    pub shapes: bool,
    /// Record instrumented loops (`counterpoint loops instrument`). OPTIONS, separated by commas:
    /// `first=N`, how many hits of each loop and thread are timed before random ones (default 100);
    /// `gap=N`, a power of two, the longest gap between random ones (128); `log=N`, how many hits
    /// are recorded in mode log (100); `trips`, the smallest and largest number of iterations of a
    /// hit and a histogram, also in modes timed and count
    #[arg(long, value_name = "OPTIONS", num_args = 0..=1, require_equals = true,
          default_missing_value = "", value_parser = loops)]
    pub loops: Option<LoopOptions>,
    /// Copy the machine code of modules with instrumented loops into the profile when they are first
    /// seen, for `loops report --asm`. Needed for code that has no file (JIT compilers, IREE's
    /// executables) and for files that will change
    #[arg(long, requires = "loops")]
    pub keep_code: bool,
    /// Make room for this many threads, of all processes together, that record at the same time, up to 60,000.
    /// By default there is room for about 2,000, or half of that with --loops. Each takes 64 KiB of memory
    /// while it lives, and as much again for its loops (more for modules with hundreds of loops)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub max_threads: Option<u32>,
    #[command(flatten)]
    pub metrics: MetricArgs,
    #[command(flatten)]
    pub plugins: PluginArgs,
}

impl Recording {
    /// Takes the counters and the budget from `counterpoint.toml`, unless the user's options or
    /// variables replace or exclude them.
    pub fn configure(&mut self) -> Result<(), Failure> {
        config::load()?;
        let asked = |name: &str| std::env::var_os(name).is_some_and(|list| !list.is_empty());
        if let Some(events) = config::text(Key::Events)
            && self.events.is_empty()
            && !asked("COUNTERPOINT_CPU_METRICS")
        {
            self.events.push(events.to_owned());
        }
        if let Some(part) = config::text(Key::Budget)
            && self.budget.is_none()
            && self.loops.is_none()
            && !self.plugins.plugin_ids
        {
            let part = budget(part);
            self.budget = Some(
                part.map_err(|why| Failure::new(format!("budget in counterpoint.toml: {why}")))?,
            );
        }
        Ok(())
    }

    pub fn output(&self) -> &Path {
        self.output.as_deref().unwrap_or(Path::new(DEFAULT_OUTPUT))
    }

    /// Returns the layout of the pool. The pool has a page (a block of memory that one thread
    /// fills) for each thread that records, and with `--loops` another page for the thread's loops.
    pub fn pool_layout(&self) -> Layout {
        let pages = if self.loops.is_some() { 2 } else { 1 };
        Layout::with_pages(pages * self.max_threads.unwrap_or(0) as usize)
    }

    /// Returns the rank and, if known, the number of ranks: from the options, or else from the
    /// environment variables of the job's launcher, such as `torchrun`.
    pub fn job(&self) -> Option<Job> {
        match self.rank {
            Some(rank) => Some(Job { rank, size: self.world_size }),
            None => Job::of(variable),
        }
    }

    pub fn job_name(&self) -> Option<String> {
        job_name(variable)
    }

    /// Returns the environment variables that pass the rank and the number of ranks to the program.
    pub fn job_variables(&self) -> impl Iterator<Item = (&'static str, OsString)> {
        let rank = self.rank.map(|rank| (RANK_VARIABLE, rank.to_string().into()));
        // A number of ranks that is already in the environment does not belong to the rank of
        // `--rank`, so the variable is replaced, possibly by an empty text.
        let size = self.rank.map(|_| self.world_size.map_or(String::new(), |n| n.to_string()));
        rank.into_iter().chain(size.map(|size| (WORLD_SIZE_VARIABLE, size.into())))
    }
}

/// What is sampled while the program runs, by the command that stays with it.
#[derive(clap::Args)]
pub struct Beside {
    /// Counters to sample on every CPU, whatever runs there, written as for -e. They become tracks
    /// of the profile. Counters of a whole package (power/energy-pkg/) are also sampled if -e names
    /// them
    #[arg(short = 'a', long = "system", value_name = "LIST", allow_hyphen_values = true)]
    pub system: Vec<String>,
    /// Time between samples: 100ms, 1s, 2500us
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = interval)]
    pub sample_interval: Duration,
}

/// Parses `first=100,gap=128,log=100,trips`, of which each part is optional.
fn loops(text: &str) -> Result<LoopOptions, String> {
    let mut options = LoopOptions::default();
    for option in text.split(',').filter(|option| !option.is_empty()) {
        let known = "expected first=N, gap=N, log=N or trips";
        if ["timed", "sampled", "counted"].contains(&option) {
            return Err(format!(
                "{option}: that is chosen where the loops are instrumented: `--mode {option}` of \
                 loops instrument and loops compile-iree, COUNTERPOINT_LOOPS='--mode {option}' of cc, \
                 mode={option:?} of counterpoint.tvm.loops"
            ));
        }
        if option == "trips" {
            options.trips = true;
            continue;
        }
        let (name, value) = option.split_once('=').ok_or_else(|| format!("{option}: {known}"))?;
        let number: u32 =
            value.parse().map_err(|_| format!("{option}: {value:?} is not a whole number"))?;
        match name {
            "first" => options.first = number,
            "gap" if number.is_power_of_two() => options.gap_mask = number - 1,
            "gap" => return Err(format!("{option}: not a power of two")),
            "log" => options.logged = number,
            _ => return Err(format!("{option}: {known}")),
        }
    }
    Ok(options)
}

/// Parses a budget, for example `2%`, `0.02` or `0`.
fn budget(text: &str) -> Result<f64, String> {
    let (number, whole) = match text.strip_suffix('%') {
        Some(number) => (number, 100.0),
        None => (text, 1.0),
    };
    // Rust's parser would also accept `inf`, `nan` and `1e-3`.
    let is_plain = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let number: f64 = match number.parse() {
        Ok(number) if is_plain => number,
        _ => return Err("expected a percentage such as 2% or a part such as 0.02".to_owned()),
    };
    if number > whole {
        return Err(match whole {
            1.0 => format!("more than all of the time; for {number} percent, write {number}%"),
            _ => "more than all of the time".to_owned(),
        });
    }
    if whole == 1.0 && number == 1.0 {
        return Err("ambiguous: write 1% for one percent, or 100% for all of the time".to_owned());
    }
    Ok(number / whole)
}

fn variable(name: &str) -> Option<Vec<u8>> {
    std::env::var_os(name).map(OsString::into_encoded_bytes)
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}

/// Parses an interval, which is from 1 ms to an hour.
pub fn interval(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "us" => Duration::from_micros(1),
        "ms" => Duration::from_millis(1),
        "s" => Duration::from_secs(1),
        _ => return Err("expected a whole number followed by us, ms or s".to_owned()),
    };
    let number: u32 = number.parse().map_err(|_| "not a whole number".to_owned())?;
    let time = unit.checked_mul(number).unwrap_or(Duration::MAX);
    let allowed = Duration::from_millis(1)..=Duration::from_secs(3600);
    if allowed.contains(&time) { Ok(time) } else { Err("must be from 1ms to 3600s".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets() {
        for (text, part) in
            [("2%", 0.02), ("0", 0.0), ("0%", 0.0), ("0.5%", 0.005), ("0.02", 0.02), ("100%", 1.0)]
        {
            assert_eq!(budget(text), Ok(part), "{text}");
        }
        let unknown = "expected a percentage such as 2% or a part such as 0.02";
        for (wrong, why) in [
            ("", unknown),
            ("%", unknown),
            ("-1%", unknown),
            ("nan", unknown),
            ("inf%", unknown),
            ("1e-3", unknown),
            ("2 %", unknown),
            ("0.0.2", unknown),
            ("two", unknown),
            ("1", "ambiguous: write 1% for one percent, or 100% for all of the time"),
            ("5", "more than all of the time; for 5 percent, write 5%"),
            ("101%", "more than all of the time"),
        ] {
            assert_eq!(budget(wrong), Err(why.to_owned()), "{wrong}");
        }
    }

    #[test]
    fn options_of_loops() {
        assert_eq!(loops(""), Ok(LoopOptions::default()));
        let all = LoopOptions { first: 0, gap_mask: 0, logged: 7, keep_code: false, trips: true };
        assert_eq!(loops("first=0,trips,gap=1,log=7"), Ok(all));
        for (wrong, why) in [
            ("gap=100", "gap=100: not a power of two"),
            ("gap=0", "gap=0: not a power of two"),
            ("first=x", "first=x: \"x\" is not a whole number"),
            ("first", "first: expected first=N, gap=N, log=N or trips"),
            (
                "gap=2,timed",
                "timed: that is chosen where the loops are instrumented: `--mode timed` of loops \
                 instrument and loops compile-iree, COUNTERPOINT_LOOPS='--mode timed' of cc, \
                 mode=\"timed\" of counterpoint.tvm.loops",
            ),
            ("last=1", "last=1: expected first=N, gap=N, log=N or trips"),
            ("log=4294967296", "log=4294967296: \"4294967296\" is not a whole number"),
        ] {
            assert_eq!(loops(wrong), Err(why.to_owned()));
        }
    }
}
