//! The command line of `counterpoint`. This crate is linked into two programs: that of `main.rs`
//! has all commands, and that of `bin/counterpoint-start.rs` has only `run`.
//!
//! Each command has a module with `Args` and a `main` that returns the exit code. Data goes to
//! stdout, and messages go to stderr with the prefix `counterpoint:`. Both go through
//! `terminal.rs`, which determines how text from elsewhere (such as names in a profile) is shown on
//! a terminal. Exit codes: 0 means success, 1 that a check found something or that nothing matches,
//! 2 an error, and 3 that a rule of `diff --fail-if` holds. `run` passes on the exit status of its
//! program; it uses 127 if the program was not found, and 126 if the program cannot be executed.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod advice;
mod agents;
mod asker;
mod cc;
mod compiler;
mod completions;
mod config;
mod critical_path;
mod diff;
mod doctor;
mod ending;
mod env;
mod explain;
mod export;
mod failure;
mod hook;
mod inherited;
mod input;
mod list;
mod loops;
mod matching;
mod merge;
mod metrics;
#[cfg(test)]
#[path = "../tests/mutated/mod.rs"]
#[allow(clippy::unwrap_used, reason = "tests, which may panic")]
mod mutated;
mod naming;
mod object;
mod ops;
mod orphans;
mod output;
mod own;
mod page;
mod pager;
mod plugin;
mod plugin_events;
mod plugin_files;
mod plugin_kinds;
mod prepare;
mod python;
mod query;
mod recover;
mod report;
mod roofline;
mod roofs;
mod run;
mod rustc;
mod selection;
mod session;
mod stage;
mod stats;
mod temporary;
mod terminal;
mod trace;
mod view;
mod whole;
mod whole_program;

use std::process::ExitCode;

use clap::error::{ContextValue, ErrorKind};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

/// Show where compiled machine learning spends its time, and which hardware counter explains it.
#[derive(Parser)]
#[command(name = "counterpoint", bin_name = "counterpoint", version, max_term_width = 100)]
#[command(after_help = "--json is short for --format json, in every command that has it.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    manners: Manners,
}

/// Options of every command.
#[derive(Args, Default)]
#[command(next_help_heading = "Options of every command")]
struct Manners {
    /// When to use colours: auto, always or never
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "WHEN",
        hide_possible_values = true
    )]
    color: terminal::When,
    /// Print to the terminal directly, and not through a pager (COUNTERPOINT_PAGER, PAGER, the user's
    /// counterpoint.toml, or else less)
    #[arg(long, global = true)]
    no_pager: bool,
    /// Print only what was asked for, and what went wrong: no progress, and no line about what was made
    #[arg(short, long, global = true)]
    quiet: bool,
    /// Print also what is usually left out: details below tables, and each step with the time that it took
    #[arg(short, long, global = true)]
    verbose: bool,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Args),
    Report(report::Args),
    Ops(ops::Args),
    Loops(loops::Args),
    Cc(cc::Args),
    #[command(name = "c++")]
    Plus(cc::PlusArgs),
    Rustc(rustc::Args),
    Stats(stats::Args),
    Explain(explain::Args),
    CriticalPath(critical_path::Args),
    Diff(diff::Args),
    Export(export::Args),
    Merge(merge::Args),
    Query(query::Args),
    Trace(trace::Args),
    Recover(recover::Args),
    Roofline(roofline::Args),
    Plugin(plugin::Args),
    List(list::Args),
    Doctor(doctor::Args),
    Env(env::Args),
    Completions(completions::Args),
    Agents(agents::Args),
    #[command(hide = true)]
    RustcLink(rustc::LinkArgs),
    #[command(hide = true)]
    Session(session::Args),
    #[command(hide = true)]
    Hook(hook::Args),
}

/// Parses the command line and runs the command. `build` is the text that `--version` prints about
/// the build: commit, target, linker.
pub fn main(build: Option<&str>) -> ExitCode {
    view::rights::is_own_process();
    let typed: Vec<_> = std::env::args_os().collect();
    if let Some(outcome) = cc::alone(&typed).or_else(|| rustc::alone(&typed)) {
        return ended(outcome);
    }
    let run = run_alone().map(Command::Run);
    let parse = || {
        let mut whole = Cli::command().long_version(&*version(build).leak());
        let matches = whole.try_get_matches_from_mut(words())?;
        Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut whole))
    };
    let manners = Manners::default();
    let cli = match run.map_or_else(parse, |command| Ok(Cli { command, manners })) {
        Ok(cli) => cli,
        Err(error) => return usage(error),
    };
    // Two of the views do not read the configuration files here: `doctor` itself reports errors in
    // them, and `help agents` has no option with a default.
    let has_defaults = !matches!(cli.command, Command::Doctor(_) | Command::Agents(_));
    if cli.command.is_view()
        && has_defaults
        && let Err(failure) = config::load()
    {
        // The configuration files only change the appearance of a view, so the view is shown even
        // if one of the files has an error.
        terminal::say!("{}; no settings are used", failure.messages().join("; "));
    }
    // The variable `NO_COLOR` takes precedence over the configuration files.
    let asked = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let of_files = config::text(config::Key::Color).filter(|_| !asked);
    terminal::choose_colour(match (cli.manners.color, of_files) {
        (terminal::When::Auto, Some("always")) => terminal::When::Always,
        (terminal::When::Auto, Some("never")) => terminal::When::Never,
        (when, _) => when,
    });
    // The conflict of the two options is checked here, because the parser would report it only if
    // both were on the same side of the command's name.
    if cli.manners.quiet && cli.manners.verbose {
        return failure::Failure::new("--quiet and --verbose cannot be used together").report();
    }
    terminal::choose_words(cli.manners.quiet, cli.manners.verbose);
    // The pager must start before the command gives up the right to start programs.
    let pager = (cli.command.is_view() && !cli.manners.no_pager).then(pager::begin).flatten();
    let outcome = run_command(cli.command);
    terminal::progress::end_phase();
    let code = ended(outcome);
    match pager {
        Some(pager) => pager.end(code),
        None => code,
    }
}

/// Returns the arguments of this process. `help agents` becomes the command `agents`, because for
/// `help agents`, clap would show the options of that command. `--json` becomes `--format=json` if
/// [`short_for_json`] finds it.
fn words() -> Vec<std::ffi::OsString> {
    let mut words: Vec<_> = std::env::args_os().collect();
    if words.len() == 3 && words[1] == "help" && words[2] == "agents" {
        words.remove(1);
    }
    if let Some(place) = short_for_json(&words) {
        words[place] = "--format=json".into();
    }
    words
}

/// Returns the index of `--json` if the command has the option `--format`. Then `--json` is short
/// for `--format json`.
fn short_for_json(words: &[std::ffi::OsString]) -> Option<usize> {
    let own = words.iter().take_while(|word| *word != "--");
    let place = own.clone().position(|word| word == "--json")?;
    let mut command = Cli::command();
    for word in own.skip(1) {
        if let Some(part) = word.to_str().and_then(|word| command.find_subcommand(word)) {
            command = part.clone();
        }
    }
    let has_format = command.get_arguments().any(|option| option.get_long() == Some("format"));
    has_format.then_some(place)
}

impl Command {
    /// Whether the command prints text for people, which may be longer than a screen.
    fn is_view(&self) -> bool {
        match self {
            Self::Report(_) | Self::Ops(_) | Self::Stats(_) | Self::Diff(_) => true,
            Self::List(_) | Self::Doctor(_) | Self::Agents(_) => true,
            Self::CriticalPath(_) | Self::Explain(_) => true,
            Self::Loops(args) => args.is_view(),
            _ => false,
        }
    }
}

/// Returns what `--version` prints after the name. `-V` prints only its first line.
fn version(build: Option<&str>) -> String {
    let kind = if cfg!(debug_assertions) { "with debug assertions" } else { "optimised" };
    let build = build.unwrap_or("by cargo, for this machine");
    format!(
        "{}\nbuilt: {build}, {kind}\nprofiles: {}\nhosts: IREE, TVM, PyTorch, programs with \
         instrumented loops, and hosts that announce themselves",
        env!("CARGO_PKG_VERSION"),
        profile::manifest::MANIFEST_SCHEMA,
    )
}

/// The main function of the small program (`bin/counterpoint-start.rs`). It runs only `run`. For
/// any other command, and for help and mistyped options of `run`, the program with all commands
/// replaces this process.
pub fn start() -> ExitCode {
    match run_alone() {
        Some(args) => ended(run::main::<false>(args)),
        None => whole_program::become_it().report(),
    }
}

fn ended(outcome: Result<ExitCode, failure::Failure>) -> ExitCode {
    match outcome {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

fn run_command(command: Command) -> Result<ExitCode, failure::Failure> {
    match command {
        Command::Run(args) => run::main::<true>(args),
        Command::Report(args) => report::main(args),
        Command::Ops(args) => ops::main(args),
        Command::Loops(args) => loops::main(args),
        Command::Cc(args) => cc::main(args),
        Command::Plus(args) => cc::plus_main(args),
        Command::Rustc(args) => rustc::main(args),
        Command::RustcLink(args) => rustc::link_main(args),
        Command::Stats(args) => stats::main(args),
        Command::Explain(args) => explain::main(args),
        Command::CriticalPath(args) => critical_path::main(args),
        Command::Diff(args) => diff::main(args),
        Command::Export(args) => export::main(args),
        Command::Merge(args) => merge::main(args),
        Command::Query(args) => query::main(args),
        Command::Trace(args) => trace::main(args),
        Command::Recover(args) => recover::main(args),
        Command::Roofline(args) => roofline::main(args),
        Command::Plugin(args) => plugin::main(args),
        Command::List(args) => list::main(args),
        Command::Doctor(args) => doctor::main(args),
        Command::Env(args) => env::main(args),
        Command::Completions(args) => completions::main(&args),
        Command::Agents(args) => agents::main(&args),
        Command::Session(args) => session::main(args),
        Command::Hook(args) => hook::main(args),
    }
}

/// Returns the arguments of `run`, if the command is `run` and its arguments are valid. The parser
/// for all commands is not made, because that takes 0.1 ms and would delay the user's program.
fn run_alone() -> Option<run::Args> {
    let mut words = std::env::args_os().skip(1).peekable();
    if words.peek()? != "run" {
        return None;
    }
    let alone = run::Args::augment_args(clap::Command::new("run"));
    let matches = alone.try_get_matches_from(words).ok()?;
    run::Args::from_arg_matches(&matches).ok()
}

/// Whether the command is `run` and no argument is `--`, which must stand before the program to
/// profile.
fn is_run_without_dashes() -> bool {
    let mut words = std::env::args_os().skip(1);
    words.next().is_some_and(|word| word == "run") && words.all(|word| word != "--")
}

/// Prints help, the version, or an error message about the arguments. An error message contains the
/// user's arguments, so hidden characters in it are replaced, and it has no colours.
fn usage(mut error: clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => error.exit(),
        _ => {
            // A line break inside an argument must not look like a line break of the message.
            let typed: Vec<_> =
                error.context().map(|(kind, value)| (kind, value.clone())).collect();
            for (kind, value) in typed {
                let text = |text: String| terminal::visible(&text).into_owned();
                let value = match value {
                    ContextValue::String(typed) => ContextValue::String(text(typed)),
                    ContextValue::Strings(typed) => {
                        ContextValue::Strings(typed.into_iter().map(text).collect())
                    }
                    other => other,
                };
                error.insert(kind, value);
            }
            terminal::say_lines(error.render().to_string().trim_end());
            if error.kind() == ErrorKind::UnknownArgument && is_run_without_dashes() {
                terminal::say!("hint: `--` goes before the program: counterpoint run -- PROGRAM …");
            }
            ExitCode::from(2)
        }
    }
}
