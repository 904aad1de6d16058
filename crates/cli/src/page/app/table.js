/**
 * Makes tables that the reader can sort, filter, fold and copy.
 *
 * @typedef {import("./data.js").Table} Table
 * @typedef {import("./data.js").Cell} Cell
 * @typedef {import("./data.js").Op} Op
 * @typedef {import("./state.js").Params} Params
 * @typedef {import("./rows.js").Shown} Shown
 * @typedef {import("./context.js").Context} Context
 */

import { copyText, focusKey, focusedKey, h, nameOf, prose, refill, scrolling, withUnits, words } from "./dom.js";
import { opLink, opParam } from "./context.js";
import { plotCell, plotHead, withPlots } from "./plots.js";
import { sharedAxis, smallDistribution } from "./small.js";
import { cellNote, cellNumber, cellText, commonLength, reportOrder, shownRows, sortOf, tableCsv } from "./rows.js";
import { MISSING, grouped, howMany, visible } from "./text.js";

/**
 * At first, at most this many rows are made. The other rows are made when the reader asks for them.
 */
const FIRST_ROWS = 500;
/** Texts longer than this are cut in the middle if there is not enough room. */
const LONG_CELL = 40;
/**
 * The columns that contain sentences. A long sentence is broken into lines instead of being cut.
 */
const SENTENCES = ["verdict", "relation"];

/**
 * Makes the table with the controls that choose its rows.
 * @param {Context} context
 * @param {Table} table
 * @param {Params} params `sort`, `filter`, `fold`, `columns`.
 * @param {(changed: Params, replace: boolean) => void} change
 * @returns {{root: HTMLElement, update: (params: Params) => void}}
 */
export function tableBox(context, table, params, change) {
  const box = scrolling(table.title);
  const counted = h("span", { class: "counted" });
  const filter = h("input", {
    type: "search",
    class: "filter",
    placeholder: "filter: part or glob  ( / )",
    "aria-label": `Filter ${table.title} by part of a name, or by a glob`,
    autocomplete: "off",
    spellcheck: "false",
    oninput: () => change({ filter: filter.value }, true),
  });
  let current = params;
  let all = false;
  const rows = () =>
    shownRows(table, sortOf(table, current.sort ?? ""), current.filter ?? "", turnedOf(current.fold));
  const copy = h("button", {
    type: "button",
    onclick: async () => {
      const shown = rows().filter((row) => row.isMatch).map((row) => row.row);
      const done = await copyText(tableCsv(table, shown));
      context.say(done ? `Copied ${howMany(shown.length, "row")} as CSV.` : "This page may not copy.");
    },
  }, "Copy as CSV");
  const columns = h("button", {
    type: "button",
    class: "more-columns",
    onclick: () => change({ columns: current.columns === "all" ? "" : "all" }, true),
  });
  const tools = h("div", { class: "tools" }, filter, counted, copy);
  if (table.columns.some((column) => column.isMinor)) tools.append(columns);
  const root = h("div", { class: "table-box" });

  const draw = () => {
    const shown = rows();
    if (document.activeElement !== filter) filter.value = current.filter ?? "";
    const total = table.rows.length + table.leftOut;
    const parts = [`${grouped(shown.filter((row) => row.isMatch).length)} of ${howMany(total, "row")}`];
    if (table.rest.length > 0) parts.push(`below them, ${restNames(table)}`);
    if (table.leftOut > 0) parts.push(`${grouped(table.leftOut)} are not on this page`);
    counted.textContent = parts.join("; ");
    columns.textContent = current.columns === "all" ? "Fewer columns" : "All columns";
    const focused = focusedKey();
    const limit = all ? shown.length : FIRST_ROWS;
    const element = makeTable(context, table, shown.slice(0, limit), current, change);
    element.classList.toggle("all-columns", current.columns === "all");
    refill(box, element);
    const left = shown.length - limit;
    if (left > 0) {
      box.append(h("button", {
        type: "button",
        onclick: () => {
          all = true;
          draw();
        },
      }, `Show ${howMany(left, "more row")}`));
    }
    focusKey(box, focused);
  };
  const axis = axisOf(context, table);
  root.append(
    ...table.lead.map((line) => h("p", { class: "lead" }, prose(line))),
    tools,
    box,
    ...table.explained.map((line) => h("p", { class: "explained" }, words(line))),
    axis === null ? "" : h("p", { class: "explained small" }, `small pictures: how the durations of the calls are ` +
      `distributed (${whose(table)}), all from ${axis.title.replace(", log", "")} on one logarithmic axis; line: median; dots: p99; ` +
      "heights are square roots, so that rare calls are seen"),
  );
  draw();
  return {
    root,
    update(changed) {
      current = changed;
      draw();
    },
  };
}

/**
 * In a tree, an op may have several rows, but the picture shows all calls of the op.
 * @param {Table} table
 */
function whose(table) {
  return table.parents === null ? "all calls of the op" : "all calls of the op, in all rows";
}

/**
 * These tables have no small pictures: their rows are gaps, dispatches or the critical path.
 */
const NOT_OF_CALLS = ["between", "site", "path"];

/**
 * Returns the axis of the small pictures; null if the table has none.
 * @param {Context} context
 * @param {Table} table
 */
function axisOf(context, table) {
  return NOT_OF_CALLS.includes(table.id) ? null : sharedAxis(context.head, table);
}

/**
 * Returns the names of the rows at the end of the table, which are not counted as rows.
 * @param {Table} table
 */
function restNames(table) {
  const names = table.rest.map((cells) => visible(cellText(cells[0]) ?? MISSING).slice(0, 40));
  return names.length > 3 ? `${grouped(names.length)} that called nothing` : names.join(", ");
}

/** @param {string | undefined} text */
function turnedOf(text) {
  return new Set((text ?? "").split(".").filter((part) => part !== "").map(Number));
}

/**
 * @param {Context} context
 * @param {Table} table
 * @param {Shown[]} shown
 * @param {Params} params
 * @param {(changed: Params, replace: boolean) => void} change
 */
function makeTable(context, table, shown, params, change) {
  const axis = axisOf(context, table);
  const common = commonLength(table);
  const most = largestShare(table);
  const sort = sortOf(table, params.sort ?? "");
  const order = sort ?? { column: reportOrder(table), down: true };
  const heads = table.columns.map((column, i) => {
    const isSorted = order.column === i;
    const down = isSorted && order.down;
    const sign = isSorted ? (down ? "↓" : "↑") : "";
    const next = isSorted ? (down ? column.name : `-${column.name}`)
      : column.isText ? column.name : `-${column.name}`;
    return h("th", {
      scope: "col",
      class: columnClass(table, i),
      "aria-sort": isSorted ? (down ? "descending" : "ascending") : null,
    }, h("button", {
      type: "button",
      class: "sort",
      "data-key": `sort:${column.name}`,
      title: column.meaning,
      onclick: () => change({ sort: next }, false),
    }, words(column.title), h("span", { class: "sign", "aria-hidden": "true" }, sign)));
  });
  withPlots(heads, table.plots, plotHead);
  if (axis !== null) {
    heads.splice(1, 0, h("th", { scope: "col", class: "small-head" }, withUnits(axis.title), table.parents !== null && [h("br"), whose(table)]));
  }
  const body = shown.map((row) => {
    const cells = table.rows[row.row] ?? [];
    const made = table.columns.map((_, i) =>
      i === 0
        ? h("th", { scope: "row", class: columnClass(table, 0) },
          nameCell(context, table, row, params, change, common))
        : h("td", { class: columnClass(table, i) },
          valueCell(cells[i], isSentence(table, i)), i === table.share && shareBar(cells[i], most)));
    withPlots(made, table.plots, (plot) => plotCell(plot, row.row));
    const op = opOf(context, table, row.row);
    if (axis !== null) {
      made.splice(1, 0, h("td", { class: "small" }, smallDistribution(op?.times ?? null, axis)));
    }
    return h("tr", { class: row.isMatch ? "" : "above" }, made);
  });
  const rest = table.rest;
  const foot = rest.length > 0 &&
    h("tfoot", {}, rest.map((cells) => h("tr", {}, restCells(table, cells, axis !== null))));
  return h("table", { class: hasTwoNames(table) ? "two-names" : "" },
    h("caption", { class: "unseen" }, words(table.title)),
    h("thead", {}, h("tr", {}, heads)),
    h("tbody", {}, body),
    foot);
}

/**
 * @param {Table} table
 * @param {Cell[]} rest
 * @param {boolean} withAxis
 */
function restCells(table, rest, withAxis) {
  const cells = table.columns.map((_, i) =>
    i === 0
      ? h("th", { scope: "row", class: columnClass(table, 0) }, nameOf(cellText(rest[0]) ?? MISSING))
      : h("td", { class: columnClass(table, i) }, valueCell(rest[i], isSentence(table, i))));
  if (withAxis) cells.splice(1, 0, h("td", { class: "small" }));
  return cells;
}

/**
 * @param {Table} table
 * @param {number} i
 */
function columnClass(table, i) {
  const column = table.columns[i];
  const kind = i === 0 ? "first" : column?.isText ? "text" : "number";
  return `${kind}${isSentence(table, i) ? " sentence" : ""}${column?.isMinor && i > 0 ? " minor" : ""}${i === table.share ? " share" : ""}`;
}

/**
 * Whether a column besides the first has long names. Then these columns share the width.
 * @param {Table} table
 */
function hasTwoNames(table) {
  const isLong = (/** @type {Cell | undefined} */ cell) => (cellText(cell) ?? "").length > LONG_CELL;
  return table.columns.some((column, i) => i > 0 && column.isText && !isSentence(table, i) && table.rows.some((row) => isLong(row[i])));
}

/**
 * @param {Table} table
 * @param {number} i
 */
function isSentence(table, i) {
  return SENTENCES.includes(table.columns[i]?.name ?? "");
}

/**
 * @param {Cell | undefined} cell
 * @param {boolean} isSentence
 */
function valueCell(cell, isSentence) {
  const text = cellText(cell);
  if (text === null || text === "") return h("span", { class: "missing" }, MISSING);
  // The text after the value says how exactly the value is known.
  const at = text.search(/ ±|\*$/);
  if (at > 0) return [words(text.slice(0, at)), h("span", { class: "known", title: cellNote(cell) }, words(text.slice(at)))];
  return text.length > LONG_CELL && !isSentence ? nameOf(text) : words(text);
}

/**
 * @param {Cell | undefined} cell
 * @param {number} most
 */
function shareBar(cell, most) {
  const value = cellNumber(cell);
  const part = value === null || most <= 0 ? 0 : Math.max(0, value / most);
  return h("span", { class: "bar", "aria-hidden": "true", "--part": part.toFixed(4) });
}

/** @param {Table} table */
function largestShare(table) {
  return table.rows.reduce((most, row) => Math.max(most, cellNumber(row[table.share]) ?? 0), 0);
}

/**
 * @param {Context} context
 * @param {Table} table
 * @param {number} row
 * @returns {Op | null}
 */
export function opOf(context, table, row) {
  const index = table.ops?.[row];
  return index === null || index === undefined ? null : (context.head.ops[index] ?? null);
}

/**
 * @param {Context} context
 * @param {Table} table
 * @param {Shown} shown
 * @param {Params} params
 * @param {(changed: Params, replace: boolean) => void} change
 * @param {number} common The number of characters at the begin that all names share.
 */
function nameCell(context, table, shown, params, change, common) {
  const text = cellText(table.rows[shown.row]?.[0]) ?? MISSING;
  const index = table.ops?.[shown.row];
  const label = nameOf(text, common);
  const link = index === null || index === undefined || context.head.ops[index] === undefined
    ? label
    : h("a", { href: opLink(context, index), "data-op": opParam(context, index) }, label);
  if (table.parents === null) return link;
  const turn = () => {
    const turned = turnedOf(params.fold);
    if (!turned.delete(shown.row)) turned.add(shown.row);
    change({ fold: [...turned].join(".") }, true);
  };
  const fold = shown.isParent
    ? h("button", {
      type: "button",
      class: "fold",
      "aria-expanded": shown.isOpen ? "true" : "false",
      "aria-label": `${shown.isOpen ? "Fold" : "Unfold"} ${text.slice(0, 80)}`,
      "data-key": `fold:${shown.row}`,
      onclick: turn,
    }, shown.isOpen ? "▾" : "▸")
    : h("span", { class: "fold" });
  return h("span", { class: "branch", "--depth": shown.depth }, fold, link);
}
