/**
 * Shows how each thread spent its time: in calls, and between calls on a CPU or off a CPU. The
 * values come from the table `thread`.
 *
 * @typedef {import("./data.js").Table} Table
 */

import { h, nameOf, words } from "./dom.js";
import { cellNumber, cellText } from "./rows.js";
import { MISSING, howMany } from "./text.js";

/** At most this many threads with calls are shown. The table of threads contains all threads. */
const SHOWN = 16;
/**
 * At most this many threads without calls are shown, such as a main thread that only waits.
 */
const SILENT = 4;

/**
 * @param {Table} table
 * @returns {HTMLElement | null} Null if the table does not contain how long the threads lived.
 */
export function lives(table) {
  /** @param {string} name */
  const column = (name) => table.columns.findIndex((c) => c.name === name);
  const [wall, between, off] = [column("wall_ns"), column("between_ns"), column("off_cpu_ns")];
  const cpu = column("thread_cpu_ns");
  if (wall < 0 || between < 0) return null;
  const known = table.rows.filter((row) => (cellNumber(row[wall]) ?? 0) > 0);
  if (known.length === 0) return null;
  const order = known.slice().sort((a, b) => (cellNumber(b[wall]) ?? 0) - (cellNumber(a[wall]) ?? 0));
  const longest = cellNumber(order[0]?.[wall]) ?? 1;
  // Some systems do not report how much of the time between calls a thread was on a CPU. Then the
  // cell in the column `off_cpu_ns` has no number, or a text such as "≤ 216 ms".
  /** @param {import("./data.js").Cell[]} row */
  const isOpen = (row) => off >= 0 && (cellNumber(row[off]) === null || cellText(row[off])?.startsWith("≤") === true);
  const rows = order.slice(0, SHOWN).map((row) => {
    const life = cellNumber(row[wall]) ?? 0;
    const outside = cellNumber(row[between]);
    const away = off < 0 || isOpen(row) ? null : cellNumber(row[off]);
    const inCalls = outside === null ? null : Math.max(0, life - outside);
    const idle = outside === null || away === null ? 0 : Math.min(away, outside);
    /** @param {string} kind @param {number} ns */
    const piece = (kind, ns) =>
      ns > 0 && h("span", { class: `piece ${kind}`, "--part": (ns / longest).toFixed(5) });
    return h("tr", {},
      h("th", { scope: "row", class: "first" }, nameOf(cellText(row[0]) ?? MISSING)),
      h("td", { class: "life" }, h("span", { class: "life-bar", "aria-hidden": "true" },
        inCalls === null
          ? piece("unknown", life)
          : [piece("in-calls", inCalls), piece("off-cpu", idle),
            piece(isOpen(row) ? "unknown" : "between", (outside ?? 0) - idle)])),
      h("td", { class: "number" }, words(cellText(row[wall]))),
      h("td", { class: "number" }, words(cellText(row[between]))),
      off >= 0 && h("td", { class: "number" }, words(cellText(row[off]))));
  });
  /** @param {import("./data.js").Cell[]} row */
  const onCpu = (row) => (cpu < 0 ? null : cellNumber(row[cpu]));
  const silent = table.rows.concat(table.rest)
    .filter((row) => cellText(row[wall]) === null && onCpu(row) !== null)
    .sort((a, b) => (onCpu(b) ?? 0) - (onCpu(a) ?? 0));
  const quiet = silent.slice(0, SILENT).map((row) => h("tr", {},
    h("th", { scope: "row", class: "first" }, nameOf(cellText(row[0]) ?? MISSING)),
    h("td", { class: "life quiet" }, "no recorded call; ", words(cellText(row[cpu])), " on a CPU"),
    [wall, between, off].filter((i) => i >= 0).map(() => h("td", { class: "number" }, MISSING))));
  const kinds = [["in-calls", "in calls"]];
  const some = order.slice(0, SHOWN);
  if (off >= 0 && !some.every(isOpen)) kinds.push(["off-cpu", "off CPU, between calls"]);
  if (!some.every(isOpen)) kinds.push(["between", off >= 0 ? "on a CPU, between calls" : "between calls"]);
  if (some.some(isOpen)) kinds.push(["unknown", "between calls, on a CPU or off"]);
  const left = known.length - rows.length;
  return h("div", {},
    h("p", { class: "legend" }, kinds.map(([kind, text]) =>
      h("span", {}, h("span", { class: `swatch ${kind}`, "aria-hidden": "true" }), text ?? ""))),
    h("div", { class: "scrolling", tabindex: 0, role: "region", "aria-label": "Each thread's life" },
      h("table", { class: "lives" },
        h("caption", { class: "unseen" }, "Each thread's life"),
        h("thead", {}, h("tr", {},
          h("th", { scope: "col", class: "first" }, "thread"),
          h("th", { scope: "col", class: "life" }, "its time"),
          [wall, between, off].filter((i) => i >= 0).map((i) =>
            h("th", { scope: "col", class: "number" }, words(table.columns[i]?.title))))),
        h("tbody", {}, rows, quiet))),
    silent.length > quiet.length &&
      h("p", { class: "more" }, `${howMany(silent.length - quiet.length, "thread")} more without recorded calls.`),
    left > 0 && h("p", { class: "more" }, `${howMany(left, "thread")} with shorter lives: see the table of threads.`));
}
