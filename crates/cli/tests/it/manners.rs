//! Tests what many commands have in common, such as the pager, colours and the line of progress.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use testkit::Scratch;

use crate::pty;

fn counterpoint(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_counterpoint"));
    command.args(words).env_remove("PAGER").env_remove("NO_COLOR").env("COLUMNS", "88");
    command
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Copies a profile from `fixtures/readme`, and returns the copy's path.
fn kept(scratch: &Scratch, name: &str) -> String {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/readme").join(name);
    let to = scratch.join(&format!("{name}.cpt"));
    let copied = Command::new("cp").arg("-r").arg(from).arg(&to).status().unwrap();
    assert!(copied.success());
    to.display().to_string()
}

#[test]
fn views_go_through_the_pager_on_a_terminal_only() {
    let scratch = Scratch::new();
    let profile = kept(&scratch, "iree");
    let marked = |words: &[&str]| {
        let mut command = counterpoint(words);
        let (status, text) = pty::shown(command.env("COUNTERPOINT_PAGER", "sed s/^/PAGE:/"), 88);
        (status.code(), text)
    };
    let (status, text) = marked(&["report", &profile]);
    assert_eq!(status, Some(0));
    assert!(text.lines().count() > 10 && text.lines().all(|l| l.starts_with("PAGE:")), "{text}");
    assert!(text.contains("\x1b[") && text.lines().all(|l| l.chars().count() < 120), "{text}");
    let (_, plain) = marked(&["report", "--no-pager", &profile]);
    assert_eq!(plain.replace("PAGE:", ""), plain);
    assert_eq!(text.replace("PAGE:", ""), plain);
    let (_, explained) = marked(&["explain", &profile]);
    assert!(explained.lines().all(|line| line.starts_with("PAGE:")), "{explained}");
    // Commands that are not views use no pager, and neither do views that print into a pipe.
    assert!(!marked(&["completions", "bash"]).1.contains("PAGE:"));
    let mut piped = counterpoint(&["report", &profile]);
    let piped = said(&piped.env("COUNTERPOINT_PAGER", "sed s/^/PAGE:/").output().unwrap());
    assert!(!piped.contains("PAGE:"));
    // The exit status is that of `report`, and not that of the pager.
    assert_eq!(marked(&["report", "--filter", "nothing*", &profile]).0, Some(1));
}

#[test]
fn a_pager_that_is_missing_or_leaves_early() {
    let scratch = Scratch::new();
    let profile = kept(&scratch, "iree");
    let with = |pager: &str| {
        let mut command = counterpoint(&["report", &profile]);
        let (status, text) = pty::shown(command.env("COUNTERPOINT_PAGER", pager), 88);
        (status.code(), text)
    };
    let (status, text) = with("no-such-pager-anywhere");
    assert_eq!(status, Some(2));
    assert!(text.contains("the pager no-such-pager-anywhere cannot be started"), "{text}");
    // This pager ends early.
    assert_eq!(with("true").0, Some(0));
}

#[test]
fn colours_as_they_are_asked_for() {
    let scratch = Scratch::new();
    let profile = kept(&scratch, "iree");
    let piped = |words: &[&str]| said(&counterpoint(words).output().unwrap());
    let plain = piped(&["report", &profile]);
    assert!(!plain.contains('\x1b'));
    let always = piped(&["report", "--color", "always", &profile]);
    assert!(always.contains("\x1b[1m"), "{always}");
    let (_, never) = pty::shown(&mut counterpoint(&["--color=never", "report", &profile]), 88);
    assert_eq!(never, plain);
    let mut refused = counterpoint(&["report", &profile]);
    let (_, refused) = pty::shown(refused.env("NO_COLOR", "1"), 88);
    assert_eq!(refused, plain);
}

#[test]
fn what_to_type_next_fits_what_was_recorded() {
    let scratch = Scratch::new();
    for (name, command) in [("iree", "report"), ("torch", "report"), ("tvm", "loops report")] {
        let profile = kept(&scratch, name);
        let told = counterpoint(&["recover", &profile]).output().unwrap();
        let told = String::from_utf8(told.stderr).unwrap();
        let page = match command {
            "report" => format!(" (for a page in the browser, add --html={name}.html)"),
            _ => String::new(),
        };
        let next = format!("; next: counterpoint {command} {profile}{page}\n");
        assert!(told.ends_with(&next), "{told}");
        let (_, typed) = told.trim_end().rsplit_once("next: counterpoint ").unwrap();
        let (typed, page) = typed.split_once(" (").unwrap_or((typed, ""));
        let mut words: Vec<&str> = typed.split(' ').collect();
        assert!(said(&counterpoint(&words).output().unwrap()).lines().count() > 5);
        if let Some(at) = page.find("--html") {
            words.push(&page[at..page.len() - 1]);
            said(counterpoint(&words).current_dir(scratch.path()).output().as_ref().unwrap());
            assert!(scratch.join(&format!("{name}.html")).is_file());
        }
    }
}

#[test]
fn a_page_that_was_asked_for_is_not_suggested() {
    let scratch = Scratch::new();
    let profile = kept(&scratch, "iree");
    let summary = |words: &[&str]| {
        let words = [&["session", "summary"], words, &["--", &profile]].concat();
        said(&counterpoint(&words).output().unwrap())
    };
    let without = summary(&["--has-page"]);
    assert!(without.ends_with(&format!("; next: counterpoint report {profile}\n")), "{without}");
    let with = summary(&[]);
    assert!(with.starts_with(without.trim_end()) && with.contains("--html=iree.html"), "{with}");
}

#[test]
fn views_take_each_others_words() {
    let scratch = Scratch::new();
    let profile = kept(&scratch, "iree");
    let shown =
        |words: &[&str]| said(&counterpoint(&[words, &[&profile]].concat()).output().unwrap());
    for command in ["report", "ops", "stats", "explain", "critical-path"] {
        let plain = shown(&[command]);
        for name in ["text", "table"] {
            assert_eq!(shown(&[command, "--format", name]), plain, "{command} {name}");
        }
    }
    for command in ["report", "stats", "explain"] {
        let [filter, op] = ["--filter", "--op"].map(|name| shown(&[command, name, "*softmax*"]));
        assert_eq!(filter, op, "{command}");
        assert!(op.contains("softmax"), "{op}");
    }
}

#[test]
fn completions_and_manual_pages() {
    let scratch = Scratch::new();
    let share = scratch.path().display().to_string();
    said(&counterpoint(&["session", "manuals", &share]).output().unwrap());
    let read = |name: &str| std::fs::read_to_string(scratch.join(name)).unwrap();
    for (shell, name) in [
        ("bash", "bash-completion/completions/counterpoint"),
        ("zsh", "zsh/site-functions/_counterpoint"),
        ("fish", "fish/vendor_completions.d/counterpoint.fish"),
    ] {
        let printed = said(&counterpoint(&["completions", shell]).output().unwrap());
        assert_eq!(printed, read(name), "{shell}");
        assert!(printed.contains("report") && printed.contains("no-pager"), "{shell}");
    }
    let bash = scratch.join("bash-completion/completions/counterpoint");
    let asked = format!(
        "source {}; COMP_WORDS=(counterpoint rep); COMP_CWORD=1; _counterpoint counterpoint rep \
         counterpoint; echo \"${{COMPREPLY[@]}}\"",
        bash.display()
    );
    let told = Command::new("bash").args(["--norc", "-c", &asked]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&told.stdout).trim(), "report");
    // The manual page of a command has every option that the command's help mentions.
    for command in ["run", "report", "diff", "trace-export"] {
        let page = read(&format!("man/man1/counterpoint-{command}.1")).replace('\\', "");
        let words: Vec<&str> = command.split('-').chain(["--help"]).collect();
        let help = said(&counterpoint(&words).output().unwrap());
        let options = help.split_whitespace().filter(|w| w.starts_with("--") && w.len() > 2);
        for option in options.map(|w| w.trim_end_matches([',', '.', ')', ';', ':'])) {
            let option = option.split(['=', '[', '<']).next().unwrap();
            assert!(page.contains(option), "{command}: {option}");
        }
    }
    assert!(!scratch.join("man/man1/counterpoint-session.1").exists(), "a hidden command");
}

#[test]
fn the_version_says_what_was_built() {
    let short = said(&counterpoint(&["-V"]).output().unwrap());
    assert_eq!(short, format!("counterpoint {}\n", env!("CARGO_PKG_VERSION")));
    let long = said(&counterpoint(&["--version"]).output().unwrap());
    assert!(long.starts_with(short.trim_end()), "{long}");
    assert!(
        long.contains("\nbuilt: ") && long.contains("\nprofiles: counterpoint.manifest/1\n"),
        "{long}"
    );
}

#[test]
fn help_for_agents_is_that_of_the_command() {
    let help = said(&counterpoint(&["help", "agents"]).output().unwrap());
    assert_eq!(help, said(&counterpoint(&["agents"]).output().unwrap()));
    for part in ["Exit statuses: 0 done", "counterpoint.report/1", "trace export: ", "never mean 0"]
    {
        assert!(help.contains(part), "{part}");
    }
    assert!(help.lines().all(|line| !line.contains('\x1b')));
}

/// Returns what a command shows on a terminal while it reads a FIFO, which ends when the command
/// has erased its line of progress `times` times. If `times` is 0, the FIFO ends only after the
/// command had enough time to show that line.
fn shown_while_it_waits(scratch: &Scratch, words: &[&str], times: usize) -> String {
    let fifo = scratch.join("slow.json");
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let (mut ours, theirs) = pty::open(50);
    // SAFETY: fcntl takes numbers only, and `ours` keeps its descriptor open.
    unsafe { libc::fcntl(ours.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
    let mut command = counterpoint(words);
    command.arg(&fifo).env("TERM", "xterm").stdin(Stdio::null());
    command.stdout(theirs.try_clone().unwrap()).stderr(theirs);
    let mut child = command.spawn().unwrap();
    // The test reads until all descriptors of the terminal's other side are closed, and `command`
    // has two of them.
    drop(command);
    let mut writer = File::options().write(true).open(&fifo).unwrap();
    writer.write_all(b"{\"traceEvents\": [").unwrap();
    let end = |mut writer: File| writer.write_all(b"]}").unwrap();
    let mut writer = Some(writer);
    if times == 0 {
        thread::sleep(Duration::from_millis(1500));
        writer.take().map(end);
    }
    let (mut text, mut part) = (String::new(), [0; 4096]);
    while let Ok(n) = ours.read(&mut part)
        && n > 0
    {
        text += std::str::from_utf8(&part[..n]).unwrap();
        if text.matches(pty::ERASE).count() >= times {
            writer.take().map(end);
        }
    }
    assert!(child.wait().unwrap().code().is_some());
    std::fs::remove_file(fifo).unwrap();
    text
}

#[test]
fn progress_is_shown_on_a_terminal_and_erased() {
    let scratch = Scratch::new();
    let words = ["trace", "check"];
    // The line of progress shortens the file's name, so that it fits into the width of the
    // terminal.
    let text = shown_while_it_waits(&scratch, &words, 3);
    let parts: Vec<&str> = text.split(pty::ERASE).collect();
    for line in &parts[1..3] {
        assert!(line.starts_with("counterpoint: reading ") && line.ends_with(" s"), "{line:?}");
        assert!(line.contains('…') && line.chars().count() < 50, "{line:?}");
    }
    // After the line of progress is erased, the result is printed where it would be without this
    // line.
    let last = parts.last().unwrap();
    assert!(last.contains("slow.json: ") && last.ends_with('\n'), "{text:?}");
    let left = pty::without_progress(&text);
    assert!(!left.contains("reading") && left.matches('\n').count() == last.matches('\n').count());
}

#[test]
fn no_progress_in_files_and_where_nobody_wants_it() {
    let scratch = Scratch::new();
    for words in [&["-q", "trace", "check"][..], &["trace", "check", "--quiet"]] {
        let text = shown_while_it_waits(&scratch, words, 0);
        assert!(text.contains("slow.json: ") && !text.contains(pty::ERASE), "{text:?}");
    }
}

#[test]
fn quiet_and_verbose_mean_the_same_everywhere() {
    let scratch = Scratch::new();
    let profile = kept(&scratch, "iree");
    let told = |words: &[&str]| {
        let output = counterpoint(words).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let trace = scratch.join("x.json").display().to_string();
    let both = scratch.join("both.cpt").display().to_string();
    for words in [
        &["trace", "export", &profile, "-o", &trace][..],
        &["merge", &profile, "-o", &both],
        &["recover", &profile],
        &["report", &profile],
    ] {
        let plain = told(words);
        let words_of = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let quiet = words_of(&told(&[&["-q"], words].concat()));
        assert!(quiet.iter().all(|line| line.contains("warning: ") || line.contains("note: ")));
        // With `--verbose`, each step is printed with its time.
        let verbose = told(&[words, &["--verbose"]].concat());
        let steps: Vec<&str> = verbose.lines().filter(|line| !plain.contains(line)).collect();
        assert!(!steps.is_empty(), "{words:?}: {verbose}");
        for step in steps {
            assert!(step.ends_with('s') && step.contains("ing"), "{step}");
        }
    }
    let refused = counterpoint(&["-q", "report", "-v", &profile]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
}

/// Views read settings of their appearance from `counterpoint.toml`; if the file has a mistake,
/// they say so and use no settings.
#[test]
fn a_mistake_in_the_file_of_defaults_hides_nothing() {
    let scratch = Scratch::new();
    let profile = kept(&scratch, "iree");
    std::fs::write(scratch.join("counterpoint.toml"), "plugins = 1\n").unwrap();
    let run = |words: &[&str]| {
        let mut command = counterpoint(words);
        command.env("XDG_CONFIG_HOME", scratch.path()).current_dir(scratch.path());
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        (
            output.status.code(),
            output.stdout.len(),
            said.lines().map(str::to_owned).collect::<Vec<_>>(),
        )
    };
    for words in [&["report", &profile][..], &["list", "page-faults"]] {
        let (status, shown, said) = run(words);
        assert!(status == Some(0) && shown > 0, "{words:?}: {said:?}");
        assert!(said[0].contains("counterpoint.toml:1: \"plugins\" is not a key"), "{said:?}");
        assert!(said[0].ends_with("; no settings are used"), "{said:?}");
    }
    for words in [&["help", "agents"][..], &["completions", "bash"], &["--version"]] {
        assert_eq!(run(words).2, Vec::<String>::new(), "{words:?}");
    }
    // For `run`, `counterpoint.toml` determines what is recorded, so a mistake in it is an error.
    let (status, _, said) = run(&["run", "-o", "x.cpt", "--", "true"]);
    assert_eq!((status, said.len()), (Some(2), 1), "{said:?}");
}

/// A budget (a limit on the cost of recording) in `counterpoint.toml` is only a default. A run has
/// no budget if one of its options requires each call to be recorded.
#[test]
fn a_default_budget_gives_way_to_ids_for_plugins() {
    let Some(program) = crate::support::counterpoint("default budgets") else { return };
    let scratch = Scratch::new();
    std::fs::write(scratch.join("counterpoint.toml"), "budget = \"2%\"\n").unwrap();
    let budget = |profile: &str, option: &[&str]| {
        let mut command = Command::new(&program);
        command.args(["run", "-e", "none", "-o", profile]).args(option).args(["--", "true"]);
        command.env("XDG_CONFIG_HOME", scratch.path()).current_dir(scratch.path());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let manifest = scratch.path().join(profile).join("manifest.json");
        let manifest = std::fs::read_to_string(manifest).unwrap();
        serde_json::from_str::<serde_json::Value>(&manifest).unwrap()["budget"].clone()
    };
    assert!(!budget("with.cpt", &[]).is_null());
    assert!(budget("ids.cpt", &["--plugin-ids"]).is_null());
    assert!(budget("loops.cpt", &["--loops"]).is_null());
}
