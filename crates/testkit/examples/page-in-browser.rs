//! Opens a page of `report --html` in Chromium and measures it, for the benchmark `page`: `cargo
//! run -p counterpoint-testkit --release --example page-in-browser -- PAGE`. Prints lines of the
//! form `NAME VALUE UNIT`. `ready` is the time until the first view is visible, and `timeline` the
//! time from then until the timeline is drawn. `frame-middle` and `frame-longest` are the median
//! and the longest time to draw the timeline while it is zoomed and moved. `heap` is the size of
//! the page's JavaScript heap after a garbage collection.

use std::path::Path;
use std::time::Instant;

use testkit::Browser;

/// JavaScript that presses keys to zoom and move the timeline and to go from call to call. Its
/// result is a list with the time that the page needed to draw the timeline after each key, in ms.
const FRAMES: &str = "(async () => { \
    const canvas = document.querySelector('canvas'); canvas.focus(); const times = []; \
    const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done))); \
    for (const key of 'wwwddawwwwdsssswassss0...wwwwwwwwd.0') { \
      dispatchEvent(new KeyboardEvent('keydown', {key})); \
      await frame(); await frame(); times.push(Number(canvas.dataset.frame)); } \
    return times; })()";

fn main() {
    let page = std::env::args().nth(1).expect("usage: page-in-browser PAGE");
    let page = Path::new(&page).canonicalize().expect("the page exists");
    let Some(mut browser) = Browser::start() else {
        eprintln!("there is no browser");
        std::process::exit(1);
    };
    browser.resize(1440, 900);
    let start = Instant::now();
    browser.open(&page, "");
    browser.wait_for("document.querySelector('main h1') && document.body.dataset.view");
    println!("ready {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    let start = Instant::now();
    browser.eval("location.hash = '#timeline'");
    browser.wait_for("document.querySelector('canvas')?.dataset.frame");
    println!("timeline {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    let frames = browser.eval(FRAMES);
    let mut frames: Vec<f64> = frames
        .as_array()
        .map(|all| all.iter().filter_map(serde_json::Value::as_f64).collect())
        .unwrap_or_default();
    frames.sort_by(f64::total_cmp);
    assert!(!frames.is_empty(), "no frame was drawn");
    println!("frame-middle {:.2} ms", frames[frames.len() / 2]);
    println!("frame-longest {:.2} ms", frames[frames.len() - 1]);
    let heap = browser.eval("gc(), performance.memory.usedJSHeapSize / 1e6");
    println!("heap {:.1} MB", heap.as_f64().expect("the browser tells its memory"));
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");
}
