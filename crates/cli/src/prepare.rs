//! What `run` and `env` have in common: everything is resolved and validated, and the profile is
//! made, before any program starts.

use std::ffi::OsString;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use counters::devices::Devices;
use counters::machine::Machine;
use counters::names::Resolver;
use counters::plan::by_scope;
use counters::{Plan, check, defaults, own};
use model::{Counter, Loss, Scope, Source};
use profile::ProfileId;
use profile::collect::{Closing, collect, is_over};
use profile::live::{ProcessId, boot_id};
use profile::manifest::{CounterInfo, Manifest, MetricInfo, Origin, State, SwitchCost};
use profile::pools::{POOL_NAME, directory_name, owner, places, user};
use record::meta::PARTS_NAME;
use record::run_file::{RUN_FILE_NAME, RUN_FILE_VARIABLE};
use record::{ClockKind, RunFile, Snapshot};

use crate::failure::Failure;
use crate::metrics::{MetricArgs, before_run};
use crate::naming::Naming;
use crate::terminal::say;

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
    /// Profile directory to create. An existing profile is moved to `DIR.old`
    #[arg(short, long, value_name = "DIR", default_value = "counterpoint.cpt",
          value_parser = crate::input::profile())]
    pub output: PathBuf,
    /// Record only functions whose name matches. `*` matches any text, `?` any character.
    /// Repeatable
    #[arg(long, value_name = "GLOB")]
    pub filter: Vec<String>,
    /// Also read counters around the book-keeping ops of TVM's virtual machine (`vm.builtin.…`).
    /// By default they are only timed, and their counts are part of whatever called them
    #[arg(long)]
    pub bookkeeping: bool,
    #[command(flatten)]
    pub metrics: MetricArgs,
}

/// What is sampled beside the program, by the command that stays with it.
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

/// From 1 ms to an hour.
fn interval(text: &str) -> Result<Duration, String> {
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
/// The variable that has the dynamic linker load the agent.
pub const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

/// A profile that is ready to be recorded into.
pub struct Prepared {
    /// Its directory, absolute.
    pub directory: PathBuf,
    /// Its clock.
    pub clock: ClockKind,
    /// What is sampled beside the program.
    pub beside: Vec<Counter>,
    /// Environment variables that bring the agent into a program.
    pub variables: Vec<(&'static str, OsString)>,
    pool_directory: PathBuf,
    /// The pool, and the profile's directory: while we live, both keep their inodes, which some
    /// file systems make up anew for a file that nobody has open.
    #[expect(dead_code, reason = "only held")]
    held: [fs::File; 2],
}

/// What is counted, chosen and tried.
pub struct Choice {
    /// By the recorder.
    pub counters: Vec<Counter>,
    /// Beside the program.
    pub beside: Vec<Counter>,
    /// About defaults that do not work.
    pub notes: Vec<String>,
    /// What to compute of the counters.
    pub metrics: Vec<MetricInfo>,
}

/// Makes the profile. Leaves nothing behind when it fails. `system` names counters to sample.
pub fn prepare(
    recording: &Recording,
    system: &[String],
    origin: Origin,
    command: &[String],
) -> Result<Prepared, Failure> {
    let machine = Machine::here();
    let resolver = recording.naming.resolver(&machine);
    let Chosen { threads: counters, packages: mut beside, notes } =
        counters_of(recording, &resolver, &machine)?;
    beside.extend(system_wide(system, beside.len() as u16, &resolver, &machine)?);
    if let (Some(counter), true) = (beside.first(), origin != Origin::Run) {
        return Err(Failure::new(format!("{} counts a whole package, not a thread", counter.name))
            .hint("`counterpoint run` samples it beside the program"));
    }
    let infos: Vec<CounterInfo> = counters.iter().map(Into::into).collect();
    let metrics = before_run(&recording.metrics, &infos)?;
    let mut choice = Choice { counters, beside, notes, metrics };
    if recording.events.is_empty() && choice.counters.is_empty() {
        choice.notes.extend(ask_for_counters(origin, &resolver, &machine));
    }
    make(recording, choice, &place(recording)?, origin, command)
}

/// How to ask for what can be counted here all the same. `None` where nothing can, or where a
/// variable says that nothing shall be.
pub fn ask_for_counters(origin: Origin, resolver: &Resolver, machine: &Machine) -> Option<String> {
    let kinds = defaults::asked(&|_| None);
    let named =
        kinds.iter().flat_map(|kind| kind.variables()).any(|v| std::env::var_os(v).is_some());
    let list = defaults::SOFTWARE_COUNTERS;
    let works =
        || check::check(&resolver.resolve(list).ok()?, machine).problem().is_none().then_some(());
    (!named).then(works)??;
    Some(match origin {
        Origin::Session => format!(
            "to count in each call, which makes calls slower, name counters: counters={:?}",
            list.split(',').collect::<Vec<_>>()
        ),
        _ => format!("to count in each call, which makes calls slower, name counters: -e {list}"),
    })
}

/// What the counters will add to each context switch of the program's threads; measured here, in
/// 5 ms, so that the program does not pay for it.
fn switch_cost(counters: &[Counter]) -> Option<SwitchCost> {
    let plan = Plan::new(counters.to_vec()).ok()?;
    counters::switches::measure(&plan).map(|found| SwitchCost {
        switches: found.switches,
        bare_ns: found.bare_ns,
        added_ns: found.added_ns,
        added_range_ns: found.added_range_ns,
    })
}

/// Where the profile goes, absolute. By components: `x.cpt/` is `x.cpt`.
pub fn place(recording: &Recording) -> Result<PathBuf, Failure> {
    let absolute = std::path::absolute(&recording.output)
        .map_err(|e| Failure::new(format!("output {}: {e}", recording.output.display())))?;
    let directory: PathBuf = absolute.components().collect();
    // A link stays where it is: what it points to is replaced.
    match fs::symlink_metadata(&directory) {
        // In a directory that everybody may write to, anybody can have put a link there.
        Ok(found) if found.is_symlink() && ![user(), 0].contains(&found.uid()) => {
            Err(Failure::new(format!(
                "output {}: is a link that belongs to another user",
                directory.display()
            ))
            .hint("choose another place with -o DIR"))
        }
        Ok(found) if found.is_symlink() => fs::canonicalize(&directory)
            .map_err(|e| Failure::new(format!("output {}: {e}", directory.display()))),
        _ => Ok(directory),
    }
}

/// The clock of this machine's recordings.
fn choose_clock(machine: &Machine) -> ClockKind {
    let clocksource = machine
        .read_trimmed("sys/devices/system/clocksource/clocksource0/current_clocksource")
        .unwrap_or_default();
    ClockKind::choose(&clocksource)
}

/// A manifest with everything that is known of the machine and the command.
pub fn manifest(
    recording: &Recording,
    origin: Origin,
    command: &[String],
    snapshots: &[Snapshot],
) -> Manifest {
    let machine = Machine::here();
    Manifest {
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
        origin,
        state: State::Recording,
        created_unix_ns: snapshots.first().map_or(0, |s| s.realtime_ns),
        host: machine.read_trimmed("proc/sys/kernel/hostname").unwrap_or_default(),
        kernel: machine.read_trimmed("proc/sys/kernel/osrelease").unwrap_or_default(),
        boot_id: boot_id(),
        cpu_model: machine.field("proc/cpuinfo", "model name").unwrap_or_default(),
        logical_cpus: std::thread::available_parallelism().map_or(0, |n| n.get() as u32),
        command: command.to_vec(),
        working_directory: std::env::current_dir()
            .map_or_else(|_| String::new(), |d| d.display().to_string()),
        environment: machine
            .container()
            .map(|sign| format!("in a container ({sign})"))
            .or_else(|| machine.virtualisation().map(|sign| format!("virtualised ({sign})"))),
        clock: choose_clock(&machine).into(),
        filters: recording.filter.clone(),
        bookkeeping: recording.bookkeeping,
        watch: ProcessId::current().into_iter().collect(),
        snapshots: snapshots.iter().map(|s| (*s).into()).collect(),
        ..Manifest::new()
    }
}

/// Makes a directory of a profile, for its owner only.
pub fn make_directory(path: &Path) -> Result<(), Failure> {
    fs::DirBuilder::new()
        .mode(0o700)
        .create(path)
        .map_err(|e| Failure::new(format!("create {}: {e}", path.display())))
}

/// Makes the profile in `directory`. Leaves nothing behind when it fails.
pub fn make(
    recording: &Recording,
    choice: Choice,
    directory: &Path,
    origin: Origin,
    command: &[String],
) -> Result<Prepared, Failure> {
    let Choice { counters, beside, notes, metrics } = choice;
    let clock = choose_clock(&Machine::here());
    let switch_cost = switch_cost(&counters);
    let first = Snapshot::take(clock);
    let directory = directory.to_owned();
    let infos: Vec<CounterInfo> = counters.iter().map(Into::into).collect();
    let turn = Turn::wait(&directory);
    make_way(&directory)?;
    let make = make_directory;
    make(&directory).map_err(|f| f.hint("choose another place with -o DIR"))?;
    let mut made = Undo { directories: vec![directory.clone()] };
    let library = library()?;
    make(&directory.join(PARTS_NAME))?;
    crate::orphans::remove_old();
    let (pool_directory, pool_note) = pool_directory(&directory);
    make(&pool_directory)?;
    made.directories.push(pool_directory.clone());
    let pool = pool_directory.join(POOL_NAME);
    let id = ProfileId::random().map_err(|e| Failure::new(format!("random number: {e}")))?;
    let owner = owner(&directory, id).map_err(Failure::new)?;
    record::pool::create(&pool, &owner).map_err(|e| {
        Failure::new(format!("create {}: {e}", pool.display()))
            .hint("the recorder keeps unfinished pages there; free some space (df /dev/shm)")
    })?;

    let run_file = RunFile {
        profile: utf8(&directory)?,
        pool: utf8(&pool)?,
        id,
        clock,
        counters,
        filters: recording.filter.clone(),
        bookkeeping: recording.bookkeeping,
        snapshots: vec![first, Snapshot::take(clock)],
    };
    let run_path = directory.join(RUN_FILE_NAME);
    fs::write(&run_path, run_file.to_bytes())
        .map_err(|e| Failure::new(format!("write {}: {e}", run_path.display())))?;
    let manifest = Manifest {
        id: id.to_string(),
        counters: infos,
        metrics,
        multiplex: recording.multiplex,
        switch_cost,
        pool: Some(pool.clone()),
        notes: notes.into_iter().chain(pool_note).collect(),
        ..manifest(recording, origin, command, &run_file.snapshots)
    };
    manifest.write(&directory).map_err(Failure::new)?;
    drop(turn);
    // Written while it is held: whoever looks for pools that nobody uses sees that this one is
    // used.
    let opened = fs::File::options().write(true).open(&pool);
    let held = opened.and_then(|pool| Ok([pool, fs::File::open(&directory)?]));
    let preload = preload(&library, &pool_directory)?;
    let python = crate::python::path(&pool_directory);
    made.directories.clear();
    Ok(Prepared {
        directory,
        clock,
        beside,
        variables: [(RUN_FILE_VARIABLE, run_path.into()), (PRELOAD_VARIABLE, preload)]
            .into_iter()
            .chain(python.map(|path| (crate::python::PATH_VARIABLE, path)))
            .collect(),
        held: held.map_err(|e| Failure::new(format!("open {}: {e}", pool.display())))?,
        pool_directory,
    })
}

impl Prepared {
    /// Removes what was made, when the program could not be started after all.
    pub fn discard(self) {
        drop(Undo { directories: vec![self.directory, self.pool_directory] });
    }

    /// Counts something that no recording process can count.
    pub fn lose(&self, loss: Loss) {
        use std::os::unix::ffi::OsStrExt;
        let pool = self.pool_directory.join(POOL_NAME);
        if let Ok(pool) = std::ffi::CString::new(pool.as_os_str().as_bytes()) {
            // Where even this is not possible, there is no profile either.
            let _ = record::pool::with_run_row(&pool, |row| row.lose(loss, 1, 0));
        }
    }

    /// Removes what may be left beside the pool once the pool itself is gone.
    pub fn tidy(&self) {
        if !self.pool_directory.join(POOL_NAME).exists() {
            let _ = fs::remove_dir_all(&self.pool_directory);
        }
    }
}

/// Removes directories when dropped, unless they were taken out before.
struct Undo {
    directories: Vec<PathBuf>,
}

impl Drop for Undo {
    fn drop(&mut self) {
        for directory in &self.directories {
            let _ = fs::remove_dir_all(directory);
        }
    }
}

/// Counters that work here.
pub struct Chosen {
    /// Of threads: for the recorder.
    pub threads: Vec<Counter>,
    /// Of whole packages.
    pub packages: Vec<Counter>,
    /// About defaults that do not work.
    pub notes: Vec<String>,
}

/// The counters asked for, each of which works here, or the default ones that do: those of threads,
/// those of whole packages, and notes about those that do not work.
pub fn counters_of(
    recording: &Recording,
    resolver: &Resolver,
    machine: &Machine,
) -> Result<Chosen, Failure> {
    if recording.events.is_empty() {
        return unasked(resolver, machine);
    }
    let typed = recording.events.join(",");
    let counters = resolve("-e", &typed, resolver)?;
    let (threads, packages) = by_scope(counters.clone());
    Plan::new(threads.clone()).map_err(|e| Failure::new(format!("-e {typed}: {e}")))?;
    if recording.multiplex {
        works(&packages, machine)?;
        let threads = check::split(&threads, machine).map_err(|problem| refused(&problem))?;
        let notes = turns(&threads).into_iter().chain(own_readings(&threads)).collect();
        return Ok(Chosen { threads, packages, notes });
    }
    works(&counters, machine)?;
    let notes = own_readings(&threads);
    Ok(Chosen { threads, packages, notes })
}

/// What of the counters counts the recorder itself: for the profile, and on stderr at once.
pub fn own_readings(threads: &[Counter]) -> Vec<String> {
    let notes = own::notes(threads);
    for note in &notes {
        say!("{note}");
    }
    notes
}

/// Counters for every CPU that is online, in groups from number `first` on. A simulated one
/// belongs to no CPU.
pub fn system_wide(
    lists: &[String],
    first: u16,
    resolver: &Resolver,
    machine: &Machine,
) -> Result<Vec<Counter>, Failure> {
    if lists.is_empty() {
        return Ok(Vec::new());
    }
    let mut counters = resolve("--system", &lists.join(","), resolver)?;
    for counter in &mut counters {
        if counter.scope.is_thread() && matches!(counter.source, Source::Perf(_)) {
            counter.scope = Scope::Cpus(machine.online_cpus());
        }
    }
    works(&counters, machine)?;
    counters.iter_mut().for_each(|counter| counter.group += first);
    Ok(counters)
}

/// The counters of a list. What of it is counted once only is said on stderr.
pub fn resolve(option: &str, typed: &str, resolver: &Resolver) -> Result<Vec<Counter>, Failure> {
    let (counters, notes) = resolver.resolve_once(typed).map_err(|e| {
        let failure = Failure::new(format!("{option} {typed}: {e}"));
        match e.hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    })?;
    for note in notes {
        say!("{option} {typed}: {note}");
    }
    Ok(counters)
}

/// Every counter that does not work is named at once, and every different way out.
fn works(counters: &[Counter], machine: &Machine) -> Result<(), Failure> {
    let report = check::check(counters, machine);
    let alone = report.counters.iter().filter_map(|counter| counter.as_ref().err());
    let problems: Vec<_> = alone.chain(report.together.as_ref().err()).collect();
    if problems.is_empty() {
        return Ok(());
    }
    let mut remedies: Vec<&str> = Vec::new();
    for remedy in problems.iter().filter_map(|problem| problem.remedy.as_deref()) {
        if !remedies.contains(&remedy) {
            remedies.push(remedy);
        }
    }
    let messages = problems.iter().map(|problem| &problem.message);
    Err(Failure::several(messages).hints(remedies))
}

fn refused(problem: &check::Problem) -> Failure {
    let failure = Failure::new(&problem.message);
    match &problem.remedy {
        Some(remedy) => failure.hint(remedy),
        None => failure,
    }
}

/// Which counters are on the PMU together, if they take turns.
fn turns(counters: &[Counter]) -> Option<String> {
    let groups = counters.chunk_by(|a, b| a.group == b.group);
    let names = |group: &[Counter]| {
        format!("{{{}}}", group.iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join(","))
    };
    let groups: Vec<String> = groups.map(names).collect();
    (groups.len() > 1).then(|| format!("these groups may take turns: {}", groups.join(" ")))
}

/// What is counted without `-e`.
fn unasked(resolver: &Resolver, machine: &Machine) -> Result<Chosen, Failure> {
    let variable = |name: &str| std::env::var(name).ok();
    let kinds = defaults::asked(&variable);
    let set = defaults::of_devices(&kinds, &variable, resolver, &Devices::known(), machine)
        .map_err(|error| {
            let failure = Failure::new(error.to_string());
            match error.hint {
                Some(hint) => failure.hint(hint),
                None => failure,
            }
        })?;
    for skipped in &set.skipped {
        say!("{skipped}");
    }
    let (threads, packages) = by_scope(set.counters);
    let notes = set.notes.into_iter().chain(set.skipped).collect();
    Ok(Chosen { threads, packages, notes })
}

const LIBRARY: &str = "libcounterpoint.so";

/// Where the shared library may be: in `../lib` of the program, or beside it.
pub fn library_places() -> std::io::Result<[PathBuf; 2]> {
    let program = std::env::current_exe().and_then(fs::canonicalize)?;
    let beside = program.parent().unwrap_or(Path::new("/")).to_owned();
    let above = beside.parent().unwrap_or(Path::new("/"));
    Ok([above.join("lib").join(LIBRARY), beside.join(LIBRARY)])
}

fn library() -> Result<PathBuf, Failure> {
    let places = library_places()
        .map_err(|e| Failure::new(format!("find the path of this program: {e}")))?;
    places.iter().find(|path| path.is_file()).cloned().ok_or_else(|| {
        Failure::new(format!("found neither {} nor {}", places[0].display(), places[1].display()))
            .hint("`cargo xtask dist` builds both into dist/; copy that folder as a whole")
    })
}

/// The value of `LD_PRELOAD`: ours before what is there. The dynamic linker splits it at colons
/// and spaces, so a library whose path has any is reached through a link.
fn preload(library: &Path, pool_directory: &Path) -> Result<OsString, Failure> {
    let awkward = |path: &Path| path.to_string_lossy().contains([' ', ':', '\t', '\n']);
    let mut value = if awkward(library) {
        let link = pool_directory.join("libcounterpoint.so");
        std::os::unix::fs::symlink(library, &link)
            .map_err(|e| Failure::new(format!("link {}: {e}", link.display())))?;
        link.into_os_string()
    } else {
        library.as_os_str().to_owned()
    };
    if let Some(before) = std::env::var_os("LD_PRELOAD").filter(|v| !v.is_empty()) {
        value.push(":");
        value.push(before);
    }
    Ok(value)
}

/// Where the pool goes: a memory file system, where memory is written without page faults.
fn pool_directory(profile: &Path) -> (PathBuf, Option<String>) {
    for base in places(user()) {
        if is_memory(&base) && is_writable(&base) {
            return (base.join(directory_name()), None);
        }
    }
    let note = if is_memory(profile) {
        None
    } else {
        Some(
            "no writable memory file system (/dev/shm): the recorder's own page faults may be \
             counted as the program's"
                .to_owned(),
        )
    };
    (profile.join(POOL_NAME), note)
}

fn is_memory(path: &Path) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58f6;
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()) else {
        return false;
    };
    // SAFETY: an all-zero `statfs` is a valid value to be overwritten.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `path` is a C string and `stat` outlives the call.
    let known = unsafe { libc::statfs(path.as_ptr(), &mut stat) } == 0;
    known && matches!(stat.f_type as i64, TMPFS | RAMFS)
}

fn is_writable(path: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()) else {
        return false;
    };
    // SAFETY: `path` is a C string.
    unsafe { libc::access(path.as_ptr(), libc::W_OK | libc::X_OK) == 0 }
}

fn utf8(path: &Path) -> Result<String, Failure> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| Failure::new(format!("output {}: the path is not UTF-8", path.display())))
}

/// From looking whether a place is free until a manifest says that it is taken, one command at a
/// time: of two that begin in one moment the second would find a directory that is not a profile
/// yet, or remove one that is still empty.
///
/// A lock on the directory around it, which costs no file and ends with the process. Where there
/// are no such locks, or somebody holds one for longer than a profile takes to be made, it goes on
/// without.
pub struct Turn(#[expect(dead_code, reason = "the lock ends when it is closed")] Option<fs::File>);

impl Turn {
    /// Waits for the turn to make a profile in `directory`.
    pub fn wait(directory: &Path) -> Self {
        const PATIENCE: Duration = Duration::from_secs(2);
        let around = match directory.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let Ok(around) = fs::File::open(around) else { return Self(None) };
        let since = std::time::Instant::now();
        // SAFETY: a descriptor of our own.
        while unsafe { libc::flock(around.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
            let held = std::io::Error::last_os_error().kind() == std::io::ErrorKind::WouldBlock;
            if !held || since.elapsed() > PATIENCE {
                return Self(None);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Self(Some(around))
    }
}

/// Moves an earlier profile out of the way, as perf does with its data files.
pub fn make_way(directory: &Path) -> Result<(), Failure> {
    let Ok(found) = fs::symlink_metadata(directory) else { return Ok(()) };
    let refuse = |why: &str| {
        Failure::new(format!("output {}: {why}", directory.display()))
            .hint("choose another place with -o DIR")
    };
    if !found.is_dir() {
        return Err(refuse("already exists and is not a Counterpoint profile"));
    }
    if fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_none()) {
        return fs::remove_dir(directory).map_err(|e| refuse(&e.to_string()));
    }
    let Ok(manifest) = Manifest::read(directory) else {
        return Err(refuse("already exists and is not a Counterpoint profile"));
    };
    if manifest.origin != Origin::Env && !is_over(&manifest) {
        return Err(Failure::new(format!(
            "output {}: a program is still recording into it",
            directory.display()
        ))
        .hint("wait until the program has ended, or choose another place with -o DIR"));
    }
    // What an interrupted recording left in memory belongs to it, wherever it moves.
    collect(directory, Closing::Now).map_err(Failure::new)?;
    let mut old = directory.as_os_str().to_owned();
    old.push(".old");
    let old = PathBuf::from(old);
    if fs::symlink_metadata(&old).is_ok_and(|m| m.dev() == found.dev()) {
        if Manifest::read(&old).is_err() {
            return Err(refuse(&format!(
                "cannot be moved to {}, which is not a Counterpoint profile",
                old.display()
            )));
        }
        fs::remove_dir_all(&old).map_err(|e| refuse(&format!("remove {}: {e}", old.display())))?;
    }
    fs::rename(directory, &old).map_err(|e| refuse(&format!("move to {}: {e}", old.display())))
}
