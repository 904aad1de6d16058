/**
 * Draws the timeline on its canvas.
 *
 * @typedef {import("./data.js").Timeline} Timeline
 * @typedef {import("./data.js").Series} Series
 * @typedef {import("./lanes.js").Level} Level
 * @typedef {import("./lanes.js").Runs} Runs
 * @typedef {object} Strip A lane or a series, with its place on the canvas.
 * @property {number} top The top edge, in pixels below the axis.
 * @property {number} height
 * @property {number} lane Index of the lane, or -1.
 * @property {number} series Index of the series, or -1.
 * @typedef {object} Palette
 * @property {string[]} ops
 * @property {string} text
 * @property {string} onOp Colour of text on the colour of an op.
 * @property {string} quiet
 * @property {string} line
 * @property {string} ground
 * @property {string} mark
 * @property {string} series
 * @typedef {object} Picture All data that are needed to draw the canvas once.
 * @property {Timeline} timeline
 * @property {Strip[]} strips
 * @property {Level[][]} levels The levels of each lane.
 * @property {Level[][] | null} marked The levels of each lane with only the highlighted calls; null
 *   if no calls are highlighted.
 * @property {Uint8Array} colors The number of the colour of each name.
 * @property {string[]} labels The text that is shown for each name.
 * @property {Palette} palette
 * @property {number} from
 * @property {number} to
 * @property {number} width
 * @property {number} height
 * @property {number} left Width of the labels at the left edge, in pixels.
 * @property {number} scroll
 * @property {{lane: number, call: number} | null} chosen
 * @property {HTMLCanvasElement | null} map The small picture of the whole timeline.
 */

import { WHOLE, runsOf } from "./lanes.js";
import { momentTicks } from "./scale.js";
import { visible } from "./text.js";

/** The height of the small picture of the whole timeline, at the top. The axis is below it. */
export const MAP_HEIGHT = 14;
export const AXIS_HEIGHT = 20;
export const HEAD_HEIGHT = MAP_HEIGHT + AXIS_HEIGHT;
/** The height of a level of calls, in pixels. */
export const LEVEL_HEIGHT = 20;
/** The height of a series of values, in pixels. */
export const SERIES_HEIGHT = 44;
/** The height of the gap between strips. */
export const STRIP_GAP = 8;

const FONT = "11px system-ui, sans-serif";
const ALPHAS = [0.3, 0.45, 0.62, 0.8, 1, 1];

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Picture} picture
 * @param {Runs} runs
 */
export function paint(pen, picture, runs) {
  const { width, height, left, palette, from, to } = picture;
  pen.globalAlpha = 1;
  pen.fillStyle = palette.ground;
  pen.fillRect(0, 0, width, height);
  pen.font = FONT;
  pen.textBaseline = "middle";
  const perPixel = (to - from) / (width - left);
  pen.save();
  pen.beginPath();
  pen.rect(0, HEAD_HEIGHT, width, height - HEAD_HEIGHT);
  pen.clip();
  const ticks = momentTicks(from, to, (width - left) / 110);
  pen.fillStyle = palette.line;
  for (const [ns] of ticks) pen.fillRect(Math.round(left + (ns - from) / perPixel), HEAD_HEIGHT, 1, height);
  for (const strip of picture.strips) {
    const top = HEAD_HEIGHT + strip.top - picture.scroll;
    if (top + strip.height < HEAD_HEIGHT || top > height) continue;
    if (strip.lane >= 0) paintLane(pen, picture, runs, strip.lane, top, perPixel);
    else paintSeries(pen, picture, strip.series, top, perPixel);
    paintLabel(pen, picture, strip, top);
  }
  pen.restore();
  paintHead(pen, picture, ticks, perPixel);
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Picture} picture
 * @param {Runs} runs
 * @param {number} lane
 * @param {number} top
 * @param {number} perPixel
 */
function paintLane(pen, picture, runs, lane, top, perPixel) {
  const { from, width, left, height } = picture;
  const levels = picture.levels[lane] ?? [];
  const marked = picture.marked?.[lane];
  levels.forEach((level, depth) => {
    const y = top + depth * LEVEL_HEIGHT;
    if (y + LEVEL_HEIGHT < HEAD_HEIGHT || y > height) return;
    runsOf(level, from, perPixel, width - left, runs);
    paintRuns(pen, picture, level, runs, y, marked !== undefined);
    const over = marked?.[depth];
    if (over !== undefined && over.order.length > 0) {
      runsOf(over, from, perPixel, width - left, runs);
      paintRuns(pen, picture, over, runs, y, false);
    }
  });
  const { chosen } = picture;
  if (chosen === null || chosen.lane !== lane) return;
  const calls = levels[0]?.calls;
  if (calls === undefined) return;
  const begin = left + ((calls.begins[chosen.call] ?? 0) - from) / perPixel;
  const end = left + ((calls.ends[chosen.call] ?? 0) - from) / perPixel;
  if (end < left || begin > width) return;
  const y = top + (calls.depths[chosen.call] ?? 0) * LEVEL_HEIGHT;
  const x = Math.max(left, begin);
  pen.strokeStyle = picture.palette.mark;
  pen.lineWidth = 2;
  pen.strokeRect(x - 1, y, Math.max(3, Math.min(end, width + 4) - x + 2), LEVEL_HEIGHT - 2);
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Picture} picture
 * @param {Level} level
 * @param {Runs} runs
 * @param {number} y
 * @param {boolean} dim
 */
function paintRuns(pen, picture, level, runs, y, dim) {
  const { left, palette, colors, labels } = picture;
  const { names } = level.calls;
  const tall = LEVEL_HEIGHT - 3;
  for (let i = 0; i < runs.length; i++) {
    const name = names[runs.call[i] ?? 0] ?? 0;
    const color = colors[name] ?? 0;
    const share = runs.share[i] ?? 0;
    const begin = runs.from[i] ?? 0;
    let end = runs.to[i] ?? 0;
    const whole = share === WHOLE;
    // Neighbouring pixels that look the same become one rectangle.
    while (!whole && i + 1 < runs.length && runs.share[i + 1] === share && runs.from[i + 1] === end
      && colors[names[runs.call[i + 1] ?? 0] ?? 0] === color) {
      end = runs.to[++i] ?? end;
    }
    pen.globalAlpha = (ALPHAS[share] ?? 1) * (dim ? 0.28 : 1);
    pen.fillStyle = palette.ops[color] ?? palette.quiet;
    // After a call wider than three pixels, one pixel stays empty, to separate the call from the
    // next one.
    pen.fillRect(left + begin, y, Math.max(0.8, end - begin - (whole && end - begin > 3 ? 1 : 0)), tall);
    if (whole && end - begin > 24 && !dim) {
      pen.globalAlpha = 1;
      pen.fillStyle = palette.onOp;
      const room = Math.floor((end - begin - 8) / 6.2);
      const label = labels[name] ?? "";
      const text = label.length <= room ? label : room < 3 ? "" : `${label.slice(0, room - 1)}…`;
      if (text !== "") pen.fillText(text, left + begin + 4, y + tall / 2 + 0.5, end - begin - 6);
    }
  }
  pen.globalAlpha = 1;
}

/**
 * Draws a series in steps. If many values fall into one pixel, a few of them are examined, and the
 * largest of these is drawn.
 * @param {CanvasRenderingContext2D} pen
 * @param {Picture} picture
 * @param {number} index
 * @param {number} top
 * @param {number} perPixel
 */
function paintSeries(pen, picture, index, top, perPixel) {
  const series = picture.timeline.series[index];
  if (series === undefined) return;
  const { from, width, left, palette } = picture;
  const { at, values } = series;
  const most = Math.max(largest(series), 1e-300);
  const tall = SERIES_HEIGHT - 6;
  pen.fillStyle = palette.series;
  let [place, x] = [Math.max(0, countUpTo(at, from) - 1), 0];
  while (x < width - left && place < at.length) {
    const next = Math.max(place + 1, countUpTo(at, from + (x + 1) * perPixel));
    let value = null;
    const step = Math.max(1, Math.floor((next - place) / 16));
    for (let i = place; i < next; i += step) {
      const one = values[i] ?? null;
      if (one !== null && (value === null || one > value)) value = one;
    }
    const begin = Math.max(x, ((at[place] ?? 0) - from) / perPixel);
    // The rectangle reaches to the next value. If the last value of this pixel is missing, the
    // rectangle ends where that value would begin.
    const last = values[next - 1] ?? null;
    const until = last === null ? (at[next - 1] ?? 0) : (at[next] ?? picture.timeline.span);
    const end = Math.min(width - left, Math.max(x + 1, (until - from) / perPixel));
    if (value !== null && end > begin) {
      const height = Math.max(1, (Math.max(0, value) / most) * tall);
      pen.fillRect(left + begin, top + tall - height, end - begin, height);
    }
    x = Math.max(x + 1, Math.floor(end));
    place = Math.max(next, countUpTo(at, from + x * perPixel) - 1);
  }
  pen.fillStyle = palette.quiet;
  pen.fillRect(left, top + tall, width - left, 1);
}

/** @type {WeakMap<Series, number>} */
const LARGEST = new WeakMap();

/** @param {Series} series */
function largest(series) {
  let most = LARGEST.get(series);
  if (most === undefined) {
    most = series.values.reduce((max, value) => Math.max(max ?? 0, value ?? 0), 0) ?? 0;
    LARGEST.set(series, most);
  }
  return most;
}

/**
 * Returns the number of elements at or before the moment.
 * @param {number[]} at
 * @param {number} ns
 */
export function countUpTo(at, ns) {
  let [low, high] = [0, at.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((at[middle] ?? 0) <= ns) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Picture} picture
 * @param {Strip} strip
 * @param {number} top
 */
function paintLabel(pen, picture, strip, top) {
  const { timeline, palette, left } = picture;
  const lane = timeline.lanes[strip.lane];
  const series = timeline.series[strip.series];
  pen.fillStyle = palette.ground;
  pen.fillRect(0, top - STRIP_GAP / 2, left - 1, strip.height + STRIP_GAP);
  const lines = lane !== undefined
    ? [visible(lane.label), strip.height >= 2 * LEVEL_HEIGHT ? visible(lane.process) : ""]
    : [visible(series?.label ?? ""), visible(series?.about ?? "")];
  lines.forEach((line, i) => {
    if (line === "") return;
    pen.fillStyle = i === 0 ? palette.text : palette.quiet;
    const room = Math.floor((left - 12) / 5.9);
    const text = line.length <= room ? line : `${line.slice(0, room - 1)}…`;
    pen.fillText(text, 6, top + 9 + i * 14, left - 10);
  });
}

/**
 * Draws the small picture of the whole timeline, a frame in it around the part that is in view, and
 * the axis.
 * @param {CanvasRenderingContext2D} pen
 * @param {Picture} picture
 * @param {[number, string][]} ticks
 * @param {number} perPixel
 */
function paintHead(pen, picture, ticks, perPixel) {
  const { width, left, palette, from, to, timeline } = picture;
  pen.fillStyle = palette.ground;
  pen.fillRect(0, 0, width, HEAD_HEIGHT);
  if (picture.map !== null) pen.drawImage(picture.map, left, 1, width - left, MAP_HEIGHT - 2);
  const scale = (width - left) / timeline.span;
  const [begin, end] = [left + from * scale, left + to * scale];
  pen.fillStyle = palette.ground;
  pen.globalAlpha = 0.65;
  pen.fillRect(left, 0, begin - left, MAP_HEIGHT);
  pen.fillRect(end, 0, width - end, MAP_HEIGHT);
  pen.globalAlpha = 1;
  pen.strokeStyle = palette.mark;
  pen.lineWidth = 1.5;
  pen.strokeRect(begin, 0.75, Math.max(3, end - begin - 1), MAP_HEIGHT - 1.5);
  pen.fillStyle = palette.quiet;
  for (const [ns, text] of ticks) {
    const x = left + (ns - from) / perPixel;
    if (x + text.length * 6 < width) pen.fillText(text, x + 4, MAP_HEIGHT + AXIS_HEIGHT / 2);
  }
}
