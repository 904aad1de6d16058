/**
 * Makes the view of the timeline.
 *
 * @typedef {import("./context.js").Context} Context
 * @typedef {import("./context.js").Shown} View
 * @typedef {import("./data.js").Timeline} Timeline
 * @typedef {import("./load.js").Calls} Calls
 * @typedef {import("./paint.js").Picture} Picture
 * @typedef {import("./state.js").Params} Params
 */

import { opLink, opOfParam, opParam, opsOfName } from "./context.js";
import { h, nameOf, refill, words } from "./dom.js";
import { handOver } from "./hands.js";
import { callAt, callText, gapText, stepFrom } from "./calls.js";
import { emptyRuns, firstAfter, levelsOf } from "./lanes.js";
import { callThen, elsewhere, lanesOfLink, levelParam, momentField, readMoment } from "./moment.js";
import { HEAD_HEIGHT, LEVEL_HEIGHT, STRIP_GAP, paint } from "./paint.js";
import { fragment, numberOf } from "./state.js";
import { commonStart, howMany, timeText, visible } from "./text.js";
import { callsIn, colorLegend, mapOf, moveButtons, nameChooser, nameColors, paletteOf, stripsOf } from "./surroundings.js";

/** The time in ms after which the first picture is drawn a second time. */
const AGAIN_MS = 300;

/** @param {Context} context @param {Params} params @returns {View} */
export function timelineView(context, params) {
  const timeline = context.head.timeline;
  const place = h("div", {}, h("p", { role: "status" }, "Reading the calls …"));
  const root = h("div", {}, h("h1", { tabindex: -1 }, "Timeline"), place);
  if (timeline === null) {
    refill(place, h("p", {}, "This profile has no timeline."));
    return { root, update() {} };
  }
  /** @type {View | null} */
  let shown = null;
  let current = params;
  let isGone = false;
  context.lanes().then((lanes) => {
    if (isGone) return;
    shown = canvasView(context, timeline, lanes, current, place);
  }, (error) => refill(place, h("p", {}, `The calls cannot be read: ${visible(String(error))}`)));
  return {
    root,
    update(next) {
      current = next;
      shown?.update(next);
    },
    leave() {
      isGone = true;
      shown?.leave?.();
    },
    repaint: () => shown?.repaint?.(),
    key: (event) => shown?.key?.(event) ?? false,
  };
}

/**
 * @param {Context} context
 * @param {Timeline} timeline
 * @param {Calls[]} lanes
 * @param {Params} params
 * @param {HTMLElement} place
 * @returns {View}
 */
function canvasView(context, timeline, lanes, params, place) {
  const span = Math.max(timeline.span, 1);
  const canvas = h("canvas", {
    tabindex: 0,
    role: "application",
    "aria-label": "Timeline. W and S zoom, A and D move, comma and full stop go from call to call, " +
      "arrows choose a thread, 0 shows all, G goes to a time.",
    "aria-describedby": "call-line",
  });
  const spacer = h("div", { class: "spacer" });
  const box = h("div", { class: "timeline-box" }, canvas, spacer);
  const line = h("p", { id: "call-line", class: "call-line", role: "status" });
  const counted = h("span", { class: "counted" });
  const other = elsewhere(context, timeline);
  const field = momentField((text) => {
    goTo(text, (lane) => picture.chosen === null || picture.chosen.lane === lane) || goTo(text, () => true);
    write();
  });
  const labels = timeline.names.map((name) => visible(name));
  const common = commonStart(labels);
  const chooser = nameChooser(context, timeline, labels, (name) =>
    context.go("timeline", { ...written(), op: name }));
  const legend = colorLegend(context, timeline, (name) =>
    context.go("timeline", { ...written(), op: name === op ? "" : name }));
  const strips = stripsOf(timeline);
  const tall = Math.max(...strips.map((strip) => strip.top + strip.height), 40) + STRIP_GAP;
  spacer.style.height = `${tall + HEAD_HEIGHT}px`;

  const pen = canvas.getContext("2d", { alpha: false });
  /** @type {Picture} */
  const picture = {
    timeline, strips,
    labels: common === 0 ? labels : labels.map((label) => `…${label.slice(common)}`),
    levels: lanes.map((calls) => levelsOf(calls)),
    marked: null,
    colors: nameColors(context, timeline),
    palette: { ops: [], text: "", onOp: "", quiet: "", line: "", ground: "", mark: "", series: "" },
    from: 0, to: span, width: 0, height: 0, left: 0, scroll: 0, chosen: null, map: null,
  };
  let runs = emptyRuns(0);
  let op = "";
  let frame = 0;
  let timer = 0;
  let again = 0;
  let own = "";
  let drawnAt = "";
  let isGone = false;

  /** @returns {Params} The parameters of a link to the current state of the view. */
  const written = () => {
    const isAll = picture.from <= 0 && picture.to >= span;
    const { chosen } = picture;
    const begin = chosen === null ? undefined : lanes[chosen.lane]?.begins[chosen.call];
    return {
      op,
      from: isAll ? "" : String(Math.round(picture.from)),
      to: isAll ? "" : String(Math.round(picture.to)),
      at: begin === undefined ? "" : String(Math.round(begin)),
      lane: chosen === null || begin === undefined ? "" : String(chosen.lane),
      level: levelParam(lanes, chosen),
    };
  };
  const write = () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      own = JSON.stringify(written());
      context.go("timeline", written(), true);
    }, 250);
  };
  const drawNow = () => {
    frame = 0;
    if (pen === null || picture.width === 0) return;
    const start = performance.now();
    picture.scroll = box.scrollTop;
    paint(pen, picture, runs);
    const took = performance.now() - start;
    canvas.dataset.frame = took.toFixed(2);
    counted.textContent = `${howMany(callsIn(picture), "slice")} in view, ` +
      `${timeText(picture.to - picture.from)} of ${timeText(span)} from the first call to the last`;
  };
  const draw = () => {
    if (frame === 0) frame = requestAnimationFrame(drawNow);
  };
  /** @param {number} from @param {number} to */
  const show = (from, to) => {
    const least = Math.max(timeline.grid * 4, 4);
    const size = Math.min(span, Math.max(to - from, least));
    const middle = (from + to) / 2;
    picture.from = Math.min(Math.max(0, middle - size / 2), span - size);
    picture.to = picture.from + size;
    draw();
  };
  /** @param {{lane: number, call: number} | null} chosen @param {string} [otherwise] */
  const choose = (chosen, otherwise = "") => {
    picture.chosen = chosen;
    other.show(lanes, chosen);
    const calls = chosen === null ? undefined : lanes[chosen.lane];
    if (chosen === null || calls === undefined) {
      refill(line, otherwise === "" ? "Click a call, or press . to go from call to call." : otherwise);
    } else {
      const name = calls.names[chosen.call] ?? 0;
      const index = timeline.ops[name] ?? null;
      const label = nameOf(timeline.names[name] ?? "");
      const whole = timeline.names[name] ?? "";
      // A name without arguments can mean several ops. Then the link leads to a list.
      const isSome = index !== null || opsOfName(context.head, whole).length > 0;
      const href = index !== null ? opLink(context, index) : fragment("op", { op: whole });
      refill(line, isSome ? h("a", { href }, label) : label,
        " ", words(callText(timeline, calls, chosen)));
    }
    draw();
  };
  /**
   * Scrolls to the chosen call. If it would be narrower than the view's width divided by `parts`, zooms in.
   * @param {number} [parts]
   */
  const reveal = (parts = 2000) => {
    const { chosen } = picture;
    const calls = chosen === null ? undefined : lanes[chosen.lane];
    if (chosen === null || calls === undefined) return;
    const [begin, end] = [calls.begins[chosen.call] ?? 0, calls.ends[chosen.call] ?? 0];
    const size = picture.to - picture.from;
    if (begin < picture.from || end > picture.to || end - begin < size / parts) {
      const wanted = Math.max(Math.min(size, (end - begin) * 40), (end - begin) * 1.5);
      show((begin + end - wanted) / 2, (begin + end + wanted) / 2);
    }
    const strip = strips[chosen.lane];
    const y = (strip?.top ?? 0) + (calls.depths[chosen.call] ?? 0) * LEVEL_HEIGHT;
    const seen = box.clientHeight - HEAD_HEIGHT;
    if (y < box.scrollTop || y + LEVEL_HEIGHT > box.scrollTop + seen) box.scrollTop = y - seen / 3;
  };
  /**
   * @param {string} text
   * @param {(lane: number) => boolean} isWanted
   * @param {Params} [params] The parameters of the link, if a link names the moment.
   * @returns {boolean} Whether a call runs at this moment.
   */
  const goTo = (text, isWanted, params = {}) => {
    const ns = readMoment(timeline, text, params.since);
    const found = ns === null ? null : callThen(picture, ns, isWanted, numberOf(params.level, 0));
    if (ns === null) {
      choose(null, `${visible(text).slice(0, 60)} is no time of this recording, which is ${timeText(span)} long. ` +
        "Known forms: 1.5 ms, 00:00:00.001500000, and the number of ns that a trace has.");
    } else if (found === null) {
      const size = Math.min(picture.to - picture.from, span / 20);
      show(ns - size / 2, ns + size / 2);
      choose(null, `No call runs at ${timeText(ns)}, the middle of what is shown.`);
    } else {
      choose(found);
      reveal();
    }
    return found !== null;
  };
  const mark = () => {
    const index = op === "" ? -1 : opOfParam(context, op);
    const wanted = timeline.names.map((name, i) => index >= 0 ? timeline.ops[i] === index : name === op);
    picture.marked = op === "" || !wanted.includes(true) ? null
      : lanes.map((calls) => levelsOf(calls, (call) => wanted[calls.names[call] ?? 0] ?? false));
    chooser.show(op);
    legend.show(op);
  };
  /** Resizes the canvas if necessary. Then draws it at once, because setting its size makes it black. */
  const resize = () => {
    const width = Math.floor(box.clientWidth);
    if (width === 0 || isGone) return;
    const height = Math.min(tall + HEAD_HEIGHT, Math.max(220, Math.floor(innerHeight * 0.72)));
    const ratio = Math.min(devicePixelRatio, 3);
    const wanted = `${width} ${height} ${ratio}`;
    if (wanted === drawnAt) return;
    drawnAt = wanted;
    box.style.height = `${height + 2}px`;
    canvas.width = Math.floor(width * ratio);
    canvas.height = Math.floor(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    canvas.style.marginBottom = `${-height}px`;
    pen?.setTransform(ratio, 0, 0, ratio, 0, 0);
    picture.width = width;
    picture.height = height;
    picture.left = width < 600 ? 90 : 150;
    runs = emptyRuns(width);
    repaint();
    cancelAnimationFrame(frame);
    drawNow();
  };
  const repaint = () => {
    picture.palette = paletteOf(root());
    picture.map = mapOf(picture, strips);
    draw();
  };
  const root = () => document.documentElement;
  /** @param {Params} next */
  const update = (next) => {
    if (JSON.stringify(written()) === own && JSON.stringify({ ...written(), ...next }) === own) return;
    if ((next.op ?? "") !== op) {
      op = next.op ?? "";
      mark();
    }
    if (next.time !== undefined) {
      show(0, span);
      goTo(next.time, lanesOfLink(timeline, next), next);
      write();
      return;
    }
    const lane = numberOf(next.lane, -1);
    const calls = lanes[lane];
    const level = picture.levels[lane];
    if (calls !== undefined && level !== undefined && next.at !== undefined) {
      choose(callAt(picture, lane, numberOf(next.at, 0), op !== "", numberOf(next.level, 0)));
    } else {
      choose(null);
    }
    const from = numberOf(next.from, 0);
    const to = numberOf(next.to, span);
    show(from, to > from ? to : span);
    if (next.from === undefined && picture.chosen !== null) reveal(20);
  };
  /** @param {number} direction */
  const step = (direction) => {
    const found = stepFrom(picture, direction);
    if (found === null) {
      choose(picture.chosen, "There is no such call.");
      return;
    }
    choose(found);
    reveal();
    write();
  };
  /** Returns the place of the chosen call as a fraction of the width: the middle if it is not in view. */
  const kept = () => {
    const { chosen, from, to } = picture;
    const calls = lanes[chosen?.lane ?? -1];
    const part = (((calls?.begins[chosen?.call ?? -1] ?? NaN) + (calls?.ends[chosen?.call ?? -1] ?? NaN)) / 2 - from) / (to - from);
    return part >= 0 && part <= 1 ? part : 0.5;
  };
  /**
   * @param {number} factor
   * @param {number} [part] The place that does not move, as a fraction of the width.
   */
  const zoom = (factor, part = kept()) => {
    const size = picture.to - picture.from;
    const fixed = picture.from + size * part;
    const next = Math.min(span, size * factor);
    show(fixed - next * part, fixed + next * (1 - part));
    write();
  };
  /** @param {number} part The distance, as a fraction of the width. */
  const move = (part) => {
    const by = (picture.to - picture.from) * part;
    show(picture.from + by, picture.to + by);
    write();
  };
  const hands = handOver(canvas, {
    picture, zoom, move, step,
    all: () => {
      show(0, span);
      write();
    },
    /** @param {number} from @param {number} to */
    show: (from, to) => {
      show(from, to);
      write();
    },
    /** @param {number} x @param {number} y */
    pick: (x, y) => {
      const ns = picture.from + ((x - picture.left) / (picture.width - picture.left)) * (picture.to - picture.from);
      const inside = y - HEAD_HEIGHT + box.scrollTop;
      const strip = strips.find((one) => inside >= one.top && inside < one.top + one.height + STRIP_GAP);
      const depth = Math.floor((inside - (strip?.top ?? 0)) / LEVEL_HEIGHT);
      const level = picture.levels[strip?.lane ?? -1]?.[depth];
      const near = ((picture.to - picture.from) / (picture.width - picture.left)) * 2;
      const found = level === undefined ? undefined : level.order[firstAfter(level, ns - near)];
      if (strip !== undefined && level !== undefined && found !== undefined
        && (level.calls.begins[found] ?? Infinity) <= ns + near) {
        choose({ lane: strip.lane, call: found });
      } else {
        choose(null, level === undefined ? "" : gapText(timeline, level, strip?.lane ?? -1, ns));
      }
      write();
    },
    /** @param {number} by */
    lane: (by) => {
      const now = picture.chosen?.lane ?? (by > 0 ? -1 : lanes.length);
      for (let lane = now + by; lane >= 0 && lane < lanes.length; lane += by) {
        const level = picture.levels[lane]?.[0];
        if (level === undefined || level.order.length === 0) continue;
        choose(callAt(picture, lane, (picture.from + picture.to) / 2, op !== ""));
        reveal();
        write();
        return;
      }
    },
    open: () => {
      const { chosen } = picture;
      const name = chosen === null ? undefined : lanes[chosen.lane]?.names[chosen.call];
      const index = name === undefined ? null : (timeline.ops[name] ?? null);
      if (index !== null) context.go("op", { op: opParam(context, index) });
    },
  });
  const grid = timeline.grid > 1 ? ` Moments are shown to ${timeText(timeline.grid)}.` : "";
  refill(place,
    h("p", { class: "question" }, "What ran when, and what was between? ", (timeline.about + grid).trim() !== "" && [words((timeline.about + grid).trim()), " "],
      [["W", "S"], ["A", "D"], [",", "."], ["0"]].map((keys, i) => [
        i === 0 ? "" : ", ", keys.map((key) => h("kbd", {}, key)),
        [" zoom", " move", " previous and next call", " all; wheel and drag"][i] ?? "",
      ])),
    h("div", { class: "tools" }, chooser.root, field, ...moveButtons(hands.actions), counted),
    legend.root, box, line, other.root);
  box.addEventListener("scroll", draw);
  // The height changes in the next frame: Firefox reports an error if the observer changes it.
  const watcher = new ResizeObserver(() => requestAnimationFrame(resize));
  watcher.observe(place);
  update(params);
  // The timeline is drawn again later, because Chromium discards the first picture of a canvas when
  // it makes a screenshot in virtual time.
  resize();
  again = setTimeout(draw, AGAIN_MS);
  return {
    root: place,
    update,
    repaint,
    key(event) {
      if (event.key.toLowerCase() !== "g") return hands.key(event);
      field.focus();
      return true;
    },
    leave() {
      isGone = true;
      watcher.disconnect();
      cancelAnimationFrame(frame);
      clearTimeout(timer);
      clearTimeout(again);
    },
  };
}
