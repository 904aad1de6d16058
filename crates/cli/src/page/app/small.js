/**
 * Draws small distributions of durations in the rows of a table, on the same logarithmic axis.
 *
 * @typedef {import("./data.js").Head} Head
 * @typedef {import("./data.js").Table} Table
 * @typedef {import("./data.js").Distribution} Distribution
 * @typedef {object} SmallAxis
 * @property {number} first First bin.
 * @property {number} last
 * @property {string} title
 */

import { svg } from "./dom.js";
import { binEdge, quantileOf, totalOf } from "./bins.js";
import { timeText } from "./text.js";

const SMALL_WIDTH = 112;
const SMALL_HEIGHT = 18;

/**
 * `null` if no row has a distribution.
 * @param {Head} head
 * @param {Table} table
 * @returns {SmallAxis | null}
 */
export function sharedAxis(head, table) {
  let [first, last] = [Infinity, -Infinity];
  for (const index of table.ops ?? []) {
    const times = index === null ? null : head.ops[index]?.times;
    if (!times || times.counts.length === 0) continue;
    first = Math.min(first, times.first);
    last = Math.max(last, times.first + times.counts.length);
  }
  if (!Number.isFinite(first) || !Number.isFinite(last)) return null;
  return { first, last, title: `${timeText(binEdge(first))} to ${timeText(binEdge(last))}, log` };
}

/**
 * The heights are square roots of the numbers of calls, so that rare calls are visible. The solid
 * line is the median, and the dotted line the 99th percentile.
 * @param {Distribution | null} times
 * @param {SmallAxis} axis
 */
export function smallDistribution(times, axis) {
  if (times === null || totalOf(times) === 0) return null;
  const most = Math.max(...times.counts);
  const step = SMALL_WIDTH / (axis.last - axis.first);
  /** @type {string[]} */
  const parts = [];
  times.counts.forEach((count, i) => {
    if (count <= 0) return;
    const x = (times.first + i - axis.first) * step;
    const height = Math.max(1, Math.sqrt(count / most) * SMALL_HEIGHT);
    parts.push(`M${x.toFixed(1)} ${SMALL_HEIGHT}v${(-height).toFixed(1)}h${Math.max(step, 1).toFixed(1)}V${SMALL_HEIGHT}z`);
  });
  /** @param {number} part */
  const place = (part) => (((quantileOf(times, part) ?? axis.first) - axis.first) * step).toFixed(1);
  const label = `median about ${timeText(binEdge(quantileOf(times, 0.5) ?? 0))}, between ` +
    `${timeText(binEdge(times.first))} and ${timeText(binEdge(times.first + times.counts.length))}`;
  return svg("svg", {
    class: "distribution",
    width: SMALL_WIDTH,
    height: SMALL_HEIGHT,
    viewBox: `0 0 ${SMALL_WIDTH} ${SMALL_HEIGHT}`,
    role: "img",
    "aria-label": label,
  },
  svg("path", { class: "bins", d: parts.join("") }),
  svg("path", { class: "median", d: `M${place(0.5)} 0V${SMALL_HEIGHT}` }),
  svg("path", { class: "p99", d: `M${place(0.99)} 0V${SMALL_HEIGHT}` }));
}
