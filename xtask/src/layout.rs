//! The paths of the folders that several commands use.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Folders of this checkout, as absolute paths.
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
    /// Finds the checkout and makes its root the current folder, so that printed commands with
    /// relative paths can be pasted into a shell in the root.
    pub fn find() -> Result<Self> {
        // Cargo sets this variable when it compiles xtask, and also when it runs xtask.
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

    /// Creates and returns the folder for files that benchmarks build and write.
    pub fn bench(&self) -> Result<PathBuf> {
        let folder = self.target.join("bench");
        std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        Ok(folder)
    }

    /// Returns the Python of a virtual environment. Its folder is the value of the environment
    /// variable `variable`, or else `otherwise`.
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

    /// The release, which is linked for an older glibc and can be copied anywhere.
    pub fn dist(&self) -> Dist {
        Dist { root: self.root.join("dist") }
    }

    /// The build for quick tests, with this machine's linker, without link-time optimisation of the
    /// library, and with programs that are not optimised.
    pub fn quick_dist(&self) -> Dist {
        Dist { root: self.target.join("quick-dist") }
    }

    /// The quick build whose library panics on demand (the agent's feature `inject-panics`).
    pub fn inject_dist(&self) -> Dist {
        Dist { root: self.target.join("inject-dist") }
    }

    pub fn venv(&self) -> PathBuf {
        self.target.join("venv")
    }

    /// The environment with an IREE whose executable libraries have version 5.
    pub fn venv_v5(&self) -> PathBuf {
        self.target.join("venv-iree-v5")
    }

    pub fn venv_torch(&self) -> PathBuf {
        self.target.join("venv-torch")
    }

    pub fn venv_torch_212(&self) -> PathBuf {
        self.target.join("venv-torch-212")
    }

    /// The folder for the libraries that tests compile for PyTorch. Later runs of the tests use
    /// these libraries until the sources or the compiler change.
    pub fn torch_shims(&self) -> PathBuf {
        self.target.join("torch-shims")
    }

    /// The environment with the TVM version for which the Python package is made.
    pub fn venv_tvm(&self) -> PathBuf {
        self.target.join("venv-tvm")
    }

    pub fn venv_tvm_026(&self) -> PathBuf {
        self.target.join("venv-tvm-026")
    }

    pub fn venv_tvm_025(&self) -> PathBuf {
        self.target.join("venv-tvm-025")
    }

    /// The environment with HolisticTraceAnalysis.
    pub fn venv_hta(&self) -> PathBuf {
        self.target.join("venv-hta")
    }

    /// The environment with the tools that pack and check releases.
    pub fn venv_release(&self) -> PathBuf {
        self.target.join("venv-release")
    }

    /// The files of a release that people download.
    pub fn published(&self) -> PathBuf {
        self.target.join("published")
    }

    pub fn venv_bin(&self, program: &str) -> PathBuf {
        self.venv().join("bin").join(program)
    }

    pub fn python_package(&self) -> PathBuf {
        self.root.join("bindings/python/src/counterpoint")
    }

    /// Compiled fixtures: `NAME.VARIANT.vmfb` and `NAME.VARIANT.system.vmfb`.
    pub fn fixtures(&self) -> PathBuf {
        self.target.join("fixtures")
    }

    /// Returns `path`, relative to the root if it is below the root.
    pub fn show(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }
}

impl Dist {
    /// The program that people start. It executes the command `run` itself.
    pub fn program(&self) -> PathBuf {
        self.root.join("bin/counterpoint")
    }

    /// The program with all commands. [`Dist::program`] starts it for other commands than `run`.
    pub fn whole_program(&self) -> PathBuf {
        self.root.join("libexec/counterpoint")
    }

    pub fn library(&self) -> PathBuf {
        self.root.join("lib/libcounterpoint.so")
    }

    pub fn plugin(&self, name: &str) -> PathBuf {
        self.root.join("lib/counterpoint/plugins").join(name).with_extension("so")
    }

    pub fn loops_client(&self) -> PathBuf {
        self.root.join("lib/libcounterpoint_loops.a")
    }

    pub fn python(&self) -> PathBuf {
        self.root.join("lib/python/counterpoint")
    }
}
