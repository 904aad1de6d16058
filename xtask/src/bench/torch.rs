//! Prepares a release and a Python with PyTorch for benchmarks. `COUNTERPOINT_DIST` and
//! `COUNTERPOINT_VENV_TORCH` name folders to use instead.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::dist;
use crate::layout::{Dist, Layout};
use crate::process::output;
use crate::setup::{self, List};

pub struct Tools {
    pub dist: Dist,
    pub python: PathBuf,
    /// The folder of the Python package `torch`.
    package: PathBuf,
}

fn given(variable: &str) -> Result<Option<PathBuf>> {
    let Some(folder) = std::env::var_os(variable) else { return Ok(None) };
    let path = PathBuf::from(&folder);
    path.canonicalize().map(Some).with_context(|| format!("{variable}={}", path.display()))
}

impl Tools {
    pub fn find(layout: &Layout) -> Result<Self> {
        let dist = dist::given(layout)?;
        let venv = match given("COUNTERPOINT_VENV_TORCH")? {
            Some(venv) => venv,
            None => {
                setup::install(layout, &[List::Torch])?;
                layout.venv_torch()
            }
        };
        let python = venv.join("bin/python");
        ensure!(python.is_file(), "{} does not exist", python.display());
        let mut where_is = Command::new(&python);
        where_is.args(["-c", "import torch, os; print(os.path.dirname(torch.__file__))"]);
        let package = output(&mut where_is, "find PyTorch")?;
        Ok(Self { dist, python, package: package.trim().into() })
    }

    pub fn compile(&self, layout: &Layout, file: &str, to: &Path) -> Result<()> {
        let mut compile = Command::new("c++");
        compile.args(["-std=c++20", "-O2", "-shared", "-fPIC", "-o"]).arg(to);
        compile.arg(layout.root.join("benches/torch").join(file));
        compile.args(["-DUSE_KINETO", "-DKINETO_NAMESPACE=libkineto", "-DFMT_HEADER_ONLY"]);
        let include = self.package.join("include");
        compile.arg("-isystem").arg(&include).arg("-isystem").arg(include.join("kineto"));
        compile.arg("-L").arg(self.package.join("lib")).args(["-ltorch_cpu", "-lc10"]);
        output(&mut compile, &format!("compile {file}")).map(drop)
    }
}
