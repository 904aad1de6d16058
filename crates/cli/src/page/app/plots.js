/**
 * Draws intervals and bars in the rows of a table. The drawings of a column have the same axis.
 * Places are fractions of the width, so a column can be wide or narrow.
 *
 * @typedef {import("./data.js").Plot} Plot
 * @typedef {import("./data.js").Mark} Mark
 * @typedef {import("./data.js").Table} Table
 */

import { h, scrolling, words } from "./dom.js";
import { cellText } from "./rows.js";
import { MISSING, visible } from "./text.js";

/**
 * The cell comes after the column that the plot names.
 * @param {HTMLElement[]} cells
 * @param {Plot[]} plots
 * @param {(plot: Plot) => HTMLElement} make
 */
export function withPlots(cells, plots, make) {
  for (const plot of plots.slice().sort((a, b) => b.after - a.after)) {
    cells.splice(plot.after + 1, 0, make(plot));
  }
}

/** @param {number} part */
const onAxis = (part) => Math.min(1, Math.max(0, part));

/**
 * The reader cannot sort or filter this table.
 * @param {Table} table
 */
export function plotTable(table) {
  /** @param {number} i */
  const kind = (i) => i === 0 ? "first wide" : table.columns[i]?.isText ? "text" : "number";
  const heads = table.columns.map((column, i) => h("th", { scope: "col", class: kind(i) },
    column.title === "" ? h("span", { class: "unseen" }, "remark") : words(column.title)));
  withPlots(heads, table.plots, plotHead);
  const body = table.rows.map((cells, row) => {
    const made = table.columns.map((_, i) => i === 0
      ? h("th", { scope: "row", class: kind(i) }, words(cellText(cells[0])))
      : h("td", { class: kind(i) }, words(cellText(cells[i]) ?? MISSING)));
    withPlots(made, table.plots, (plot) => plotCell(plot, row));
    return h("tr", {}, made);
  });
  return scrolling(table.title, h("table", {},
    h("caption", { class: "unseen" }, words(table.title)),
    h("thead", {}, h("tr", {}, heads)),
    h("tbody", {}, body)));
}

/**
 * The title and the axis.
 * @param {Plot} plot
 */
export function plotHead(plot) {
  return h("th", { scope: "col", class: "plot-cell" },
    words(plot.title),
    h("span", { class: "plot plot-axis", "aria-hidden": "true" }, plot.ticks.map(([at, text]) =>
      h("span", { class: `tick${at < 0.1 ? " at-start" : at > 0.9 ? " at-end" : ""}`, "--at": onAxis(at).toFixed(4) }, words(text)))));
}

/**
 * Screen readers get a description, unless another cell already contains it.
 * @param {Plot} plot
 * @param {number} row
 */
export function plotCell(plot, row) {
  const mark = plot.rows[row] ?? null;
  const text = mark === null || mark.text === "" ? null : visible(mark.text);
  const named = text === null ? { "aria-hidden": "true" } : { role: "img", "aria-label": text, title: text };
  return h("td", { class: "plot-cell" },
    h("span", { class: "plot", ...named },
      plot.band !== null && span("band-same", plot.band[0] ?? 0.5, plot.band[1] ?? 0.5),
      plot.ticks.map(([at]) => h("span", { class: "grid-line", "--at": onAxis(at).toFixed(4) })),
      h("span", { class: "zero-line", "--at": onAxis(plot.zero).toFixed(4) }),
      mark !== null && (plot.isBars ? bar(plot, mark) : interval(mark))));
}

/**
 * @param {string} kind
 * @param {number} from
 * @param {number} to
 */
function span(kind, from, to) {
  const [low, high] = [onAxis(Math.min(from, to)), onAxis(Math.max(from, to))];
  return h("span", { class: kind, "--at": low.toFixed(4), "--size": (high - low).toFixed(4) });
}

/** @param {Mark} mark */
function interval(mark) {
  const kind = `mark ${mark.kind}`;
  const ends = mark.ends === null ? [mark.at, mark.at] : [mark.ends[0] ?? mark.at, mark.ends[1] ?? mark.at];
  const [low = 0, high = 0] = ends;
  return [
    high > low && span(`${kind} whisker`, low, high),
    low < 0 && h("span", { class: `${kind} beyond`, "--at": 0 }, "◂"),
    high > 1 && h("span", { class: `${kind} beyond at-end`, "--at": 1 }, "▸"),
    mark.at >= 0 && mark.at <= 1 && h("span", { class: `${kind} point`, "--at": mark.at.toFixed(4) }),
  ];
}

/**
 * @param {Plot} plot
 * @param {Mark} mark
 */
function bar(plot, mark) {
  const ends = mark.ends;
  return [
    span(`mark ${mark.kind} beam`, plot.zero, mark.at),
    ends !== null && span("mark error", ends[0] ?? mark.at, ends[1] ?? mark.at),
  ];
}
