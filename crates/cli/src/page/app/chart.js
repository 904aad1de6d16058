/**
 * Axes, and a box that draws its chart again when the width changes.
 *
 * @typedef {import("./dom.js").Child} Child
 */

import { h, refill, svg } from "./dom.js";

/**
 * The chart is as wide as the element around it.
 * @param {string} label What the chart shows, in words.
 * @param {number} height
 * @param {(width: number) => Child[]} draw
 * @returns {HTMLElement}
 */
export function chartBox(label, height, draw) {
  const box = h("div", { class: "chart", "--height": `${height}px` });
  let drawn = 0;
  new ResizeObserver(() => {
    const width = Math.floor(box.clientWidth);
    if (width === drawn || width === 0) return;
    drawn = width;
    refill(box, svg("svg", {
      width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label,
    }, draw(width)));
  }).observe(box);
  return box;
}

/**
 * A text that would overlap another one is left out.
 * @param {[number, string][]} ticks The place and the text of each tick.
 * @param {number} top
 * @param {number} bottom
 * @param {number} right Where the chart ends.
 * @param {number} [left] Where texts may begin.
 * @returns {Child[]}
 */
export function xTicks(ticks, top, bottom, right, left = 0) {
  let free = -Infinity;
  return ticks.map(([x, text]) => {
    const half = text.length * 3.4;
    const place = Math.max(left + half, Math.min(x, right - half));
    const fits = place - half > free;
    if (fits) free = place + half + 6;
    return [
      svg("path", { class: "grid", d: `M${x.toFixed(1)} ${top}V${bottom}` }),
      fits && svg("text", { x: place.toFixed(1), y: bottom + 15, "text-anchor": "middle" }, text),
    ];
  });
}

/**
 * Returns ticks at the left of a chart, with horizontal lines through the chart.
 * @param {[number, string][]} ticks
 * @param {number} left
 * @param {number} right
 * @returns {Child[]}
 */
export function yTicks(ticks, left, right) {
  return ticks.map(([y, text]) => [
    svg("path", { class: "grid", d: `M${left} ${y.toFixed(1)}H${right}` }),
    svg("text", { x: left - 6, y: (y + 3.5).toFixed(1), "text-anchor": "end" }, text),
  ]);
}
