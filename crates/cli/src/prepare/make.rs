//! Makes a profile that is ready for a recording: its directory, the pool (a file in memory for
//! records), the run file (the settings for the recorder) and the manifest.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use counters::{Plan, ThreadCounters};
use machine::Machine;
use machine::files::parse_cpus;
use model::{Counter, Loss};
use plugin_host::layers::{
    CUDA_INJECTION, NVTX_INJECTION, OPENCL_LAYERS, cuda_injection, nvtx_injection, opencl_layers,
};
use profile::ProfileId;
use profile::live::{ProcessId, boot_id};
use profile::manifest::{CounterInfo, Manifest, Origin, State};
use profile::pools::{POOL_NAME, owner};
use record::pool::{PluginControl, Row, with_guarded_run_row};
use record::run_file::{LoopOptions, RUN_FILE_NAME, RUN_FILE_VARIABLE, RUN_FILE_WITH_PLUGINS_NAME};
use record::{ClockKind, RunFile, Snapshot};

use super::choice::Choice;
use super::found::{choose_clock, library, pool_directory, preload, switch_cost};
use super::options::Recording;
use super::place::{DirectoryLock, make_directory, make_way};
use super::without_plugins::load_into;
use crate::failure::Failure;

/// The dynamic linker loads the agent (the library that records) because of this variable.
pub const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

pub struct Prepared {
    /// An absolute path.
    pub directory: PathBuf,
    pub clock: ClockKind,
    /// Counters that are sampled while the program runs.
    pub beside: Vec<Counter>,
    /// Environment variables for the recorded program.
    pub variables: Vec<(&'static str, OsString)>,
    /// [`Prepared::announce`] writes the manifest. For `run`, the forked process that becomes the
    /// program writes the manifest.
    pub manifest: Manifest,
    pool_directory: PathBuf,
    /// The lock on the output directory, which is held until the manifest exists.
    lock: Option<DirectoryLock>,
    /// The pool and the profile's directory stay open: some file systems give a file a new inode
    /// number when no process has it open.
    #[expect(dead_code, reason = "only held")]
    held: [fs::File; 2],
    #[expect(dead_code, reason = "only kept open")]
    kept_open: Option<ThreadCounters<'static>>,
}

impl Prepared {
    /// Removes the profile and the pool. Callers use this if no program will record into them.
    pub fn discard(self) {
        drop(Undo { directories: vec![self.directory, self.pool_directory] });
    }

    /// Writes the manifest, which makes the directory a profile. The recording is over when the
    /// process `watched` ends, if there is one.
    ///
    /// # Errors
    /// If the manifest cannot be written, the profile's directory and the pool are removed.
    pub fn announce(mut self, watched: Option<u32>) -> Result<Self, Failure> {
        if let Some(process) = watched {
            self.manifest.watch = ProcessId::of(process).into_iter().collect();
        }
        if let Err(e) = self.manifest.write(&self.directory) {
            self.discard();
            return Err(Failure::new(e));
        }
        self.is_announced();
        crate::orphans::remove_old();
        Ok(self)
    }

    /// Releases the lock on the output directory. The caller must have written the manifest.
    pub fn is_announced(&mut self) {
        self.lock = None;
    }

    pub fn lose(&self, loss: Loss) {
        use std::os::unix::ffi::OsStrExt;
        let pool = self.pool_directory.join(POOL_NAME);
        if let Ok(pool) = std::ffi::CString::new(pool.as_os_str().as_bytes()) {
            // If this fails, the profile does not show the loss.
            let _ = record::pool::with_guarded_run_row(&pool, |row| row.lose(loss, 1, 0));
        }
    }

    /// Removes the pool's directory if the pool file is gone.
    pub fn tidy(&self) {
        if !self.pool_directory.join(POOL_NAME).exists() {
            let _ = fs::remove_dir_all(&self.pool_directory);
        }
    }
}

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

/// Makes everything but the manifest, which the caller writes when it is known which process is
/// watched. On failure, the directory and the pool are removed.
pub fn make(
    recording: &Recording,
    choice: Choice,
    machine: &Machine,
    directory: &Path,
    origin: Origin,
    command: &[String],
) -> Result<Prepared, Failure> {
    let Choice { counters, beside, notes, metrics, mut plugins } = choice;
    if let (Some(plugins), Some(program)) = (&mut plugins, command.first()) {
        load_into(plugins, program);
    }
    let clock = choose_clock(machine);
    // With `--budget`, counters are open only during some calls, so their cost per context switch
    // would not apply to the whole run.
    let switch_cost = recording.budget.map_or_else(|| switch_cost(&counters), |_| None);
    let keeping = recording.budget.filter(|part| *part > 0.0 && origin == Origin::Run);
    let kept_open = keeping.and_then(|_| keep_open(&counters));
    let first = Snapshot::take(clock);
    let directory = directory.to_owned();
    let infos: Vec<CounterInfo> = counters.iter().map(Into::into).collect();
    let lock = DirectoryLock::wait(&directory);
    make_way(&directory, &lock)?;
    let make = make_directory;
    make(&directory).map_err(|f| f.hint("choose another place with -o DIR"))?;
    let mut made = Undo { directories: vec![directory.clone()] };
    let library = library()?;
    let (pool_directory, pool_note) = pool_directory(&directory);
    make(&pool_directory)?;
    made.directories.push(pool_directory.clone());
    let pool = pool_directory.join(POOL_NAME);
    let id = ProfileId::random().map_err(|e| Failure::new(format!("random number: {e}")))?;
    let owner = owner(&directory, id).map_err(Failure::new)?;
    let layout = recording.pool_layout();
    let created = record::pool::create_with(&pool, &owner, layout).or_else(|_| {
        // The memory file system may be full of unused pools.
        crate::orphans::remove_old();
        let _ = fs::remove_file(&pool);
        record::pool::create_with(&pool, &owner, layout)
    });
    created.map_err(|e| {
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
        budget: recording.budget,
        exact_counts: exact_counts(recording, origin),
        loops: recording.loops.map(|loops| LoopOptions { keep_code: recording.keep_code, ..loops }),
        plugins,
        snapshots: vec![first, Snapshot::take(clock)],
    };
    // The name of the run file says whether there are plugins to load at the start. A session's
    // program loads no plugins at the start: the agent reads the run file and loads the plugins
    // when the session begins.
    let at_start = run_file.plugins.is_some() && origin != Origin::Session;
    let name = if at_start { RUN_FILE_WITH_PLUGINS_NAME } else { RUN_FILE_NAME };
    let run_path = directory.join(name);
    fs::write(&run_path, run_file.to_bytes())
        .map_err(|e| Failure::new(format!("write {}: {e}", run_path.display())))?;
    let manifest = Manifest {
        id: id.to_string(),
        counters: infos,
        metrics,
        multiplex: recording.multiplex,
        plugins: run_file.plugins.as_ref().map_or_else(Vec::new, |p| p.files.clone()),
        plugin_ids: run_file.plugins.as_ref().is_some_and(|p| p.ids),
        switch_cost,
        pool: Some(pool.clone()),
        notes: notes.into_iter().chain(pool_note).collect(),
        ..manifest(recording, machine, origin, command, &run_file.snapshots)
    };
    if recording.plugins.plugin_paused {
        let paused = |row: &Row| row.control_plugins(|now| PluginControl { paused: true, ..now });
        let path = std::ffi::CString::new(run_file.pool.as_str()).map_err(Failure::new)?;
        with_guarded_run_row(&path, paused).map_err(|errno| {
            let why = std::io::Error::from_raw_os_error(errno);
            Failure::new(format!("write {}: {why}", pool.display()))
        })?;
    }
    // While the pool is open, a process that looks for unused pools sees that this pool is in use.
    let opened = fs::File::options().write(true).open(&pool);
    let held = opened.and_then(|pool| Ok([pool, fs::File::open(&directory)?]));
    let held = held.map_err(|e| Failure::new(format!("open {}: {e}", pool.display())))?;
    let preload = preload(&library, &pool_directory)?;
    let python = crate::python::path(&pool_directory);
    // In the recorded program, the OpenCL loader also loads the plugins that are layers, because
    // `OPENCL_LAYERS` names them. CUDA's driver and NVTX likewise load the plugin that their
    // variable names.
    let files = || run_file.plugins.iter().flat_map(|plugins| &plugins.files).map(Path::new);
    let layers = opencl_layers(files(), std::env::var_os(OPENCL_LAYERS).as_deref());
    let injection = cuda_injection(files(), std::env::var_os(CUDA_INJECTION).as_deref());
    let ranges = nvtx_injection(files(), std::env::var_os(NVTX_INJECTION).as_deref());
    made.directories.clear();
    Ok(Prepared {
        directory,
        clock,
        beside,
        variables: [(RUN_FILE_VARIABLE, run_path.into()), (PRELOAD_VARIABLE, preload)]
            .into_iter()
            .chain(python.map(|path| (crate::python::PATH_VARIABLE, path)))
            .chain(layers.map(|layers| (OPENCL_LAYERS, layers)))
            .chain(injection.map(|file| (CUDA_INJECTION, file)))
            .chain(ranges.map(|file| (NVTX_INJECTION, file)))
            .chain(recording.job_variables())
            .chain(recording.shapes.then(|| (crate::python::SHAPES_VARIABLE, "1".into())))
            .collect(),
        manifest,
        lock: Some(lock),
        held,
        pool_directory,
        kept_open,
    })
}

/// Opens the counters, which stay open until the result is dropped. The kernel patches its own code
/// when the first counter of a kind is opened, and when the last is closed. Each patching takes 40
/// µs, sometimes 10 ms (measured with Linux 6.18). With `--budget`, the program opens and closes
/// counters often. Since this command has a counter of each kind open, the kernel need not patch
/// its code then.
fn keep_open(counters: &[Counter]) -> Option<ThreadCounters<'static>> {
    let plan: &'static Plan = Box::leak(Box::new(Plan::new(counters.to_vec()).ok()?));
    let mut open = ThreadCounters::closed();
    // On failure, the program only takes more time to open its counters.
    open.open(plan).ok().map(|()| open)
}

pub fn manifest(
    recording: &Recording,
    machine: &Machine,
    origin: Origin,
    command: &[String],
    snapshots: &[Snapshot],
) -> Manifest {
    let (host, kernel) = names();
    let job = recording.job();
    Manifest {
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
        origin,
        state: State::Recording,
        created_unix_ns: snapshots.first().map_or(0, |s| s.realtime_ns),
        host,
        kernel,
        boot_id: boot_id(),
        cpu_model: machine.field("proc/cpuinfo", "model name").unwrap_or_default(),
        logical_cpus: logical_cpus(machine),
        command: command.to_vec(),
        working_directory: std::env::current_dir()
            .map_or_else(|_| String::new(), |d| d.display().to_string()),
        environment: machine
            .container()
            .map(|sign| format!("in a container ({sign})"))
            .or_else(|| machine.virtualisation().map(|sign| format!("virtualised ({sign})"))),
        clock: choose_clock(machine).into(),
        labels: recording.labels.iter().cloned().collect(),
        filters: recording.filter.clone(),
        bookkeeping: recording.bookkeeping,
        budget: recording.budget,
        exact_counts: exact_counts(recording, origin),
        rank: job.map(|job| job.rank),
        world_size: job.and_then(|job| job.size),
        job_name: recording.job_name(),
        watch: ProcessId::current().into_iter().collect(),
        snapshots: snapshots.iter().map(|s| (*s).into()).collect(),
        ..Manifest::new()
    }
}

/// Whether frameworks such as PyTorch must report each op to the recorder, so that the numbers of
/// calls are exact. This holds for every session with `--budget`, because its program can ask for
/// these numbers.
fn exact_counts(recording: &Recording, origin: Origin) -> bool {
    recording.exact_counts || recording.budget.is_some() && origin == Origin::Session
}

/// Returns the number of online processors or, if it is not known, the number that this process may
/// use.
fn logical_cpus(machine: &Machine) -> u32 {
    let listed = machine.read_trimmed("sys/devices/system/cpu/online");
    match listed.and_then(|list| parse_cpus(&list)) {
        Some(online) => online.len() as u32,
        None => std::thread::available_parallelism().map_or(0, |n| n.get() as u32),
    }
}

/// Returns the name of this machine and the release of its kernel.
fn names() -> (String, String) {
    // SAFETY: `utsname` consists of arrays of characters, for which zeros are values.
    let mut found: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: `found` outlives the call. If the call fails, both names remain empty.
    unsafe { libc::uname(&mut found) };
    let text = |field: &[std::ffi::c_char]| {
        let bytes: Vec<u8> =
            field.iter().map(|c| c.cast_unsigned()).take_while(|c| *c != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    (text(&found.nodename), text(&found.release))
}

fn utf8(path: &Path) -> Result<String, Failure> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| Failure::new(format!("output {}: the path is not UTF-8", path.display())))
}
