/**
 * Shows how the durations of an op's calls changed during the recording.
 *
 * @typedef {import("./data.js").Op} Op
 * @typedef {import("./data.js").Drift} Drift
 * @typedef {import("./dom.js").Child} Child
 */

import { chartBox, xTicks, yTicks } from "./chart.js";
import { panel, svg } from "./dom.js";
import { logScale, momentTicks } from "./scale.js";
import { timeText } from "./text.js";

const DRIFT_HEIGHT = 200;
const [DRIFT_LEFT, DRIFT_RIGHT, DRIFT_TOP, DRIFT_BOTTOM] = [64, 12, 12, 26];

/**
 * @param {Op} op
 * @param {((from: number, to: number) => void) | null} zoom Shows a part of the recording in the
 *   timeline. Null if the page has no timeline.
 * @returns {HTMLElement | null}
 */
export function driftPanel(op, zoom) {
  const drift = op.drift;
  if (drift === null) return null;
  const values = drift.parts.flatMap((part) => part ?? []).filter((ns) => ns > 0);
  if (values.length === 0 || !(drift.width > 0)) return null;
  const low = values.reduce((a, b) => Math.min(a, b));
  const high = values.reduce((a, b) => Math.max(a, b));
  const label = `Durations over ${timeText(drift.width * drift.parts.length)}, from ${timeText(low)} ` +
    `to ${timeText(high)}`;
  return panel("Over the run", "Does it warm up, drift or stall? Line: median; band: 10 to 90 %; " +
    `circle: the longest call.${zoom === null ? "" : " A click shows the part in the timeline."}`,
  chartBox(label, DRIFT_HEIGHT, (width) => drawDrift(drift, low, high, width, zoom)));
}

/**
 * @param {Drift} drift
 * @param {number} low
 * @param {number} high
 * @param {number} width
 * @param {((from: number, to: number) => void) | null} zoom
 * @returns {Child[]}
 */
function drawDrift(drift, low, high, width, zoom) {
  const [right, bottom] = [width - DRIFT_RIGHT, DRIFT_HEIGHT - DRIFT_BOTTOM];
  const scale = logScale(low / 1.1, high * 1.1, bottom, DRIFT_TOP, 20);
  const end = drift.from + drift.width * drift.parts.length;
  /** @param {number} ns */
  const x = (ns) => DRIFT_LEFT + ((right - DRIFT_LEFT) * (ns - drift.from)) / (end - drift.from);
  const wide = (right - DRIFT_LEFT) / drift.parts.length;
  let [band, line] = ["", ""];
  /** @type {Child[]} */
  const dots = [];
  /** @type {Child[]} */
  const places = [];
  drift.parts.forEach((part, i) => {
    if (part === null) return;
    const [p10, p50, p90, longest] = part.map((ns) => scale.to(ns));
    const from = drift.from + i * drift.width;
    const [a, b] = [x(from).toFixed(1), x(from + drift.width).toFixed(1)];
    if (p10 === undefined || p50 === undefined || p90 === undefined || longest === undefined) return;
    band += `M${a} ${Math.max(p10, p90 + 1).toFixed(1)}V${p90.toFixed(1)}H${b}V${Math.max(p10, p90 + 1).toFixed(1)}z`;
    line += `M${a} ${p50.toFixed(1)}H${b}`;
    dots.push(svg("circle", {
      class: "dot", cx: x(from + drift.width / 2).toFixed(1), cy: longest.toFixed(1), r: 2.5,
    }));
    const text = `${timeText(from)}: median ${timeText(part[1] ?? 0)}, longest ${timeText(part[3] ?? 0)}`;
    places.push(svg("rect", {
      class: zoom === null ? "place" : "place link",
      x: a, y: DRIFT_TOP, width: wide.toFixed(2), height: bottom - DRIFT_TOP,
      onclick: zoom === null ? null : () => zoom(from, from + drift.width),
    }, svg("title", {}, text)));
  });
  const ticks = momentTicks(drift.from, end, Math.max(2, (right - DRIFT_LEFT) / 90));
  return [
    xTicks(ticks.map(([ns, text]) => [x(ns), text]), DRIFT_TOP, bottom, width),
    yTicks(scale.ticks.map(([ns, text]) => [scale.to(ns), text]), DRIFT_LEFT, right),
    svg("path", { class: "band", d: band }),
    svg("path", { class: "middle", d: line }),
    dots,
    places,
  ];
}
