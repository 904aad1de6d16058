//! Tests `report` (also its HTML page) and `diff` with datasets, and tests `run --dataset`.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use dataset::{Dataset, Options, export};
use profile::Profile;
use serde_json::Value;
use testkit::{CallScript, Firefox, ProfileScript, Scratch};

use crate::page_data::block;
use crate::support::counterpoint;

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");

/// Returns a profile with ten iterations. Each consists of `conv`, a wait in `all_reduce` until the
/// iteration has taken 100 µs, and a short call of `norm`. One tick is 1 ns.
fn script(rank: u32, conv: u64) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.manifest.host = format!("node{}", rank / 8);
    let process = script.process(1_000 + rank);
    process.library("model", &["conv", "all_reduce", "norm"]);
    let main = process.thread("main");
    for i in 0..10u64 {
        let at = 1_000_000 + 200_000 * i;
        let conv = conv + 100 * (i % 3) + u64::from(rank * 37 % 11) * 10;
        let norm = 5_000 + u64::from(rank * 29 % 7) * 5;
        main.call(CallScript::new(0, at, conv))
            .call(CallScript::new(1, at + conv, 100_000 - conv))
            .call(CallScript::new(2, at + 100_000, norm));
    }
    script
}

fn add(dir: &Path, run: &str, rank: u32, size: u32, script: &ProfileScript) {
    let (_scratch, path) = script.written();
    let options = Options {
        run: run.to_owned(),
        rank,
        part: format!("{run}-{rank:08x}"),
        world_size: Some(size),
        calls: false,
        redacted: false,
        unfinished: false,
    };
    export(&Profile::open(&path).unwrap(), dir, &options).unwrap();
}

/// There are 64 ranks. In each iteration, `conv` takes about 3 µs longer on rank 17 than on the
/// other ranks.
fn planted(dir: &Path) {
    for rank in 0..64 {
        let conv = if rank == 17 { 43_000 } else { 40_000 };
        add(dir, "train", rank, 64, &script(rank, conv));
    }
}

fn run(args: &[&str]) -> Output {
    Command::new(PROGRAM).args(args).env("LC_ALL", "C").output().unwrap()
}

fn text(args: &[&str]) -> String {
    let done = run(args);
    assert_eq!(done.status.code(), Some(0), "{args:?}: {done:?}");
    String::from_utf8(done.stdout).unwrap()
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&text(&[args, &["--format", "json"]].concat())).unwrap()
}

fn row<'a>(of: &'a Value, column: &str, value: &Value) -> &'a Value {
    let mut rows = of["rows"].as_array().unwrap().iter();
    rows.find(|row| &row[column] == value).unwrap_or_else(|| panic!("{column} {value}: {of}"))
}

fn head(page: &Path) -> Value {
    serde_json::from_slice(&block(&fs::read_to_string(page).unwrap(), "head")).unwrap()
}

#[test]
fn the_slow_rank_among_64_is_in_the_first_sentence() {
    let scratch = Scratch::new();
    let dir = scratch.join("job");
    planted(&dir);
    let dir = dir.to_str().unwrap();
    // The script adds (37·17 mod 11) · 10 = 20 ns to each call of `conv` on rank 17. The median of
    // these additions over all ranks is 50 ns, so rank 17 is above the median by 10 · (3,000 + 20 −
    // 50) ns.
    let first = "rank 17 is slow because of conv: 431 µs there without calls inside, 29.7 µs (7.40 %) above the \
                 median of 64 ranks";
    for by in ["op", "rank"] {
        let said = text(&["report", dir, "--by", by, "--width", "200"]);
        assert_eq!(said.lines().next(), Some(first), "{said}");
        assert!(said.contains("clocks: 64 ranks on 8 machines"), "{said}");
    }
    let ranks = json(&["report", dir, "--by", "rank"]);
    assert_eq!(ranks["sentences"][0], first);
    let found: Vec<&Value> = ranks["runs"][0]["slow"].as_array().unwrap().iter().collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((&found[0]["rank"], &found[0]["op"]), (&17.into(), &"conv".into()));
    assert_eq!(found[0]["above_ns"], 29_700.0);
    let slow = &ranks["rows"][0];
    assert_eq!((&slow["rank"], &slow["stands_out"]), (&17.into(), &"!".into()));
    // The ranks wait for each other, so the whole run takes about the same time on all of them.
    assert!(ranks["runs"][0]["imbalance"].as_f64().unwrap() < 1.001);
    let ops = json(&["report", dir]);
    let conv = row(&ops, "op", &"conv".into());
    assert_eq!(
        (&conv["ranks"], &conv["calls"], &conv["most_rank"]),
        (&64.into(), &640.into(), &17.into())
    );
    // On each rank, the script makes some of the 10 calls of `conv` longer, by (0 + 100 + 200) · 3
    // + 0 = 900 ns in all.
    let noise: u64 = (0..64u64).map(|rank| rank * 37 % 11 * 10 * 10).sum();
    let expected = 64 * (400_000 + 900) + noise + 30_000;
    assert_eq!(conv["total_ns"].as_f64(), Some(expected as f64));
    let p50 = conv["p50_ns"].as_f64().unwrap();
    assert!((p50 / 40_150.0 - 1.0).abs() < 1.0 / 128.0 + 0.002, "{p50}");
    let some = json(&["report", dir, "--filter", "con*", "--sort", "calls"]);
    assert_eq!(some["rows"].as_array().map(Vec::len), Some(1));
    let one = json(&["report", dir, "--rank", "3"]);
    assert_eq!(row(&one, "op", &"norm".into())["ranks"], 1);
}

#[test]
fn clocks_are_aligned_by_an_op_that_waits() {
    let scratch = Scratch::new();
    let dir = scratch.join("job");
    for rank in 0..6u32 {
        let mut script = script(rank, 40_000);
        // The clock of each rank is ahead of that of rank 0 by 7 ms times the rank's number.
        script
            .manifest
            .snapshots
            .iter_mut()
            .for_each(|s| s.realtime_ns += u64::from(rank) * 7_000_000);
        let (_scratch, path) = script.written();
        let options = Options {
            run: "r".to_owned(),
            rank,
            part: format!("{rank}"),
            world_size: Some(6),
            calls: rank < 5,
            redacted: false,
            unfinished: false,
        };
        export(&Profile::open(&path).unwrap(), &dir, &options).unwrap();
    }
    let path = dir.to_str().unwrap();
    let args = ["report", path, "--by", "rank", "--align-by", "all_*"];
    let done = run(&args);
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(said.contains("rank 5 has no calls of it in the dataset"), "{said}");
    fs::remove_dir_all(dir.join("parts/run=r/rank=5")).unwrap();
    let found = json(&args);
    for rank in 0..5 {
        let of = row(&found, "rank", &rank.into());
        let (offset, by) =
            (of["offset_ns"].as_f64().unwrap(), of["offset_uncertainty_ns"].as_f64().unwrap());
        let truth = -7_000_000.0 * f64::from(rank);
        assert!((offset - truth).abs() <= by, "{rank}: {offset} ± {by}");
        // In each iteration, a rank waits in `all_reduce` for about 60 µs; its clock cannot be
        // aligned more exactly.
        assert!(if rank == 0 { by == 0.0 } else { by > 50_000.0 && by < 61_000.0 }, "{by}");
    }
    let said = text(&["report", path, "--align-by", "all_*", "--width", "200"]);
    assert!(said.contains("clocks: those of 5 ranks are aligned to ±"), "{said}");
}

#[test]
fn incomplete_ranks_are_named_in_every_answer() {
    let scratch = Scratch::new();
    let dir = scratch.join("job");
    planted(&dir);
    let whole = json(&["report", dir.to_str().unwrap(), "--by", "rank"]);
    for rank in [5, 6, 40] {
        fs::remove_dir_all(dir.join(format!("parts/run=train/rank={rank}"))).unwrap();
    }
    let stats = dir.join("stats/run=train/rank=50");
    let file = fs::read_dir(stats).unwrap().next().unwrap().unwrap().path();
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    let path = dir.to_str().unwrap();
    let missing = "run train: 3 of 64 ranks are missing: 5 to 6, 40";
    let broken = "run train: rank 50 is incomplete and left out: ";
    let named = |text: &str| assert!(text.contains(missing) && text.contains(broken), "{text}");
    named(&text(&["report", path, "--width", "300"]));
    named(&text(&["report", path, "--by", "rank", "--width", "300"]));
    let csv = run(&["report", path, "--format", "csv"]);
    named(&String::from_utf8_lossy(&csv.stderr));
    let page = scratch.join("job.html");
    text(&["report", path, "--html", page.to_str().unwrap()]);
    named(&head(&page)["warnings"].to_string());
    let other = scratch.join("other");
    planted(&other);
    named(&text(&["diff", path, "--against", other.to_str().unwrap(), "--width", "300"]));
    let found = json(&["report", path, "--by", "rank"]);
    named(&format!(
        "{} {}",
        found["incomplete"][0].as_str().unwrap(),
        found["incomplete"][1].as_str().unwrap()
    ));
    let rows = found["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 60);
    for of in rows {
        let before = row(&whole, "rank", &of["rank"]);
        assert_eq!((&of["calls"], &of["self_ns"]), (&before["calls"], &before["self_ns"]));
    }
    assert_eq!(found["runs"][0]["slow"][0]["rank"], 17);
}

#[test]
fn the_page_has_what_the_report_says() {
    let scratch = Scratch::new();
    let (dir, page) = (scratch.join("job"), scratch.join("job.html"));
    planted(&dir);
    text(&["report", dir.to_str().unwrap(), "--html", page.to_str().unwrap()]);
    let head = head(&page);
    assert!(head["sentences"][0].as_str().unwrap().starts_with("rank 17 is slow because of conv"));
    let tables = head["tables"].as_array().unwrap();
    let sizes: Vec<_> = tables
        .iter()
        .map(|t| (t["id"].as_str().unwrap(), t["rows"].as_array().unwrap().len()))
        .collect();
    assert_eq!(sizes, [("op", 3), ("rank", 64)]);
    let first = tables[1]["rows"][0].to_string();
    assert!(first.contains("\"17\"") && first.contains("conv"), "{first}");
    let Some(mut browser) = Firefox::start("light") else { return };
    browser.open(&page);
    for (view, has) in
        [("overview", "rank 17 is slow because of conv"), ("ops?table=rank", "node7")]
    {
        browser.eval(&format!("location.hash = '{view}'"));
        browser.wait_for(&format!("document.querySelector('main').innerText.includes('{has}')"));
    }
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[test]
fn what_needs_calls_is_refused() {
    let scratch = Scratch::new();
    let dir = scratch.join("job");
    add(&dir, "a", 0, 1, &script(0, 40_000));
    let dir = dir.to_str().unwrap();
    let refused = |args: &[&str], why: &str| {
        let done = run(args);
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(why), "{args:?}: {said}");
    };
    refused(&["report", dir, "--tree"], "--tree cannot be used with a dataset");
    refused(&["report", dir, "--by", "thread"], "--by thread cannot be used with a dataset");
    refused(&["report", dir, "--run", "b"], "there are no such recordings in it");
    refused(&["diff", dir, "--against", dir], "the same dataset twice");
    refused(&["diff", dir], "a dataset is compared with a dataset");
    let other = scratch.join("other");
    add(&other, "a", 1, 2, &script(1, 40_000));
    let other = other.to_str().unwrap();
    refused(
        &["diff", dir, "--against", other],
        "there is no rank that all runs of the datasets have",
    );
    refused(
        &["diff", dir, "--against", other, "--threshold", "1%"],
        "changes below 1.6 % cannot be told",
    );
}

/// In B, conv takes a tenth longer. One run of B lacks a rank.
#[test]
fn runs_of_a_dataset_are_repeats() {
    let scratch = Scratch::new();
    let (a, b) = (scratch.join("a"), scratch.join("b"));
    for repeat in 0..7u64 {
        for rank in 0..4 {
            let run = format!("r{repeat}");
            let conv = 40_000 + 60 * repeat;
            add(&a, &run, rank, 4, &script(rank, conv));
            if (repeat, rank) != (2, 3) {
                add(&b, &run, rank, 4, &script(rank, conv * 11 / 10));
            }
        }
    }
    let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
    let found = json(&["diff", a, "--against", b, "--paired"]);
    assert_eq!((found["a"].as_array().unwrap().len(), &found["pairs"]), (7, &7.into()));
    let of = |name: &str| {
        let rows = found["rows"].as_array().unwrap();
        rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("{name}: {found}"))
    };
    assert_eq!(of("conv")["verdict"], "slower", "{found}");
    let change = of("conv")["change"].as_f64().unwrap();
    assert!((change - 0.1).abs() < 2.0 / 128.0, "{change}");
    assert_eq!(of("norm")["verdict"], "same", "{found}");
    let notes = found["notes"].to_string();
    assert!(notes.contains("run r2: 1 of 4 ranks is missing: 3"), "{notes}");
    assert!(notes.contains("compared are the 3 ranks that all runs have; left out: 3"), "{notes}");
    let said = text(&["diff", a, "--against", b, "--width", "200"]);
    assert!(said.contains("7 runs of "), "{said}");
    assert!(said.contains("not interleaved: ratios are shown, and not tested"), "{said}");
}

/// Returns a command that records the program `true`, which makes no calls, and adds the recording
/// to the dataset. A recording without calls is added, too.
fn record(program: &Path, dataset: &Path, profile: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.arg("run").arg("--dataset").arg(dataset).arg("-o").arg(profile).args(options);
    command.args(["-e", "none", "--", "true"]).env_clear().env("PATH", "/usr/bin:/bin");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn a_run_adds_itself() {
    let Some(program) = counterpoint("run --dataset") else { return };
    let scratch = Scratch::new();
    let dir = scratch.join("job");
    let done = record(
        &program,
        &dir,
        &scratch.join("a.cpt"),
        &["--rank", "3", "--world-size", "5", "--label", "run=x"],
    )
    .output()
    .unwrap();
    assert!(done.status.success() && done.stdout.is_empty(), "{done:?}");
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(said.contains("job: the recording was added"), "{said}");
    // Launchers set different variables.
    let launchers: [(u32, &[(&str, &str)]); 3] = [
        (0, &[("RANK", "0"), ("WORLD_SIZE", "5"), ("TORCHELASTIC_RUN_ID", "x")]),
        (
            1,
            &[
                ("OMPI_COMM_WORLD_RANK", "1"),
                ("OMPI_COMM_WORLD_SIZE", "5"),
                ("PMIX_NAMESPACE", "x"),
            ],
        ),
        (2, &[("SLURM_PROCID", "2"), ("SLURM_NTASKS", "5"), ("SLURM_JOB_ID", "x")]),
    ];
    for (_, variables) in launchers {
        let mut command = Command::new(&program);
        command.arg("run").arg("--dataset").arg(&dir).args(["-e", "none", "--", "true"]);
        command.env_clear().env("PATH", "/usr/bin:/bin").envs(variables.iter().copied());
        let done = command.current_dir(scratch.path()).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    }
    let found = Dataset::open(&dir).unwrap();
    let members: Vec<_> =
        found.members().iter().map(|m| (m.run.clone(), m.rank, m.world_size)).collect();
    let expected: Vec<_> = (0..4).map(|rank| ("x".to_owned(), rank, Some(5))).collect();
    assert_eq!(members, expected);
    assert!(scratch.join("counterpoint.rank2.cpt").is_dir());
    // The profiles say their rank and run, so the environment of `export` has no influence on
    // these.
    for rank in 0..3 {
        let mut export = Command::new(&program);
        export.arg("export").arg(format!("counterpoint.rank{rank}.cpt"));
        export.arg("--dataset").arg(&dir).current_dir(scratch.path());
        export.env_clear().envs([("RANK", "4"), ("WORLD_SIZE", "5"), ("SLURM_JOB_ID", "y")]);
        let said = String::from_utf8(export.output().unwrap().stdout).unwrap();
        assert!(said.ends_with(&format!("rank {rank} of run x is already there\n")), "{said}");
    }
    let unknown = record(&program, &dir, &scratch.join("b.cpt"), &[]).output().unwrap();
    let said = String::from_utf8(unknown.stderr).unwrap();
    assert_eq!(unknown.status.code(), Some(0));
    assert!(said.contains("it is not known which rank it is of"), "{said}");
    assert!(said.contains("nothing was added; later: counterpoint export"), "{said}");
    fs::write(scratch.join("notes.txt"), "mine").unwrap();
    let other = record(&program, scratch.path(), &scratch.join("c.cpt"), &["--rank", "0"])
        .output()
        .unwrap();
    assert_eq!(other.status.code(), Some(2), "{other:?}");
    assert!(!scratch.join("c.cpt").exists(), "the program has not run");
}

/// The kills are distributed over the whole life of `run`.
#[test]
fn a_run_that_is_killed_leaves_the_old_or_the_new_dataset() {
    const KILLS: u32 = 60;
    let Some(program) = counterpoint("run --dataset") else { return };
    let scratch = Scratch::new();
    let reference = scratch.join("reference");
    let options = |rank: &'static str| ["--rank", rank, "--world-size", "2", "--label", "run=x"];
    let path = |name: String| -> PathBuf { scratch.join(&name) };
    assert!(
        record(&program, &reference, &path("0.cpt".into()), &options("0"))
            .output()
            .unwrap()
            .status
            .success()
    );
    let since = Instant::now();
    let twin = path("twin".into());
    copy(&reference, &twin);
    assert!(
        record(&program, &twin, &path("1.cpt".into()), &options("1"))
            .output()
            .unwrap()
            .status
            .success()
    );
    let usual = since.elapsed();
    let mut seen = [0u32; 2];
    for number in 0..KILLS {
        let dir = path(format!("d{number}"));
        copy(&reference, &dir);
        let mut command = record(&program, &dir, &path(format!("k{number}.cpt")), &options("1"));
        let mut child =
            command.process_group(0).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(usual * number / KILLS + Duration::from_micros(200));
        // SAFETY: `killpg` takes numbers only. The child is waited for after this call, so the
        // process id still belongs to the child.
        unsafe { libc::killpg(child.id().cast_signed(), libc::SIGKILL) };
        child.wait().unwrap();
        let found = Dataset::open(&dir).unwrap();
        assert!(!found.gaps.iter().any(dataset::Gap::is_left_out), "{number}: {:?}", found.gaps);
        let ranks: Vec<u32> = found.members().iter().map(|member| member.rank).collect();
        assert!(ranks == [0] || ranks == [0, 1], "{number}: {ranks:?}");
        seen[ranks.len() - 1] += 1;
        let again = record(&program, &dir, &path(format!("a{number}.cpt")), &options("1"))
            .output()
            .unwrap();
        assert!(again.status.success(), "{again:?}");
        let found = Dataset::open(&dir).unwrap();
        assert!(found.members().len() >= 2 && !found.gaps.iter().any(dataset::Gap::is_left_out));
    }
    assert!(seen[0] > 0, "{seen:?}");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &target),
            false => drop(fs::copy(&path, &target).unwrap()),
        }
    }
}
