/**
 * Finds calls of the timeline, and describes them in words.
 *
 * @typedef {import("./data.js").Timeline} Timeline
 * @typedef {import("./load.js").Calls} Calls
 * @typedef {import("./lanes.js").Level} Level
 * @typedef {import("./paint.js").Picture} Picture
 */

import { firstAfter, firstFrom } from "./lanes.js";
import { grouped, howMany, timeText, visible } from "./text.js";

/**
 * Finds the call whose begin is nearest to a moment, on any level.
 * @param {Picture} picture
 * @param {number} lane
 * @param {number} ns
 * @param {boolean} onlyMarked Whether to search only highlighted calls, if the lane has any.
 * @param {number} [wanted] The only level to search, from 1. 0: all levels.
 * @returns {{lane: number, call: number} | null}
 */
export function callAt(picture, lane, ns, onlyMarked, wanted = 0) {
  const marked = onlyMarked ? (picture.marked?.[lane] ?? []) : [];
  const levels = marked.some((level) => level.order.length > 0) ? marked : (picture.levels[lane] ?? []);
  let [best, least] = [-1, Infinity];
  for (const [depth, level] of levels.entries()) {
    if (wanted > 0 && depth + 1 !== wanted) continue;
    const place = firstFrom(level, ns);
    for (const near of [place - 1, place]) {
      const call = level.order[near];
      if (call === undefined) continue;
      const distance = Math.abs((level.calls.begins[call] ?? 0) - ns);
      if (distance < least) {
        least = distance;
        best = call;
      }
    }
  }
  return best < 0 ? null : { lane, call: best };
}

/**
 * Returns the call before or after the chosen one. If calls are highlighted, only these are
 * considered, and otherwise only the calls of the same level. If no call is chosen, returns the
 * first call in view.
 * @param {Picture} picture
 * @param {number} direction
 * @returns {{lane: number, call: number} | null}
 */
export function stepFrom(picture, direction) {
  const { chosen } = picture;
  const all = picture.marked ?? picture.levels;
  if (chosen === null) {
    for (const [lane, levels] of all.entries()) {
      for (const level of levels) {
        const call = level.order[firstAfter(level, picture.from)];
        if (call !== undefined) return { lane, call };
      }
    }
    return null;
  }
  const calls = picture.levels[chosen.lane]?.[0]?.calls;
  const levels = all[chosen.lane] ?? [];
  if (calls === undefined) return null;
  let found = -1;
  for (const level of picture.marked === null ? [levels[calls.depths[chosen.call] ?? 0]] : levels) {
    if (level === undefined) continue;
    // Calls are numbered in the order of their begins.
    let [low, high] = [0, level.order.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((level.order[middle] ?? 0) < chosen.call) low = middle + 1;
      else high = middle;
    }
    const isThis = level.order[low] === chosen.call;
    const next = level.order[direction > 0 ? low + (isThis ? 1 : 0) : low - 1];
    if (next === undefined) continue;
    if (found < 0 || (direction > 0 ? next < found : next > found)) found = next;
  }
  return found < 0 ? null : { lane: chosen.lane, call: found };
}

/**
 * @param {Timeline} timeline
 * @param {Calls} calls
 * @param {{lane: number, call: number}} chosen
 */
export function callText(timeline, calls, chosen) {
  const { lane, call } = chosen;
  const [begin, end] = [calls.begins[call] ?? 0, calls.ends[call] ?? 0];
  const parts = [
    timeText(end - begin),
    `from ${exactly(begin)} to ${exactly(end)}`,
    laneText(timeline, lane),
  ];
  const depth = calls.depths[call] ?? 0;
  if ((timeline.lanes[lane]?.depth ?? 1) > 1) parts.push(`level ${depth + 1}`);
  parts.push(`call ${grouped(call + 1)} of ${grouped(calls.begins.length)}`);
  return parts.join(" · ");
}

/**
 * `131,852,104 ns` is easier to read than `131.852 104 ms`.
 * @param {number} ns
 */
function exactly(ns) {
  return `${grouped(ns)} ns`;
}

/**
 * @param {Timeline} timeline
 * @param {number} lane
 */
function laneText(timeline, lane) {
  const found = timeline.lanes[lane];
  if (found === undefined) return "";
  return found.process === "" ? visible(found.label) : `${visible(found.label)}, ${visible(found.process)}`;
}

/**
 * @param {Timeline} timeline
 * @param {Level} level
 * @param {number} lane
 * @param {number} ns
 */
export function gapText(timeline, level, lane, ns) {
  const place = firstFrom(level, ns);
  const { begins, ends, names } = level.calls;
  const [before, after] = [level.order[place - 1], level.order[place]];
  /** @param {number | undefined} call */
  const name = (call) => call === undefined ? "" : visible(timeline.names[names[call] ?? 0] ?? "").slice(0, 80);
  const where = laneText(timeline, lane);
  if (before === undefined && after === undefined) return "";
  if (before === undefined) return `Before the first call of ${where}, ${name(after)}.`;
  if (after === undefined) return `After the last call of ${where}, ${name(before)}.`;
  const gap = Math.max(0, (begins[after] ?? 0) - (ends[before] ?? 0));
  return `Gap of ${timeText(gap)} between ${name(before)} and ${name(after)}, ${where}.`;
}

/**
 * @param {Picture} picture
 * @param {number} lane
 */
export function callsOfLane(picture, lane) {
  return howMany(picture.levels[lane]?.reduce((sum, level) => sum + level.order.length, 0) ?? 0, "call");
}
