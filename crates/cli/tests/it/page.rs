//! Tests the page of `report --html`, which is a JavaScript application, in a browser.
//!
//! `tests/page/make_page.py` makes pages from invented data. One test compares the script of such a
//! page with that of a page that Counterpoint wrote.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};
use testkit::{Browser, CallScript, ProfileScript, Scratch, skip_this};

use crate::support::counterpoint;

pub const WIDTHS: [u32; 3] = [1440, 800, 390];
pub const SCHEMES: [&str; 2] = ["light", "dark"];

pub fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Makes a page that shows invented data.
pub fn make(scratch: &Scratch, kind: &str) -> PathBuf {
    let page = scratch.join(&format!("{kind}.html"));
    let mut python = Command::new("python3");
    python.arg(folder("tests/page/make_page.py")).arg(kind).arg(&page);
    let out = python.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    page
}

/// Opens the page at a fragment, and waits until the view is complete.
pub fn open(browser: &mut Browser, page: &Path, fragment: &str) {
    browser.open(page, fragment);
    ready(browser);
}

pub fn ready(browser: &mut Browser) {
    browser.wait_for(
        "document.querySelector('main h1') && document.body.dataset.view && \
         (document.body.dataset.view !== 'timeline' || document.querySelector('canvas')?.dataset.frame)",
    );
    // A chart is drawn one or two frames after its position has become known.
    browser.eval("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))");
}

/// Returns the fragments (`#…` in the URL) of the page's views. Among them are the variants that a
/// view links to, tables with all columns, and `#op?by=thread&tail=all`.
fn views(browser: &mut Browser) -> Vec<String> {
    let links = |browser: &mut Browser, selector: &str| -> Vec<String> {
        let list = format!(
            "[...document.querySelectorAll('{selector}')].map((a) => a.getAttribute('href'))"
        );
        serde_json::from_value(browser.eval(&list)).unwrap()
    };
    let mut all = Vec::new();
    for view in links(browser, "header nav a") {
        browser.eval(&format!("location.hash = {}", json!(view)));
        browser.wait_for(&format!(
            "'#' + document.body.dataset.view === {}.split('?')[0]",
            json!(view)
        ));
        ready(browser);
        all.extend(links(browser, "main nav.chooser a"));
        if view.starts_with("#op") && !view.starts_with("#ops") {
            all.push("#op?by=thread&tail=all".to_owned());
        }
        // Some columns are hidden at first.
        if browser.eval("document.querySelector('.table-box') !== null") == true {
            let separator = if view.contains('?') { '&' } else { '?' };
            all.push(format!("{view}{separator}columns=all"));
        }
        all.push(view);
    }
    all
}

pub fn go(browser: &mut Browser, fragment: &str) {
    browser.eval(&format!("location.hash = {}", json!(fragment)));
    ready(browser);
}

pub const KINDS: [&str; 5] = ["usual", "hostile", "missing", "empty", "compare"];

/// A JavaScript expression for facts about a view. `made` counts elements that only a name with
/// HTML in it can create, so it must be 0.
pub const SEEN: &str = "({wide: document.documentElement.scrollWidth, window: innerWidth, \
       wrong: /\\b(?:NaN|undefined|Infinity|null)\\b|\\[object /.exec( \
         document.body.innerText + [...document.querySelectorAll('svg *, [aria-label]')] \
           .map((e) => e.outerHTML.slice(0, 2000)).join(' '))?.[0] ?? '', \
       title: document.title, \
       made: document.querySelectorAll('img, iframe, object, script, b > b').length, \
       moved: /[\\u202a-\\u202e\\u2066-\\u2069\\u200b\\ufeff]/.test(document.body.textContent)})";

/// Returns what axe-core finds. The dark scheme differs from the light one only in its colours, so
/// only the rules for colours are checked in it.
fn violations(browser: &mut Browser, scheme: &str) -> Vec<Value> {
    let rules = match scheme {
        "dark" => "['color-contrast', 'link-in-text-block']",
        _ => "['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']",
    };
    let found = browser.eval(&format!(
        "axe.run(document, {{runOnly: {rules}, resultTypes: ['violations'], preload: false}}) \
         .then((all) => all.violations.map((one) => one.id + ': ' + one.nodes \
         .slice(0, 3).map((n) => n.html.slice(0, 160) + ' ' + n.failureSummary).join(' | ')))"
    ));
    serde_json::from_value(found).unwrap()
}

/// The windows are as wide as a desktop, a tablet and a telephone. The browser must report no
/// message in its console and no network request.
#[test]
fn every_view_fits_is_quiet_and_accessible() {
    let Some(mut browser) = Browser::start() else { return };
    let axe = tool("COUNTERPOINT_AXE", "axe.min.js");
    let axe = axe.map(|file| std::fs::read_to_string(file).unwrap());
    let scratch = Scratch::new();
    let mut found = Vec::new();
    for kind in KINDS {
        let page = make(&scratch, kind);
        browser.resize(1440, 900);
        open(&mut browser, &page, "");
        let views = views(&mut browser);
        let least = [("empty", 2), ("compare", 2)].into_iter().find(|(name, _)| *name == kind);
        assert!(views.len() >= least.map_or(8, |(_, least)| least), "{kind}: {views:?}");
        if let Some(axe) = &axe {
            browser.eval(&format!("{axe}; 0"));
        }
        for width in WIDTHS {
            browser.resize(width, 900);
            for view in &views {
                go(&mut browser, view);
                for scheme in SCHEMES {
                    browser.scheme(scheme);
                    let seen = browser.eval(SEEN);
                    let place = format!("{kind} {view} {width} {scheme}: {seen}");
                    let fits = seen["wide"].as_u64() <= seen["window"].as_u64();
                    assert!(fits, "sideways: {place}");
                    assert_eq!(seen["wrong"], "", "{place}");
                    assert_eq!(seen["made"], 0, "a name became an element: {place}");
                    assert_eq!(seen["moved"], false, "a mark of direction: {place}");
                    assert_ne!(seen["title"], "ran", "{place}");
                    // The test does not check accessibility (with axe) at a width of 800 pixels.
                    if axe.is_none() || width == 800 {
                        continue;
                    }
                    let all = violations(&mut browser, scheme);
                    found.extend(all.iter().map(|one| format!("{place}: {one}")));
                }
            }
        }
        let complaints = browser.complaints();
        assert!(complaints.is_empty(), "{kind}: {complaints:#?}");
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// Returns the path of a file of a package. `cargo xtask test` downloads the package into a folder,
/// and sets the environment variable named by `variable` to its path.
fn tool(variable: &str, name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os(variable);
    if folder.is_none() {
        skip_this(&format!(
            "{variable} is not set (cargo xtask test fetches the package with npm)"
        ));
    }
    Some(PathBuf::from(folder?).join(name))
}

#[test]
fn the_types_of_the_modules_are_right() {
    let Some(compiler) = tool("COUNTERPOINT_TYPESCRIPT", "tsc.js") else { return };
    let config = folder("src/page/app/tsconfig.json");
    let out = Command::new("node").arg(compiler).arg("-p").arg(config).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
}

#[test]
fn modules_have_at_most_400_lines_and_a_header() {
    let app = folder("src/page/app");
    let list = std::fs::read_to_string(app.join("modules.txt")).unwrap();
    let mut files: Vec<String> = std::fs::read_dir(&app)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".js"))
        .collect();
    let mut listed: Vec<&str> = list.lines().collect();
    for name in &listed {
        let text = std::fs::read_to_string(app.join(name)).unwrap();
        assert!(text.starts_with("/**\n * "), "{name} has no header");
        assert!(text.lines().count() <= 400, "{name}");
    }
    files.sort();
    listed.sort_unstable();
    assert_eq!(files, listed);
}

/// The parts of this test share one browser.
#[test]
fn pages_are_used() {
    type Part = fn(&mut Browser, &Scratch);
    let Some(mut browser) = Browser::start() else { return };
    let scratch = Scratch::new();
    let parts: [(&str, Part); 12] = [
        ("hostile names", hostile_names_are_shown_as_text),
        ("links", the_fragment_has_the_state_and_back_goes_through_it),
        ("keyboard", everything_is_reached_with_the_keyboard),
        ("CSV", tables_are_copied_as_csv),
        ("comparison", a_comparison_is_sorted_and_filtered),
        ("moments", crate::page_moments::a_time_leads_to_its_call),
        ("loops", crate::page_shown::the_code_of_loops_is_all_in_sight),
        ("frames", crate::page_shown::the_timeline_needs_no_frame),
        ("verdicts", crate::page_shown::verdicts_are_sentences),
        ("meanings", crate::page_shown::meanings_are_beside_what_they_are_of),
        ("width", tables_fit_at_a_desk),
        ("themes", themes_and_print),
    ];
    for (name, part) in parts {
        eprintln!("{name}");
        part(&mut browser, &scratch);
        assert_eq!(browser.complaints(), Vec::<String>::new(), "{name}");
    }
}

fn hostile_names_are_shown_as_text(browser: &mut Browser, scratch: &Scratch) {
    let page = make(scratch, "hostile");
    open(browser, &page, "#ops?table=op");
    let names: Vec<String> = serde_json::from_value(
        browser.eval("[...document.querySelectorAll('tbody th bdi')].map((e) => e.textContent)"),
    )
    .unwrap();
    for name in [
        "<img src=x onerror=\"document.title='ran'\">0",
        "</script><script>document.title='ran'</script>1",
        "abc\\u202edef\\u2066ghi2",
        "\\u0000\\u0007\\u001b[31mred7",
        "tab\\u0009line\\u000abreak14",
        "{{script}}11",
    ] {
        assert!(names.iter().any(|shown| shown == name), "{name}: {names:?}");
    }
    assert!(names.iter().any(|name| name.len() > 5000 && name.starts_with("xxx")));
}

fn a_comparison_is_sorted_and_filtered(browser: &mut Browser, scratch: &Scratch) {
    let page = make(scratch, "compare");
    open(browser, &page, "");
    assert_eq!(browser.eval("document.body.dataset.view"), "compare");
    let marks = "[...document.querySelectorAll('.table-box tbody tr')].map((row) => \
        (row.querySelector('.point, .beyond')?.className ?? '').split(' ')[1] ?? '')";
    let expected = ["slower", "slower", "slower", "same", "same", "unknown", "faster", "faster"];
    let shown: Vec<String> = serde_json::from_value(browser.eval(marks)).unwrap();
    assert_eq!(shown[..8], expected);
    // Sorted by verdict, ops that became faster come first.
    go(browser, "#compare?sort=verdict");
    let shown: Vec<String> = serde_json::from_value(browser.eval(marks)).unwrap();
    assert_eq!(shown[..3], ["faster", "faster", "unknown"]);
    assert_eq!(shown[9], "slower", "far beyond the axis");
    go(browser, "#compare?filter=transpose*");
    let shown: Vec<String> = serde_json::from_value(browser.eval(marks)).unwrap();
    assert_eq!(shown, ["faster"]);
    browser.key("2");
    browser.wait_for("document.body.dataset.view === 'recording'");
}

fn the_fragment_has_the_state_and_back_goes_through_it(browser: &mut Browser, scratch: &Scratch) {
    let page = make(scratch, "usual");
    open(browser, &page, "#ops?table=op&sort=p50_ns&filter=matmul*");
    let names = "[...document.querySelectorAll('tbody th')].map((e) => e.textContent)";
    let shown = browser.eval(names);
    assert_eq!(
        shown,
        json!([
            "matmul_128x64x64_f32",
            "matmul_128x192x64_f32",
            "matmul_128x64x256_f32",
            "matmul_128x256x64_f32"
        ]),
        "from the shortest median, and a glob is for the whole name"
    );
    assert_eq!(browser.eval("document.querySelector('[aria-sort]').textContent"), "p50↑");
    browser.eval("document.querySelector('tbody a').click()");
    browser.wait_for("document.body.dataset.view === 'op'");
    let title = browser.eval("document.querySelector('main h1').textContent");
    assert_eq!(title, "model_linked$async_matmul_128x64x64_f32");
    browser.eval(
        "[...document.querySelectorAll('a')].find((a) => a.textContent === 'timeline').click()",
    );
    browser.wait_for("document.body.dataset.view === 'timeline'");
    ready(browser);
    browser.wait_for(
        "document.querySelector('.call-line').textContent.includes('matmul_128x64x64_f32')",
    );
    // Zooming adds no entry to the browser's history.
    browser.key("w");
    browser.wait_for("/from=\\d/.test(location.hash) && /lane=\\d/.test(location.hash)");
    let link = browser.eval("location.hash");
    let line = browser.eval("document.querySelector('.counted').textContent");
    browser.eval("history.back()");
    browser.wait_for("document.body.dataset.view === 'op'");
    browser.eval("history.back()");
    browser.wait_for("document.body.dataset.view === 'ops'");
    assert_eq!(browser.eval(names), shown, "as it was left");
    open(browser, &page, link.as_str().unwrap());
    assert_eq!(browser.eval("document.querySelector('.counted').textContent"), line);
    assert!(browser.complaints().is_empty());
}

fn everything_is_reached_with_the_keyboard(browser: &mut Browser, scratch: &Scratch) {
    let page = make(scratch, "usual");
    open(browser, &page, "");
    browser.key("Tab");
    assert_eq!(browser.eval("document.activeElement.textContent"), "Skip to the content");
    for (key, view) in [
        ("2", "ops"),
        ("3", "op"),
        ("4", "timeline"),
        ("5", "loops"),
        ("7", "roofline"),
        ("8", "recording"),
    ] {
        browser.key(key);
        browser.wait_for(&format!("document.body.dataset.view === '{view}'"));
    }
    // In the text field of a filter, digits are ordinary text and do not change the view.
    browser.key("2");
    browser.key("/");
    for key in ["6", "4", "x"] {
        browser.key(key);
    }
    browser.wait_for("location.hash.includes('filter=64x')");
    assert_eq!(browser.eval("document.body.dataset.view"), "ops");
    browser.key("Escape");
    // After Enter, the header of the column must keep the focus, so that a second Enter reverses
    // the order.
    browser.eval("document.querySelector('[data-key=\"sort:calls\"]').focus()");
    browser.key("Enter");
    browser.wait_for("location.hash.includes('sort=-calls')");
    browser.key("Enter");
    browser.wait_for("location.hash.includes('sort=calls')");
    go(browser, "#ops?table=tree");
    let rows = "document.querySelectorAll('tbody tr').length";
    let before = browser.eval(rows).as_u64();
    browser.eval("document.querySelector('button.fold').focus()");
    browser.key("Enter");
    browser.wait_for("location.hash.includes('fold=0')");
    assert!(browser.eval(rows).as_u64() < before);
    assert_eq!(browser.eval("document.activeElement.getAttribute('aria-expanded')"), "false");
    // In the timeline, keys lead from one call to the next, and from a call to the view of its op.
    go(browser, "#timeline");
    browser.eval("document.querySelector('canvas').focus()");
    let line = "document.querySelector('.call-line').textContent";
    let mut lines = Vec::new();
    for key in [".", ".", ",", "ArrowDown"] {
        browser.key(key);
        browser.eval("new Promise((done) => requestAnimationFrame(done))");
        lines.push(browser.eval(line));
    }
    assert_eq!(lines[0], lines[2], "back again");
    assert_ne!(lines[0], lines[1]);
    assert!(lines[1].as_str().unwrap().contains("iree-worker-0"), "{lines:?}");
    assert!(lines[3].as_str().unwrap().contains("iree-worker-1"), "{lines:?}");
    go(browser, "#timeline?op=matmul_128x64x64_f32");
    browser.eval("document.querySelector('canvas').focus()");
    browser.key(".");
    browser.wait_for(&format!("{line}.includes('matmul_128x64x64_f32')"));
    browser.key("Enter");
    browser.wait_for("document.body.dataset.view === 'op'");
    assert!(browser.complaints().is_empty());
}

fn tables_fit_at_a_desk(browser: &mut Browser, scratch: &Scratch) {
    let wide = "[...document.querySelectorAll('.scrolling')].filter((box) => box.scrollWidth > box.clientWidth).length";
    let compared = make(scratch, "compared");
    browser.resize(1440, 900);
    open(browser, &compared, "#compare?columns=all");
    assert_eq!(browser.eval(wide), 0, "compare");
    let page = make(scratch, "usual");
    open(browser, &page, "");
    for view in [
        "#overview",
        "#ops?table=op",
        "#ops?table=tree",
        "#ops?table=between",
        "#ops?table=thread",
        "#loops",
        "#roofline",
    ] {
        go(browser, view);
        assert_eq!(browser.eval(wide), 0, "{view}");
    }
    // This page has long names of C++ and of models.
    let page = make(scratch, "long");
    open(browser, &page, "#ops?table=op");
    assert_eq!(browser.eval(wide), 0, "long names");
    let last = "[...document.querySelectorAll('thead th')].at(-1)";
    let is_seen = format!("{last}.getBoundingClientRect().right <= innerWidth");
    assert_eq!(browser.eval(&is_seen), true);
}

fn tables_are_copied_as_csv(browser: &mut Browser, scratch: &Scratch) {
    let page = make(scratch, "hostile");
    open(browser, &page, "#ops?table=op&filter=*");
    browser.eval(
        "window.copied = new Promise((done) => navigator.clipboard.writeText = async (t) => done(t)); \
         [...document.querySelectorAll('button')].find((b) => b.textContent === 'Copy as CSV').click()",
    );
    let csv = browser.eval("window.copied");
    let csv = csv.as_str().unwrap();
    let first = csv.split("\r\n").next().unwrap();
    assert!(
        first.starts_with("op,calls,total_ns,self_ns,share,self_all_arguments_ns,mean_ns,"),
        "{first}"
    );
    assert!(
        csv.contains("\n\"<img src=x onerror=\"\"document.title='ran'\"\">0\","),
        "quotes are doubled"
    );
    assert!(csv.contains("\n'=1+16,"), "a spreadsheet would evaluate it");
    assert!(csv.contains("\n''; DROP TABLE ops; --5,"));
    let rows = csv.matches("\r\n").count();
    assert_eq!(rows, 16, "15 ops below the names of the columns");
    browser.wait_for("document.querySelector('.said').textContent === 'Copied 15 rows as CSV.'");
}

/// The limits on time are far above what an idle machine needs.
#[test]
fn a_timeline_of_a_million_calls() {
    let Some(mut browser) = Browser::start() else { return };
    let scratch = Scratch::new();
    let page = make(&scratch, "million");
    browser.resize(1440, 900);
    let start = Instant::now();
    open(&mut browser, &page, "");
    let ready_ms = start.elapsed().as_millis();
    let start = Instant::now();
    go(&mut browser, "#timeline");
    let decoded_ms = start.elapsed().as_millis();
    let frames = browser.eval(
        "(async () => { \
           const canvas = document.querySelector('canvas'); canvas.focus(); const times = []; \
           const texts = new Set(); \
           const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done))); \
           for (const key of ['w','w','w','d','d','a','w','w','w','w','d','s','s','s','s','w','a','s','s', \
                              's','s','0','.','.','.','w','w','w','w','w','w','w','w','d','.','0']) { \
             dispatchEvent(new KeyboardEvent('keydown', {key})); \
             await frame(); await frame(); times.push(Number(canvas.dataset.frame)); \
             texts.add(document.querySelector('.counted').textContent); } \
           return [times, texts.size]; })()",
    );
    let (mut times, pictures): (Vec<f64>, usize) = serde_json::from_value(frames).unwrap();
    times.sort_by(f64::total_cmp);
    let heap = browser.eval("gc(), performance.memory.usedJSHeapSize / 1e6");
    let size = std::fs::metadata(&page).unwrap().len();
    let (middle, worst) = (times[times.len() / 2], times[times.len() - 1]);
    eprintln!(
        "a million calls: {:.2} MB, ready after {ready_ms} ms, timeline after {decoded_ms} ms, frames \
         {middle:.1} ms (longest {worst:.1} ms), heap {:.0} MB",
        size as f64 / 1e6,
        heap.as_f64().unwrap()
    );
    let text = browser.eval("document.querySelector('.counted').textContent");
    assert!(text.as_str().unwrap().starts_with("1,040,400 slices in view"), "{text}");
    assert!(pictures > 10, "the keys show {pictures} different parts");
    // These limits are wide, because a test machine may draw without a GPU and do other work.
    assert!(middle < 500.0, "{times:?}");
    assert!(heap.as_f64().unwrap() < 400.0, "{heap}");
    assert!(browser.complaints().is_empty());
}

/// The theme that the user chooses in the page takes precedence over the system's theme. A printed
/// page has no navigation.
fn themes_and_print(browser: &mut Browser, scratch: &Scratch) {
    let page = make(scratch, "usual");
    browser.scheme("dark");
    open(browser, &page, "");
    let ground = "getComputedStyle(document.body).backgroundColor";
    assert_eq!(browser.eval(ground), "rgb(16, 19, 24)");
    browser.eval("document.querySelector('[aria-label=\"Light or dark\"]').click()");
    assert_eq!(browser.eval(ground), "rgb(255, 255, 255)");
    let paper = browser.call("Page.printToPDF", json!({}));
    assert!(paper["data"].as_str().unwrap().len() > 10_000);
    browser.call("Emulation.setEmulatedMedia", json!({"media": "print"}));
    let nav = browser.eval("getComputedStyle(document.querySelector('header nav')).display");
    assert_eq!(nav, "none");
    browser.eval("localStorage.clear()");
}

#[test]
fn a_page_of_the_program() {
    let Some(program) = counterpoint("page a_page_of_the_program") else { return };
    let Some(mut browser) = Browser::start() else { return };
    let scratch = Scratch::new();
    let profile = scratch.join("hostile.cpt");
    hostile_profile(&profile);
    let page = scratch.join("written.html");
    let report = |options: &[&str]| {
        let out =
            Command::new(&program).arg("report").arg(&profile).args(options).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    report(&["--html", page.to_str().unwrap()]);
    let script = |path: &Path| -> String {
        let text = std::fs::read_to_string(path).unwrap();
        let from = text.find("<script type=\"module\">").unwrap();
        let to = text[from..].find("</script>").unwrap();
        text[from..from + to].to_owned()
    };
    assert!(script(&page) == script(&make(&scratch, "empty")), "another application");
    for width in WIDTHS {
        browser.resize(width, 900);
        open(&mut browser, &page, "");
        for view in views(&mut browser) {
            go(&mut browser, &view);
            let wrong = browser
                .eval("/NaN|undefined|Infinity|\\[object /.exec(document.body.innerText)?.[0]");
            assert!(wrong.is_null(), "{view}: {wrong}");
            let wide = "document.documentElement.scrollWidth <= innerWidth";
            assert_eq!(browser.eval(wide), true, "{view} at {width}");
        }
    }
    assert_eq!(browser.complaints(), Vec::<String>::new());
    browser.resize(1440, 900);
    open(&mut browser, &page, "#ops?table=op");
    let cells = browser.eval(
        "[...document.querySelectorAll('tbody tr')].map((tr) => [...tr.cells].map((c) => c.innerText.trim()))",
    );
    let table = report(&[]);
    let found = cells.as_array().unwrap().iter().any(|row| {
        let cells: Vec<&str> = row.as_array().unwrap().iter().filter_map(Value::as_str).collect();
        cells.first().is_some_and(|name| *name == "matmul")
            && table.lines().any(|line| {
                line.starts_with("matmul ")
                    && line
                        .split("  ")
                        .map(str::trim)
                        .filter(|cell| !cell.is_empty())
                        .all(|cell| cells.iter().any(|shown| shown.replace('\n', " ") == cell))
            })
    });
    assert!(found, "{cells}\n{table}");
}

/// Writes a profile with hostile names; only the op `matmul` has an ordinary name.
fn hostile_profile(path: &Path) {
    let mut script = ProfileScript::monotonic();
    script.manifest.command =
        vec!["./model".into(), "<b>--n</b>\u{202e}".into(), "</script><script>alert(1)".into()];
    script.counter("page-faults", 0);
    let process = script.process(4711);
    let names = ["matmul", "<img src=x onerror=alert(1)>", "</script>", "a\u{202e}b", "{{blocks}}"];
    process.library("<i>mlp</i>", &names);
    let thread = process.thread("<u>main</u>\u{2066}");
    for n in 0..50 {
        let export = n % names.len() as u32;
        let start = u64::from(n) * 10_000;
        thread.call(CallScript::new(export, start, 1_000 + u64::from(export)).group(50, &[3]));
    }
    script.write(path);
}
