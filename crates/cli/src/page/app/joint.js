/**
 * Shows how often each duration and each value of a counter occurred in the same call.
 *
 * @typedef {import("./data.js").Op} Op
 * @typedef {import("./data.js").Joint} Joint
 * @typedef {import("./dom.js").Child} Child
 */

import { chartBox, xTicks, yTicks } from "./chart.js";
import { h, panel, svg, words } from "./dom.js";
import { grouped, visible } from "./text.js";

/** The largest number of edges that have a text, on each axis. */
const MOST_TICKS = 7;
const JOINT_HEIGHT = 320;
const [JOINT_RIGHT, JOINT_TOP, JOINT_BOTTOM] = [12, 10, 40];

/**
 * The second chart shows shares of the calls with the same value of the counter.
 * @param {Op} op
 * @param {string} counter The counter to show. If there is no such counter, the first one is shown.
 * @param {(changed: Record<string, string>) => void} change
 * @returns {HTMLElement[]}
 */
export function jointPanels(op, counter, change) {
  const joint = op.joints.find((one) => one.counter === counter) ?? op.joints[0];
  if (joint === undefined || joint.x.length < 2 || joint.y.length < 2) return [];
  const chooser = h("select", {
    "aria-label": "Counter",
    "data-key": "counter",
    onchange: () => change({ counter: op.joints[Number(chooser.value)]?.counter ?? "" }),
  }, op.joints.map((one, i) => h("option", { value: i, selected: one === joint }, visible(one.counter))));
  const label = `Durations and ${visible(joint.counter)}: ${visible(joint.text)}`;
  return [
    panel("Duration and counter", "Does the counter explain the slow calls? The darker, the more calls. Both axes are logarithmic.",
      h("div", { class: "tools" },
        op.joints.length > 1 ? chooser : h("b", {}, words(joint.counter)),
        joint.text !== "" && h("span", {}, words(joint.text))),
      chartBox(label, JOINT_HEIGHT, (width) => drawJoint(joint, false, width))),
    panel("Duration, given the counter", "If the counter has this value, how likely is which duration? " +
      "Each row is shaded for itself: without a connection, all rows look the same.",
      h("div", { class: "tools" }, h("b", {}, words(joint.counter))),
      chartBox(`${label}; each value for itself`, JOINT_HEIGHT, (width) => drawJoint(joint, true, width))),
  ];
}

/**
 * Returns the ticks of an axis. `texts` contains a text for each edge, or for a few edges at equal
 * distances.
 * @param {string[]} texts
 * @param {number} edges
 * @param {(edge: number) => number} to
 * @returns {[number, string][]}
 */
function edgeTicks(texts, edges, to) {
  /** @type {[number, string][]} */
  const ticks = [];
  texts.forEach((text, i) => {
    if (text === "") return;
    const part = texts.length > 1 ? i / (texts.length - 1) : 0;
    ticks.push([to(Math.round(part * (edges - 1))), visible(text).slice(0, 14)]);
  });
  // At most `MOST_TICKS` ticks are kept, at about equal distances.
  const steps = Math.min(ticks.length - 1, MOST_TICKS - 1);
  const kept = new Set(Array.from({ length: steps + 1 }, (_, i) =>
    Math.round((i * (ticks.length - 1)) / Math.max(1, steps))));
  return ticks.filter((_, i) => kept.has(i));
}

/**
 * @param {Joint} joint
 * @param {boolean} byRow
 * @param {number} width
 * @returns {Child[]}
 */
function drawJoint(joint, byRow, width) {
  const [columns, rows] = [joint.x.length - 1, joint.y.length - 1];
  const left = 26 + 6.8 * Math.max(3, ...joint.yText.map((text) => Math.min(14, visible(text).length)));
  const [right, bottom] = [width - JOINT_RIGHT, JOINT_HEIGHT - JOINT_BOTTOM];
  /** @param {number} edge */
  const x = (edge) => left + ((right - left) * edge) / columns;
  /** @param {number} edge */
  const y = (edge) => bottom - ((bottom - JOINT_TOP) * edge) / rows;
  const most = joint.counts.reduce((max, count) => Math.max(max, count), 0);
  /** @type {number[][]} */
  const parts = [];
  for (let row = 0; row < rows; row++) parts.push(joint.counts.slice(row * columns, (row + 1) * columns));
  /** @param {number[]} part */
  const sumOf = (part) => part.reduce((total, count) => total + count, 0);
  // The largest share of a row's calls that is in one cell.
  const likely = Math.max(1e-9, ...parts.map((part) => Math.max(...part) / Math.max(1, sumOf(part))));
  /** @type {Child[]} */
  const cells = [];
  parts.forEach((part, row) => {
    const sum = sumOf(part);
    part.forEach((count, column) => {
      if (count <= 0) return;
      // The square root keeps cells with only a few calls visible.
      const shade = byRow ? Math.sqrt(count / sum / likely) : Math.sqrt(count / most);
      cells.push(svg("rect", {
        class: "cell",
        x: x(column).toFixed(1), y: y(row + 1).toFixed(1),
        width: (x(column + 1) - x(column) + 0.3).toFixed(1),
        height: (y(row) - y(row + 1) + 0.3).toFixed(1),
        "fill-opacity": (0.12 + 0.88 * shade).toFixed(3),
      }, svg("title", {}, `${joint.mark}${grouped(count)} of ${joint.mark}${grouped(sum)} calls of this row`)));
    });
  });
  return [
    xTicks(edgeTicks(joint.xText, joint.x.length, x), JOINT_TOP, bottom, width, left + 2),
    yTicks(edgeTicks(joint.yText, joint.y.length, y), left, right),
    cells,
    svg("path", { class: "frame", d: `M${left} ${JOINT_TOP}V${bottom}H${right}` }),
    svg("text", { x: (left + right) / 2, y: JOINT_HEIGHT - 4, "text-anchor": "middle", class: "axis" }, "duration"),
    svg("text", {
      x: 10, y: (JOINT_TOP + bottom) / 2, "text-anchor": "middle", class: "axis",
      transform: `rotate(-90 10 ${(JOINT_TOP + bottom) / 2})`,
    }, visible(joint.counter).slice(0, 40)),
  ];
}
