//! The paths of the folders that several commands use.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Folders of this checkout. All are absolute; [`Layout::show`] makes them relative again.
pub struct Layout {
    pub root: PathBuf,
    /// Cargo's target folder. Everything below it can be built again.
    pub target: PathBuf,
}

/// A folder that looks like an installation: `bin/`, `lib/`, `include/`.
pub struct Dist {
    pub root: PathBuf,
}

impl Layout {
    /// Finds the checkout and makes its root the current folder, so that printed commands, which
    /// have relative paths, can be pasted into a shell there.
    pub fn find() -> Result<Self> {
        // Cargo sets this variable also when it runs xtask. Without Cargo, the value from the time
        // of compilation is used.
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest
            .parent()
            .with_context(|| format!("{}: has no parent folder", manifest.display()))?
            .to_path_buf();
        std::env::set_current_dir(&root).with_context(|| format!("enter {}", root.display()))?;
        let target = std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| root.join("target"), |dir| root.join(dir));
        Ok(Layout { root, target })
    }

    /// Returns the folder for files that benchmarks build and write, and creates it.
    pub fn bench(&self) -> Result<PathBuf> {
        let folder = self.target.join("bench");
        std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        Ok(folder)
    }

    /// Returns the Python of a virtual environment: of the one that the environment variable
    /// `variable` names, or else of `otherwise`.
    pub fn python_of(&self, variable: &str, otherwise: PathBuf) -> Result<PathBuf> {
        let venv = std::env::var_os(variable).map_or(otherwise, Into::into);
        let python = venv.join("bin/python");
        ensure!(
            python.is_file(),
            "{} does not exist; run the tests once, or name a folder in {variable}",
            python.display()
        );
        Ok(python)
    }

    /// Returns the folder of the release, which is linked for an older glibc and can be copied
    /// anywhere.
    pub fn dist(&self) -> Dist {
        Dist { root: self.root.join("dist") }
    }

    /// Returns the folder of the build for quick tests, which uses this machine's linker. Its
    /// programs are not optimised.
    pub fn quick_dist(&self) -> Dist {
        Dist { root: self.target.join("quick-dist") }
    }

    /// Returns the folder of the quick build whose library panics on demand (the agent's feature
    /// `inject-panics`), for one test.
    pub fn inject_dist(&self) -> Dist {
        Dist { root: self.target.join("inject-dist") }
    }

    pub fn venv(&self) -> PathBuf {
        self.target.join("venv")
    }

    /// Returns a virtual environment with an IREE whose executable libraries have version 5.
    pub fn venv_v5(&self) -> PathBuf {
        self.target.join("venv-iree-v5")
    }

    /// Returns a virtual environment with PyTorch.
    pub fn venv_torch(&self) -> PathBuf {
        self.target.join("venv-torch")
    }

    /// Returns a virtual environment with PyTorch 2.12.
    pub fn venv_torch_212(&self) -> PathBuf {
        self.target.join("venv-torch-212")
    }

    /// Returns the folder with the libraries that tests compile for PyTorch. A library is kept
    /// until its sources or its compiler change.
    pub fn torch_shims(&self) -> PathBuf {
        self.target.join("torch-shims")
    }

    /// Returns a virtual environment with the TVM version for which the Python package is made.
    pub fn venv_tvm(&self) -> PathBuf {
        self.target.join("venv-tvm")
    }

    /// Returns a virtual environment with TVM 0.26.
    pub fn venv_tvm_026(&self) -> PathBuf {
        self.target.join("venv-tvm-026")
    }

    /// Returns a virtual environment with TVM 0.25.
    pub fn venv_tvm_025(&self) -> PathBuf {
        self.target.join("venv-tvm-025")
    }

    /// Returns a virtual environment with HolisticTraceAnalysis.
    pub fn venv_hta(&self) -> PathBuf {
        self.target.join("venv-hta")
    }

    /// Returns a virtual environment with the tools that pack and check releases.
    pub fn venv_release(&self) -> PathBuf {
        self.target.join("venv-release")
    }

    /// Returns the folder with the files of a release that people download.
    pub fn published(&self) -> PathBuf {
        self.target.join("published")
    }

    /// Returns the path of a program that is installed in the virtual environment.
    pub fn venv_bin(&self, program: &str) -> PathBuf {
        self.venv().join("bin").join(program)
    }

    /// Returns the folder with the sources of the Python package.
    pub fn python_package(&self) -> PathBuf {
        self.root.join("bindings/python/src/counterpoint")
    }

    /// Returns the folder with compiled fixtures: `NAME.VARIANT.vmfb` and
    /// `NAME.VARIANT.system.vmfb`.
    pub fn fixtures(&self) -> PathBuf {
        self.target.join("fixtures")
    }

    /// Returns `path` relative to the root, as a person would type it there.
    pub fn show(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }
}

impl Dist {
    /// Returns the program that people start. It executes the command `run` itself.
    pub fn program(&self) -> PathBuf {
        self.root.join("bin/counterpoint")
    }

    /// Returns the program with all commands. [`Dist::program`] starts it for every command except
    /// `run`.
    pub fn whole_program(&self) -> PathBuf {
        self.root.join("libexec/counterpoint")
    }

    pub fn library(&self) -> PathBuf {
        self.root.join("lib/libcounterpoint.so")
    }

    /// Returns a profiler plugin that comes with Counterpoint.
    pub fn plugin(&self, name: &str) -> PathBuf {
        self.root.join("lib/counterpoint/plugins").join(name).with_extension("so")
    }

    /// Returns the static library that programs with instrumented loops may link with.
    pub fn loops_client(&self) -> PathBuf {
        self.root.join("lib/libcounterpoint_loops.a")
    }

    /// Returns the folder of the Python package.
    pub fn python(&self) -> PathBuf {
        self.root.join("lib/python/counterpoint")
    }
}
