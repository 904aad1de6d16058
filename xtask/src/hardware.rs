//! `cargo xtask hardware`: checks the release on what only some machines have, a processor whose
//! counters can be read and a device of NVIDIA's. The checks are Python programs in
//! `tests/hardware`, which need the release and nothing else of this repository, so that they also
//! run on a machine without Rust:
//!
//! ```sh
//! python3 tests/hardware/run.py --dist dist --out hardware.txt
//! ```
//!
//! What the machine lacks is named, with the command that shows it elsewhere. The pages that were
//! kept are in `tests/hardware/results`; README's sentence about what is tested follows from them,
//! and a test compares the two.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::dist;
use crate::layout::Layout;
use crate::process::loud;

/// Checks the release on a PMU and on a device of NVIDIA's, where the machine has them.
#[derive(clap::Args)]
pub struct Args {
    /// Only this part.
    #[arg(long, value_parser = ["pmu", "nvidia"])]
    only: Option<String>,
    /// A release that is built already.
    #[arg(long)]
    dist: Option<PathBuf>,
    /// The Python whose PyTorch, CuPy, JAX and Triton are used.
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// Where to write the page of text.
    #[arg(long, default_value = "target/hardware.txt")]
    out: PathBuf,
    /// Leave out what is timed.
    #[arg(long)]
    quick: bool,
}

pub fn main(layout: &Layout, args: &Args) -> Result<()> {
    let dist = match &args.dist {
        Some(dist) => dist.clone(),
        None => dist::release(layout)?.root,
    };
    let mut run = Command::new(&args.python);
    run.arg("tests/hardware/run.py").arg("--dist").arg(dist).arg("--out").arg(&args.out);
    if let Some(only) = &args.only {
        run.args(["--only", only]);
    }
    if args.quick {
        run.arg("--quick");
    }
    loud(&mut run, "the checks of this machine's hardware")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// The newest page that was kept names each device and each processor with counters that README
    /// says was tested, and the other way round.
    #[test]
    fn readme_says_what_the_newest_page_says() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let folder = root.join("tests/hardware/results");
        let mut pages: Vec<_> = fs::read_dir(&folder)
            .expect("a folder of results")
            .map(|entry| entry.expect("readable").path())
            .collect();
        pages.sort();
        let newest = pages.last().expect("a result is kept");
        let page = fs::read_to_string(newest).expect("readable");
        let readme = fs::read_to_string(root.join("README.md")).expect("readable");
        let row = |status: &str, name: &str| {
            page.lines().any(|line| {
                line.strip_prefix(status).is_some_and(|rest| rest.trim_start().starts_with(name))
            })
        };
        let name = newest.file_name().expect("a file").to_string_lossy();
        assert!(readme.contains(&*name), "README.md links {name}");
        let untested = "on real processors it has not been tested yet";
        assert_eq!(readme.contains(untested), row("absent", "a PMU"), "{untested}");
        let device = page.lines().find_map(|line| line.strip_prefix("device: "));
        let model = device.and_then(|device| device.split(',').next()).unwrap_or("no device");
        assert_eq!(readme.contains(model), row("ok", "a device of NVIDIA's"), "{model}");
        assert!(!page.lines().any(|line| line.starts_with("FAILED")), "{name} has failures");
    }
}
