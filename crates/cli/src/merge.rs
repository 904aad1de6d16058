//! `counterpoint merge`: makes one profile of several profiles, or one dataset of several datasets.
//!
//! ```text
//!  A.cpt ──┐  copied as they are    .counterpoint-….cpt.tmp/merged/1, …
//!  B.cpt ──┼──────────────────────►                        manifest.json, checked by opening it
//!  C.cpt ──┘                                │ renamed
//!                                           ▼
//!                                         OUT.cpt
//! ```
//!
//! The contents of the profiles may come from somebody else. Therefore the profiles are read and
//! copied by a thread that first gives up all rights that it does not need. [`profile::merged`]
//! describes how the result is read.

mod datasets;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use analysis::Counts;
use profile::manifest::{Manifest, Origin};
use profile::merged::{AlignedBy, MERGED_NAME, Member, copy, unite};
use profile::safe_dir::Dir;
use profile::{Profile, ProfileId, is_over};

use crate::failure::Failure;
use crate::input;
use crate::prepare::{DirectoryLock, make_way};
use crate::stage::Stage;
use crate::terminal::{Kind, note, progress, say, stdout, visible};
use crate::view::head::places;
use crate::view::open::explain;
use crate::view::rights::{Needs, confine};
use crate::view::units::plural;
use crate::whole::directory;

/// Merge the profiles of several ranks, programs or machines into one; or several datasets.
///
/// Every view then reads them as one profile: `report --by rank` compares ranks, and `trace export`
/// gives each rank its own rows. Nothing is lost: processes, threads, counters, ranks, tracks, events
/// of plugins, passes and losses stay as they were recorded. Times are on one clock; a line for each
/// profile says how it was aligned and how exact that is. A profile that was merged can be merged
/// again. docs/traces.md has the details.
///
/// Datasets (`export --dataset`) are merged into a dataset with few, large files, which has each
/// recording once. If the output is a dataset already, it is merged with the others and replaced in one
/// step. docs/datasets.md has the details.
#[derive(clap::Args)]
pub struct Args {
    /// Profile directories, or datasets. One that is given twice, or is already in a merged one, is used
    /// once.
    #[arg(required = true, value_name = "PROFILE")]
    profiles: Vec<PathBuf>,
    /// Profile directory to create. An existing profile is moved to DIR.old.
    #[arg(short, long, value_name = "DIR", value_parser = input::profile())]
    output: PathBuf,
}

pub fn main(args: Args) -> Result<ExitCode, Failure> {
    let output = std::path::absolute(&args.output)
        .map_err(|e| Failure::new(format!("output {}: {e}", args.output.display())))?;
    let output: PathBuf = output.components().collect();
    let is_dataset = |path: &PathBuf| ::dataset::open::is_dataset(path);
    match args.profiles.iter().filter(|path| is_dataset(path)).count() {
        0 => {}
        all if all == args.profiles.len() => return datasets::main(&args.profiles, &output),
        _ => {
            return Err(Failure::new("merge: some inputs are profiles, and some are datasets")
                .hint("add each profile to a dataset with `counterpoint export --dataset DIR`"));
        }
    }
    // Open the directories of all profiles first, so that nothing is created if one of them cannot
    // be opened.
    let mut inputs = Vec::new();
    for path in &args.profiles {
        let root =
            Dir::open(path).map_err(|e| explain(path, Manifest::read(path).err().unwrap_or(e)))?;
        let same = |path: &Path| path.canonicalize().ok();
        if same(path).is_some_and(|path| same(&output) == Some(path)) {
            let why = format!("output {}: it is also one of the inputs", output.display());
            return Err(Failure::new(why).hint("choose another place with -o DIR"));
        }
        inputs.push((path.as_path(), root));
    }
    let failed = |e| Failure::new(format!("create {}: {e}", output.display()));
    let stage = Stage::create(directory(&output)).map_err(failed)?;
    // Rights are given up in a new thread, so the other threads keep their rights.
    let done = std::thread::scope(|scope| {
        let merging = scope.spawn(|| {
            let reads = args.profiles.iter().map(PathBuf::as_path).collect();
            confine(None, &Needs { reads, made: Some(stage.path()), ..Needs::default() });
            merge(&inputs, stage.path())
        });
        merging.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    let lock = DirectoryLock::wait(&output);
    make_way(&output, &lock)?;
    fs::rename(stage.path(), &output).map_err(failed)?;
    drop(lock);
    let mut out = stdout(Kind::People);
    for line in done.lines {
        writeln!(out, "{}", visible(&line))?;
    }
    note!("{} in {}", done.contents, args.output.display());
    Ok(ExitCode::SUCCESS)
}

struct Done {
    /// For each profile, how its clock was aligned.
    lines: Vec<String>,
    contents: String,
}

struct Found {
    name: String,
    root: Dir,
    profile: Profile,
}

/// Copies the profiles into `stage`, and writes the manifest that makes `stage` a profile.
fn merge(inputs: &[(&Path, Dir)], stage: &Path) -> Result<Done, Failure> {
    progress::phase(progress::step("reading the profiles"));
    let found = find(inputs)?;
    let manifest = manifest(&found)?;
    let root = Dir::open(stage).map_err(Failure::new)?;
    let all = root.make_dir(MERGED_NAME).map_err(Failure::new)?;
    let copying = progress::step_of("copying", found.len() as u64, "profiles");
    for (number, one) in (1..).zip(&found) {
        let place = all.make_dir(&number.to_string()).map_err(Failure::new)?;
        copy(&one.root, &place).map_err(Failure::new)?;
        copying.done(1);
    }
    drop(copying);
    manifest.write_in(&root).map_err(Failure::new)?;
    // Opening the merged profile also checks its files.
    let merged = Profile::open_at(&root).map_err(Failure::new)?;
    let before: u64 = found.iter().map(|one| one.profile.calls()).sum();
    if merged.calls() != before {
        let why = format!("merged {} of {before} calls", merged.calls());
        return Err(Failure::new(why).hint("a profile was changed meanwhile; merge them again"));
    }
    let lines = merged.members.iter().zip(&found).map(|(member, one)| in_words(member, one));
    let lines = lines.collect();
    let threads = merged.processes.iter().enumerate();
    let threads =
        threads.flat_map(|(at, process)| (0..process.threads.len()).map(move |n| (at, n)));
    let contents = format!(
        "{}: {} in {}",
        plural(found.len() as u128, "profile"),
        plural(before.into(), "call"),
        places(Counts::of(&merged, threads))
    );
    Ok(Done { lines, contents })
}

/// Opens the profiles. A profile that was itself merged is replaced by its members. A profile that
/// occurs twice (with the same id) is used once.
fn find(inputs: &[(&Path, Dir)]) -> Result<Vec<Found>, Failure> {
    let mut found: Vec<Found> = Vec::new();
    let mut known: HashMap<String, String> = HashMap::new();
    for (path, root) in inputs {
        let manifest = Manifest::read_in(root).map_err(|e| explain(path, e))?;
        let own = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let own = own.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let mut roots = Vec::new();
        if manifest.merged.is_empty() {
            roots.push((own, root.clone()));
        }
        for (number, name) in (1..).zip(&manifest.merged) {
            let number: usize = number;
            let member = root.dir(MERGED_NAME).and_then(|all| all.dir(number.to_string()));
            roots.push((name.clone(), member.map_err(|e| explain(path, e))?));
        }
        for (name, root) in roots {
            let manifest = Manifest::read_in(&root).map_err(|e| explain(path, e))?;
            if let Some(known) = known.get(&manifest.id).filter(|_| !manifest.id.is_empty()) {
                say!("{}: {known} is the same profile, which is used once", path.display());
                continue;
            }
            known.insert(manifest.id.clone(), path.display().to_string());
            let profile = fit(path, &name, &root, &manifest)?;
            // Each profile needs a different name, because profiles without ranks are distinguished
            // by name.
            let again = (2..).map(|n: usize| format!("{name} ({n})"));
            let mut names = std::iter::once(name.clone()).chain(again);
            let is_free = |new: &String| found.iter().all(|other| other.name != *new);
            let name = names.find(is_free).unwrap_or(name);
            found.push(Found { name, root, profile });
        }
    }
    Ok(found)
}

/// Opens a profile. Returns an error if the profile cannot be merged.
fn fit(path: &Path, name: &str, root: &Dir, manifest: &Manifest) -> Result<Profile, Failure> {
    let refuse = |why: &str, hint: &str| {
        Err(Failure::new(format!("{}: {why}", path.display())).hint(hint.to_owned()))
    };
    if manifest.origin == Origin::Import {
        return refuse(
            &format!("{name} was imported from a trace of another program"),
            "merge the traces with `counterpoint trace merge`, or import them together",
        );
    }
    let profile = Profile::open_at(root).map_err(|e| explain(path, e))?;
    let alive = profile.processes.iter().any(|process| process.alive);
    if manifest.pool.is_some() || alive || !is_over(manifest) || profile.has_pools() {
        return refuse(
            "its recording is not over, or a part of it is still in memory",
            "wait until the program has ended, or run `counterpoint recover`",
        );
    }
    if profile.processes.iter().any(profile::Process::has_events) {
        return refuse(
            "events of its plugins are not yet in the profile",
            "`counterpoint recover` adds them",
        );
    }
    Ok(profile)
}

/// Returns the manifest of the merged profile, or an error if the profiles cannot be merged with
/// each other.
fn manifest(found: &[Found]) -> Result<Manifest, Failure> {
    let Some(first) = found.first() else {
        return Err(Failure::new("merge: there is no profile"));
    };
    let refuse = |why: String, hint: &str| Err(Failure::new(why).hint(hint.to_owned()));
    let of = |one: &Found| one.profile.manifest.clone();
    let start = of(first);
    for one in &found[1..] {
        let next = of(one);
        let (a, b) = (&first.name, &one.name);
        if start.budget.is_some() != next.budget.is_some() {
            let (with, without) = if start.budget.is_some() { (a, b) } else { (b, a) };
            return refuse(
                format!("{with} is a sample of calls (--budget), and {without} has all of them"),
                "record all of them in the same way",
            );
        }
        if start.multiplex != next.multiplex {
            let (with, without) = if start.multiplex { (a, b) } else { (b, a) };
            return refuse(
                format!(
                    "counters of {with} took turns (--multiplex), and those of {without} did not"
                ),
                "record all of them in the same way",
            );
        }
        if start.passes != next.passes {
            return refuse(
                format!("{a} has {} passes, and {b} has {}", start.passes, next.passes),
                "record all of them with the same counters",
            );
        }
    }
    let mut ranks: BTreeMap<u32, &Found> = BTreeMap::new();
    for one in found {
        for rank in one.profile.known_ranks() {
            if let Some(other) = ranks.insert(rank, one).filter(|other| !std::ptr::eq(*other, one))
            {
                return refuse(
                    format!("{} and {} both have rank {rank}", other.name, one.name),
                    "a merged profile has each rank once; profiles of several runs are compared, \
                     not merged",
                );
            }
        }
    }
    let counters: Vec<_> =
        found.iter().map(|one| one.profile.manifest.counters.as_slice()).collect();
    if unite(&counters).is_none() {
        return refuse(
            "the profiles have too many counters together, or the same counters in groups that \
             contradict each other"
                .to_owned(),
            "record all of them with the same -e LIST",
        );
    }
    let id = ProfileId::random().map_err(|e| Failure::new(format!("random number: {e}")))?;
    let mut all = Manifest {
        id: id.to_string(),
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
        merged: found.iter().map(|one| one.name.clone()).collect(),
        created_unix_ns: found.iter().map(|one| of(one).created_unix_ns).min().unwrap_or(0),
        // These fields belong to a single recording, and each member keeps them in its own
        // manifest.
        counters: Vec::new(),
        snapshots: Vec::new(),
        watch: Vec::new(),
        passes: 0,
        rank: None,
        world_size: None,
        run_cpu_ns: None,
        ..start
    };
    let failed = found.iter().map(of).find(|one| one.exit.is_some_and(|exit| exit.code != Some(0)));
    all.exit = failed.map_or(all.exit, |failed| failed.exit);
    all.metrics.clear();
    let mut hosts: Vec<String> = Vec::new();
    for one in found {
        let manifest = &one.profile.manifest;
        let new =
            manifest.metrics.iter().filter(|new| all.metrics.iter().all(|m| m.name != new.name));
        let new: Vec<_> = new.cloned().collect();
        all.metrics.extend(new);
        for plugin in &manifest.plugins {
            if !all.plugins.contains(plugin) {
                all.plugins.push(plugin.clone());
            }
        }
        if !hosts.contains(&manifest.host) {
            hosts.push(manifest.host.clone());
        }
    }
    all.host = hosts.join(", ");
    all.notes = notes(found);
    if found.iter().any(|one| one.profile.manifest.boot_id != all.boot_id) {
        all.boot_id.clear();
        all.notes.push(
            "the profiles are of several machines, or of several boots of one: their times are \
             aligned by the machines' clocks (CLOCK_REALTIME), and it is not known how well these \
             agree"
                .to_owned(),
        );
    }
    Ok(all)
}

/// Joins the notes. If only some of the profiles have a note, the ranks or names of these profiles
/// are put before the note.
fn notes(found: &[Found]) -> Vec<String> {
    let mut all: Vec<(&str, Vec<String>)> = Vec::new();
    for one in found {
        let label = one.profile.label_of_recording().unwrap_or_else(|| one.name.clone());
        for note in &one.profile.manifest.notes {
            match all.iter_mut().find(|(known, _)| known == note) {
                Some((_, labels)) if labels.last() == Some(&label) => {}
                Some((_, labels)) => labels.push(label.clone()),
                None => all.push((note, vec![label.clone()])),
            }
        }
    }
    let text = |(note, labels): (&str, Vec<String>)| match labels.len() == found.len() {
        true => note.to_owned(),
        false => format!("{}: {note}", labels.join(", ")),
    };
    all.into_iter().map(text).collect()
}

fn in_words(member: &Member, found: &Found) -> String {
    let rank = found.profile.label_of_recording();
    let host = Some(&member.host).filter(|host| !host.is_empty());
    let who = [rank.map(|rank| format!(" {rank}")), host.map(|host| format!(" on {host}"))];
    let who: String = who.into_iter().flatten().collect();
    let how = match (member.aligned.by, member.aligned.uncertainty_ns) {
        (AlignedBy::First, _) => "the others are aligned to it".to_owned(),
        (AlignedBy::SameClock, _) => "on the same clock".to_owned(),
        (AlignedBy::Monotonic, Some(ns)) => {
            format!("aligned ± {ns:.0} ns, by snapshots of one machine's clocks")
        }
        (AlignedBy::Monotonic, None) => "aligned by one machine's clock".to_owned(),
        (AlignedBy::Realtime, _) => {
            "aligned by time of day; it is not known how well the machines' clocks agree".to_owned()
        }
    };
    format!("{}:{who}{} {how}", member.name, if who.is_empty() { "" } else { ";" })
}
