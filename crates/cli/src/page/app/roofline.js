/**
 * Makes the roofline view: a chart with a point for each op below the limits (roofs) of the
 * machine, and the table of ops.
 *
 * @typedef {import("./context.js").Context} Context
 * @typedef {import("./context.js").Shown} View
 * @typedef {import("./data.js").Roofline} Roofline
 * @typedef {import("./data.js").Table} Table
 * @typedef {import("./dom.js").Child} Child
 * @typedef {import("./state.js").Params} Params
 */

import { chartBox, xTicks, yTicks } from "./chart.js";
import { h, panel, svg, words } from "./dom.js";
import { tableBox } from "./table.js";
import { visible } from "./text.js";

const ROOF_HEIGHT = 380;
const ROOF_MARGIN = { left: 58, right: 14, top: 22, bottom: 40 };
/**
 * At most this many points get a name, if there is room for it.
 */
const NAMED_POINTS = 10;
const NAME_LENGTH = 26;
/** The approximate width of a letter, in pixels. */
const LETTER = 6.7;

/**
 * @param {Context} context
 * @param {Roofline} roofline
 * @param {Table} table
 * @param {Params} params
 * @returns {View}
 */
export function rooflineView(context, roofline, table, params) {
  let current = params;
  const box = tableBox(context, table, params, (changed, replace) =>
    context.go("roofline", { ...current, ...changed }, replace));
  const kinds = new Set(roofline.points.map((point) => point.holds));
  /** @type {[string, string][]} */
  const named = [["memory", "bound by memory"], ["compute", "bound by compute"], ["far", "far below both roofs"], ["unknown", "roof not known"]];
  const root = h("div", { class: "roofline" },
    h("h1", { tabindex: -1 }, "Roofline"),
    h("p", { class: "question" }, "How far is each op from what this machine can do, and what holds it?"),
    roofline.points.length === 0 && roofline.about !== "" && h("p", { class: "lead" }, words(roofline.about)),
    roofline.points.length > 0 && panel("Operations per second over operations per byte", "",
      h("p", { class: "lead" }, words(roofline.about)),
      h("p", { class: "legend" }, named.filter(([kind]) => kinds.has(kind)).map(([kind, text]) =>
        h("span", {}, h("span", { class: `key holds ${kind}`, "aria-hidden": "true" }), text))),
      chartBox(`${roofline.about} The table below has the same points.`, ROOF_HEIGHT,
        (width) => drawRoofline(roofline, width))),
    box.root);
  return {
    root,
    update(next) {
      current = next;
      box.update(next);
    },
  };
}

/**
 * @param {Roofline} roofline
 * @param {number} width
 * @returns {Child[]}
 */
function drawRoofline(roofline, width) {
  const { left, right, top, bottom } = ROOF_MARGIN;
  const end = width - right;
  const floor = ROOF_HEIGHT - bottom;
  /** @param {number} part */
  const x = (part) => left + part * (end - left);
  /** @param {number} part */
  const y = (part) => floor - part * (floor - top);
  /**
   * @type {{x: number, y: number, size: number}[]} The places that a text or a point already
   *   takes.
   */
  const taken = [];
  /**
   * @param {number} at
   * @param {number} height
   * @param {number} size
   */
  const isFree = (at, height, size) => at + size <= end + right &&
    taken.every((one) => Math.abs(one.y - height) > 12 || at > one.x + one.size || one.x > at + size);
  const roofs = roofline.roofs.map((roof) => {
    const [x1, y1, x2, y2] = roof.ends.map((part, i) => (i % 2 === 0 ? x(part) : y(part)));
    if (x1 === undefined || y1 === undefined || x2 === undefined || y2 === undefined) return null;
    const size = roof.text.length * LETTER;
    // The name of a horizontal roof is above its right end, that of a rising roof below its left
    // end.
    const at = y1 === y2 ? Math.max(left, x2 - size) : x1 + 8;
    const height = y1 === y2 ? y1 - 6 : Math.min(y1 + 14, floor - 4);
    const isNamed = isFree(at, height, size);
    if (isNamed) taken.push({ x: at, y: height, size });
    return [
      svg("path", { class: "roof", d: `M${x1.toFixed(1)} ${y1.toFixed(1)}L${x2.toFixed(1)} ${y2.toFixed(1)}` },
        svg("title", {}, visible(roof.text))),
      isNamed && svg("text", { class: "note", x: at.toFixed(1), y: height.toFixed(1) }, visible(roof.text)),
    ];
  });
  // The name of a point must not cover any point. So the places of all points are marked as taken
  // before the first point gets its name.
  for (const { at } of roofline.points) taken.push({ x: x(at[0] ?? 0) - 6, y: y(at[1] ?? 0) + 4, size: 12 });
  const points = roofline.points.map((point, i) => {
    const [px, py] = [x(point.at[0] ?? 0), y(point.at[1] ?? 0)];
    const name = visible(point.name);
    const text = name.length > NAME_LENGTH ? `${name.slice(0, 8)}…${name.slice(9 - NAME_LENGTH)}` : name;
    const size = text.length * LETTER;
    const isNamed = i < NAMED_POINTS && isFree(px + 9, py + 4, size);
    if (isNamed) taken.push({ x: px + 9, y: py + 4, size });
    const title = svg("title", {}, visible(point.text));
    const place = { class: `holds ${point.holds}` };
    return [
      point.holds === "compute"
        ? svg("rect", { ...place, x: (px - 5).toFixed(1), y: (py - 5).toFixed(1), width: 10, height: 10 }, title)
        : svg("circle", { ...place, cx: px.toFixed(1), cy: py.toFixed(1), r: 5.5 }, title),
      isNamed && svg("text", { class: "note", x: (px + 9).toFixed(1), y: (py + 4).toFixed(1) }, text),
    ];
  });
  return [
    xTicks(roofline.x.map(([part, text]) => [x(part), visible(text)]), top, floor, end, left),
    yTicks(roofline.y.map(([part, text]) => [y(part), visible(text)]), left, end),
    svg("path", { class: "frame", d: `M${left} ${top}V${floor}H${end}` }),
    svg("text", { class: "axis", x: left, y: 12 }, "GFLOP/s"),
    svg("text", { class: "axis", x: end, y: ROOF_HEIGHT - 6, "text-anchor": "end" }, "FLOP per byte"),
    roofs,
    points,
  ];
}
