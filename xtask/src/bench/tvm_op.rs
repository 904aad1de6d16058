//! `tvm-op`: measures how much time an instrument adds to a call of TVM's virtual machine.
//! `benches/tvm/op.py` runs trivial kernels in unmodified TVM, without an instrument and with three
//! different ones in turn. Most of the cost of an instrument is the time that the virtual machine
//! takes to call it.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::plan::{Case, Figure, Observe, Of, Plan, USUAL_ROUNDS};
use crate::dist;
use crate::layout::Layout;
use crate::process::output;

const GROUPS: [(&str, &str); 2] = [("none", "none"), ("one", "page-faults")];

pub fn python(layout: &Layout) -> Result<PathBuf> {
    layout.python_of("COUNTERPOINT_VENV_TVM", layout.venv_tvm())
}

pub fn prepare(layout: &Layout) -> Result<Plan> {
    let python = python(layout)?;
    let built = dist::release(layout)?;
    let scratch = layout.bench()?;
    let noop = scratch.join("noop.so");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&noop);
    output(cc.arg(layout.root.join("benches/tvm/noop.c")), "compile noop.c")?;

    let mut cases = Vec::new();
    let mut figures = Vec::new();
    for (label, list) in GROUPS {
        let (program, library) = (built.program(), built.library());
        let profile = scratch.join(format!("tvm-op-{label}.cpt"));
        let script = layout.root.join("benches/tvm/op.py");
        let (python, noop, scratch) = (python.clone(), noop.clone(), scratch.clone());
        cases.push(Case::new(label, Observe::Lines, move || {
            let mut command = Command::new(&program);
            command.args(["run", "-e", list, "-o"]).arg(&profile).arg("--");
            // With -E, Python does not load the hook of `counterpoint run`, which would instrument
            // all cases, also the one without an instrument.
            command.arg(&python).arg("-E").args([&script, &library, &noop, &scratch]);
            command
        }));
        let added = |name: String, of: &str, minus: &str, at_most| {
            Figure::difference(name, "ns", Of::new(label, of), Of::new(label, minus), at_most)
        };
        if list == "none" {
            figures.push(added("a no-op instrument".into(), "noop", "bare", None));
            figures.push(added(
                "ours over a no-op, timing only".into(),
                "ours",
                "noop",
                Some(100.0),
            ));
            figures.push(added(
                "an instrument in Python over a no-op".into(),
                "python",
                "noop",
                None,
            ));
        } else {
            figures.push(added(format!("ours over a no-op, {list}"), "ours", "noop", None));
        }
    }
    Ok(Plan {
        cases,
        figures,
        rounds: USUAL_ROUNDS,
        notes: vec![
            "unit: nanoseconds of CPU time per call of the machine, including the instrument before and after it; medians over 300 turns in each process".into(),
            "of the 307 calls of a run, 100 are kernels with three tensors, the others book-keeping".into(),
        ],
    })
}
