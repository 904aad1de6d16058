//! `guest-reads`: measures how many instructions it takes to read counters twice (begin and end) in
//! QEMU's emulated machine, compared with a minimal C program that reads the same counters. The
//! counts have almost no noise; the little that they have comes from the guest's timer.

use std::process::Command;

use anyhow::{Context, Result, bail};

use super::FEWEST_ROUNDS;
use super::plan::{Case, Figure, Observe, Of, Plan};
use crate::layout::Layout;
use crate::pmu_vm;

const CASE: &str = "guest";

pub fn prepare(_: &Layout) -> Result<Plan> {
    if let Some(why) = pmu_vm::missing() {
        bail!("cannot run the emulated machine: {why}");
    }
    let ourselves = std::env::current_exe().context("ask where we are")?;
    let ratio = |over: &str, under: &str, n: u32, at_most| {
        Figure::ratio(
            format!("{over} / {under}, {n} counters"),
            "x",
            Of::new(CASE, format!("{over}.{n}")),
            Of::new(CASE, format!("{under}.{n}")),
            at_most,
        )
    };
    let mut figures = Vec::new();
    for n in 1..=4 {
        figures.push(ratio("user", "c-group", n, Some(1.25)));
        figures.push(ratio("user", "c-values", n, None));
        figures.push(ratio("read", "bare", n, Some(1.05)));
        for row in ["user", "c-group", "c-values", "read", "bare"] {
            figures.push(Figure::value(
                format!("{row}, {n} counters"),
                "instructions",
                Of::new(CASE, format!("{row}.{n}")),
                None,
            ));
        }
    }
    Ok(Plan {
        cases: vec![Case::new(CASE, Observe::Lines, move || {
                let mut command = Command::new(&ourselves);
                command.args(["pmu-vm", "--bench"]);
                command
            })],
        figures,
        rounds: FEWEST_ROUNDS,
        notes: vec![
            "unit: instructions of a begin and end pair, in user and kernel mode, on QEMU's AArch64 machine with -icount; they do not apply to a real processor".into(),
            "user.N: our reads in user mode, of N hardware counters in one group; read.N: our group reads".into(),
            "c-group.N: a minimal C reader (tests/pmu-vm/c/reader.c) that reads the same values and times; c-values.N: one that only reads values, each counter separately".into(),
            "bare.N: two group reads without any checks".into(),
        ],
    })
}
