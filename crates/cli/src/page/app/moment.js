/**
 * Reads and writes moments in the forms that other programs use.
 *
 * Other programs may make links of the form `#timeline?time=TIME`, which will stay valid.
 * `docs/page.md` describes the form.
 *
 * @typedef {import("./context.js").Context} Context
 * @typedef {import("./data.js").Timeline} Timeline
 * @typedef {import("./load.js").Calls} Calls
 * @typedef {import("./paint.js").Picture} Picture
 * @typedef {import("./state.js").Params} Params
 * @typedef {{lane: number, call: number}} Chosen
 */

import { copyText, h, refill, words } from "./dom.js";
import { firstFrom } from "./lanes.js";
import { fragment } from "./state.js";
import { timeText, visible } from "./text.js";

/** @type {Record<string, number>} */
const UNIT_NS = { ns: 1, us: 1e3, µs: 1e3, μs: 1e3, ms: 1e6, s: 1e9, m: 60e9, h: 3600e9 };

/**
 * Returns ns from the begin of the timeline, or null if the text is no moment of the timeline.
 * Known forms are `131.85 ms`, `131,852,104 ns`, `1s 131ms`, Perfetto's `00:00:00.131852104`, and a
 * plain number of ns, which may be a time in an exported trace.
 * @param {Timeline} timeline
 * @param {string} text
 * @param {string} [since] The moment to which times with a unit are relative, in ns since 1970.
 *   Without it, they are relative to the begin of the timeline.
 * @returns {number | null}
 */
export function readMoment(timeline, text, since = "") {
  const begin = BigInt(timeline.begin);
  const plain = text.replace(/[\s,_'\u2009\u202f]/g, "").replace(/^\+/, "");
  const zero = /^-?\d+$/.test(since) ? Number(BigInt(since) - begin) : 0;
  if (/^-?\d{1,20}$/.test(plain)) {
    const value = BigInt(plain);
    // The number may count from 1970, from the base time of an exported .json trace, or from
    // `since` (by default, the begin of the timeline). These three origins are usually far apart,
    // so it is rare that more than one of the three results is inside of the timeline.
    for (const ns of [Number(value - begin), Number(value + BigInt(timeline.base ?? "0") - begin), Number(value) + zero]) {
      if (isInside(timeline, ns)) return ns;
    }
    return null;
  }
  const clock = /^(?:(\d+)d)?(\d+):(\d{2}):(\d{2})(?:\.(\d{1,9}))?$/.exec(plain);
  let ns = NaN;
  if (clock !== null) {
    const [, days = "0", hours = "0", minutes = "0", seconds = "0", rest = ""] = clock;
    ns = (((Number(days) * 24 + Number(hours)) * 60 + Number(minutes)) * 60 + Number(seconds)) * 1e9 +
      Number(rest.padEnd(9, "0"));
  } else if (/^(?:\d+(?:\.\d*)?(?:ns|us|µs|μs|ms|s|m|h))+$/.test(plain)) {
    ns = 0;
    for (const [, digits = "", unit = ""] of plain.matchAll(/(\d+(?:\.\d*)?)(ns|us|µs|μs|ms|s|m|h)/g)) {
      ns += Number(digits) * (UNIT_NS[unit] ?? NaN);
    }
    ns = Math.round(ns);
  }
  return isInside(timeline, ns + zero) ? ns + zero : null;
}

/** @param {Timeline} timeline @param {number} ns */
function isInside(timeline, ns) {
  return Number.isFinite(ns) && ns >= 0 && ns <= timeline.span;
}

/**
 * Returns, of the calls that run at this moment, the innermost of those that began last.
 * @param {Picture} picture
 * @param {number} ns
 * @param {(lane: number) => boolean} isWanted
 * @param {number} [wanted] The only level to search, from 1. 0: all levels.
 * @returns {Chosen | null}
 */
export function callThen(picture, ns, isWanted, wanted = 0) {
  const { grid } = picture.timeline;
  /** @param {number} at */
  const onGrid = (at) => Math.floor(at / grid) * grid;
  // Perfetto reads the times of a .json as doubles, so they can be wrong by 1 ns.
  const [low, moment, high] = [onGrid(ns - 1), onGrid(ns), onGrid(ns + 1)];
  let [best, where, least] = [-1, -1, Infinity];
  for (const [lane, levels] of (picture.marked ?? picture.levels).entries()) {
    if (!isWanted(lane)) continue;
    for (const [depth, level] of levels.entries()) {
      if (wanted > 0 && depth + 1 !== wanted) continue;
      const place = firstFrom(level, low);
      for (const near of [place - 1, place, place + 1, place + 2]) {
        const call = level.order[near];
        if (call === undefined) continue;
        const begin = level.calls.begins[call] ?? 0;
        const isNear = begin >= low && begin <= high;
        const distance = isNear ? Math.abs(begin - moment) : moment - begin;
        const runs = isNear || (distance > 0 && (level.calls.ends[call] ?? 0) > moment);
        if (runs && (distance < least || (distance === least && where === lane))) {
          [best, where, least] = [call, lane, distance];
        }
      }
    }
  }
  return best < 0 ? null : { lane: where, call: best };
}

/**
 * Returns a function that says whether a link with these parameters means a lane.
 * @param {Timeline} timeline
 * @param {Params} params
 * @returns {(lane: number) => boolean}
 */
export function lanesOfLink(timeline, params) {
  return (lane) => {
    const of = timeline.lanes[lane];
    return of !== undefined && (params.tid ?? of.tid) === of.tid && (params.pid ?? of.pid) === of.pid;
  };
}

/**
 * Returns the number of the call's level, or an empty text for the outermost level.
 * @param {Calls[]} lanes
 * @param {Chosen | null} chosen
 */
export function levelParam(lanes, chosen) {
  const depth = chosen === null ? 0 : (lanes[chosen.lane]?.depths[chosen.call] ?? 0);
  return depth === 0 ? "" : String(depth + 1);
}

/**
 * @param {(text: string) => void} goTo
 */
export function momentField(goTo) {
  const field = h("input", {
    class: "moment", type: "text", autocomplete: "off", spellcheck: "false",
    placeholder: "go to time  ( G )", "aria-label": "Go to a time: as 1.5 ms, as Perfetto shows it, or as traces have it",
    title: "1.5 ms, a time as Perfetto shows it (00:00:00.001500000), or a number of ns from a trace",
    onkeydown: (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Enter" && field.value.trim() !== "") goTo(field.value);
    },
  });
  return field;
}

/**
 * Makes the part with the chosen call's times in Perfetto and a link to the call. The link also
 * works in other pages of the same profile.
 * @param {Context} context
 * @param {Timeline} timeline
 */
export function elsewhere(context, timeline) {
  const place = h("div", {});
  const root = h("details", { class: "elsewhere", hidden: true },
    h("summary", {}, "This call in Perfetto, and a link to it"), place);
  /** @param {string} text The text to copy. */
  const copier = (text) => h("button", {
    type: "button",
    "aria-label": `Copy ${text}`,
    onclick: async () => {
      context.say(await copyText(text) ? "Copied." : "This page may not copy.");
    },
  }, "Copy");
  /** @param {string} label @param {Node} shown @param {string} text */
  const row = (label, shown, text) => h("div", {}, h("dt", {}, label), h("dd", {}, shown, " ", copier(text)));
  /** @param {string} label @param {string} text */
  const code = (label, text) => row(label, h("code", {}, text), text);
  return {
    root,
    /** @param {Calls[]} lanes @param {Chosen | null} chosen */
    show(lanes, chosen) {
      const calls = chosen === null ? undefined : lanes[chosen.lane];
      const of = chosen === null ? undefined : timeline.lanes[chosen.lane];
      root.hidden = calls === undefined || of === undefined;
      if (chosen === null || calls === undefined || of === undefined) return;
      const begin = calls.begins[chosen.call] ?? 0;
      const moment = BigInt(timeline.begin) + BigInt(Math.round(begin));
      const { trace, base } = timeline;
      const link = fragment("timeline", {
        time: String(moment), pid: of.pid, tid: of.tid,
        level: of.depth > 1 ? String((calls.depths[chosen.call] ?? 0) + 1) : "",
      });
      const inJson = base === null ? null : String(moment - BigInt(base));
      const rounded = timeline.grid > 1 ? ` Times are rounded down to ${timeText(timeline.grid)} here.` : "";
      const name = trace === null ? "a file that “counterpoint trace export” writes of this profile" : visible(trace.name);
      const length = (calls.ends[chosen.call] ?? 0) - begin;
      const href = trace === null || trace.url === null ? null
        : perfettoLink(timeline, trace.url, BigInt(trace.isJson ? (inJson ?? "0") : moment), length, of);
      refill(place,
        h("p", {}, words(`Where the call begins in ${name}. Perfetto's command “Pan to timestamp” takes ts.${rounded}`)),
        h("dl", { class: "pairs" },
          code("Perfetto shows", clockText(begin)),
          trace?.isJson !== true && code("ts in a .pftrace", String(moment)),
          trace?.isJson !== false && inJson !== null && code("ts in a .json", inJson),
          row("link to this call", h("a", { href: link }, h("code", {}, link)), location.href.replace(/#.*$/, "") + link)),
        href !== null && h("p", {}, h("a", { href, rel: "noreferrer" }, "Open in Perfetto")));
    },
  };
}

/**
 * Formats a moment as Perfetto shows it: hours, minutes, seconds and ns since the begin of the
 * trace.
 * @param {number} ns
 */
export function clockText(ns) {
  const all = Math.round(ns);
  const seconds = Math.floor(all / 1e9);
  const two = (/** @type {number} */ value) => String(value).padStart(2, "0");
  const rest = String(all % 1e9).padStart(9, "0");
  return `${two(Math.floor(seconds / 3600))}:${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}.${rest}`;
}

/**
 * Returns a link to a call in Perfetto. If the call's times are exact, Perfetto also selects the
 * call.
 * @param {Timeline} timeline
 * @param {string} url
 * @param {bigint} ts
 * @param {number} length
 * @param {import("./data.js").TimeLane} lane
 */
function perfettoLink(timeline, url, ts, length, lane) {
  const around = BigInt(Math.max(1000, Math.round(length * 10), timeline.grid * 20));
  const query = new URLSearchParams({
    url, visStart: String(ts - around), visEnd: String(ts + BigInt(Math.round(length)) + around),
  });
  if (timeline.grid === 1) {
    query.set("ts", String(ts));
    query.set("dur", String(Math.round(length)));
    if (/^\d+$/.test(lane.pid) && /^\d+$/.test(lane.tid)) {
      query.set("pid", lane.pid);
      query.set("tid", lane.tid);
    }
  }
  return `https://ui.perfetto.dev/#!/?${query}`;
}
