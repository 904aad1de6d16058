//! The options for profiler plugins, and their conversion to the run file (the file that the
//! recorder reads).

use std::path::{Path, PathBuf};

use profile::manifest::Origin;
use record::run_file::PluginOptions;

use super::without_plugins;
use crate::failure::Failure;
use crate::output::{bytes, time};
use crate::plugin_files::{DIRECTORY_VARIABLE, files};
use crate::plugin_kinds;
use crate::terminal::say;

/// Which profiler plugins the program loads (docs/plugins.md).
#[derive(clap::Args, Default)]
pub struct PluginArgs {
    /// Load a profiler plugin into the program: a file, a directory of plugins, or the name of a
    /// plugin that comes with Counterpoint. Repeatable. Without this option, `run` and `env` take the
    /// directory in KINETO_PLUGIN_LIB_DIR_PATH
    #[arg(long = "plugin", value_name = "FILE|DIR|NAME")]
    pub plugins: Vec<PathBuf>,
    /// Kinds of events to ask plugins for: kernel, runtime, counter, cuda_runtime and so on. By
    /// default each plugin gives all that it supports
    #[arg(long, value_name = "KIND,…")]
    pub plugin_kinds: Option<String>,
    /// Text for plugins that take a configuration
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub plugin_config: String,
    /// Keep at most this much of each plugin's events in each process: 128M. The rest is counted as
    /// lost
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub plugin_buffer: Option<u64>,
    /// While the program runs, ask plugins for their events at this interval, if they can hand them
    /// over then: 500ms, 10s; 0s: only at the end. What was handed over is kept if the program is
    /// killed [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub plugin_flush: Option<u64>,
    /// How long one call of a plugin may take. A plugin that takes longer is not called again
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "30s")]
    pub plugin_timeout: u64,
    /// Start with plugins paused, if they can pause. `counterpoint plugin resume` continues them
    #[arg(long)]
    pub plugin_paused: bool,
    /// Give plugins an id for each op, so that a kernel is linked to the op that launched it, if the
    /// plugin uses ids. Costs time in each op (docs/plugins.md)
    #[arg(long)]
    pub plugin_ids: bool,
    /// Load plugins only into programs whose file name matches: 'python*'. Repeatable. By default
    /// all programs load them except shells, programs that only start others, such as env and make,
    /// and the small programs of scripts, such as sed
    #[arg(long = "plugin-in", value_name = "GLOB")]
    pub programs: Vec<String>,
}

/// The default of `--plugin-flush`, in ms.
const FLUSH_MS: u64 = 1000;

impl PluginArgs {
    /// Returns the options for the run file; `None` if there are no plugins.
    ///
    /// # Errors
    /// Returns an error if a plugin that the user named cannot be used, if a kind does not exist,
    /// or if the configuration contains a zero byte.
    pub fn resolve(&self, origin: Origin) -> Result<Option<PluginOptions>, Failure> {
        let files = match self.plugins.is_empty() {
            false => files(&self.plugins)?,
            true if matches!(origin, Origin::Run | Origin::Env) => of_variable(),
            true => Vec::new(),
        };
        if files.is_empty() {
            return Ok(None);
        }
        let all: Vec<String> = files.iter().map(|file| absolute(file)).collect::<Result<_, _>>()?;
        let mut files: Vec<String> = Vec::new();
        for file in all {
            if !files.contains(&file) {
                files.push(file);
            }
        }
        let types = self.plugin_kinds.as_deref().map(plugin_kinds::parse).transpose()?;
        let ms = |ns: u64| ns.div_ceil(1_000_000);
        if self.plugin_config.contains('\0') {
            return Err(Failure::new("--plugin-config: a configuration cannot have a zero byte"));
        }
        Ok(Some(PluginOptions {
            files,
            types: types.unwrap_or_default(),
            configuration: self.plugin_config.clone(),
            max_buffer: self.plugin_buffer.unwrap_or(0),
            log_level: plugin_kinds::log_level(),
            flush_ms: self.plugin_flush.map_or(FLUSH_MS, ms),
            patience_ms: ms(self.plugin_timeout).max(1),
            ids: self.plugin_ids,
            programs: self.programs.clone(),
            except: without_plugins::names(),
        }))
    }
}

/// Returns the plugins in the directory that `KINETO_PLUGIN_LIB_DIR_PATH` names. The user may have
/// set it for another program, so an unusable directory is no error.
fn of_variable() -> Vec<PathBuf> {
    let directory = std::env::var_os(DIRECTORY_VARIABLE).filter(|value| !value.is_empty());
    let Some(directory) = directory else { return Vec::new() };
    files(&[directory.into()]).unwrap_or_else(|failure| {
        let why = failure.messages().join("; ");
        say!("{DIRECTORY_VARIABLE}: {why}; no plugins are loaded");
        Vec::new()
    })
}

/// Returns the absolute path, because the program may have another working directory when it loads
/// the file.
fn absolute(file: &Path) -> Result<String, Failure> {
    let failed = |why: &str| Failure::new(format!("plugin {}: {why}", file.display()));
    let path = std::path::absolute(file).map_err(|e| failed(&e.to_string()))?;
    path.to_str().map(str::to_owned).ok_or_else(|| failed("its path is not UTF-8"))
}
