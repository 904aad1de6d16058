/**
 * Makes the elements around the canvas of the timeline, and what the canvas needs before it is
 * drawn.
 *
 * @typedef {import("./context.js").Context} Context
 * @typedef {import("./data.js").Timeline} Timeline
 * @typedef {import("./paint.js").Picture} Picture
 * @typedef {import("./paint.js").Strip} Strip
 */

import { COLORS, opParam, opsOfName } from "./context.js";
import { h, nameOf } from "./dom.js";
import { firstAfter, firstFrom } from "./lanes.js";
import { LEVEL_HEIGHT, MAP_HEIGHT, SERIES_HEIGHT, STRIP_GAP } from "./paint.js";
import { commonStart } from "./text.js";

/** The largest number of names in the chooser. */
const MOST_NAMES = 1000;

/**
 * @param {{zoom: (factor: number) => void, move: (part: number) => void, all: () => void,
 *   step: (direction: number) => void}} actions
 */
export function moveButtons(actions) {
  /** @type {[string, string, () => void][]} */
  const all = [
    ["+", "Zoom in", () => actions.zoom(0.5)],
    ["−", "Zoom out", () => actions.zoom(2)],
    ["←", "Earlier", () => actions.move(-0.4)],
    ["→", "Later", () => actions.move(0.4)],
    ["All", "All: the whole recording", () => actions.all()],
    ["‹", "Previous call", () => actions.step(-1)],
    ["›", "Next call", () => actions.step(1)],
  ];
  return all.map(([text, label, act]) =>
    h("button", { type: "button", "aria-label": label, title: label, onclick: act }, text));
}

/**
 * @param {Context} context
 * @param {Timeline} timeline
 * @param {string[]} labels
 * @param {(name: string) => void} choose
 */
export function nameChooser(context, timeline, labels, choose) {
  const values = timeline.names.slice(0, MOST_NAMES).map((name, i) => {
    const index = timeline.ops[i] ?? null;
    return index === null ? name : opParam(context, index);
  });
  const root = h("select", {
    "aria-label": "Calls to highlight",
    onchange: () => choose(root.value === "" ? "" : (values[Number(root.value)] ?? "")),
  },
  h("option", { value: "" }, "highlight an op …"),
  values.map((_, i) => h("option", { value: i }, (labels[i] ?? "").slice(0, 100))));
  return {
    root,
    /** @param {string} name */
    show(name) {
      const index = name === "" ? -1 : values.indexOf(name);
      root.value = index < 0 ? "" : String(index);
    },
  };
}

/**
 * A click on a name highlights its calls.
 * @param {Context} context
 * @param {Timeline} timeline
 * @param {(name: string) => void} choose
 */
export function colorLegend(context, timeline, choose) {
  const colors = nameColors(context, timeline);
  const common = commonStart(timeline.names);
  const buttons = timeline.names.flatMap((name, i) => {
    const color = colors[i] ?? COLORS;
    if (color === COLORS) return [];
    const index = timeline.ops[i] ?? null;
    const value = index === null ? name : opParam(context, index);
    const button = h("button", { type: "button", onclick: () => choose(value) },
      h("span", { class: "swatch", "aria-hidden": "true", "--color": `var(--op-${color})` }), nameOf(name, common));
    return [{ button, value, color }];
  }).sort((a, b) => a.color - b.color).slice(0, COLORS);
  const others = timeline.names.length - buttons.length;
  return {
    root: h("div", { class: "legend ops-legend", role: "group", "aria-label": "Colours; press to highlight" },
      buttons.map(({ button }) => button),
      others > 0 && h("span", {},
        h("span", { class: "swatch", "aria-hidden": "true", "--color": `var(--op-${COLORS})` }),
        `${others} more`)),
    /** @param {string} name */
    show(name) {
      for (const { button, value } of buttons) button.setAttribute("aria-pressed", String(value === name));
    },
  };
}

/**
 * @param {Timeline} timeline
 * @returns {Strip[]}
 */
export function stripsOf(timeline) {
  let top = STRIP_GAP / 2;
  /** @param {number} height @param {number} lane @param {number} series */
  const strip = (height, lane, series) => {
    const made = { top, height, lane, series };
    top += height + STRIP_GAP;
    return made;
  };
  /** @param {number} lane */
  const seriesOf = (lane) => timeline.series.flatMap((one, i) =>
    one.lane === lane ? [strip(SERIES_HEIGHT, -1, i)] : []);
  return [
    ...timeline.lanes.flatMap((lane, i) =>
      [strip(Math.max(1, lane.depth) * LEVEL_HEIGHT, i, -1), ...seriesOf(i)]),
    ...seriesOf(-1),
  ];
}

/**
 * Names of activities get the colours that no op uses.
 * @param {Context} context
 * @param {Timeline} timeline
 */
export function nameColors(context, timeline) {
  let next = new Set(context.colors.values()).size;
  return Uint8Array.from(timeline.names, (name, i) => {
    const index = timeline.ops[i] ?? opsOfName(context.head, name)[0] ?? null;
    if (index !== null) return context.colors.get(index) ?? COLORS;
    return next < COLORS ? next++ : COLORS;
  });
}

/** @param {Element} element */
export function paletteOf(element) {
  const style = getComputedStyle(element);
  /** @param {string} name */
  const color = (name) => style.getPropertyValue(name).trim();
  return {
    ops: Array.from({ length: COLORS + 1 }, (_, i) => color(`--op-${i}`)),
    text: color("--text"), onOp: color("--on-op"), quiet: color("--quiet"), line: color("--line"),
    ground: color("--panel"), mark: color("--text"), series: color("--op-2"),
  };
}

/**
 * Shows the first level of each lane.
 * @param {Picture} picture
 * @param {Strip[]} strips
 */
export function mapOf(picture, strips) {
  const map = h("canvas", {});
  map.width = Math.max(1, picture.width - picture.left);
  map.height = MAP_HEIGHT - 2;
  const pen = map.getContext("2d");
  const count = strips.filter((strip) => strip.lane >= 0).length;
  if (pen === null || count === 0) return null;
  const perPixel = picture.timeline.span / map.width;
  const tall = map.height / count;
  pen.fillStyle = picture.palette.quiet;
  picture.levels.forEach((levels, lane) => {
    const level = levels[0];
    if (level === undefined) return;
    for (let x = 0; x < map.width; x++) {
      const from = firstAfter(level, x * perPixel);
      const to = firstFrom(level, (x + 1) * perPixel, from);
      const inside = (level.busy[to] ?? 0) - (level.busy[from] ?? 0);
      if (to === from) continue;
      pen.globalAlpha = Math.min(1, 0.25 + (0.75 * inside) / perPixel);
      pen.fillRect(x, lane * tall, 1, Math.max(0.7, tall - 0.6));
    }
  });
  return map;
}

/** @param {Picture} picture */
export function callsIn(picture) {
  let sum = 0;
  for (const levels of picture.marked ?? picture.levels) {
    for (const level of levels) sum += firstFrom(level, picture.to) - firstAfter(level, picture.from);
  }
  return sum;
}
