//! `counterpoint plugin pause`, `resume` and `flush`: control the plugins of a running recording.
//!
//! The recorded processes watch a word in the pool, their shared memory, so the commands need
//! neither signals nor a socket. Processes that start later see the word too.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use profile::Manifest;
use profile::collect::has_own_pool;
use record::pool::{PluginControl, with_guarded_run_row};

use crate::failure::Failure;
use crate::view::open::explain;

#[derive(clap::Args)]
pub struct Args {
    /// Profile directory of a recording that goes on
    #[arg(default_value = "counterpoint.cpt", value_name = "PROFILE",
          value_parser = crate::input::profile())]
    profile: PathBuf,
}

model::named! {
    pub enum Wish {
        Pause = "pause",
        Resume = "resume",
        Flush = "flush",
    }
}

impl Wish {
    fn change(self, now: PluginControl) -> PluginControl {
        match self {
            Self::Pause => PluginControl { paused: true, ..now },
            Self::Resume => PluginControl { paused: false, ..now },
            Self::Flush => PluginControl { flushes: now.flushes.wrapping_add(1), ..now },
        }
    }
}

pub fn main(args: &Args, wish: Wish) -> Result<ExitCode, Failure> {
    let dir = &args.profile;
    let failed = |why: &str| {
        Failure::new(format!("{} the plugins of {}: {why}", wish.name(), dir.display()))
    };
    let manifest = Manifest::read(dir).map_err(|e| explain(dir, e))?;
    if manifest.plugins.is_empty() {
        return Err(failed("its programs load no plugins").hint("record with --plugin"));
    }
    let Some(pool) = &manifest.pool else { return Err(failed("the recording is over")) };
    if !has_own_pool(dir).map_err(Failure::new)? {
        return Err(failed("it belongs to another user, or is a copy"));
    }
    let path = CString::new(pool.as_os_str().as_bytes()).map_err(Failure::new)?;
    with_guarded_run_row(&path, |row| row.control_plugins(|now| wish.change(now))).map_err(
        |errno| {
            let why = std::io::Error::from_raw_os_error(errno);
            failed(&format!("{}: {why}", pool.display()))
        },
    )?;
    Ok(ExitCode::SUCCESS)
}
