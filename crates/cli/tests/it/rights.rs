//! Tests a program that is linked with the library and has more rights than the user who starts it.
//! This user controls the environment.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{Programs, counterpoint, environment, skip};

const NOBODY: [&str; 3] = ["--reuid=65534", "--regid=65534", "--clear-groups"];

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

/// Allows everybody to write below `path`, so only the library's own decision prevents it from
/// writing there.
fn open_for_all(path: &Path) {
    mode(path, 0o777);
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { open_for_all(&path) } else { mode(&path, 0o666) }
    }
}

/// Returns each file with its content, and each directory.
fn contents(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.push((path.clone(), Vec::new()));
            all.extend(contents(&path));
        } else {
            all.push((path.clone(), fs::read(&path).unwrap()));
        }
    }
    all.sort();
    all
}

struct Case {
    scratch: testkit::Scratch,
    program: PathBuf,
    linked: PathBuf,
    library: PathBuf,
}

impl Case {
    /// Compiles the program. Returns `None` if something that the test needs is missing.
    fn new(test: &str) -> Option<Self> {
        let program = counterpoint(test)?;
        // SAFETY: `geteuid` has no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            skip(test, "only root can make a set-user-id program of another user");
            return None;
        }
        let scratch = testkit::Scratch::new();
        mode(scratch.path(), 0o777);
        let dist = program.parent().unwrap().parent().unwrap().join("lib");
        let linked = scratch.join("linked");
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-o"]).arg(&linked);
        cc.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs/linked.c"));
        cc.arg("-Wl,--no-as-needed").arg(dist.join("libcounterpoint.so"));
        let output = cc.arg(format!("-Wl,-rpath,{}", dist.display())).arg("-ldl").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let library = scratch.join("library.so");
        fs::copy(&Programs::get().library, &library).unwrap();
        mode(&library, 0o755);
        let case = Self { scratch, program, linked, library };
        let tried = case.start(&[]);
        if !tried.status.success() {
            skip(test, "nobody cannot run the program here (setpriv, directories)");
            return None;
        }
        Some(case)
    }

    fn start(&self, variables: &[(String, String)]) -> Output {
        let mut command = Command::new("setpriv");
        command.args(NOBODY).arg(&self.linked).arg(&self.library);
        command.env("TMPDIR", self.scratch.path()).env_remove("LD_PRELOAD");
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command.output().unwrap()
    }

    /// Makes a profile to which everybody can write. Returns the paths of the profile and of its
    /// pool, and the environment variables for recording, without `LD_PRELOAD`.
    fn profile(&self, name: &str) -> (PathBuf, PathBuf, Vec<(String, String)>) {
        let profile = self.scratch.join(name);
        let variables = environment(&self.program, "none", &profile);
        let manifest: serde_json::Value =
            serde_json::from_slice(&fs::read(profile.join("manifest.json")).unwrap()).unwrap();
        let pool = PathBuf::from(manifest["pool"].as_str().unwrap());
        open_for_all(&profile);
        open_for_all(pool.parent().unwrap());
        let variables = variables.into_iter().filter(|(name, _)| name != "LD_PRELOAD").collect();
        (profile, pool, variables)
    }
}

#[test]
fn the_environment_is_not_read() {
    let Some(case) = Case::new("more rights") else { return };
    for kind in ["set-user-id", "set-group-id", "file capabilities"] {
        match kind {
            "set-user-id" => mode(&case.linked, 0o4755),
            "set-group-id" => mode(&case.linked, 0o2755),
            _ => mode(&case.linked, 0o755),
        }
        if kind == "file capabilities" {
            let set = Command::new("setcap").arg("cap_net_raw+ep").arg(&case.linked).status();
            if !set.is_ok_and(|status| status.success()) {
                skip("more rights", "setcap does not work here");
                continue;
            }
        }
        let bare = case.start(&[]);
        assert_eq!(String::from_utf8_lossy(&bare.stdout), "secure 1\n", "{kind}: {bare:?}");

        let (profile, pool, variables) = case.profile("p.cpt");
        assert!(variables.iter().any(|(name, _)| name == "COUNTERPOINT_RUN_FILE"));
        let before = (contents(&profile), fs::read(&pool).unwrap());
        let output = case.start(&variables);
        assert_eq!((&output.stdout, &output.stderr), (&bare.stdout, &bare.stderr), "{kind}");
        assert!(before == (contents(&profile), fs::read(&pool).unwrap()), "{kind}: it recorded");
        remove(&profile, &pool);

        // These are variables of IREE's original hook. If the library obeyed them, the first would
        // make it record, and the second would make it end the program.
        for variable in ["IREE_HOOK_BUCKET_COUNT", "IREE_HOOK_LIST_EVENT_TYPES"] {
            let before = contents(case.scratch.path());
            let output = case.start(&[(variable.to_owned(), "1".to_owned())]);
            assert_eq!((&output.stdout, &output.stderr), (&bare.stdout, &bare.stderr), "{kind}");
            assert!(before == contents(case.scratch.path()), "{kind}, {variable}: files were made");
        }
    }
    // A copy of the program without additional rights must record: this shows that the test can
    // fail.
    let copy = case.scratch.join("copy");
    fs::copy(&case.linked, &copy).unwrap();
    fs::rename(&copy, &case.linked).unwrap();
    mode(&case.linked, 0o755);
    let (profile, pool, variables) = case.profile("q.cpt");
    let output = case.start(&variables);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "secure 0\n");
    assert_eq!(fs::read_dir(profile.join("processes")).unwrap().count(), 1, "{output:?}");
    remove(&profile, &pool);
}

fn remove(profile: &Path, pool: &Path) {
    fs::remove_dir_all(profile).unwrap();
    fs::remove_dir_all(pool.parent().unwrap()).unwrap();
}
