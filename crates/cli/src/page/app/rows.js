/**
 * Chooses the rows of a table and their order, and writes rows as CSV. Makes no elements.
 *
 * @typedef {import("./data.js").Table} Table
 * @typedef {import("./data.js").Cell} Cell
 * @typedef {object} Shown A row that is shown.
 * @property {number} row The row's number in the table.
 * @property {number} depth
 * @property {boolean} isParent
 * @property {boolean} isOpen
 * @property {boolean} isMatch Whether the row itself matches the filter. Otherwise it is shown
 *   because a row below it matches.
 */

import { commonStart, csvField, matcher } from "./text.js";

/**
 * @param {Cell | undefined} cell
 * @returns {string | null}
 */
export function cellText(cell) {
  if (cell === null || cell === undefined) return null;
  return typeof cell === "string" ? cell : cell[0];
}

/**
 * @param {Cell | undefined} cell
 * @returns {number | null}
 */
export function cellNumber(cell) {
  if (cell === null || cell === undefined || typeof cell === "string") return null;
  return typeof cell[1] === "number" && Number.isFinite(cell[1]) ? cell[1] : null;
}

/**
 * Returns what explains the mark of a cell; null if the cell has no explained mark.
 * @param {Cell | undefined} cell
 * @returns {string | null}
 */
export function cellNote(cell) {
  return Array.isArray(cell) && cell.length === 3 ? cell[2] : null;
}

/**
 * Returns what explains the marks in these texts, for values that are shown outside of the table.
 * @param {Table} table
 * @param {(string | null)[]} texts
 * @returns {string[]}
 */
export function marksOf(table, texts) {
  // The longest marks are searched first, because a mark can contain another one: `±?` contains
  // `±`.
  const known = table.marks.map(({ mark }) => mark).filter((mark) => mark !== "").sort((a, b) => b.length - a.length);
  /** @type {Set<string>} */
  const found = new Set();
  for (const text of texts) {
    let rest = text ?? "";
    for (const mark of known) {
      if (!rest.includes(mark)) continue;
      found.add(mark);
      rest = rest.split(mark).join("");
    }
  }
  return table.marks.filter(({ mark }) => mark === "" ? found.size > 0 : found.has(mark)).map(({ text }) => text);
}

/**
 * Parses the order of the rows: `calls` means from low to high, and `-calls` from high to low. Null
 * means the order of the report.
 * @param {Table} table
 * @param {string} text
 * @returns {{column: number, down: boolean} | null}
 */
export function sortOf(table, text) {
  const exact = table.columns.findIndex((column) => column.name === text);
  if (exact >= 0) return { column: exact, down: false };
  if (!text.startsWith("-")) return null;
  const column = table.columns.findIndex((column) => column.name === text.slice(1));
  return column < 0 ? null : { column, down: true };
}

/**
 * Finds the column by which the report sorts the table. `table.sort` may name it without its unit.
 * @param {Table} table
 * @returns {number} The column's index; -1 if there is no such column.
 */
export function reportOrder(table) {
  return table.columns.findIndex((column) =>
    column.name === table.sort || column.name === `${table.sort}_ns` || column.title === table.sort);
}

/**
 * Finds the begin that all names share.
 * @param {Table} table
 * @returns {number} The number of characters; 0 for a tree.
 */
export function commonLength(table) {
  return table.parents !== null ? 0 : commonStart(table.rows.map((row) => cellText(row[0]) ?? ""));
}

/**
 * Cells without a value come last in both directions.
 * @param {Cell | undefined} a
 * @param {Cell | undefined} b
 * @param {boolean} down
 */
function compareCells(a, b, down) {
  const texts = [cellText(a), cellText(b)];
  if (texts[0] === null || texts[1] === null) {
    return (texts[0] === null ? 1 : 0) - (texts[1] === null ? 1 : 0);
  }
  const [left, right] = [cellNumber(a), cellNumber(b)];
  const order =
    left !== null && right !== null
      ? left - right
      : left !== null || right !== null
        ? (left === null ? 1 : -1)
        : COLLATOR.compare(texts[0] ?? "", texts[1] ?? "");
  return down ? -order : order;
}

const COLLATOR = new Intl.Collator("en", { numeric: true });

/**
 * In a tree with more than `MANY_ROWS` rows, branches at this depth and below are folded at first.
 */
const OPEN_DEPTH = 2;
const MANY_ROWS = 40;

/**
 * A row that matches the filter is shown together with its parents.
 * @param {Table} table
 * @param {{column: number, down: boolean} | null} sort
 * @param {string} filter
 * @param {Set<number>} turned The rows that the reader has folded or unfolded.
 * @returns {Shown[]}
 */
export function shownRows(table, sort, filter, turned) {
  const matches = matcher(filter);
  const isMatch = table.rows.map((row) => matches(cellText(row[0]) ?? ""));
  /** @param {number[]} rows */
  const sorted = (rows) => {
    if (sort === null) return rows;
    const { column, down } = sort;
    return rows.sort((a, b) => compareCells(table.rows[a]?.[column], table.rows[b]?.[column], down) || a - b);
  };
  const all = table.rows.map((_, i) => i);
  const parents = table.parents;
  if (parents === null) {
    return sorted(all.filter((i) => isMatch[i])).map((row) => ({
      row, depth: 0, isParent: false, isOpen: false, isMatch: true,
    }));
  }
  const children = childrenOf(parents);
  const filtered = filter.trim() !== "";
  const wanted = isMatch.slice();
  if (filtered) {
    // The rows are visited from the last to the first, because a parent comes before its children.
    for (let i = wanted.length - 1; i >= 0; i--) {
      const parent = parents[i] ?? -1;
      if (wanted[i] && parent >= 0) wanted[parent] = true;
    }
  }
  /** @type {Shown[]} */
  const shown = [];
  /** @type {{rows: number[], depth: number, next: number}[]} */
  const stack = [{ rows: sorted(children.get(-1) ?? []), depth: 0, next: 0 }];
  while (stack.length > 0) {
    const top = stack[stack.length - 1];
    if (top === undefined) break;
    const row = top.rows[top.next++];
    if (row === undefined) {
      stack.pop();
      continue;
    }
    if (!wanted[row]) continue;
    const below = (children.get(row) ?? []).filter((child) => wanted[child]);
    const atFirst = filtered || table.rows.length <= MANY_ROWS || top.depth < OPEN_DEPTH;
    const isOpen = below.length > 0 && atFirst !== turned.has(row);
    shown.push({
      row, depth: top.depth, isParent: below.length > 0, isOpen, isMatch: isMatch[row] ?? false,
    });
    if (isOpen) stack.push({ rows: sorted(below), depth: top.depth + 1, next: 0 });
  }
  return shown;
}

/**
 * @param {number[]} parents
 * @returns {Map<number, number[]>}
 */
export function childrenOf(parents) {
  /** @type {Map<number, number[]>} */
  const children = new Map();
  parents.forEach((parent, i) => {
    const key = parent >= 0 && parent < i ? parent : -1;
    const list = children.get(key);
    if (list === undefined) children.set(key, [i]);
    else list.push(i);
  });
  return children;
}

/**
 * The column names are those of the report's CSV. A missing value is an empty field.
 * @param {Table} table
 * @param {number[]} rows
 * @returns {string}
 */
export function tableCsv(table, rows) {
  const lines = [table.columns.map((column) => csvField(column.name, false))];
  for (const row of rows) {
    const cells = table.rows[row] ?? [];
    lines.push(
      table.columns.map((column, i) => csvField(cellText(cells[i]) ?? "", !column.isText)),
    );
  }
  return lines.map((line) => `${line.join(",")}\r\n`).join("");
}
