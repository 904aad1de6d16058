//! Tests the checks of `cargo xtask hardware` (tests/hardware) on machines without the hardware.
//! Software counters of the kernel replace the PMU. The checks must fail if the program that they
//! measure does other work than its source says.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{counterpoint, skip};
use testkit::Scratch;

fn checks() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/hardware")
}

/// Runs the checks, and returns their output and the page of results that they write. Returns
/// `None` if something that the checks need is missing.
fn run(test: &str, arguments: &[&str]) -> Option<(Output, String)> {
    let program = counterpoint(test)?;
    let dist = program.parent()?.parent()?.to_owned();
    // If `COUNTERPOINT_VENV_TVM` names a Python environment with TVM, the checks also count ops of
    // TVM.
    let of_tvm =
        std::env::var_os("COUNTERPOINT_VENV_TVM").map(|venv| Path::new(&venv).join("bin/python"));
    let python = of_tvm.filter(|python| python.exists()).unwrap_or("python3".into());
    let version = Command::new(&python).arg("--version").output();
    if !version.is_ok_and(|output| output.status.success()) {
        skip(test, "there is no python3");
        return None;
    }
    let scratch = Scratch::new();
    let page = scratch.join("page.txt");
    let mut command = Command::new(&python);
    command.arg("-B").arg(checks().join("run.py")).arg("--dist").arg(dist).arg("--out").arg(&page);
    let output = command.args(arguments).output();
    let output = output.expect("python3 starts");
    let page = std::fs::read_to_string(&page).unwrap_or_else(|_| panic!("{output:?}"));
    Some((output, page))
}

fn rows(page: &str) -> BTreeMap<String, (String, String)> {
    let rows = page.lines().filter_map(|line| {
        let (status, rest) = line.split_once("  ")?;
        let status = status.trim();
        let (name, said) = rest.trim_start().split_once("  ").unwrap_or((rest.trim_start(), ""));
        ["ok", "FAILED", "absent"]
            .contains(&status)
            .then(|| (name.trim().to_owned(), (status.to_owned(), said.trim().to_owned())))
    });
    rows.collect()
}

/// Returns whether hardware breakpoints and page faults can be counted here. Some virtual machines
/// have no hardware breakpoints.
fn has_breakpoints(test: &str) -> bool {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_counterpoint"));
    let mut doctor = Command::new(program);
    let opens = doctor.args(["doctor", "-e", "mem:0x1000/8:w:u,page-faults:u"]).output();
    let opens = opens.is_ok_and(|output| output.status.success());
    if !opens {
        skip(test, "hardware breakpoints, or page faults, cannot be counted");
    }
    opens
}

/// Names of checks that are absent if software counters replace the PMU. Nothing replaces what the
/// first two checks need. PyTorch is in another Python environment than the one that runs the
/// checks.
const ABSENT: [&str; 3] = ["reading without system calls", "names: the vendor's", "ops of PyTorch"];

/// Whether the check with this name may be absent on some machines.
fn may_be_absent(name: &str) -> bool {
    name.ends_with("perf stat")
        || ["ops of TVM", "PAPI itself", "instrumented loops"].contains(&name)
}

#[test]
fn checks_of_a_pmu_pass_on_what_stands_in_for_one() {
    const TEST: &str = "hardware_stand_in";
    if !has_breakpoints(TEST) {
        return;
    }
    let arguments = ["--only", "pmu", "--stand-in", "kernel"];
    let Some((output, page)) = run(TEST, &arguments) else { return };
    let rows = rows(&page);
    for (name, (status, said)) in &rows {
        let is_absent = ABSENT.contains(&&**name) || (may_be_absent(name) && status == "absent");
        let expected = if is_absent { "absent" } else { "ok" };
        assert_eq!(status, expected, "{name}: {said}\n{page}");
    }
    assert_eq!(rows.len(), 23, "{page}");
    assert!(output.status.success(), "{page}");
    for (name, found) in [
        ("reading by system calls", "page-faults:u 900.0 of 900 in loop"),
        ("reading by system calls", "200 read(2) in 100 calls"),
        ("a group that does not fit is refused", "5 of 6 fit and count together"),
        ("counters that take turns", "20 to 20 of 30 calls have a value"),
        ("more counters than fit, in passes", "2 passes"),
        ("the default counters, ipc", "ipc 2.00"),
        ("dispatches of IREE", "20 calls of each of 5 exports"),
    ] {
        let said = &rows[name].1;
        let is_x86 = cfg!(target_arch = "x86_64");
        assert!(said.contains(found) || !is_x86, "{name}: {said}");
    }
    for (name, found) in [
        ("instrumented loops", "page-faults:u 900.0 of 900 in load (its function)"),
        ("PAPI itself", "perf::PAGE-FAULTS: PAPI 900, ours 900.0"),
    ] {
        let (status, said) = &rows[name];
        assert!(status == "absent" || said.contains(found), "{name}: {said}");
        // Without a PMU, it depends on the processor whether PAPI counts anything.
        if status == "absent" && !said.starts_with("PAPI counts nothing") {
            skip(TEST, said);
        }
    }
}

#[test]
fn every_check_of_a_pmu_can_fail() {
    const TEST: &str = "hardware_broken";
    if !has_breakpoints(TEST) {
        return;
    }
    let arguments = ["--only", "pmu", "--stand-in", "broken", "--quick"];
    let Some((output, page)) = run(TEST, &arguments) else { return };
    assert_eq!(output.status.code(), Some(1), "{page}");
    for (name, (status, said)) in &rows(&page) {
        let is_absent =
            ABSENT[1..].contains(&&**name) || (may_be_absent(name) && status == "absent");
        let expected = match &**name {
            "a PMU" | "cost of a bracket beside the floor" => "ok",
            _ if is_absent => "absent",
            _ => "FAILED",
        };
        assert_eq!(status, expected, "{name}: {said}\n{page}");
    }
}

#[test]
fn counters_of_every_vendor_are_chosen() {
    let script = "
import events
for vendor in ('intel', 'amd', 'arm', ''):
    events.vendor = lambda: vendor
    chosen = events.real()
    assert chosen.many[-1] == 'branches:u', chosen
    assert chosen.instructions.a_round() == 2 * 111_000 + 3 * 110_000
    assert len(chosen.names[\"the vendor's\"]) == (3 if vendor else 0), chosen
    assert bool(chosen.slots) == (vendor in ('intel', 'amd')), chosen
print('done')
";
    let mut command = Command::new("python3");
    command.args(["-B", "-c", script]).current_dir(checks());
    let Ok(output) = command.output() else {
        return skip("hardware_vendors", "there is no python3");
    };
    assert_eq!(output.stdout, b"done\n", "{output:?}");
}

/// If the machine has no PMU or no NVIDIA device, the checks of this hardware are absent, and do
/// not fail. The page names the command that runs them on another machine.
#[test]
fn what_a_machine_lacks_is_named() {
    let Some((output, page)) = run("hardware_absent", &["--quick"]) else { return };
    let rows = rows(&page);
    for (name, command) in [
        ("a PMU", "cargo xtask hardware --only pmu"),
        ("a device of NVIDIA's", "cargo xtask hardware --only nvidia"),
    ] {
        let (status, said) = &rows[name];
        match &**status {
            "absent" => assert!(said.contains(command), "{name}: {said}"),
            // This machine has the hardware.
            status => assert_eq!(status, "ok", "{name}: {said}"),
        }
    }
    if rows.values().all(|(status, _)| status == "absent") {
        assert!(output.status.success(), "{page}");
        assert!(page.contains("0 ok, 0 failed, 2 absent"), "{page}");
    }
}
