/**
 * The view of loops: their tables, and the code that was instrumented, with what was measured in the
 * margin and a bar along each innermost loop.
 *
 * @typedef {import("./context.js").Context} Context
 * @typedef {import("./context.js").Shown} View
 * @typedef {import("./data.js").Listing} Listing
 * @typedef {import("./state.js").Params} Params
 */

import { h, nameOf, refill, scrolling, words } from "./dom.js";
import { tablesOf, tablesView } from "./tables.js";
import { codeText, visible } from "./text.js";

/** Colours of the bars of loops. */
const BARS = 8;
/** What is measured of a loop has so many characters at most before the code is moved. */
const MARGIN = 40;

/**
 * @param {Context} context
 * @param {Params} params
 * @returns {View}
 */
export function loopsView(context, params) {
  const { listings, listingsAbout } = context.head;
  const tables = tablesView(context, "loops", "Loops",
    "Which loop took the time, how often was it entered, and what did the compiler make of it?", params);
  if (listings.length === 0) return tables;
  const code = h("section", { class: "listing" });
  let current = params;
  let shown = -1;
  const chooser = h("select", {
    "aria-label": "Code to show",
    onchange: () => context.go("loops", { ...current, code: chooser.value }, false),
  }, listings.map((listing, i) => h("option", { value: i }, visible(listing.label))));
  /** @param {Params} next */
  const update = (next) => {
    current = next;
    if (tablesOf(context, "loops").length > 0) tables.update(next);
    const wanted = Number(next.code ?? 0);
    const index = listings[wanted] === undefined ? 0 : wanted;
    chooser.value = String(index);
    const listing = listings[index];
    if (index === shown || listing === undefined) return;
    shown = index;
    refill(code,
      h("h2", {}, "Code"),
      h("div", { class: "tools" }, chooser, listingsAbout !== "" && h("span", {}, words(listingsAbout))),
      listing.words.map((line) => h("p", { class: "lead" }, words(line))),
      sideBySide(context, listing));
  };
  const root = h("div", {}, tables.root, code);
  if (tablesOf(context, "loops").length === 0) root.querySelector("h1")?.nextElementSibling?.remove();
  update(params);
  return { root, update };
}

/**
 * @param {Context} context
 * @param {Listing} listing
 */
function sideBySide(context, listing) {
  const root = h("div", { class: "side-by-side" });
  for (const column of listing.columns) {
    const digits = Math.max(...column.lines.map((line) => line.number.length));
    const widest = Math.min(MARGIN, Math.max(...column.lines.map((line) => line.margin.length)));
    const withMargin = widest > 0;
    const lines = column.lines.map((line) => h("span", {
      class: line.loop >= 0 ? `line loop bar-${line.loop % BARS}` : "line",
      "data-loop": line.loop >= 0 ? line.loop : null,
    },
    h("span", { class: "number" }, `${visible(line.number.padStart(digits))} `),
    withMargin && h("span", { class: "margin" }, line.margin === "" ? " " : visible(line.margin)),
    h("bdi", {}, codeText(line.text)),
    "\n"));
    const box = scrolling(column.title, h("pre", { class: withMargin ? "code with-margin" : "code", "--margin": widest }, lines));
    root.append(h("section", { class: "panel" }, h("h3", {}, words(column.title)), box));
  }
  // The same loop in all columns.
  root.addEventListener("click", (event) => {
    const target = event.target instanceof Element ? event.target.closest("[data-loop]") : null;
    if (target === null || getSelection()?.isCollapsed === false) return;
    showLoop(context, listing, root, target.getAttribute("data-loop") ?? "", target.closest(".scrolling"));
  });
  const loops = [...new Set(listing.columns.flatMap((c) => c.lines.map((line) => line.loop)))]
    .filter((loop) => loop >= 0)
    .sort((a, b) => a - b);
  const buttons = loops.slice(0, 40).map((loop) => h("button", {
    type: "button",
    class: `loop-button bar-${loop % BARS}`,
    onclick: () => showLoop(context, listing, root, String(loop), null),
  }, loopName(listing, loop)));
  return [
    buttons.length > 0 && h("div", { class: "tools", role: "group", "aria-label": "Go to a loop" },
      h("span", {}, "Go to"), buttons),
    root,
  ];
}

/**
 * @param {Listing} listing
 * @param {number} loop
 */
function loopName(listing, loop) {
  const name = listing.loops[loop] ?? "";
  return name === "" ? `loop ${loop + 1}` : nameOf(name);
}

/**
 * Marks a loop in all columns and scrolls each column to it.
 * @param {Context} context
 * @param {Listing} listing
 * @param {Element} root
 * @param {string} loop
 * @param {Element | null} except The column that is not scrolled.
 */
function showLoop(context, listing, root, loop, except) {
  for (const line of root.querySelectorAll(".line.chosen")) line.classList.remove("chosen");
  for (const box of root.querySelectorAll(".scrolling")) {
    const lines = box.querySelectorAll(`[data-loop="${CSS.escape(loop)}"]`);
    for (const line of lines) line.classList.add("chosen");
    const first = lines[0];
    if (first instanceof HTMLElement && box !== except) {
      box.scrollTop = first.offsetTop - box.clientHeight / 4;
    }
  }
  context.say(`${visible(listing.loops[Number(loop)] ?? "The loop")} is marked in all columns.`);
}
