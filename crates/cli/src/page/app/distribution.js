/**
 * Shows the distribution of an op's durations: bars for a histogram, and lines for the share of the
 * calls that took at most this long.
 *
 * @typedef {import("./data.js").Op} Op
 * @typedef {import("./data.js").Distribution} Distribution
 * @typedef {import("./dom.js").Child} Child
 * @typedef {object} Curve
 * @property {string} label
 * @property {Distribution} times
 * @property {number} color Number of the curve's colour.
 * @property {number} total
 */

import { binEdge, quantileOf, totalOf } from "./bins.js";
import { chartBox, xTicks, yTicks } from "./chart.js";
import { choice, h, nameOf, panel, svg } from "./dom.js";
import { logScale, niceStep } from "./scale.js";
import { howMany, percentText, timeText, visible } from "./text.js";

/**
 * With more threads, the last curve contains the calls of the other threads.
 */
const MOST_CURVES = 6;
const DURATIONS_HEIGHT = 240;
const [DURATIONS_LEFT, DURATIONS_RIGHT, DURATIONS_TOP, DURATIONS_BOTTOM] = [52, 52, 16, 26];
const DASHES = ["", "6 3", "2 3", "8 3 2 3", "1 2", "12 4"];

/**
 * @param {Op} op
 * @param {string} by `thread` to draw a curve for each thread; any other text to draw one for all
 *   calls.
 * @param {string} tail `all` to show the whole range; any other text to cut off the longest
 *   durations.
 * @param {(changed: Record<string, string>) => void} change
 * @returns {HTMLElement | null}
 */
export function distributionPanel(op, by, tail, change) {
  const times = op.times;
  if (times === null || totalOf(times) === 0) return null;
  const lanes = op.lanes.filter((lane) => totalOf(lane.times) > 0);
  const byThread = by === "thread" && lanes.length > 1;
  const curves = byThread ? curvesOf(lanes) : [curveOf("all calls", times, 0)];
  const last = times.first + times.counts.length;
  const cut = Math.ceil(quantileOf(times, 0.995) ?? last);
  const isCut = tail !== "all" && cut + 1 < last;
  const end = isCut ? cut + 1 : last;
  const label = curves.map((curve) =>
    `${curve.label}: ${howMany(curve.total, "call")}, median about ` +
    timeText(binEdge(quantileOf(curve.times, 0.5) ?? times.first))).join("; ");
  return panel("Durations", "One kind of call or several? How long is the tail? Bars: part of the calls. " +
    "Lines: part of the calls that took at most so long.",
  h("div", { class: "tools" },
    lanes.length > 1 && choice("Calls", [["", "all"], ["thread", "by thread"]], byThread ? "thread" : "",
      (value) => change({ by: value })),
    cut + 1 < last && choice("Tail", [["", "to p99.5"], ["all", "to the longest"]], isCut ? "" : "all",
      (value) => change({ tail: value })),
    byThread && h("span", { class: "legend" }, curves.map((curve) => h("span", {},
      h("span", { class: "swatch", "aria-hidden": "true", "--color": `var(--op-${curve.color})` }),
      nameOf(curve.label))))),
  chartBox(label, DURATIONS_HEIGHT, (width) => drawDistribution(curves, times.first, end, isCut, width)));
}

/**
 * @param {string} label
 * @param {Distribution} times
 * @param {number} color
 * @returns {Curve}
 */
function curveOf(label, times, color) {
  return { label, times, color, total: totalOf(times) };
}

/**
 * @param {Op["lanes"]} lanes
 * @returns {Curve[]}
 */
function curvesOf(lanes) {
  const own = lanes.length <= MOST_CURVES ? lanes : lanes.slice(0, MOST_CURVES - 1);
  const curves = own.map((lane, i) => curveOf(lane.label, lane.times, i));
  const others = lanes.slice(own.length);
  if (others.length === 0) return curves;
  const first = Math.min(...others.map((lane) => lane.times.first));
  const last = Math.max(...others.map((lane) => lane.times.first + lane.times.counts.length));
  const counts = new Array(last - first).fill(0);
  for (const { times } of others) {
    times.counts.forEach((count, i) => {
      counts[times.first + i - first] += count;
    });
  }
  curves.push(curveOf(howMany(others.length, "more thread"), { first, counts }, own.length));
  return curves;
}

/**
 * @param {Curve[]} curves
 * @param {number} first The bin at the left edge.
 * @param {number} end The bin at the right edge, which is not drawn itself.
 * @param {boolean} isCut
 * @param {number} width
 * @returns {Child[]}
 */
function drawDistribution(curves, first, end, isCut, width) {
  const [right, bottom] = [width - DURATIONS_RIGHT, DURATIONS_HEIGHT - DURATIONS_BOTTOM];
  const scale = logScale(binEdge(first), binEdge(end), DURATIONS_LEFT, right, 70);
  let most = 0;
  for (const { times, total } of curves) {
    times.counts.forEach((count, i) => {
      if (times.first + i < end) most = Math.max(most, count / total);
    });
  }
  const step = niceStep(most / 4);
  const top = Math.max(most, step);
  /** @param {number} part */
  const y = (part) => bottom - (part / top) * (bottom - DURATIONS_TOP);
  /** @type {[number, string][]} */
  const parts = [];
  for (let i = 0; i * step <= top * 1.001; i++) parts.push([y(i * step), percentText(i * step)]);
  const drawn = curves.map((curve) => {
    let bars = "";
    let line = `M${DURATIONS_LEFT} ${bottom}`;
    let sum = 0;
    curve.times.counts.forEach((count, i) => {
      const bin = curve.times.first + i;
      if (bin >= end) return;
      const [from, to] = [scale.to(binEdge(bin)), scale.to(binEdge(bin + 1))];
      sum += count;
      const whole = bottom - (sum / curve.total) * (bottom - DURATIONS_TOP);
      if (i === 0) line += `H${from.toFixed(1)}`;
      line += `L${to.toFixed(1)} ${whole.toFixed(1)}`;
      if (count === 0) return;
      const height = Math.max(1, bottom - y(count / curve.total));
      bars += `M${from.toFixed(1)} ${bottom}V${(bottom - height).toFixed(1)}H${to.toFixed(1)}V${bottom}z`;
    });
    line += `H${right}`;
    const longer = curve.total - sum;
    return { curve, bars, line, longer };
  });
  const many = curves.length > 1;
  const far = isCut ? drawn.filter(({ longer }) => longer > 0).map(({ curve, longer }, i) =>
    svg("text", { x: right - 6, y: DURATIONS_TOP + 34 + i * 14, "text-anchor": "end", class: "note" },
      `${many ? `${visible(curve.label).slice(0, 40)}: ` : ""}${howMany(longer, "call")} longer →`)) : [];
  return [
    xTicks(scale.ticks.map(([value, text]) => [scale.to(value), text]), DURATIONS_TOP, bottom, width),
    yTicks(parts, DURATIONS_LEFT, right),
    [0, 0.5, 1].map((part) => svg("text", {
      x: right + 6, y: (bottom - part * (bottom - DURATIONS_TOP) + 3.5).toFixed(1),
    }, percentText(part))),
    drawn.map(({ curve, bars }) => svg("path", {
      class: many ? "bars many" : "bars", d: bars, "--color": `var(--op-${curve.color})`,
    })),
    drawn.map(({ curve, line }, i) => svg("path", {
      class: "curve", d: line, "--color": `var(--op-${curve.color})`,
      "stroke-dasharray": DASHES[i] === "" ? null : DASHES[i],
    })),
    far,
  ];
}
