//! `--metric` and `--metrics-file`: determine which metrics a command computes.
//!
//! ```text
//!  the profile's own (asked for at `run`) ─┐
//!  --metrics-file, --metric                ├─► bound to the counters ─► Vec<Bound>
//!  built-in ones, where a view offers them ┘   of one name: the user's, else the profile's
//! ```

use std::io::Read;
use std::path::PathBuf;

use analysis::torch::SHAPE_COUNTERS;
use model::Metric;
use model::metric::{Bound, MetricError, Operand, all_builtins, named_builtin, offered};
use model::suggest::closest;
use profile::{CounterInfo, MetricInfo, Profile};

use crate::advice;
use crate::failure::Failure;
use crate::terminal::say;

/// Metrics to compute.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct MetricArgs {
    /// Metric to compute from counters of one group, for example ipc=instructions/cycles. Also the
    /// name of a built-in metric, or `builtin` for all built-in metrics whose counters are there.
    /// Repeatable
    #[arg(long, value_name = "NAME=EXPR")]
    pub metric: Vec<String>,
    /// File with one NAME=EXPR per line; `-` is standard input. Lines that begin with #
    /// are comments. Repeatable
    #[arg(long, value_name = "FILE")]
    pub metrics_file: Vec<PathBuf>,
}

/// Whether a view (such as `report`) shows built-in metrics that the user did not ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    Nothing,
    Builtins,
}

/// The value of `--metric` that selects every built-in metric that can be computed.
const BUILTIN: &str = "builtin";

/// A metric, and the option or file that asked for it, for error messages.
struct Asked {
    from: String,
    metric: Metric,
    builtin: bool,
}

/// Views show at most this many of the metrics that a profile's manifest names. Without this limit,
/// a manifest from somebody else could make a table very large.
const MOST_OF_PROFILE: usize = 256;

/// Returns the metrics of a command line, checked against the counters that the run will record.
pub fn before_run(args: &MetricArgs, counters: &[CounterInfo]) -> Result<Vec<MetricInfo>, Failure> {
    let operands: Vec<Operand<'_>> = counters.iter().map(CounterInfo::operand).collect();
    if args.metric.iter().any(|text| text == BUILTIN) {
        return Err(Failure::new(format!(
            "--metric {BUILTIN}: a recording does not need to ask for built-in metrics"
        ))
        .hint(
            "`counterpoint report` shows built-in metrics whenever their counters are recorded",
        ));
    }
    let asked = asked(args, &operands)?;
    bind_all(&asked, &operands)?;
    if asked.len() > MOST_OF_PROFILE {
        return Err(Failure::new(format!(
            "{} metrics: a profile can name {MOST_OF_PROFILE}",
            asked.len()
        ))
        .hint("give the others to `counterpoint report --metrics-file`"));
    }
    Ok(asked.iter().map(|asked| MetricInfo::from(&asked.metric)).collect())
}

/// Returns the metrics that a view of `profile` shows. Metrics of the profile that cannot be
/// computed or whose name is taken (for example, in an edited manifest) are left out with a
/// message.
pub fn of_profile(
    args: &MetricArgs,
    profile: &Profile,
    offer: Offer,
) -> Result<Vec<Bound>, Failure> {
    let counters = &profile.manifest.counters;
    let operands: Vec<Operand<'_>> = counters.iter().map(CounterInfo::operand).collect();
    let asked = bind_all(&asked(args, &operands)?, &operands)?;
    let mut all: Vec<Bound> = Vec::new();
    if profile.manifest.metrics.len() > MOST_OF_PROFILE {
        let metrics = profile.manifest.metrics.len();
        say!("the profile names {metrics} metrics; only the first {MOST_OF_PROFILE} are shown");
    }
    for info in profile.manifest.metrics.iter().take(MOST_OF_PROFILE) {
        let bound = Metric::of(&info.name, &info.expression).and_then(|m| m.bind(&operands));
        match bound {
            Ok(bound) if taken(&bound.name, &operands).is_none() => all.push(bound),
            Ok(_) => {
                say!("the profile's metric {}: another column has this name", info.name)
            }
            Err(e) => say!("the profile's metric {}: {e}", info.name),
        }
    }
    for bound in asked {
        match all.iter_mut().find(|known| known.name == bound.name) {
            Some(known) => *known = bound,
            None => all.push(bound),
        }
    }
    if offer == Offer::Builtins || args.metric.iter().any(|text| text == BUILTIN) {
        for bound in offered(&operands) {
            if all.iter().all(|known| known.name != bound.name) {
                all.push(bound);
            }
        }
    }
    Ok(all)
}

/// Returns the metrics for the table of ops with shapes, which has counters of its own.
pub fn of_shapes(args: &MetricArgs) -> Result<Vec<Bound>, Failure> {
    of_operands(args, &SHAPE_COUNTERS)
}

/// Returns the metrics that the user asked for, bound to the counters in `operands`.
pub fn of_operands(args: &MetricArgs, operands: &[Operand<'_>]) -> Result<Vec<Bound>, Failure> {
    bind_all(&asked(args, operands)?, operands)
}

/// Returns the metrics of `--metrics-file`, and then those of `--metric`.
fn asked(args: &MetricArgs, operands: &[Operand<'_>]) -> Result<Vec<Asked>, Failure> {
    let mut all: Vec<Asked> = Vec::new();
    for path in &args.metrics_file {
        let mut text = String::new();
        crate::input::once(path)
            .and_then(|mut file| file.read_to_string(&mut text))
            .map_err(|e| Failure::new(format!("--metrics-file {}: {e}", path.display())))?;
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.trim_start().starts_with('#') {
                continue;
            }
            let from = format!("{} line {}", crate::input::name(path), number + 1);
            let metric = Metric::parse(line).map_err(|e| failure(&from, e))?;
            all.push(Asked { from, metric, builtin: false });
        }
    }
    for text in &args.metric {
        let from = format!("--metric {text}");
        if text == BUILTIN {
            continue;
        }
        let metric = match (text.contains('='), named_builtin(text, operands)) {
            (false, Some(builtin)) => Metric::of(builtin.name, builtin.expression),
            (false, None) => return Err(unknown(text)),
            (true, _) => Metric::parse(text),
        };
        let metric = metric.map_err(|e| failure(&from, e))?;
        all.push(Asked { metric, from, builtin: !text.contains('=') });
    }
    for (i, asked) in all.iter().enumerate() {
        let name = &asked.metric.name;
        if all[..i].iter().any(|earlier| earlier.metric.name == *name) {
            return Err(Failure::new(format!("{}: {name} is defined twice", asked.from)));
        }
        if let Some(what) = taken(name, operands) {
            return Err(Failure::new(format!("{}: {name} is {what}", asked.from))
                .hint("give the metric another name"));
        }
    }
    Ok(all)
}

fn bind_all(asked: &[Asked], operands: &[Operand<'_>]) -> Result<Vec<Bound>, Failure> {
    let bind = |asked: &Asked| {
        asked.metric.bind(operands).map_err(|error| match asked.builtin {
            true => failure(&asked.from, error)
                .hint(format!("{} needs these counters in one group", asked.metric.expression)),
            false => failure(&asked.from, error),
        })
    };
    asked.iter().map(bind).collect()
}

fn unknown(name: &str) -> Failure {
    let mut names: Vec<&str> = all_builtins().map(|builtin| builtin.name).collect();
    names.dedup();
    let names = || names.iter().copied();
    let near = closest(name, names());
    let hint = match near.as_slice() {
        [] => format!("NAME=EXPRESSION, or one of {}", names().collect::<Vec<_>>().join(", ")),
        near => format!("did you mean {}? New ones are NAME=EXPRESSION", near.join(", ")),
    };
    Failure::new(format!("--metric {name}: no built-in metric has this name")).hint(hint)
}

fn failure(from: &str, error: MetricError) -> Failure {
    Failure::new(format!("{from}: {error}")).advise(advice::for_metric(&error))
}

/// Columns of views have these names, so a metric must not have them.
const COLUMNS: &[&str] = &[
    "op",
    "thread",
    "cpu",
    "process",
    "library",
    "shapes",
    "source",
    "calls",
    "dispatches",
    "wall_ns",
    "wall",
    "between_ns",
    "off_cpu_ns",
    "between",
    "total_ns",
    "total",
    "self_ns",
    "self",
    "share",
    "mean_ns",
    "mean",
    "p50_ns",
    "p50",
    "p99_ns",
    "p99",
    "threads",
    "cpus",
    "min_ns",
    "min",
    "max_ns",
    "max",
    "pid",
    "tid",
    "thread_name",
    "op_id",
    "export",
    "workgroup_x",
    "workgroup_y",
    "workgroup_z",
    "count_x",
    "count_y",
    "count_z",
    "worker",
    "node",
    "start_ticks",
    "rank",
    "host",
    "dispatch",
    "duration_ticks",
    "start_ns",
    "duration_ns",
    "duration_us",
    "duration",
];

/// Returns what already has the name `name`, so that no table gets two columns of one name. `None`
/// if a metric can have the name.
fn taken(name: &str, operands: &[Operand<'_>]) -> Option<&'static str> {
    let made = ["_calls", "_per_call"].iter().any(|end| name.ends_with(end))
        || (name.starts_with("group") && name.ends_with("_ns"));
    if operands.iter().any(|operand| operand.name == name) {
        return Some("a counter");
    }
    (made || COLUMNS.contains(&name)).then_some("a column of every table")
}
