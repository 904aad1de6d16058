//! Tests the page of `report --html` in Firefox. `page.rs` has the tests in Chromium.

use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::{Firefox, Scratch};

use crate::page::{KINDS, SCHEMES, SEEN, WIDTHS, make};

/// Visits the views with the given fragments or, if none are given, all views. Returns the facts
/// `SEEN` about each view. All views are visited by one evaluation of this expression, because each
/// request to the browser takes some time.
const VISIT: &str = "(async (given) => { \
    const frame = () => new Promise((done) => requestAnimationFrame(done)); \
    const isReady = () => document.querySelector('main h1') && document.body.dataset.view && \
      (document.body.dataset.view !== 'timeline' || document.querySelector('canvas')?.dataset.frame); \
    const go = async (view) => { \
      location.hash = view; \
      for (let n = 0; n < 3000; n++) { \
        await frame(); \
        if ('#' + document.body.dataset.view === view.split('?')[0] && isReady()) break; } \
      await frame(); }; \
    const links = (of) => [...document.querySelectorAll(of)].map((a) => a.getAttribute('href')); \
    let views = given; \
    if (views.length === 0) for (const view of links('header nav a')) { \
      await go(view); \
      views.push(...links('main nav.chooser a')); \
      if (view.startsWith('#op') && !view.startsWith('#ops')) views.push('#op?by=thread&tail=all'); \
      views.push(view); } \
    const found = []; \
    for (const view of views) { await go(view); found.push([view, SEEN]); } \
    return found; })";

/// In the light and the dark colour scheme, the browser must report no message in its console and
/// no network request.
#[test]
fn every_view_is_quiet_in_firefox() {
    let scratch = Scratch::new();
    let visit = VISIT.replace("SEEN", SEEN);
    let pages: Vec<PathBuf> = KINDS.iter().map(|kind| make(&scratch, kind)).collect();
    for scheme in SCHEMES {
        let Some(mut browser) = Firefox::start(scheme) else { return };
        for (kind, page) in KINDS.iter().zip(&pages) {
            browser.open(page);
            browser.wait_for("document.querySelector('main h1') && document.body.dataset.view");
            let dark = browser.eval("matchMedia('(prefers-color-scheme: dark)').matches");
            assert_eq!(dark, scheme == "dark");
            let mut views: Vec<Value> = Vec::new();
            for width in WIDTHS {
                browser.resize(width, 900);
                let found = browser.eval(&format!("{visit}({})", json!(views)));
                let found: Vec<(Value, Value)> = serde_json::from_value(found).unwrap();
                assert!(found.len() >= if *kind == "empty" { 1 } else { 2 }, "{kind}: {found:?}");
                for (view, seen) in &found {
                    let place = format!("{kind} {view} {width} {scheme}: {seen}");
                    assert!(seen["wide"].as_u64() <= seen["window"].as_u64(), "sideways: {place}");
                    assert_eq!((&seen["wrong"], &seen["made"]), (&json!(""), &json!(0)), "{place}");
                }
                views = found.into_iter().map(|(view, _)| view).collect();
            }
            let complaints = browser.complaints();
            assert!(complaints.is_empty(), "{kind}: {complaints:#?}");
        }
    }
}
