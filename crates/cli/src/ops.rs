//! `counterpoint ops`: prints the same table as `counterpoint report --by arguments`, and adds the
//! options that only make sense for ops.

use std::path::PathBuf;
use std::process::ExitCode;

use analysis::OpFilter;
use clap::ValueEnum;

use crate::failure::Failure;
use crate::input;
use crate::output::Format;
use crate::terminal::is_verbose;
use crate::view::open::open;
use crate::view::ops::{self, Chosen};
use crate::view::ranks::RankArgs;
use crate::view::rights::Needs;

/// Show where TVM's virtual machines and PyTorch spent their time: one row per op, arguments and
/// device.
///
/// Each op has its self time, which is without the ops inside of it. Counts from pool threads belong to
/// the op that launched the parallel region. With TVM, a run is a call of an entry function of a virtual
/// machine, and the rows add up to the wall time of the runs: the time between ops and in the entry
/// function itself has rows of its own. JSON also has every call.
#[derive(clap::Args)]
pub struct Args {
    /// Profile directory.
    #[arg(default_value = "counterpoint.cpt", value_name = "PROFILE", value_parser = input::profile())]
    profile: PathBuf,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// What each row describes.
    #[arg(long, value_enum, default_value_t)]
    by: OpBy,
    /// Only ops whose name matches. `*` matches any text, `?` any character.
    #[arg(long, alias = "op", value_name = "GLOB")]
    filter: Option<String>,
    /// Column to sort by, named as in the table or in CSV. The default is `self`.
    #[arg(long, value_name = "COLUMN")]
    sort: Option<String>,
    /// Show only the first N rows of the table, after sorting; 0 for all. The default is 30 in a table
    /// for people, and all in other formats. JSON has the calls of the rows that are shown.
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Only the virtual machine with this name; PyTorch is `torch`.
    #[arg(long, value_name = "NAME")]
    vm: Option<String>,
    #[command(flatten)]
    ranks: RankArgs,
    /// Only runs, and ops outside of runs, that began at this tick of the profile's clock or later.
    #[arg(long, value_name = "TICKS")]
    since: Option<u64>,
    /// Only runs, and ops outside of runs, that began before this tick.
    #[arg(long, value_name = "TICKS")]
    until: Option<u64>,
    /// Show one row for each book-keeping function (TVM's vm.builtin.…, or what else a host names so)
    /// instead of one row for all of a host.
    #[arg(long)]
    all: bool,
    /// Show values as they were recorded. Without this option, what an empty call reads is
    /// subtracted from the values of rows. JSON also has single calls, which are always as recorded.
    #[arg(long)]
    raw: bool,
    /// Width of the tables in characters, as for `report --width`.
    #[arg(long, value_name = "N")]
    width: Option<usize>,
}

/// `--by`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum OpBy {
    /// An op with certain arguments on a device.
    #[default]
    Arguments,
    /// The same in one rank of a distributed job.
    Rank,
}

pub fn main(args: Args) -> Result<ExitCode, Failure> {
    let mut profile = open(&args.profile, &Needs::default())?;
    args.ranks.choose(&mut profile)?;
    let chosen = Chosen {
        format: args.format,
        filter: args.filter.as_deref(),
        sort: args.sort.as_deref(),
        top: args.top,
        verbose: is_verbose(),
        trees: OpFilter { machine: args.vm, since: args.since, until: args.until },
        all: args.all,
        by_rank: args.by == OpBy::Rank,
        raw: args.raw,
        width: args.width,
    };
    ops::print(&profile, &chosen)
}
