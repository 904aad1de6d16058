//! `cargo xtask bench`: measures speed, where possible as ratios and differences between commands
//! of the same run.
//!
//! A benchmark is a [`Plan`]: a set of commands, the readings to take from each, and the figures to
//! compute from the readings of one round. The commands run in turn, round after round, so that a
//! slow phase of the machine affects all of them. The result of a figure is the median over the
//! rounds (for a rate, the mean), with a bootstrap interval. If a target is inside the interval, it
//! is inconclusive whether the target is met. [`results`] keeps the newest result of each
//! benchmark; [`history`] draws a benchmark's results over time. `benches/README.md` says how to
//! add a benchmark.

mod budget;
mod budget_intervals;
mod child;
mod datasets;
mod diff;
mod dispatch;
mod guest_reads;
mod history;
mod idle_start;
mod loops;
mod loops_iree;
mod loops_slowdown;
mod machine;
mod opencl;
mod page;
mod plan;
mod plugin;
mod price;
mod probe;
mod read;
mod report;
mod resolution;
mod results;
mod roofs;
mod run_start;
mod stats;
mod stats_10m;
mod torch;
mod torch_log;
mod torch_ops;
mod torch_plugins;
mod traces;
mod tvm_model;
mod tvm_op;

use anyhow::{Context, Result, bail, ensure};

use self::plan::{Plan, Round};
use self::results::{Outcome, Verdict};
use crate::layout::Layout;
use crate::process::say;

/// Runs benchmarks and keeps their results in benches/runs/.
#[derive(clap::Args)]
pub struct Args {
    /// Benchmarks to run. Without a name, all benchmarks are listed.
    names: Vec<String>,
    /// Number of rounds; every command runs once in each. Each benchmark has a default.
    #[arg(long)]
    rounds: Option<usize>,
    /// Draw the results of the benchmarks over time, from git's history. Nothing is run.
    #[arg(long, requires = "names")]
    history: bool,
    /// Print the result, but do not keep a file.
    #[arg(long)]
    dry_run: bool,
    /// Exit with an error if a target is not met.
    #[arg(long)]
    strict: bool,
}

struct Benchmark {
    name: &'static str,
    about: &'static str,
    /// Builds everything that the benchmark needs, and returns its plan.
    prepare: fn(&Layout) -> Result<Plan>,
}

#[rustfmt::skip]
const BENCHMARKS: &[Benchmark] = &[
    Benchmark { name: "idle-start", about: "time that the preloaded, idle library adds to the start of Python", prepare: idle_start::prepare },
    Benchmark { name: "run-start", about: "time of `counterpoint run` for a program that does nothing", prepare: run_start::prepare },
    Benchmark { name: "dispatch-e2e", about: "time that profiling adds to each of 100,000 tiny dispatches of IREE on one thread", prepare: dispatch::prepare },
    Benchmark { name: "probe", about: "a pair of readings, compared with the cheapest possible pair and the usual pair", prepare: probe::prepare },
    Benchmark { name: "resolution", about: "whether compensated means are inside of their stated intervals, from 20 ns to 1 ms", prepare: resolution::prepare },
    Benchmark { name: "price", about: "real cost of recording, compared with the cost that the report states", prepare: price::prepare },
    Benchmark { name: "price-torch", about: "the same for a training loop of PyTorch, also in runs with a budget", prepare: price::prepare_torch },
    Benchmark { name: "budget", about: "real cost of runs with a budget, compared with the budget", prepare: budget::prepare },
    Benchmark { name: "budget-intervals", about: "how often intervals of runs with a budget hold what a full run found", prepare: budget_intervals::prepare },
    Benchmark { name: "diff", about: "how often `diff` calls equal programs different, and finds a slower op", prepare: diff::prepare },
    Benchmark { name: "guest-reads", about: "cost of reading hardware counters, in instructions of an emulated machine", prepare: guest_reads::prepare },
    Benchmark { name: "read", about: "a pair of readings of software counters, compared with PAPI and perf-event2", prepare: read::prepare },
    Benchmark { name: "loops", about: "hits of instrumented loops beside bare time stamps and LLVM's XRay", prepare: loops::prepare },
    Benchmark { name: "loops-slowdown", about: "kernels with instrumented loops beside the same kernels without, and the instrumenter", prepare: loops_slowdown::prepare },
    Benchmark { name: "opencl", about: "time that the plugin for OpenCL adds to each call that enqueues a kernel", prepare: opencl::prepare },
    Benchmark { name: "loops-iree", about: "a matrix product of IREE with instrumented loops beside the same without", prepare: loops_iree::prepare },
    Benchmark { name: "report-10m", about: "the op table of ten million recorded calls: time and private memory", prepare: report::prepare },
    Benchmark { name: "page", about: "the page of one and of ten million calls: size, time, memory, and in a browser", prepare: page::prepare },
    Benchmark { name: "roofs", about: "what `counterpoint roofline` measures, compared with likwid-bench", prepare: roofs::prepare },
    Benchmark { name: "stats-10m", about: "distributions of ten million calls with four counters, compared with numpy and scipy", prepare: stats_10m::prepare },
    Benchmark { name: "dataset-export", about: "adding recordings of one and ten million calls to a dataset: time and memory", prepare: datasets::export },
    Benchmark { name: "dataset-merge", about: "merging a thousand ranks, and reading them for a report", prepare: datasets::merge },
    Benchmark { name: "dataset-query", about: "a thousand ranks asked in SQL; builds DataFusion with optimisation first", prepare: datasets::query },
    Benchmark { name: "plugin", about: "events of a plugin through the trace builder, and a million of them into a profile", prepare: plugin::prepare },
    Benchmark { name: "trace-export", about: "exporting a million events, compared with torch's export_chrome_trace", prepare: traces::export },
    Benchmark { name: "trace-import", about: "reading a million events that torch wrote, compared with Python's json.load", prepare: traces::import },
    Benchmark { name: "torch-plugins", about: "time that idle plugins add to PyTorch's own profiler", prepare: torch_plugins::prepare },
    Benchmark { name: "torch-log", about: "a million events of torch streamed into a profile, compared with export_chrome_trace", prepare: torch_log::prepare },
    Benchmark { name: "torch-ops", about: "time that recording adds to each op of PyTorch", prepare: torch_ops::prepare },
    Benchmark { name: "tvm-op", about: "time that an instrument adds to each call of TVM's virtual machine", prepare: tvm_op::prepare },
    Benchmark { name: "tvm-model", about: "a transformer on TVM, alone and under `counterpoint run`", prepare: tvm_model::prepare },
];

/// The smallest number of rounds whose spread is meaningful.
const FEWEST_ROUNDS: usize = 10;

pub fn main(layout: &Layout, args: &Args) -> Result<()> {
    if args.names.is_empty() {
        for benchmark in BENCHMARKS {
            println!("{:<16} {}", benchmark.name, benchmark.about);
        }
        return Ok(());
    }
    if args.history {
        return history::show(layout, &args.names);
    }
    let mut missed = Vec::new();
    for name in &args.names {
        let benchmark = BENCHMARKS.iter().find(|benchmark| benchmark.name == *name);
        let benchmark = benchmark.with_context(|| {
            let known: Vec<&str> = BENCHMARKS.iter().map(|benchmark| benchmark.name).collect();
            format!("benchmark {name}: not known; there are {}", known.join(", "))
        })?;
        let outcomes = run(layout, benchmark, args)?;
        let not_met = |outcome: &Outcome| outcome.verdict == Some(Verdict::NotMet);
        if outcomes.iter().any(not_met) {
            missed.push(name.as_str());
        }
    }
    if args.strict && !missed.is_empty() {
        bail!("target not met in {}", missed.join(", "));
    }
    Ok(())
}

fn run(layout: &Layout, benchmark: &Benchmark, args: &Args) -> Result<Vec<Outcome>> {
    let plan = (benchmark.prepare)(layout).with_context(|| benchmark.name.to_owned())?;
    let count = args.rounds.unwrap_or(plan.rounds);
    // One round is enough for a dry run that only shows that the commands still work.
    ensure!(
        count >= FEWEST_ROUNDS || (args.dry_run && count > 0),
        "--rounds {count}: at least {FEWEST_ROUNDS} are needed, or one with --dry-run"
    );
    say(format_args!("{}: {count} rounds of {} commands …", benchmark.name, plan.cases.len()));
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let (before, begun) = (machine::load(), std::time::Instant::now());
    let mut rounds = Vec::with_capacity(count);
    for number in 0..count {
        let mut round = Round::default();
        // The first command changes from round to round.
        for position in 0..plan.cases.len() {
            let case = &plan.cases[(number + position) % plan.cases.len()];
            let readings = child::run(layout, case)
                .with_context(|| format!("{}: {}", benchmark.name, case.label))?;
            round.insert(case.label, readings);
        }
        rounds.push(round);
        if terminal {
            eprint!("\rxtask: {} {}/{count} ", benchmark.name, number + 1);
        }
    }
    if terminal {
        eprintln!();
    }
    let outcomes = plan
        .figures
        .iter()
        .map(|figure| Outcome::of(figure, &rounds).with_context(|| benchmark.name.to_owned()))
        .collect::<Result<Vec<_>>>()?;
    let report = results::Report {
        name: benchmark.name,
        about: benchmark.about,
        plan: &plan,
        rounds: &rounds,
        outcomes: &outcomes,
        load_before: before,
    };
    print!("{}", report.text());
    say(format_args!(
        "{}: took {:.1} minutes",
        benchmark.name,
        begun.elapsed().as_secs_f64() / 60.0
    ));
    if !args.dry_run {
        let path = report.save(layout)?;
        say(format_args!("kept {}", layout.show(&path)));
    }
    Ok(outcomes)
}
