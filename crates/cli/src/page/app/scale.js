/**
 * Computes scales of axes and their ticks.
 *
 * @typedef {object} Scale
 * @property {(value: number) => number} to Returns the place of a value on the axis.
 * @property {[number, string][]} ticks The value and the text of each tick.
 */

import { momentText, timeText } from "./text.js";

/**
 * Returns 1, 2 or 5 times a power of ten, not below `least`.
 * @param {number} least
 * @returns {number}
 */
export function niceStep(least) {
  if (!(least > 0) || !Number.isFinite(least)) return 1;
  const power = 10 ** Math.floor(Math.log10(least) + 1e-9);
  for (const factor of [1, 2, 5]) {
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

/**
 * Returns about `most` round moments.
 * @param {number} from
 * @param {number} to
 * @param {number} most
 * @returns {[number, string][]}
 */
export function momentTicks(from, to, most) {
  const step = Math.max(niceStep((to - from) / Math.max(1, most)), 1);
  /** @type {[number, string][]} */
  const ticks = [];
  for (let i = Math.ceil(from / step); i * step <= to && ticks.length < 100; i++) {
    ticks.push([i * step, momentText(i * step, step)]);
  }
  return ticks;
}

const FACTORS = [[1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 5, 7], [1, 2, 5], [1, 3], [1]];

/**
 * Makes a logarithmic scale for durations.
 * @param {number} low In ns, above 0.
 * @param {number} high
 * @param {number} start The place of `low` on the axis.
 * @param {number} end The place of `high` on the axis.
 * @param {number} apart The least distance between two ticks.
 * @returns {Scale}
 */
export function logScale(low, high, start, end, apart) {
  const least = Math.max(low, 1e-3);
  const most = Math.max(high, least * 1.01);
  const size = Math.log(most / least);
  /** @param {number} value */
  const to = (value) => start + ((end - start) * Math.log(Math.max(value, least) / least)) / size;
  const decades = Math.floor(Math.log10(least));
  for (const factors of FACTORS) {
    const ticks = ticksOf(factors, decades, least, most);
    const places = ticks.map(([value]) => to(value));
    if (places.every((place, i) => i === 0 || Math.abs(place - (places[i - 1] ?? 0)) >= apart)) {
      if (ticks.length >= 2) return { to, ticks };
      break;
    }
  }
  // If there are too few round values, or if even powers of ten are too close to each other, the
  // ticks are not round.
  const few = Math.max(2, Math.floor(Math.abs(end - start) / apart / 1.5));
  const count = Math.min(few, 5);
  /** @type {[number, string][]} */
  const ticks = [];
  for (let i = 0; i < count; i++) {
    const value = least * Math.exp((size * i) / (count - 1));
    const text = timeText(value);
    if (ticks[ticks.length - 1]?.[1] !== text) ticks.push([value, text]);
  }
  return { to, ticks };
}

/**
 * @param {number[]} factors
 * @param {number} decade
 * @param {number} low
 * @param {number} high
 * @returns {[number, string][]}
 */
function ticksOf(factors, decade, low, high) {
  /** @type {[number, string][]} */
  const ticks = [];
  for (let power = decade; 10 ** power <= high; power++) {
    for (const factor of factors) {
      const value = factor * 10 ** power;
      if (value >= low * 0.999 && value <= high * 1.001) ticks.push([value, timeText(value)]);
    }
  }
  return ticks;
}
