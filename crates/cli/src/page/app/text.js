/**
 * Makes and matches texts. Numbers that the report prints are already texts.
 */

/** The text that is shown for a value that is not known. */
export const MISSING = "–";

const UNSEEN =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202f\u205f-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]|\p{Cs}/gu;

/**
 * Hidden characters are control characters, marks for the direction of text, and characters without
 * width.
 * @param {string} text
 * @returns {string}
 */
export function visible(text) {
  return text.replace(UNSEEN, (character) => {
    const code = (character.codePointAt(0) ?? 0).toString(16);
    return code.length > 4 ? `\\u{${code}}` : `\\u${code.padStart(4, "0")}`;
  });
}

/**
 * @param {string} text
 */
export function codeText(text) {
  return visible(text.replace(/\t/g, "    "));
}

/**
 * Three digits, as the report prints: `12.3 ns`, `1.00 µs`.
 * @param {number} ns
 * @returns {string}
 */
export function timeText(ns) {
  if (!Number.isFinite(ns)) return MISSING;
  const size = Math.abs(ns);
  if (size >= 999.5e6) return `${threeDigits(ns / 1e9)} s`;
  if (size >= 999.5e3) return `${threeDigits(ns / 1e6)} ms`;
  if (size >= 999.5) return `${threeDigits(ns / 1e3)} µs`;
  return `${threeDigits(ns)} ns`;
}

/** @param {number} value */
function threeDigits(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 9999.5) return grouped(value);
  if (size >= 99.95) return value.toFixed(0);
  if (size >= 9.995) return value.toFixed(1);
  return value.toFixed(2);
}

/**
 * With commas: `12,345`.
 * @param {number} value
 * @returns {string}
 */
export function grouped(value) {
  if (!Number.isFinite(value)) return MISSING;
  const digits = String(Math.round(Math.abs(value)));
  const sign = value < 0 && digits !== "0" ? "−" : "";
  return sign + digits.replace(/\B(?=(\d{3})+$)/g, ",");
}

/** @type {[number, string][]} */
const UNITS = [
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
  [1, "ns"],
];

/**
 * As many digits as distinguish the ticks: `131,850 µs`.
 * @param {number} ns
 * @param {number} step In ns; 1, 2 or 5 times a power of ten.
 * @returns {string}
 */
export function momentText(ns, step) {
  if (!Number.isFinite(ns)) return MISSING;
  if (Math.abs(ns) < step / 2) return "0";
  const [size, unit] = UNITS.find(([size]) => size <= step) ?? [1, "ns"];
  return `${grouped(ns / size)} ${unit}`;
}

/**
 * `0.25` becomes `25 %`.
 * @param {number} part
 * @returns {string}
 */
export function percentText(part) {
  if (!Number.isFinite(part)) return MISSING;
  const percent = part * 100;
  const digits = percent === 0 || percent >= 9.995 ? 0 : percent >= 0.0995 ? 1 : 2;
  return `${percent.toFixed(digits)} %`;
}

/**
 * `1 call`, `2 calls`.
 * @param {number} n
 * @param {string} one
 */
export function howMany(n, one) {
  return `${grouped(n)} ${one}${n === 1 ? "" : "s"}`;
}

/**
 * A pattern with `*` or `?` is a glob for the whole name. Any other pattern is a part of the name.
 * Upper and lower case are the same.
 * @param {string} pattern
 * @returns {(name: string) => boolean}
 */
export function matcher(pattern) {
  const wanted = pattern.trim().toLowerCase();
  if (wanted === "") return () => true;
  if (!/[*?]/.test(wanted)) return (name) => name.toLowerCase().includes(wanted);
  return (name) => globMatches(wanted, name.toLowerCase());
}

/**
 * Regular expressions can take exponential time for hostile patterns.
 * @param {string} pattern
 * @param {string} name
 */
function globMatches(pattern, name) {
  let [p, n, star, after] = [0, 0, -1, 0];
  while (n < name.length) {
    if (p < pattern.length && pattern[p] === "*") {
      star = p++;
      after = n;
    } else if (p < pattern.length && (pattern[p] === "?" || pattern[p] === name[n])) {
      p++;
      n++;
    } else if (star >= 0) {
      p = star + 1;
      n = ++after;
    } else {
      return false;
    }
  }
  while (pattern[p] === "*") p++;
  return p === pattern.length;
}

/** A common begin of names that is shorter than this is not left out. */
const SHORTEST_PREFIX = 8;

/**
 * Counts whole words only.
 * @param {string[]} names
 * @returns {number} The number of characters; 0 if there are fewer than `SHORTEST_PREFIX`.
 */
export function commonStart(names) {
  const [first = ""] = names;
  // If all names are equal, their common begin is the whole name, and nothing would be left to
  // show.
  if (names.every((name) => name === first)) return 0;
  let length = first.length;
  for (const name of names) {
    let same = 0;
    while (same < length && name[same] === first[same]) same++;
    length = same;
  }
  while (length > 0 && !"_./:$-".includes(first[length - 1] ?? "")) length--;
  return length < SHORTEST_PREFIX ? 0 : length;
}

/**
 * RFC 4180. A text that a spreadsheet would evaluate as a formula gets an apostrophe in front.
 * @param {string} text
 * @param {boolean} isNumber Whether the text is a number, with or without a unit.
 * @returns {string}
 */
export function csvField(text, isNumber) {
  const risky = !isNumber && /^[\s\u3000]*[=+\-@＝＋－＠]|^['\t\r\n]/.test(text);
  const safe = risky ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
}
