/**
 * Shows own time by call path, as an icicle. The width of a box is the share of its row and of the
 * rows below it in the tree. The arrow keys move between boxes.
 *
 * @typedef {import("./data.js").Table} Table
 * @typedef {import("./context.js").Context} Context
 * @typedef {object} Box
 * @property {number} row
 * @property {number} from The left edge, as a fraction of the whole width.
 * @property {number} size
 * @property {number} depth
 */

import { colorOf, opLink } from "./context.js";
import { h } from "./dom.js";
import { cellNumber, cellText, childrenOf } from "./rows.js";
import { fragment } from "./state.js";
import { MISSING, visible } from "./text.js";

/** Boxes that are narrower than this fraction of the whole width are not drawn. */
const NARROWEST = 0.002;
const DEEPEST = 24;

/**
 * @param {Context} context
 * @param {Table} table
 * @returns {HTMLElement | null} Null if there is nothing to show.
 */
export function icicle(context, table) {
  const parents = table.parents;
  if (parents === null || table.share < 0) return null;
  const size = table.rows.map((row) => Math.max(0, cellNumber(row[table.share]) ?? 0));
  for (let i = size.length - 1; i >= 0; i--) {
    const parent = parents[i] ?? -1;
    if (parent >= 0 && parent < i) size[parent] = (size[parent] ?? 0) + (size[i] ?? 0);
  }
  const boxes = layOut(childrenOf(parents), size);
  if (boxes.length === 0) return null;
  const depth = Math.max(...boxes.map((box) => box.depth)) + 1;
  const links = boxes.map((box, i) => {
    const cells = table.rows[box.row] ?? [];
    const label = visible(cellText(cells[0]) ?? MISSING);
    const op = table.ops?.[box.row] ?? null;
    const own = cellText(cells[table.share]) ?? MISSING;
    return h("a", {
      class: "box",
      href: op === null ? fragment("ops", { table: table.id }) : opLink(context, op),
      tabindex: i === 0 ? 0 : -1,
      title: `${label.slice(0, 300)}\nown: ${own}`,
      "aria-label": `${label.slice(0, 200)}, own ${own}`,
      "--from": box.from.toFixed(5),
      "--size": box.size.toFixed(5),
      "--depth": box.depth,
      "--color": `var(${colorOf(context, op)})`,
    }, h("bdi", {}, label.slice(0, 200)));
  });
  const root = h("div", {
    class: "icicle", role: "group", "aria-label": "Call paths; arrow keys go from box to box",
    "--rows": depth,
  }, links);
  root.addEventListener("keydown", (event) => {
    const at = links.findIndex((link) => link === document.activeElement);
    const next = at < 0 ? -1 : neighbour(boxes, at, event.key);
    if (next < 0) return;
    event.preventDefault();
    links[at]?.setAttribute("tabindex", "-1");
    links[next]?.setAttribute("tabindex", "0");
    links[next]?.focus();
  });
  return root;
}

/**
 * @param {Map<number, number[]>} children
 * @param {number[]} size
 * @returns {Box[]}
 */
function layOut(children, size) {
  const roots = children.get(-1) ?? [];
  const whole = roots.reduce((sum, row) => sum + (size[row] ?? 0), 0);
  /** @type {Box[]} */
  const boxes = [];
  if (!(whole > 0)) return boxes;
  /** @type {{rows: number[], from: number, depth: number}[]} */
  const queue = [{ rows: roots, from: 0, depth: 0 }];
  for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
    let from = next.from;
    const rows = next.rows.slice().sort((a, b) => (size[b] ?? 0) - (size[a] ?? 0));
    for (const row of rows) {
      const part = (size[row] ?? 0) / whole;
      if (part < NARROWEST) break;
      boxes.push({ row, from, size: part, depth: next.depth });
      const below = children.get(row);
      if (below !== undefined && next.depth + 1 < DEEPEST) {
        queue.push({ rows: below, from, depth: next.depth + 1 });
      }
      from += part;
    }
  }
  return boxes;
}

/**
 * -1 if there is no box in the direction of the arrow key.
 * @param {Box[]} boxes
 * @param {number} at
 * @param {string} key
 */
function neighbour(boxes, at, key) {
  const box = boxes[at];
  if (box === undefined) return -1;
  const middle = box.from + box.size / 2;
  /** @param {(other: Box) => boolean} test */
  const find = (test) => boxes.findIndex((other) => test(other));
  /** @param {Box} other */
  const over = (other) => other.from <= middle && middle < other.from + other.size;
  switch (key) {
    case "ArrowDown":
      return find((other) => other.depth === box.depth + 1 && other.from >= box.from - 1e-9 &&
        other.from < box.from + box.size);
    case "ArrowUp":
      return find((other) => other.depth === box.depth - 1 && over(other));
    case "ArrowRight":
      return boxes[at + 1]?.depth === box.depth ? at + 1 : -1;
    case "ArrowLeft":
      return boxes[at - 1]?.depth === box.depth ? at - 1 : -1;
    default:
      return -1;
  }
}
