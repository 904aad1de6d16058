//! Tests what a reader of the page (`report --html`) sees without scrolling or waiting. The tests
//! are parts of `page::pages_are_used`.

use serde_json::{Value, json};
use testkit::{Browser, Scratch};

use crate::page::{go, make, open};

/// For each box of code: the title, the left, top and right edges, and whether a part of the
/// content is beyond the edge.
const BOXES: &str = "[...document.querySelectorAll('.listing .panel')].map((panel) => { \
    const box = panel.querySelector('.scrolling'); const place = panel.getBoundingClientRect(); \
    return [panel.querySelector('h3').textContent, place.left, place.top, place.right, \
      box.scrollWidth > box.clientWidth]; })";

/// Long lines are wrapped in their column. A box with few lines is not beside a box with many
/// lines.
pub fn the_code_of_loops_is_all_in_sight(browser: &mut Browser, scratch: &Scratch) {
    let page = make(scratch, "usual");
    for width in [1440, 1000] {
        browser.resize(width, 900);
        open(browser, &page, "#loops");
        let chosen = "document.querySelector('.listing select').selectedOptions[0].textContent";
        let tab = "document.querySelector('.chooser [aria-current]').textContent";
        assert_eq!(browser.eval(&format!("[{tab}, {chosen}]")), json!(["matmul", "matmul"]));
        let boxes = browser.eval(BOXES);
        let titles: Vec<&Value> = boxes.as_array().unwrap().iter().map(|one| &one[0]).collect();
        assert_eq!(titles, ["TIR", "C", "assembly"]);
        let number = |row: usize, at: usize| boxes[row][at].as_f64().unwrap();
        assert!(boxes.as_array().unwrap().iter().all(|one| one[4] == false), "{boxes}");
        assert!(number(0, 2) < number(1, 2), "nine lines stand above 160: {boxes}");
        assert_eq!(number(1, 2), number(2, 2), "{boxes}");
        assert_eq!(number(0, 1), number(1, 1), "{boxes}");
        assert!((number(0, 3) - number(2, 3)).abs() < 1.0, "nothing is left empty: {boxes}");
        let end = "(() => { const line = [...document.querySelectorAll('.listing .line bdi')] \
            .find((one) => one.textContent.endsWith('exp(y)')); \
            const rects = [...line.getClientRects()]; \
            return [rects.length > 1, rects.at(-1).right <= line.closest('.scrolling').getBoundingClientRect().right]; })()";
        assert_eq!(browser.eval(end), json!([true, true]));
        // The chosen table and the shown code belong to the same function, whichever of them was
        // chosen.
        go(browser, "#loops?table=loop1");
        assert_eq!(browser.eval(&format!("[{tab}, {chosen}]")), json!(["softmax", "softmax"]));
        browser.eval(
            "const select = document.querySelector('.listing select'); select.value = '0'; \
             select.dispatchEvent(new Event('change'))",
        );
        browser.wait_for(&format!("{tab} === 'matmul' && {chosen} === 'matmul'"));
    }
}

/// The timeline is drawn without waiting for an animation frame, because a screenshot may be taken
/// before the browser has drawn one.
pub fn the_timeline_needs_no_frame(browser: &mut Browser, scratch: &Scratch) {
    let page = make(scratch, "usual");
    browser.resize(1440, 900);
    open(browser, &page, "");
    browser.eval("window.requestAnimationFrame = () => 0; location.hash = '#timeline'");
    browser.wait_for("document.querySelector('canvas')?.dataset.frame");
    let colours = "(() => { const canvas = document.querySelector('canvas'); \
        const all = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data; \
        const found = new Set(); let black = 0; \
        for (let i = 0; i < all.length; i += 4) { \
          const c = all[i] << 16 | all[i + 1] << 8 | all[i + 2]; found.add(c); black += c === 0; } \
        return [found.size > 20, black * 4 < all.length / 100]; })()";
    assert_eq!(browser.eval(colours), json!([true, true]));
}

/// Verdicts are not printed in the font for code.
pub fn verdicts_are_sentences(browser: &mut Browser, scratch: &Scratch) {
    let page = make(scratch, "compared");
    browser.resize(1440, 900);
    open(browser, &page, "");
    let long = "[...document.querySelectorAll('.table-box td.sentence')] \
        .filter((cell) => cell.textContent.length > 40).length";
    assert!(browser.eval(long).as_u64() > Some(0));
    assert_eq!(browser.eval("document.querySelectorAll('.table-box td.sentence .name').length"), 0);
}

/// Marked values have tooltips, and so have columns whose names are not clear. One table has the
/// durations of the run, of all calls and of threads.
pub fn meanings_are_beside_what_they_are_of(browser: &mut Browser, scratch: &Scratch) {
    let page = make(scratch, "usual");
    browser.resize(1440, 900);
    open(browser, &page, "#ops?table=op");
    let head = "document.querySelector('[data-key=\"sort:self_ns\"]').title";
    assert!(browser.eval(head).as_str().unwrap().starts_with("time in the calls without"));
    assert_eq!(browser.eval("document.querySelector('[data-key=\"sort:calls\"]').title"), "");
    let notes = "[...document.querySelectorAll('td .known')].filter((one) => one.textContent === '*') \
        .map((one) => one.title)";
    let notes = browser.eval(notes);
    assert!(notes[0].as_str().unwrap().starts_with("in "), "{notes}");
    go(browser, "#recording");
    let rows = "[...document.querySelectorAll('[aria-label=Lengths] tbody tr')].map((row) => row.cells[0].textContent)";
    let rows = browser.eval(rows);
    assert_eq!([&rows[0], &rows[1]], ["the run", "all calls"], "{rows}");
    // On this page, two ops have the same name, and the view of each links to the other.
    let page = make(scratch, "long");
    open(browser, &page, "#op");
    let other = "document.querySelector('.others a')";
    assert_eq!(
        browser.eval(
            "document.querySelector('.others summary').textContent.startsWith('1 more row ')"
        ),
        true
    );
    let before = browser.eval("location.hash");
    browser.eval(&format!("document.querySelector('.others').open = true; {other}.click()"));
    browser.wait_for(&format!("location.hash !== {before}"));
    assert_eq!(browser.eval("document.querySelectorAll('.others a').length"), 1);
}
