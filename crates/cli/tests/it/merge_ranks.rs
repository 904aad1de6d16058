//! Tests the ranks of a distributed job: the environment variables of launchers such as torchrun,
//! and what Perfetto's trace processor and HolisticTraceAnalysis read from exported traces of
//! several ranks.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use testkit::{CallScript, ProfileScript, Scratch, c};

use crate::support::trace_processor::TraceProcessor;
use crate::support::{Programs, counterpoint};

const RANKS: u32 = 8;
const VENDORS: [&str; 2] = ["ares", "boreas"];
/// The number of compute kernels that a plugin records on each of its two devices.
const KERNELS: u64 = 50;

/// Runs the program, which must succeed, and returns its standard output.
fn said(program: &Path, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn report(program: &Path, profile: &str, options: &[&str]) -> Value {
    let arguments = [&["report", profile, "--format", "json"], options].concat();
    serde_json::from_str(&said(program, &arguments)).unwrap()
}

/// Merges the recordings of eight ranks, which get the environment variables that Open MPI's mpirun
/// sets. Two plugins use the same numbers for their devices, and for the arrows from launches to
/// kernels.
#[test]
fn eight_ranks_with_two_plugins_are_one_timeline() {
    let Some(program) = counterpoint("eight ranks") else { return };
    let Some(mut perfetto) = TraceProcessor::start("eight ranks") else { return };
    let scratch = Scratch::new();
    let at = |name: &str| scratch.join(name).display().to_string();
    let plugins = VENDORS.map(|vendor| {
        let file = scratch.join(&format!("{vendor}.so"));
        let name = format!("-DVENDOR=\"{vendor}\"");
        c::shared("cc", "plugins/two_devices.c", &file, &["-std=gnu11", &name])
            .expect("a C compiler: Rust links with it");
        file.display().to_string()
    });
    let mut merge = vec!["merge".to_owned(), "-o".to_owned(), at("all.cpt")];
    for rank in 0..RANKS {
        let profile = at(&format!("rank{rank}.cpt"));
        let mut command = Command::new(&program);
        command.args(["run", "-e", "none", "-o", &profile]);
        plugins.iter().for_each(|plugin| _ = command.args(["--plugin", plugin]));
        command.env("OMPI_COMM_WORLD_RANK", rank.to_string());
        command.env("OMPI_COMM_WORLD_SIZE", RANKS.to_string());
        let done = command.arg("--").arg(Programs::get().other("plugged")).arg("return").output();
        assert_eq!(done.as_ref().unwrap().status.code(), Some(3), "{done:?}");
        merge.push(profile);
    }
    let aligned = said(&program, &merge.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(aligned.matches("on the same clock").count(), RANKS as usize - 1, "{aligned}");

    let all = at("all.cpt");
    let of_kernels = ["--by", "rank", "--kind", "kernel", "--sort", "rank"];
    let rows = report(&program, &all, &of_kernels)["rows"].as_array().unwrap().clone();
    let found: Vec<[u64; 2]> =
        rows.iter().map(|row| ["rank", "calls"].map(|key| row[key].as_u64().unwrap())).collect();
    let each = 2 * VENDORS.len() as u64 * KERNELS;
    assert_eq!(found, (0..u64::from(RANKS)).map(|rank| [rank, each]).collect::<Vec<_>>());

    let to = scratch.join("all.pftrace");
    said(&program, &["trace", "export", &all, "-o", to.to_str().unwrap()]);
    assert_eq!(perfetto.faults(&to), Vec::<Vec<Value>>::new());
    let slices = perfetto.query("select count(*) from slice");
    // In the trace, some device streams are tracks of a process, and not of one of its threads, so
    // the query unites both kinds of tracks.
    let placed = "with placed as (\
         select s.name, upid from slice s join thread_track tt on tt.id = s.track_id \
         join thread using (utid) union all \
         select s.name, upid from slice s join process_track pt on pt.id = s.track_id) ";
    let of_ranks =
        "select count(*) from placed join process p using (upid) where p.name like 'rank %'";
    let reached = perfetto.query(&format!("{placed}{of_ranks}"));
    assert_eq!(slices, reached, "every slice reaches the process of a rank");
    let ranks = "select substr(p.name, 1, 7), count(distinct upid), sum(placed.name like '% kernel %') \
         from placed join process p using (upid) group by 1 order by 1";
    let found = perfetto.query(&format!("{placed}{ranks}"));
    assert_eq!(found.len(), RANKS as usize, "{found:?}");
    for (rank, row) in (0..).zip(&found) {
        assert_eq!(row[0], json!(format!("rank {rank}:")));
        assert_eq!(row[2], json!(each), "kernels of {row:?}");
    }
    let flows = perfetto.query("select count(*) from flow");
    let one = scratch.join("one.pftrace");
    said(&program, &["trace", "export", &at("rank0.cpt"), "-o", one.to_str().unwrap()]);
    perfetto.load(&one);
    let of_one = perfetto.query("select count(*) from flow");
    let times = |rows: &[Vec<Value>]| rows[0][0].as_u64().unwrap();
    assert_eq!(times(&flows), u64::from(RANKS) * times(&of_one));
}

/// The job's name is recorded for each process, from its environment variables, and for the whole
/// recording, from the environment variables of `run`.
#[test]
fn the_name_of_a_job_is_recorded() {
    let Some(program) = counterpoint("variables of launchers") else { return };
    let Some(host) = crate::torch_ops::host("variables of launchers") else { return };
    let scratch = Scratch::new();
    let named = |outer: &[(&str, &str)], inner: &[&str]| -> [Option<String>; 2] {
        let dir = scratch.join("p.cpt");
        let mut run = Command::new(&program);
        run.args(["run", "-e", "none", "-o"]).arg(&dir).args(["--", "env"]).args(inner);
        run.arg(host.get_program()).args(host.get_args()).envs(outer.iter().copied());
        let done = run.output().unwrap();
        assert!(done.status.success(), "{done:?}");
        let profile = profile::Profile::open(&dir).unwrap();
        [profile.manifest.job_name.clone(), profile.processes.last().unwrap().job_name.clone()]
    };
    let some = |name: &str| Some(name.to_owned());
    assert_eq!(named(&[], &[]), [None, None]);
    assert_eq!(named(&[("SLURM_JOB_ID", "77")], &[]), [some("77"), some("77")]);
    assert_eq!(named(&[], &["TORCHELASTIC_RUN_ID=t"]), [None, some("t")]);
    let both = named(&[("SLURM_JOB_ID", "77")], &["TORCHELASTIC_RUN_ID=t"]);
    assert_eq!(both, [some("77"), some("t")]);
}

/// The options `--rank` and `--world-size` of `run` take precedence over the environment variables
/// of the launcher.
#[test]
fn ranks_come_from_launchers_and_from_people() {
    let Some(program) = counterpoint("variables of launchers") else { return };
    let Some(host) = crate::torch_ops::host("variables of launchers") else { return };
    let scratch = Scratch::new();
    let rank = |variables: &[(&str, &str)], options: &[&str]| -> Value {
        let profile = scratch.join("p.cpt").display().to_string();
        let mut run = Command::new(&program);
        run.args(["run", "-e", "none", "-o", &profile]).args(options).arg("--");
        run.arg(host.get_program()).args(host.get_args()).envs(variables.iter().copied());
        let done = run.output().unwrap();
        assert!(done.status.success(), "{done:?}");
        let rows = &report(&program, &profile, &["--by", "rank"])["rows"];
        assert_eq!(rows.as_array().map(Vec::len), Some(1), "{rows}");
        json!([rows[0]["rank"], rows[0]["world_size"]])
    };
    assert_eq!(rank(&[], &[]), json!([null, null]));
    assert_eq!(rank(&[("RANK", "3"), ("WORLD_SIZE", "8")], &[]), json!([3, 8]), "torchrun");
    assert_eq!(rank(&[("SLURM_PROCID", "5"), ("SLURM_NTASKS", "6")], &[]), json!([5, 6]), "srun");
    let torchrun = [("RANK", "3"), ("WORLD_SIZE", "8")];
    assert_eq!(rank(&torchrun, &["--rank", "1", "--world-size", "2"]), json!([1, 2]));
    assert_eq!(rank(&torchrun, &["--rank", "9"]), json!([9, null]));
    let wrong = Command::new(&program)
        .args(["run", "--rank", "2", "--world-size", "2", "--", "true"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&wrong.stderr);
    assert!(text.contains("--rank 2: must be below --world-size 2"), "{text}");
}

/// A Python program that prints the time that each rank spent on computation, as
/// HolisticTraceAnalysis computes it.
const LOOK: &str = r"
import json, logging, sys
logging.disable(logging.WARNING)
from hta.trace_analysis import TraceAnalysis
table = TraceAnalysis(trace_dir=sys.argv[1]).get_temporal_breakdown(visualize=False)
print(json.dumps({int(row['rank']): float(row['compute_time(us)']) for _, row in table.iterrows()}))
";

#[test]
fn hta_reads_the_ranks_of_a_merged_profile() {
    let Some(python) = crate::support::hta("ranks in hta") else { return };
    let program = Path::new(env!("CARGO_BIN_EXE_counterpoint"));
    let scratch = Scratch::new();
    let at = |name: &str| scratch.join(name).display().to_string();
    let mut merge = vec!["merge".to_owned(), "-o".to_owned(), at("all.cpt")];
    let mut expected = BTreeMap::new();
    for rank in 0..4 {
        let mut script = ProfileScript::monotonic();
        script.manifest.id = format!("{rank:032x}");
        script.manifest.boot_id = "one boot".into();
        let process = script.process(100 + rank);
        process.job = Some(profile::Job { rank, size: Some(4) });
        process.library("mlp", &["matmul"]);
        let lasts = 10_000 + 1_000 * u64::from(rank);
        let main = process.thread("main");
        main.call(CallScript::new(0, 100_000, lasts).workgroup(0, 1));
        main.call(CallScript::new(0, 140_000, lasts).workgroup(0, 1));
        let dir = at(&format!("r{rank}.cpt"));
        script.write(Path::new(&dir));
        merge.push(dir);
        expected.insert(rank.to_string(), json!(2.0 * lasts as f64 / 1_000.0));
    }
    said(program, &merge.iter().map(String::as_str).collect::<Vec<_>>());
    std::fs::create_dir(scratch.join("traces")).unwrap();
    for rank in ["0", "1", "2", "3"] {
        let to = at(&format!("traces/{rank}.json"));
        said(program, &["trace", "export", &at("all.cpt"), "--rank", rank, "-o", &to]);
    }
    let mut command = Command::new(python);
    let looked = command.args(["-c", LOOK, &at("traces")]).output().unwrap();
    assert!(looked.status.success(), "{looked:?}");
    let text = String::from_utf8(looked.stdout).unwrap();
    let found: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(found, json!(expected));
}

/// Rank n multiplies matrices 3 + n times. `run` records the launcher and all ranks.
#[test]
fn torchrun_records_every_rank() {
    let test = "torchrun_records_every_rank";
    let Some(program) = counterpoint(test) else { return };
    let Some(python) = crate::support::torch(test) else { return };
    let scratch = Scratch::new();
    let script =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs/torchrun_ranks.py");
    let profile = scratch.join("job.cpt").display().to_string();
    let mut run = Command::new(&program);
    run.args(["run", "-e", "none", "-o", &profile, "--"]).arg(python.with_file_name("torchrun"));
    run.args(["--standalone", "--nproc-per-node=2"]).arg(&script);
    let done = crate::support::with_shared_shims(&mut run).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let said_by_ranks = String::from_utf8_lossy(&done.stdout);
    for rank in ["rank 0 of 2: 4096", "rank 1 of 2: 4096"] {
        assert!(said_by_ranks.contains(rank), "{said_by_ranks}");
    }

    let of_launcher = |row: &&Value| !row["rank"].is_null();
    let rows = report(&program, &profile, &["--by", "rank", "--sort", "rank"])["rows"].clone();
    let ranks = rows.as_array().unwrap().iter().filter(of_launcher);
    let ranks: Vec<Value> = ranks.map(|row| json!([row["rank"], row["world_size"]])).collect();
    assert_eq!(ranks, [json!([0, 2]), json!([1, 2])]);
    for rank in 0..2_u64 {
        let rows = report(&program, &profile, &["--rank", &rank.to_string()])["rows"].clone();
        let mm = rows.as_array().unwrap().iter().find(|row| row["op"] == "aten::mm").unwrap();
        assert_eq!(mm["calls"], 3 + rank, "{mm}");
    }

    let Some(mut perfetto) = TraceProcessor::start(test) else { return };
    let to = scratch.join("job.pftrace");
    said(&program, &["trace", "export", &profile, "-o", to.to_str().unwrap()]);
    assert_eq!(perfetto.faults(&to), Vec::<Vec<Value>>::new());
    let of_ranks = "select substr(p.name, 1, 6), count(distinct upid), count(*) from slice s \
         join thread_track tt on tt.id = s.track_id join thread using (utid) \
         join process p using (upid) where s.name = 'aten::mm' group by 1 order by 1";
    let found = perfetto.query(of_ranks);
    assert_eq!(
        found,
        [vec![json!("rank 0"), json!(1), json!(3)], vec![json!("rank 1"), json!(1), json!(4)]]
    );

    // Tools that compare ranks expect one file for each rank.
    let Some(python) = crate::support::hta(test) else { return };
    let traces = scratch.join("traces");
    std::fs::create_dir(&traces).unwrap();
    for rank in ["0", "1"] {
        let to = traces.join(format!("{rank}.json")).display().to_string();
        said(&program, &["trace", "export", &profile, "--rank", rank, "-o", &to]);
    }
    let looked = Command::new(python).args(["-c", COUNT]).arg(&traces).output().unwrap();
    assert!(looked.status.success(), "{looked:?}");
    let text = String::from_utf8(looked.stdout).unwrap();
    let found: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(found, json!({"0": 3, "1": 4}));
}

/// A Python program that prints the number of matrix multiplications in the trace of each rank.
const COUNT: &str = r"
import json, logging, sys
logging.disable(logging.WARNING)
from hta.trace_analysis import TraceAnalysis
traces = TraceAnalysis(trace_dir=sys.argv[1]).t
mm = traces.symbol_table.get_sym_id_map()['aten::mm']
print(json.dumps({rank: int((traces.get_trace(rank)['name'] == mm).sum()) for rank in traces.get_ranks()}))
";
