//! Gives up the rights (to use files and the network) that a command does not need, before the
//! command reads data that somebody else may have made.
//!
//! Each function that opens something checks what it opens; the rules of Landlock, which this
//! module sets, limit the damage if such a check is wrong. Without Landlock (before Linux 5.13, or
//! turned off), a command keeps its rights.
//!
//! | right | where |
//! |---|---|
//! | read | the profile, directories for pools (shared memory of recordings), `/proc`, `/sys`, and what the caller named |
//! | make, write and replace files | the directory of the output that the caller named |
//! | make, write and remove files, make and remove directories | a directory that the command has just made, such as an imported profile |
//! | the same, and move files to another directory | the profile that `recover` or `trace import --into` changes |
//! | remove files | directories of pools that are deleted; the profile that `hook report` removes |
//! | remove empty directories | the directory around a new directory, a removed profile or a deleted pool |
//! | all others: make links and devices, execute, connect | nowhere |
//!
//! Before Linux 5.19, a process with Landlock rules cannot move files to another directory, and no
//! rule can allow it. On such a kernel, the commands that move files (`recover`, `trace import
//! --into`) keep their rights.
//!
//! Views read `/proc` to find out which processes are alive, and `/sys` to find out how many
//! threads this process may use. A rule of Landlock can allow making files in a directory, but
//! cannot restrict their names. So a view that writes an output could also make other files beside
//! it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError,
};
use profile::manifest::MANIFEST_NAME;
use profile::pools::{own_directory, places};
use profile::safe_dir::Dir;

use crate::whole::{Written, directory, written};

/// The files and directories that a command uses besides the profile, and how it changes the
/// profile.
#[derive(Debug, Default)]
pub struct Needs<'a> {
    pub reads: Vec<&'a Path>,
    /// Whether the command reads files that the profile names, such as source files. If so, and if
    /// the profile belongs to the caller, the command may read all files.
    pub named_files: bool,
    pub outputs: Vec<PathBuf>,
    /// A directory that the command has just made. The command makes files and directories in it,
    /// and may remove it.
    pub made: Option<&'a Path>,
    pub change: Change,
    /// Directories of pools (the shared memory of recordings) that the command may delete, if they
    /// belong to the caller.
    pub pools: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Change {
    #[default]
    Nothing,
    /// Files and directories in the profile are made, moved and removed.
    Inside,
    Remove,
}

impl<'a> Needs<'a> {
    /// Returns the needs of a view that reads these files and prints to standard output.
    pub fn files(files: impl IntoIterator<Item = &'a PathBuf>) -> Self {
        Self { reads: files.into_iter().map(PathBuf::as_path).collect(), ..Self::default() }
    }

    pub fn output(self, output: &Path) -> Self {
        Self { outputs: vec![output.to_owned()], ..self }
    }
}

/// Whether the caller owns the profile's directory and manifest, and neither can be written by
/// everybody. If so, files that the profile names may be read wherever they are.
pub fn is_of_caller(profile: &Dir) -> bool {
    let user = profile::pools::user();
    let found = profile.stat().into_iter().chain(profile.look(MANIFEST_NAME));
    found.filter(|found| found.st_uid == user && found.st_mode & 0o002 == 0).count() == 2
}

/// Whether this process runs one command and then ends.
static IS_OWN_PROCESS: AtomicBool = AtomicBool::new(false);

/// Marks this process as one that may give up its rights, because it runs one command and ends.
/// Tests, which run many commands in one process, do not call this.
pub fn is_own_process() {
    IS_OWN_PROCESS.store(true, Ordering::Relaxed);
}

/// Gives up rights for this thread and for threads that it starts from now on.
pub fn confine(profile: Option<&Dir>, needs: &Needs<'_>) {
    if !IS_OWN_PROCESS.load(Ordering::Relaxed) {
        return;
    }
    // An error is not printed, because the user cannot do anything about a kernel without Landlock.
    let _ = try_confine(profile, needs);
}

fn try_confine(profile: Option<&Dir>, needs: &Needs<'_>) -> Result<(), RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let remove = AccessFs::RemoveFile | AccessFs::RemoveDir;
    let write = AccessFs::WriteFile | AccessFs::Truncate;
    let make = AccessFs::MakeReg | AccessFs::MakeDir;
    // A kernel that does not know the right to move files (`Refer`) denies it to every process with
    // rules. On such a kernel, commands that need this right use no rules.
    let move_files = match needs.change {
        Change::Inside => CompatLevel::HardRequirement,
        Change::Nothing | Change::Remove => CompatLevel::BestEffort,
    };
    let mut rules = Ruleset::default()
        .set_compatibility(move_files)
        .handle_access(AccessFs::Refer)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI::V5))?
        .handle_access(AccessNet::from_all(ABI::V4))?
        .create()?;
    if let Some(Ok(directory)) = profile.map(Dir::to_file) {
        let change = match needs.change {
            Change::Nothing => BitFlags::EMPTY,
            Change::Inside => remove | write | make | AccessFs::Refer,
            Change::Remove => remove,
        };
        rules = rules.add_rule(PathBeneath::new(directory, read | change))?;
        // Root may read another user's profile, whose pool is in a directory of that user.
        let owner = profile.and_then(|profile| profile.stat().ok()).map(|found| found.st_uid);
        for user in [Some(profile::pools::user()), owner].into_iter().flatten() {
            for place in places(user) {
                rules = allow(rules, &place, read)?;
            }
        }
    }
    for path in ["/proc", "/sys"].map(Path::new).iter().chain(&needs.reads) {
        rules = allow(rules, path, read)?;
    }
    if needs.named_files && profile.is_some_and(is_of_caller) {
        rules = allow(rules, Path::new("/"), read)?;
    }
    for output in &needs.outputs {
        match written(output) {
            Ok(Written::In(directory)) => {
                let replace = AccessFs::MakeReg | AccessFs::RemoveFile;
                rules = allow(rules, &directory, replace | write | read)?;
            }
            // `ioctl` is needed to find out whether the file is a terminal.
            Ok(Written::Itself(file)) => rules = allow(rules, &file, write | AccessFs::IoctlDev)?,
            Ok(Written::Open) | Err(_) => {}
        }
    }
    if let Some(made) = needs.made {
        rules = allow(rules, made, read | remove | write | make)?;
        rules = allow(rules, directory(made), AccessFs::RemoveDir)?;
    }
    if let (Change::Remove, Some(profile)) = (needs.change, profile) {
        rules = allow(rules, directory(profile.path()), AccessFs::RemoveDir)?;
    }
    for pool in &needs.pools {
        let open = own_directory(pool).and_then(|open| open.to_file().ok());
        let Some(open) = open else { continue };
        rules = rules.add_rule(PathBeneath::new(open, read | AccessFs::RemoveFile))?;
        rules = allow(rules, directory(pool), AccessFs::RemoveDir)?;
    }
    rules.restrict_self().map(drop)
}

/// Allows access to a path and what is below it. A path that cannot be opened, for example because
/// it does not exist, is skipped. The kernel refuses a rule for a file that is in no file system,
/// such as a pipe that `/dev/fd/3` names. The refusal is ignored, because access to such a file
/// needs no rule.
fn allow(
    rules: RulesetCreated,
    path: &Path,
    rights: impl Into<BitFlags<AccessFs>>,
) -> Result<RulesetCreated, RulesetError> {
    match PathFd::new(path) {
        Ok(open) => {
            let rights = rights.into();
            let rights = if path.is_dir() { rights } else { rights & AccessFs::from_file(ABI::V5) };
            if let Ok(same) = rules.try_clone() {
                let _ = same.add_rule(PathBeneath::new(open, rights));
            }
            Ok(rules)
        }
        Err(_) => Ok(rules),
    }
}
