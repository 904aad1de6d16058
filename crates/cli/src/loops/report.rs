//! `counterpoint loops report`: prints the same table as `counterpoint report --by loop`, and adds
//! the options that only make sense for loops.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;

use crate::failure::Failure;
use crate::input;
use crate::output::Format;
use crate::terminal::is_verbose;
use crate::view::loops::show::{self, Chosen, LoopFormat};
use crate::view::open::open;
use crate::view::ranks::RankArgs;
use crate::view::rights::Needs;

/// Show where inside instrumented functions the time went: one row per function and loop.
///
/// The row of a loop is below the row of the loop or function that contains it. A hit is one entry
/// into a loop or function. Inclusive time lasts from the beginning to the end of each hit; self
/// time leaves out the instrumented loops directly inside. If only some hits were timed, times are
/// estimates. The cost of measuring is subtracted. ± is half of a 95 % interval. Self times may be negative. docs/loops.md explains each column.
#[derive(clap::Args)]
pub struct Args {
    /// Profile directory.
    #[arg(default_value = "counterpoint.cpt", value_name = "PROFILE", value_parser = input::profile())]
    profile: PathBuf,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: FormatArg,
    /// Show times as they were measured, including the cost of measuring. JSON has both.
    #[arg(long)]
    raw: bool,
    /// Also show a row for each thread.
    #[arg(long)]
    threads: bool,
    /// Also show functions and loops that were never entered. JSON and CSV have them.
    #[arg(long)]
    all: bool,
    /// The side table (NAME.loops.json) of a module that was compiled without one, or to be used in
    /// place of an embedded one. Repeatable.
    #[arg(long, value_name = "FILE")]
    table: Vec<PathBuf>,
    /// Also show the machine code of each function and loop: where it is, its machine loops, and how
    /// many instructions of each class it has. Together with --only, also the instructions.
    #[arg(long)]
    asm: bool,
    /// Also show the text that was instrumented, with the hits and times of loops in its margin.
    /// Together with --asm and --only, text and machine code are side by side.
    #[arg(long)]
    source: bool,
    /// A directory in which --asm looks for the files that the program had loaded: at their whole path
    /// (DIR/usr/lib/x.so), then by their name. Files that a profile of somebody else names are read
    /// only there. Repeatable.
    #[arg(long, value_name = "DIR", requires = "asm")]
    objects: Vec<PathBuf>,
    /// A directory in which --source looks for the texts that were instrumented. Repeatable.
    #[arg(long, value_name = "DIR", requires = "source")]
    sources: Vec<PathBuf>,
    /// With --asm and --source: show the code and the text of these functions and loops only. An id,
    /// or a name (FUNCTION, LOOP or FUNCTION:LOOP; `*` matches any text). Repeatable.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Only functions and loops whose name (FUNCTION, LOOP or FUNCTION:LOOP) matches, with what is
    /// around and inside of them. `*` matches any text, `?` any character.
    #[arg(long, alias = "op", value_name = "GLOB")]
    filter: Option<String>,
    /// Column by which the rows inside of each row are sorted, named as in the table or in CSV. The
    /// default is their order in the text.
    #[arg(long, value_name = "COLUMN")]
    sort: Option<String>,
    /// Show only N rows, those with the most time, with what is around them; 0 for all. The default is
    /// 30 in a table for people, and all in other formats.
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    #[command(flatten)]
    ranks: RankArgs,
    /// Width of the tables in characters, as for `report --width`.
    #[arg(long, value_name = "N")]
    width: Option<usize>,
}

/// `--format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum FormatArg {
    /// Trees that fit the terminal.
    #[default]
    #[value(alias = "text")]
    Table,
    /// One JSON document; docs/loops.md describes it.
    Json,
    /// RFC 4180 with one header line: the full table.
    Csv,
    /// The table of TVM's original lightweight profiling.
    LwpCsv,
}

pub fn main(args: Args) -> Result<ExitCode, Failure> {
    let files = args.table.iter().chain(&args.objects).chain(&args.sources);
    let needs = Needs { named_files: args.asm || args.source, ..Needs::files(files) };
    let mut profile = open(&args.profile, &needs)?;
    args.ranks.choose(&mut profile)?;
    let recorded = profile.loops().map_err(Failure::new)?;
    let format = match args.format {
        FormatArg::Table => LoopFormat::Of(Format::Table),
        FormatArg::Json => LoopFormat::Of(Format::Json),
        FormatArg::Csv => LoopFormat::Of(Format::Csv),
        FormatArg::LwpCsv => LoopFormat::LwpCsv,
    };
    let chosen = Chosen {
        format,
        raw: args.raw,
        filter: args.filter.as_deref(),
        sort: args.sort.as_deref(),
        top: args.top,
        width: args.width,
        verbose: is_verbose(),
        threads: args.threads,
        all: args.all,
        table: &args.table,
        asm: args.asm,
        source: args.source,
        objects: args.objects,
        sources: args.sources,
        only: args.only,
    };
    show::print(&profile, &recorded, chosen)
}
