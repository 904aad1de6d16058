//! `counterpoint explain`: shows what is more common in an op's slow calls than in its other ones.
//!
//! ```text
//!  open ─► summarize: which op has the most time ─► analysis::explain ─► sentences ─┬─► text
//!                                                                                   ├─► markdown
//!                                                                                   └─► json
//! ```

mod json;

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use analysis::{Explained, Fired, Key, Options, Summary, explain, summarize};
use clap::ValueEnum;
use profile::Profile;

use crate::failure::Failure;
use crate::input;
use crate::matching;
use crate::terminal::{self, known_width, say, stdout, visible};
use crate::view::explained::{head, sentences};
use crate::view::held_back::{advice, finding, fired};
use crate::view::labels::{labels, op_of};
use crate::view::losses;
use crate::view::open::open;
use crate::view::ranks::RankArgs;
use crate::view::rights::Needs;
use crate::view::units::plural;
use crate::view::wrap::{PROSE_WIDTH, wrapped};

/// Say which recorded variables go with the slow calls of an op.
///
/// First calls, the time in the run, thread, CPU, workgroup, arguments, each counter, moves to other
/// CPUs, and what other threads did meanwhile are compared with the durations, and with what chance
/// would have found. What stands out is said with its size; if nothing does, that is said. What goes
/// with slow calls need not be why they are slow. Without an op, what may hold the whole program back
/// is listed, too.
#[derive(clap::Args)]
pub struct Args {
    /// Name of the op (`*` matches any text, `?` any character), and the profile directory, in any
    /// order. With one word, it is the profile if there is such a directory, and otherwise the op. The default is the
    /// op with the most time, and `counterpoint.cpt`.
    #[arg(value_names = ["OP", "PROFILE"], num_args = 0..=2, value_parser = input::profile())]
    words: Vec<PathBuf>,
    /// Name of the op, written as for `stats`. The only word is the profile then.
    #[arg(long, alias = "filter", value_name = "GLOB")]
    op: Option<String>,
    #[command(flatten)]
    ranks: RankArgs,
    /// Explain only the N ops with the most time of those that match; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 3)]
    top: usize,
    /// Compare durations as they were recorded. Without this option, what the recorder added is
    /// subtracted.
    #[arg(long)]
    raw: bool,
    /// Width of the text in characters, as for `report --width`.
    #[arg(long, value_name = "N")]
    width: Option<usize>,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: ExplainFormat,
}

/// `--format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ExplainFormat {
    /// Text for people.
    #[default]
    #[value(alias = "table")]
    Text,
    /// One JSON document; docs/schema.md describes it.
    Json,
    /// Markdown, for a pull request or an issue.
    Markdown,
}

const NO_RULE: &str =
    "None of the rules about what may hold a program back holds (docs/explain.md lists them).";

impl From<ExplainFormat> for terminal::Kind {
    fn from(format: ExplainFormat) -> Self {
        match format {
            ExplainFormat::Text | ExplainFormat::Markdown => Self::People,
            ExplainFormat::Json => Self::Json,
        }
    }
}

struct View<'a> {
    profile: &'a Profile,
    summary: &'a Summary,
    /// The user's pattern for the names of ops. `None` stands for the op with the most time.
    glob: Option<&'a str>,
    ops: &'a [Explained],
    /// Number of ops that match `glob` but are not shown; 0 without a `glob`.
    left_out: usize,
    /// The rules (docs/explain.md) that hold for this profile. The list is empty if the user asked
    /// for an op.
    rules: Vec<Fired>,
    raw: bool,
}

/// Returns the pattern for the op and the path of the profile, from the words of the command line
/// and `--op`.
fn words<'a>(
    words: &'a [PathBuf],
    op: Option<&'a str>,
) -> Result<(Option<&'a str>, PathBuf), Failure> {
    let default = || PathBuf::from("counterpoint.cpt");
    Ok(match (words, op) {
        ([], op) => (op, default()),
        ([profile], Some(op)) => (Some(op), profile.clone()),
        ([one], None) if one.is_dir() => (None, one.clone()),
        ([one], None) => (one.to_str(), default()),
        ([profile, op, ..], None) if profile.is_dir() && !op.is_dir() => {
            (op.to_str(), profile.clone())
        }
        ([op, profile, ..], None) => (op.to_str(), profile.clone()),
        ([op, _, ..], Some(_)) => {
            let typed = visible(&op.to_string_lossy()).into_owned();
            return Err(Failure::new(format!(
                "explain: the op is given twice, as {typed} and --op"
            ))
            .hint("leave one of them out"));
        }
    })
}

pub fn main(args: Args) -> Result<ExitCode, Failure> {
    let (glob, path) = words(&args.words, args.op.as_deref())?;
    let looks_like_path = |glob: &str| glob.contains('/') || Path::new(glob).extension().is_some();
    if let Some(glob) =
        glob.filter(|glob| args.op.is_none() && args.words.len() == 1 && looks_like_path(glob))
        && !path.exists()
    {
        return Err(Failure::new(format!("open {}: there is no such profile", visible(glob)))
            .hint("explain OP PROFILE names the op first"));
    }
    let mut profile = open(&path, &Needs::default())?;
    args.ranks.choose(&mut profile)?;
    let summary = summarize(&profile, &Options { raw: args.raw, gaps: true, ..Options::default() });
    let mut ops = ops(&profile, &summary, glob);
    if ops.is_empty() {
        match glob {
            Some(glob) => matching::no_op(&profile, "explain", glob),
            None => say!("the profile has no timed call that belongs to a thread"),
        }
        return Ok(ExitCode::from(1));
    }
    let top = match (glob, args.top) {
        (None, _) => 1,
        (_, 0) => ops.len(),
        (_, top) => top,
    };
    let left_out = ops.len().saturating_sub(top);
    ops.truncate(top);
    let found = explain(&profile, &ops, summary.raw, 0);
    let view = View {
        profile: &profile,
        summary: &summary,
        glob,
        ops: &found,
        left_out: if glob.is_some() { left_out } else { 0 },
        rules: if glob.is_none() { fired(&profile, &summary) } else { Vec::new() },
        raw: args.raw,
    };
    let mut out = BufWriter::new(stdout(args.format.into()));
    match args.format {
        ExplainFormat::Text => {
            let width = args.width.or_else(known_width).unwrap_or(PROSE_WIDTH).max(40);
            text(&mut out, &view, width)?;
        }
        ExplainFormat::Markdown => markdown(&mut out, &view)?,
        ExplainFormat::Json => json::print(&mut out, &view)?,
    }
    out.flush()?;
    if args.format != ExplainFormat::Json {
        losses::say(&summary.losses);
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the ops whose calls belong to threads, or those of them that match `glob` if it is
/// given. For each op, the list contains the keys of the op's rows in `summary`. The op with the
/// most self time comes first. Rows that differ only in their arguments are one op.
fn ops(profile: &Profile, summary: &Summary, glob: Option<&str>) -> Vec<Vec<Key>> {
    let mut groups: BTreeMap<(String, String), (f64, Vec<Key>)> = BTreeMap::new();
    for row in summary.rows.iter().filter(|row| !row.key.is_apart(profile)) {
        let label = labels(profile, &[row.key]).concat();
        let op = op_of(profile, row.key);
        let is_asked = |glob: &str| match op {
            // Reports print labels such as `aten::mm (task)`, so the pattern may also match the
            // label.
            Some(op) => {
                profile::demangle::matches(glob, &op.name) || model::glob::matches(glob, &label)
            }
            None => model::glob::matches(glob, &label),
        };
        if !glob.is_none_or(is_asked) {
            continue;
        }
        let library = op.map_or(String::new(), |op| op.library.to_string());
        let group = groups.entry((label, library)).or_default();
        group.0 += row.own.value;
        group.1.push(row.key);
    }
    let mut groups: Vec<(f64, Vec<Key>)> = groups.into_values().collect();
    groups.sort_by(|a, b| b.0.total_cmp(&a.0));
    groups.into_iter().map(|(_, keys)| keys).collect()
}

impl View<'_> {
    /// Returns the name of an op. The name does not show arguments, because the op's rows may have
    /// different arguments.
    fn name(&self, explained: &Explained) -> String {
        labels(self.profile, &explained.keys[..1]).concat()
    }

    fn ending(&self) -> Option<String> {
        let found = self.ops.iter().any(|one| !one.answer.findings.is_empty());
        found.then(|| "What goes with slow calls need not be why they are slow.".to_owned())
    }

    fn further(&self) -> Option<String> {
        let ops = plural(self.left_out as u128, "further op");
        (self.left_out > 0).then(|| format!("{ops} with less time match (--top 0)"))
    }

    fn drift(explained: &Explained) -> Option<&'static str> {
        let others = explained.answer.findings.len() > 1;
        (explained.answer.drifts && others).then_some(
            "because calls changed over the run, everything else was compared among calls of the same sixteenth of the run",
        )
    }
}

fn text(out: &mut impl Write, view: &View<'_>, width: usize) -> std::io::Result<()> {
    for explained in view.ops {
        let most = if view.glob.is_none() { " (the op with the most time)" } else { "" };
        writeln!(out, "{}{most}", visible(&view.name(explained)))?;
        wrapped(out, "  ", &head(explained), width)?;
        let drift = View::drift(explained).map(str::to_owned);
        for sentence in sentences(view.profile, explained).into_iter().chain(drift) {
            wrapped(out, "  - ", &sentence, width)?;
        }
        writeln!(out)?;
    }
    let lines: Vec<String> = view.further().into_iter().chain(view.ending()).collect();
    for line in &lines {
        wrapped(out, "", line, width)?;
    }
    if !lines.is_empty() && !view.rules.is_empty() {
        writeln!(out)?;
    }
    if view.glob.is_none() && view.rules.is_empty() {
        wrapped(out, "", NO_RULE, width)?;
    }
    for (at, one) in view.rules.iter().enumerate() {
        if at == 0 {
            writeln!(out, "What may hold the program back:")?;
        }
        wrapped(out, "  - ", &finding(view.profile, one), width)?;
        wrapped(out, "    try: ", advice(&one.rule), width)?;
    }
    Ok(())
}

fn markdown(out: &mut impl Write, view: &View<'_>) -> std::io::Result<()> {
    use crate::view::markdown::plain;
    for explained in view.ops {
        let most = if view.glob.is_none() { " (the op with the most time)" } else { "" };
        writeln!(out, "**{}**{most}: {}", plain(&view.name(explained)), plain(&head(explained)))?;
        writeln!(out)?;
        let drift = View::drift(explained).map(str::to_owned);
        for sentence in sentences(view.profile, explained).into_iter().chain(drift) {
            writeln!(out, "- {}", plain(&sentence))?;
        }
        writeln!(out)?;
    }
    for line in view.further().into_iter().chain(view.ending()) {
        writeln!(out, "{line}")?;
    }
    if view.glob.is_none() && view.rules.is_empty() {
        writeln!(out, "{NO_RULE}")?;
    }
    for (at, one) in view.rules.iter().enumerate() {
        if at == 0 {
            writeln!(out, "\nWhat may hold the program back:\n")?;
        }
        writeln!(out, "- {} (try: {})", plain(&finding(view.profile, one)), advice(&one.rule))?;
    }
    Ok(())
}
