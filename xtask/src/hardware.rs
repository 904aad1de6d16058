//! `cargo xtask hardware`: checks the release on hardware that only some machines have: a processor
//! whose counters can be read, and a device of NVIDIA's. The checks are Python programs in
//! `tests/hardware`, which need the release and nothing else of this repository, so that they also
//! run on a machine without Rust:
//!
//! ```sh
//! python3 tests/hardware/run.py --dist dist --out hardware.txt
//! ```
//!
//! The checks of a processor's counters (its PMU) compare the counts with those of PAPI and perf.
//! Before these checks, if the user is root, the command installs whichever of PAPI, perf and LLVM
//! is missing. If the machine lacks some hardware, the page of results says so, and names the
//! command for a machine that has it. Absent hardware is no failure. `--keep NAME` keeps the page
//! as `tests/hardware/results/DATE-NAME.txt`, and updates the sentence in README about tested
//! hardware ([`sentence`]).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::dist;
use crate::layout::Layout;
use crate::process::{loud, say};
use crate::setup::packages;

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
    /// Keep the page under its date and this name (`h100`, `epyc-9354`), and say in README.md what was
    /// tested. With the page of another machine, `--page FILE` instead of running the checks.
    #[arg(long, value_name = "NAME", value_parser = name)]
    keep: Option<String>,
    /// A page that `tests/hardware/run.py` wrote on another machine, for --keep.
    #[arg(long, value_name = "FILE", requires = "keep")]
    page: Option<PathBuf>,
}

pub fn main(layout: &Layout, args: &Args) -> Result<()> {
    let page = match &args.page {
        Some(page) => page,
        None => {
            check(layout, args)?;
            &args.out
        }
    };
    match &args.keep {
        Some(name) => keep(&layout.root, page, name),
        None => Ok(()),
    }
}

fn check(layout: &Layout, args: &Args) -> Result<()> {
    let dist = match &args.dist {
        Some(dist) => dist.clone(),
        None => dist::release(layout)?.root,
    };
    if args.only.as_deref() != Some("nvidia") {
        packages::install(&[packages::PMU, packages::LLVM]);
    }
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

fn name(text: &str) -> Result<String, String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    match !text.is_empty() && text.chars().all(is_part) {
        true => Ok(text.to_owned()),
        false => Err("expected lower-case letters, digits and dashes".to_owned()),
    }
}

fn keep(root: &Path, page: &Path, name: &str) -> Result<()> {
    let text = fs::read_to_string(page).with_context(|| format!("read {}", page.display()))?;
    let parsed = Page::parse("", &text);
    if parsed.has_failures {
        bail!("{} has failures: only a page without them is kept", page.display());
    }
    if parsed.processor.is_none() && parsed.device.is_none() {
        bail!("{}: the machine has neither a PMU nor a device, so nothing is kept", page.display());
    }
    let date = text.get(..10).filter(|date| date.bytes().all(|b| b.is_ascii_digit() || b == b'-'));
    let date = date.with_context(|| format!("{} does not begin with a date", page.display()))?;
    let kept = root.join(FOLDER).join(format!("{date}-{name}.txt"));
    let old = sentence(&Page::all(root)?);
    let readme = root.join("README.md");
    let said = fs::read_to_string(&readme).context("read README.md")?;
    if !said.contains(&old) {
        bail!("README.md lacks the sentence that the pages before gave: {old}");
    }
    fs::write(&kept, text).with_context(|| format!("write {}", kept.display()))?;
    let said = said.replace(&old, &sentence(&Page::all(root)?));
    fs::write(&readme, said).context("write README.md")?;
    say(format_args!("kept {}; README.md says so", kept.display()));
    Ok(())
}

const FOLDER: &str = "tests/hardware/results";

/// What was tested, according to a page of results.
#[derive(Debug, Default, PartialEq, Eq)]
struct Page {
    file: String,
    /// The name of the processor, if its counters could be read.
    processor: Option<String>,
    /// The name of NVIDIA's device, if there was one.
    device: Option<String>,
    has_failures: bool,
}

impl Page {
    fn parse(file: &str, text: &str) -> Self {
        let is_ok = |name: &str| {
            let rows = text.lines().filter_map(|line| line.strip_prefix("ok "));
            rows.map(str::trim_start).any(|row| row.starts_with(name))
        };
        let described = |key: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(key))?;
            Some(value.split(',').next().unwrap_or_default().trim().to_owned())
        };
        Self {
            file: file.to_owned(),
            processor: described("machine: ").filter(|_| is_ok("a PMU")),
            device: described("device: ").filter(|_| is_ok("a device of NVIDIA's")),
            has_failures: text.lines().any(|line| line.starts_with("FAILED")),
        }
    }

    /// Returns all pages, sorted by date.
    fn all(root: &Path) -> Result<Vec<Self>> {
        let folder = root.join(FOLDER);
        let files = fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?;
        let mut files = files.map(|file| Ok(file?.path())).collect::<Result<Vec<_>>>()?;
        files.sort();
        let page = |file: &PathBuf| {
            let text =
                fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            Ok(Self::parse(&name, &text))
        };
        files.iter().map(page).collect()
    }
}

/// Returns README.md's sentence, which links to the newest page of each processor and device.
fn sentence(pages: &[Page]) -> String {
    let tested = |of: fn(&Page) -> &Option<String>| {
        let mut found: Vec<(&str, &str)> = Vec::new();
        for page in pages.iter().rev() {
            let Some(model) = of(page) else { continue };
            if !found.iter().any(|(known, _)| known == model) {
                found.push((model, &page.file));
            }
        }
        found.reverse();
        let link =
            |(model, file): &(&str, &str)| format!("{model} ([what was checked]({FOLDER}/{file}))");
        found.iter().map(link).collect::<Vec<_>>()
    };
    let (processors, devices) = (tested(|page| &page.processor), tested(|page| &page.device));
    let counters = match processors.is_empty() {
        true => "Reading them has been tested only in an emulated machine, whose counts are exact; on real \
                 processors it has not been tested yet."
            .to_owned(),
        false => format!(
            "Reading them has been tested in an emulated machine, whose counts are exact, and on {}.",
            listed(&processors)
        ),
    };
    let recordings = match devices.as_slice() {
        [] => "Recordings of CUDA programs have not been tested on a device yet.".to_owned(),
        [one] => {
            format!("Recordings of CUDA programs have been tested on one device, an {one}.")
        }
        several => {
            format!("Recordings of CUDA programs have been tested on {}.", listed(several))
        }
    };
    format!("{counters} {recordings}")
}

fn listed(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readme_says_what_the_pages_say() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let pages = Page::all(&root).expect("pages are kept");
        assert!(pages.iter().all(|page| !page.has_failures), "{pages:?}");
        let readme = fs::read_to_string(root.join("README.md")).expect("readable");
        let sentence = sentence(&pages);
        assert!(readme.contains(&sentence), "README.md lacks: {sentence}");
    }

    fn page(file: &str, processor: Option<&str>, device: Option<&str>) -> Page {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Page {
            file: file.to_owned(),
            processor: owned(processor),
            device: owned(device),
            has_failures: false,
        }
    }

    #[test]
    fn a_page_has_what_its_rows_say() {
        let text = "2027-01-02 UTC 03:04:05\nhardware: counterpoint 0.1.0\n\
                    machine: AMD EPYC 9354, 64 processors, kernel 6.1\n\
                    device: NVIDIA L4, 580.1, 23034 MiB\n1 ok, 0 failed, 1 absent\n\n\
                    ok      a PMU                 perf_event_open of cycles:u works\n\
                    absent  a device of NVIDIA's  nvidia-smi lists none\n";
        assert_eq!(Page::parse("x.txt", text), page("x.txt", Some("AMD EPYC 9354"), None));
        let failed = text.replace("ok      a PMU", "FAILED  a PMU");
        let expected = Page { has_failures: true, ..page("x.txt", None, None) };
        assert_eq!(Page::parse("x.txt", &failed), expected);
    }

    #[test]
    fn the_sentence_names_the_newest_page_of_each() {
        let none = sentence(&[]);
        assert!(none.contains("on real processors it has not been tested yet"), "{none}");
        assert!(none.contains("have not been tested on a device yet"), "{none}");
        let pages = [
            page("1.txt", None, Some("NVIDIA H100")),
            page("2.txt", Some("AMD EPYC"), None),
            page("3.txt", Some("Intel Xeon"), Some("NVIDIA L4")),
            page("4.txt", Some("AMD EPYC"), None),
        ];
        let link = |file: &str| format!("([what was checked](tests/hardware/results/{file}.txt))");
        let expected = format!(
            "Reading them has been tested in an emulated machine, whose counts are exact, and on Intel Xeon \
             {} and AMD EPYC {}. Recordings of CUDA programs have been tested on NVIDIA H100 {} and NVIDIA \
             L4 {}.",
            link("3"),
            link("4"),
            link("1"),
            link("3")
        );
        assert_eq!(sentence(&pages), expected);
    }

    #[test]
    fn a_page_is_kept_and_readme_says_so() {
        let root = &std::env::temp_dir().join(format!("counterpoint-keep-{}", std::process::id()));
        fs::create_dir_all(root.join(FOLDER)).expect("makes it");
        let before = format!("A. {} B.\n", sentence(&[]));
        fs::write(root.join("README.md"), &before).expect("writes");
        let file = root.join("page.txt");
        let write = |row: &str| {
            let text = format!("2027-01-02 UTC 03:04:05\nmachine: A CPU, 2 processors\n\n{row}\n");
            fs::write(&file, text).expect("writes");
        };
        for (row, why) in [("absent  a PMU  none", "neither"), ("FAILED  a PMU  no", "failures")] {
            write(row);
            let error = keep(root, &file, "x").expect_err(why).to_string();
            assert!(error.contains(why), "{error}");
            assert_eq!(fs::read_to_string(root.join("README.md")).expect("readable"), before);
        }
        write("ok      a PMU  works");
        keep(root, &file, "a-cpu").expect("kept");
        let readme = fs::read_to_string(root.join("README.md")).expect("readable");
        assert!(
            readme.contains(
                "and on A CPU ([what was checked](tests/hardware/results/2027-01-02-a-cpu.txt))"
            ),
            "{readme}"
        );
        write("ok      a PMU  works, later");
        keep(root, &file, "a-cpu").expect("kept again, on the same day");
        fs::remove_dir_all(root).expect("removes it");
    }
}
