//! `loops`: measures the cost of hits of instrumented loops (a hit is one entry of a loop). The
//! kernels of `tests/programs/loops_kernels.c` do nothing but such hits. Clang prints them as LLVM
//! IR, `counterpoint loops instrument` rewrites it for each mode, and clang compiles it without its
//! optimiser, as docs/loops.md says. One process times all kernels, in batches that take turns.
//! Another process times LLVM's XRay in its flight-recorder mode.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::plan::{Case, Figure, Observe, Of, Plan, USUAL_ROUNDS};
use crate::dist;
use crate::layout::Layout;
use crate::process::output;
use crate::setup::packages;

/// This clang includes the runtime of XRay.
const CLANG: &str = "clang-19";
/// Kernels without instrumentation, with two bare time stamps, and with each mode.
const KINDS: [&str; 5] = ["plain", "bare", "count", "timed", "sampled"];

struct Builder {
    program: PathBuf,
    sources: PathBuf,
    scratch: PathBuf,
}

impl Builder {
    fn clang(&self, arguments: &[&str], source: &Path, to: &Path) -> Result<()> {
        let mut clang = Command::new(CLANG);
        clang.arg("-O2").args(arguments).arg(source).arg("-o").arg(to);
        output(&mut clang, &format!("compile {}", source.display()))?;
        Ok(())
    }

    fn kernel(&self, kind: &str, leaf: bool) -> Result<PathBuf> {
        let place = |end: &str| {
            self.scratch.join(format!("loops-{kind}{}.{end}", if leaf { "-leaf" } else { "" }))
        };
        let (text, object) = (place("ll"), place("o"));
        let named = format!("-DKIND={kind}");
        let mut flags = vec!["-S", "-emit-llvm", named.as_str()];
        flags.extend(leaf.then_some("-DLEAF"));
        flags.extend((kind == "bare").then_some("-DBARE"));
        self.clang(&flags, &self.sources.join("loops_kernels.c"), &text)?;
        let compiled = if matches!(kind, "plain" | "bare") {
            text
        } else {
            let instrumented = place("lwp.ll");
            let mut instrument = Command::new(&self.program);
            instrument.args(["loops", "instrument", "--mode", kind]);
            instrument.args(match leaf {
                true => &["--functions"][..],
                false => &["--no-functions", "--min-height", "0", "--max-depth", "2"],
            });
            instrument.arg(&text).arg("-o").arg(&instrumented);
            output(&mut instrument, &format!("instrument {}", text.display()))?;
            instrumented
        };
        self.clang(&["-Xclang", "-disable-llvm-passes", "-c"], &compiled, &object)?;
        Ok(object)
    }
}

pub fn prepare(layout: &Layout) -> Result<Plan> {
    packages::install(&[packages::LLVM]);
    let program = dist::given(layout)?.program();
    let scratch = layout.bench()?;
    let builder = Builder {
        program: program.clone(),
        sources: layout.root.join("tests/programs"),
        scratch: scratch.clone(),
    };
    let mut link = Command::new(CLANG);
    link.arg("-O2").arg(builder.sources.join("loops_bench.c"));
    for kind in KINDS {
        link.arg(builder.kernel(kind, false)?);
        if kind != "bare" {
            link.arg(builder.kernel(kind, true)?);
        }
    }
    let bench = scratch.join("loops_bench");
    output(link.arg("-lpthread").arg("-o").arg(&bench), "link loops_bench")?;
    let sled = scratch.join("loops-xray.o");
    let xray = ["-fxray-instrument", "-fxray-instruction-threshold=1"];
    let flags = [&["-DKIND=xray", "-DLEAF", "-c"][..], &xray].concat();
    builder.clang(&flags, &builder.sources.join("loops_kernels.c"), &sled)?;
    let peer = scratch.join("loops_xray");
    let mut link = Command::new(CLANG);
    link.args(["-O2", "-DXRAY", "-fxray-instrument"]).arg(builder.sources.join("loops_bench.c"));
    link.arg(&sled).arg(scratch.join("loops-plain-leaf.o")).arg("-lpthread");
    output(link.arg("-o").arg(&peer), "link loops_xray")?;

    let profile = scratch.join("loops.cpt");
    let log = scratch.join("loops-xray-log.");
    let cases = vec![
        Case::new("ours", Observe::Lines, move || {
            let mut command = Command::new(&program);
            command.args(["run", "--loops", "-e", "none", "-o"]).arg(&profile).arg("--");
            command.arg(&bench);
            command
        }),
        Case::new("xray", Observe::Lines, move || {
            let mut command = Command::new(&peer);
            let options = "patch_premain=true xray_mode=xray-fdr xray_logfile_base=";
            command.env("XRAY_OPTIONS", format!("{options}{}", log.display()));
            command
        }),
    ];
    let ours = |name: &str| Of::new("ours", name);
    let ratio = |name: &str, over: &str, under: Of, at_most: f64| {
        Figure::ratio(name, "x", ours(over), under, Some(at_most))
    };
    let value = |name: &str, reading: &str, at_most: Option<f64>| {
        Figure::value(name, "ns", ours(reading), at_most)
    };
    let pair = || Of::new("xray", "xray_pair");
    Ok(Plan {
        cases,
        figures: vec![
            ratio("timed pair / two time stamps", "timed_pair_flat", ours("bare_pair_flat"), 1.15),
            ratio(
                "timed pair / two time stamps, nested",
                "timed_pair_nested",
                ours("bare_pair_nested"),
                1.5,
            ),
            value("count-only hit", "count_hit", Some(3.0)),
            value("count-only hit of a function, through the slot", "count_hit_slot", Some(5.0)),
            value("sampled hit", "sampled_hit", None),
            value("sampled hit of a function, through the slot", "sampled_hit_slot", None),
            ratio("sampled hit of a function / XRay", "sampled_hit_slot", pair(), 0.25),
            ratio("timed hit of a function / XRay", "timed_pair_slot", pair(), 0.25),
            ratio("two threads / one thread, per hit", "two_threads", ours("one_thread"), 1.2),
        ],
        rounds: USUAL_ROUNDS,
        notes: vec![
            "all times are processor time of the thread, medians of 151 batches of 20,000 hits".into(),
            "a pair or hit is the instrumented kernel less the same kernel without instrumentation".into(),
            "two bare time stamps alone are more than a quarter of XRay's pair where they take 19 ns, so no timed hit can be four times cheaper there".into(),
            "where XRay cannot determine the rate of the time-stamp counter, it reads the clock of the kernel".into(),
        ],
    })
}
