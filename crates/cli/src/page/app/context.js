/**
 * The data and functions that are passed to every view.
 *
 * @typedef {import("./data.js").Head} Head
 * @typedef {import("./data.js").Table} Table
 * @typedef {import("./load.js").Calls} Calls
 * @typedef {import("./state.js").Params} Params
 * @typedef {object} Context
 * @property {Head} head
 * @property {(view: string, params: Params, replace?: boolean) => void} go
 * @property {(text: string) => void} say Shows a text in the status line, which screen readers read
 *   out.
 * @property {() => Promise<Calls[]>} lanes The calls of the timeline, which are decoded when they are first
 *   needed.
 * @property {Map<number, number>} colors The numbers of the colours of the ops that have one. The
 *   key is the op's index in `Head.ops`.
 *
 * A view that is shown.
 * @typedef {object} Shown
 * @property {HTMLElement} root
 * @property {(params: Params) => void} update Called with new parameters of the same view.
 * @property {() => void} [leave] Called when another view is shown.
 * @property {() => void} [repaint] Called when colours or the width have changed.
 * @property {(event: KeyboardEvent) => boolean} [key] Handles a key. Returns whether the view has
 *   used the key.
 */

import { fragment } from "./state.js";
import { cellNumber } from "./rows.js";

/** The number of colours for ops. All other ops are grey; the number of grey is this constant. */
export const COLORS = 8;

/** In links, the op's index takes the place of a label that is longer than this. */
const LONGEST_IN_LINK = 200;

/**
 * The text for an op in a link: its label, or `@` and its index.
 * @param {Context} context
 * @param {number} index
 */
export function opParam(context, index) {
  const label = context.head.ops[index]?.label ?? "";
  return label.length > LONGEST_IN_LINK || label === "" ? `@${index}` : label;
}

/**
 * Returns the index of the op that a link names.
 * @param {Context} context
 * @param {string} param
 * @returns {number} -1 if there is no such op.
 */
export function opOfParam(context, param) {
  const exact = context.head.ops.findIndex((op) => op.label === param);
  if (exact >= 0) return exact;
  const index = /^@\d+$/.test(param) ? Number(param.slice(1)) : -1;
  return index < context.head.ops.length ? index : -1;
}

/**
 * @param {Context} context
 * @param {number} index
 */
export function opLink(context, index) {
  return fragment("op", { op: opParam(context, index) });
}

/**
 * @param {Head} head
 * @param {string} id
 * @returns {Table | null}
 */
export function tableOf(head, id) {
  return head.tables.find((table) => table.id === id) ?? null;
}

/**
 * The ops with the largest shares get colours. Ops that differ in arguments share a colour, because
 * the timeline stores names without arguments.
 * @param {Head} head
 * @returns {Map<number, number>}
 */
export function colorsOf(head) {
  /** @type {Map<number, number>} */
  const colors = new Map();
  const table = tableOf(head, "op") ?? head.tables.find((table) => table.ops !== null) ?? null;
  const rows = table === null ? [] : table.rows.map((row, i) => ({
    op: table.ops?.[i] ?? null,
    share: cellNumber(row[table.share]) ?? 0,
  }));
  rows.sort((a, b) => b.share - a.share);
  const order = [...rows.map((row) => row.op), ...head.ops.keys()];
  /** @type {Map<string, number>} */
  const ofNames = new Map();
  for (const op of order) {
    if (op === null || colors.has(op)) continue;
    const name = wholeName(head, op);
    const color = ofNames.get(name) ?? ofNames.size;
    if (color >= COLORS) continue;
    ofNames.set(name, color);
    colors.set(op, color);
  }
  return colors;
}

/**
 * Returns the name without arguments.
 * @param {Head} head
 * @param {number} op
 */
function wholeName(head, op) {
  const { name = "", label = "" } = head.ops[op] ?? {};
  return name === "" ? label : name;
}

/**
 * Ops of one name differ in their arguments or roles.
 * @param {Head} head
 * @param {string} name
 * @returns {number[]}
 */
export function opsOfName(head, name) {
  return [...head.ops.keys()].filter((op) => wholeName(head, op) === name);
}

/**
 * The colour is a CSS property.
 * @param {Context} context
 * @param {number | null | undefined} op
 */
export function colorOf(context, op) {
  const number = op === null || op === undefined ? COLORS : (context.colors.get(op) ?? COLORS);
  return `--op-${number}`;
}
