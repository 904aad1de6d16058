/**
 * Handles the input of the timeline: wheel, pointers and keys.
 *
 * @typedef {import("./paint.js").Picture} Picture
 * @typedef {object} Actions
 * @property {Picture} picture
 * @property {(factor: number, part?: number) => void} zoom
 * @property {(part: number) => void} move
 * @property {(direction: number) => void} step
 * @property {() => void} all
 * @property {(from: number, to: number) => void} show
 * @property {(x: number, y: number) => void} pick
 * @property {(by: number) => void} lane
 * @property {() => void} open
 */

import { MAP_HEIGHT } from "./paint.js";

/** The largest number of pixels that a pointer may move during a click. */
const STILL = 4;

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Actions} actions
 */
export function handOver(canvas, actions) {
  const { picture } = actions;
  const room = () => Math.max(1, picture.width - picture.left);
  /** @param {number} x */
  const part = (x) => Math.min(1, Math.max(0, (x - picture.left) / room()));
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 16 : 1;
    const [dx, dy] = [event.deltaX * lines, event.deltaY * lines];
    if (event.shiftKey || Math.abs(dx) > Math.abs(dy)) actions.move((dx === 0 ? dy : dx) / room());
    else actions.zoom(Math.exp(Math.min(1, Math.max(-1, dy / 300))), part(event.offsetX));
  }, { passive: false });

  /** @type {Map<number, number>} */
  const pointers = new Map();
  let [startX, moved, isMap] = [0, 0, false];
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, event.offsetX);
    if (pointers.size === 1) {
      [startX, moved] = [event.offsetX, 0];
      isMap = event.offsetY < MAP_HEIGHT + 2;
      if (isMap) center(event.offsetX);
    }
  });
  /** @param {number} x */
  const center = (x) => {
    const half = (picture.to - picture.from) / 2;
    const at = part(x) * picture.timeline.span;
    actions.show(at - half, at + half);
  };
  canvas.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (before === undefined) return;
    const x = event.offsetX;
    moved = Math.max(moved, Math.abs(x - startX));
    if (pointers.size === 2) {
      const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1] ?? before;
      const [was, is] = [Math.abs(before - other), Math.abs(x - other)];
      if (was > 8 && is > 8) actions.zoom(was / is, part((x + other) / 2));
    } else if (isMap) {
      center(x);
    } else if (moved > STILL) {
      actions.move((before - x) / room());
    }
    pointers.set(event.pointerId, x);
  });
  /** @param {PointerEvent} event */
  const up = (event) => {
    const isClick = pointers.delete(event.pointerId) && pointers.size === 0 && moved <= STILL && !isMap;
    if (isClick && event.type === "pointerup") actions.pick(event.offsetX, event.offsetY);
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("dblclick", () => actions.zoom(0.25));

  /** @type {Record<string, () => void>} */
  const keys = {
    w: () => actions.zoom(0.6),
    s: () => actions.zoom(1 / 0.6),
    a: () => actions.move(-0.2),
    d: () => actions.move(0.2),
    ".": () => actions.step(1),
    ",": () => actions.step(-1),
    "0": actions.all,
  };
  /** @type {Record<string, () => void>} */
  const onCanvas = {
    ArrowLeft: () => actions.move(-0.2),
    ArrowRight: () => actions.move(0.2),
    ArrowUp: () => actions.lane(-1),
    ArrowDown: () => actions.lane(1),
    "+": () => actions.zoom(0.6),
    "-": () => actions.zoom(1 / 0.6),
    Home: () => actions.show(0, picture.to - picture.from),
    End: () => actions.show(picture.timeline.span - (picture.to - picture.from), picture.timeline.span),
    Enter: actions.open,
  };
  return {
    actions,
    /** @param {KeyboardEvent} event */
    key(event) {
      const act = keys[event.key.toLowerCase()] ??
        (document.activeElement === canvas ? onCanvas[event.key] : undefined);
      if (act === undefined) return false;
      act();
      return true;
    },
  };
}
