/**
 * Makes the view of loops. Measured values are in the margin of the code. A coloured bar at a line
 * shows the innermost loop around it.
 *
 * @typedef {import("./context.js").Context} Context
 * @typedef {import("./context.js").Shown} View
 * @typedef {import("./data.js").Listing} Listing
 * @typedef {import("./state.js").Params} Params
 */

import { h, nameOf, refill, scrolling, words } from "./dom.js";
import { tablesOf, tablesView } from "./tables.js";
import { codeText, visible } from "./text.js";

/** The number of colours of the bars of loops. */
const BARS = 8;
/**
 * A column of code with at most this many lines is placed above the others if one of them is more
 * than twice as long.
 */
const FEW_LINES = 24;

/**
 * @param {Context} context
 * @param {Params} params
 * @returns {View}
 */
export function loopsView(context, params) {
  const { listings, listingsAbout } = context.head;
  const all = tablesOf(context, "loops");
  /** @param {Params} of */
  const tableOf = (of) => all.find((table) => table.id === of.table) ?? all[0];
  const tables = tablesView(context, "loops", "Loops",
    "Which loop took the time, how often was it entered, and what did the compiler make of it?", params);
  if (listings.length === 0) return tables;
  const code = h("section", { class: "listing" });
  let current = params;
  let shown = -1;
  const chooser = h("select", {
    "aria-label": "Code to show",
    onchange: () => {
      const table = listings[Number(chooser.value)]?.table ?? "";
      const isSame = table === tableOf(current)?.id;
      // If the chosen code belongs to another table, the sorting, filter and folds of the current
      // table are not kept.
      context.go("loops", isSame ? { ...current, code: chooser.value } : { table, code: chooser.value }, false);
    },
  }, listings.map((listing, i) => h("option", { value: i }, visible(listing.label))));
  /** @param {Params} next */
  const update = (next) => {
    current = next;
    if (all.length > 0) tables.update(next);
    const wanted = Number(next.code ?? -1);
    const ofTable = listings.findIndex((listing) => listing.table === tableOf(next)?.id);
    const index = listings[wanted] === undefined ? Math.max(ofTable, 0) : wanted;
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
  if (all.length === 0) root.querySelector("h1")?.nextElementSibling?.remove();
  update(params);
  return { root, update };
}

/**
 * @param {Context} context
 * @param {Listing} listing
 */
function sideBySide(context, listing) {
  const above = h("div", { class: "side-by-side" });
  const beside = h("div", { class: "side-by-side" });
  const root = h("div", {}, above, beside);
  const longest = Math.max(...listing.columns.map((column) => column.lines.length));
  for (const column of listing.columns) {
    const digits = Math.max(...column.lines.map((line) => line.number.length));
    const isShort = column.lines.length <= FEW_LINES && column.lines.length * 2 < longest;
    const lines = column.lines.map((line) => h("span", {
      class: line.loop >= 0 ? `line loop bar-${line.loop % BARS}` : "line",
      "data-loop": line.loop >= 0 ? line.loop : null,
    },
    h("span", { class: "number" }, `${visible(line.number.padStart(digits))} `),
    line.margin !== "" && h("span", { class: "margin" }, visible(line.margin)),
    h("bdi", {}, codeText(line.text)),
    "\n"));
    const box = scrolling(column.title, h("pre", { class: "code", "--digits": digits }, lines));
    (isShort ? above : beside).append(h("section", { class: "panel" }, h("h3", {}, words(column.title)), box));
  }
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
 * Scrolls each column to the loop.
 * @param {Context} context
 * @param {Listing} listing
 * @param {Element} root
 * @param {string} loop
 * @param {Element | null} except A column that is not scrolled, because the reader clicked into it.
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
