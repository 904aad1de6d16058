/**
 * Makes the view of a comparison of runs.
 *
 * @typedef {import("./context.js").Context} Context
 * @typedef {import("./context.js").Shown} View
 * @typedef {import("./data.js").Compare} Compare
 * @typedef {import("./data.js").Table} Table
 * @typedef {import("./state.js").Params} Params
 */

import { h, nameOf, pairList, panel, prose, words } from "./dom.js";
import { plotTable } from "./plots.js";
import { tableBox } from "./table.js";
import { howMany } from "./text.js";

/** The number of rows whose counters are shown at first. The other rows can be unfolded. */
const FIRST_COUNTERS = 12;

/**
 * @param {Context} context
 * @param {Compare} compare
 * @param {Params} params
 * @returns {View}
 */
export function compareView(context, compare, params) {
  const rows = tableBox(context, compare.rows, params, (changed, replace) =>
    context.go("compare", { ...current, ...changed }, replace));
  let current = params;
  const root = h("div", { class: "compare" },
    h("h1", { tabindex: -1 }, "Compare"),
    h("div", { class: "sentences" }, h("div", {}, prose(compare.answer))),
    pairList(compare.runs),
    panel("The whole", "By how much did a run change, and how much of it do typical calls explain?",
      plotTable(compare.whole)),
    panel("Row by row", "What became slower or faster, and what does it add to a run? Rows with a " +
      "difference come first, and then those that add most.",
      marksKey(compare.rows), rows.root),
    countersPanel(compare.counters),
    compare.notes.length > 0 && panel("How to read this", "", pairList(compare.notes)));
  return {
    root,
    update(next) {
      current = next;
      rows.update(next);
    },
  };
}

/**
 * Shows the kinds of marks that occur in the first plot of a table.
 * @param {Table} table
 */
function marksKey(table) {
  /** @type {[string, string][]} */
  const kinds = [
    ["slower", "slower"], ["faster", "faster"], ["more", "more"], ["less", "less"], ["same", "the same"], ["unknown", "cannot be told"],
    ["not_tested", "not tested"], ["missing", "not known in all runs"],
  ];
  const plot = table.plots.find((one) => !one.isBars);
  const there = new Set((plot?.rows ?? []).map((mark) => mark?.kind));
  const shown = kinds.filter(([kind]) => there.has(kind));
  if (plot === undefined || shown.length === 0) return null;
  return h("p", { class: "legend" },
    shown.map(([kind, text]) => h("span", {}, h("span", { class: `key mark ${kind}`, "aria-hidden": "true" }), text)),
    plot.band !== null && h("span", {}, h("span", { class: "key band-same", "aria-hidden": "true" }),
      "within it, a change is called the same"));
}

/** @param {[string, string[]][]} all */
function countersPanel(all) {
  if (all.length === 0) return null;
  /** @param {[string, string[]]} row */
  const line = ([name, texts]) => h("div", {}, h("dt", {}, nameOf(name)),
    h("dd", {}, texts.map((text) => h("div", {}, words(text)))));
  const left = all.slice(FIRST_COUNTERS);
  return panel("Counters", "What do the counters say? What is exact is a fact and not a test.",
    h("dl", { class: "pairs counters" }, all.slice(0, FIRST_COUNTERS).map(line)),
    left.length > 0 && h("details", {}, h("summary", {}, howMany(left.length, "more row")),
      h("dl", { class: "pairs counters" }, left.map(line))));
}
