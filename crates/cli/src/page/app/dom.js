/**
 * Makes elements from data. Texts become text nodes and never markup. Styles are set as properties.
 * The reason is the page's content security policy, which forbids markup from strings and style
 * attributes.
 */

import { MISSING, visible } from "./text.js";

/** @typedef {Node | string | null | undefined | false | any[]} Child A child, or nested lists of children. */
/** @typedef {Record<string, string | number | boolean | null | undefined | ((event: any) => void)>} Attributes */

/**
 * Makes an HTML element. An attribute whose value is a function is a listener; its name begins with
 * `on`. An attribute whose name begins with `--` is a CSS property. The value `true` makes an
 * attribute without a value. Attributes whose value is null, undefined or false are left out.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Attributes} [attributes]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  dress(element, attributes);
  fill(element, children);
  return element;
}

/**
 * Makes an SVG element. The arguments are the same as for `h`.
 * @template {keyof SVGElementTagNameMap} T
 * @param {T} tag
 * @param {Attributes} [attributes]
 * @param {...Child} children
 * @returns {SVGElementTagNameMap[T]}
 */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  dress(element, attributes);
  fill(element, children);
  return element;
}

/**
 * @param {HTMLElement | SVGElement} element
 * @param {Attributes} attributes
 */
function dress(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) element.style.setProperty(name, String(value));
    else if (name === "aria-label" || name === "title") element.setAttribute(name, visible(String(value)).slice(0, 1000));
    else element.setAttribute(name, value === true ? "" : String(value));
  }
}

/**
 * @param {Element} element
 * @param {Child[]} children
 */
export function fill(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) fill(element, child);
    else if (child !== null && child !== undefined && child !== false) element.append(child);
  }
}

/**
 * Replaces the children of an element.
 * @param {Element} element
 * @param {...Child} children
 */
export function refill(element, ...children) {
  element.replaceChildren();
  fill(element, children);
}

const HEAD_LENGTH = 8;
const TAIL_LENGTH = 10;
const LONGEST_TAIL = 14;

/**
 * Returns how many characters at the end of a long name are always shown. If a word begins near
 * this place, the end begins with this word.
 * @param {string} name
 */
function tailLength(name) {
  for (let length = TAIL_LENGTH; length <= Math.min(LONGEST_TAIL, name.length - HEAD_LENGTH); length++) {
    if (/[\s_./:$(<,-]/.test(name.charAt(name.length - length))) return length;
  }
  // Do not cut the name between the two code units of one character.
  return /[\udc00-\udfff]/.test(name.charAt(name.length - TAIL_LENGTH)) ? TAIL_LENGTH + 1 : TAIL_LENGTH;
}

/**
 * Makes an element for a name from a profile. The name has its own text direction, and hidden
 * characters in it are made visible. If there is not enough room, the middle of the name is not
 * shown, but it can still be copied.
 * @param {string} text
 * @param {number} [common] How many characters at the begin to leave out, because all names share
 *   them.
 * @returns {HTMLElement}
 */
export function nameOf(text, common = 0) {
  if (common > 0 && common < text.length) {
    const short = nameOf(`…${text.slice(common)}`);
    short.title = visible(text.slice(0, 400));
    return short;
  }
  const seen = visible(text);
  if (seen === "") return h("bdi", { class: "name" }, "(no name)");
  if (seen.length <= HEAD_LENGTH + TAIL_LENGTH) return h("bdi", { class: "name" }, seen);
  const cut = seen.length - tailLength(seen);
  return h(
    "bdi",
    { class: "name long", title: seen.length > 400 ? `${seen.slice(0, 400)}…` : seen },
    h("span", { class: "start" }, seen.slice(0, cut)),
    h("span", { class: "end" }, seen.slice(cut)),
  );
}

/**
 * Restores the focus after a part of the page was made again: focuses the element with this
 * `data-key`.
 * @param {Element} part
 * @param {string | null} key
 */
export function focusKey(part, key) {
  const found = key === null ? null : part.querySelector(`[data-key="${CSS.escape(key)}"]`);
  if (found instanceof HTMLElement) found.focus();
}

/** Returns the `data-key` of the element that has the focus. */
export function focusedKey() {
  return document.activeElement?.getAttribute("data-key") ?? null;
}

/**
 * Makes an element for a text from a profile that is not a name. Hidden characters in it are made
 * visible.
 * @param {string | null | undefined} text
 * @returns {HTMLElement}
 */
export function words(text) {
  return h("bdi", {}, text === null || text === undefined || text === "" ? MISSING : visible(text));
}

/**
 * Returns the text with no-break spaces between numbers and their units, so that no line ends
 * there.
 * @param {string} text
 * @returns {string}
 */
export function withUnits(text) {
  return text.replace(/(\d) (?=(?:%|[mµn]?s|[kMGTP]?B|[MGTPE])(?![\p{L}\p{N}_]))/gu, "$1\u00a0");
}

/** Texts with more characters than this are folded. */
const LONG_TEXT = 600;

/**
 * Makes an element for a text from a profile that may be very long. If the text is long, only its
 * begin is shown at first, and the reader can unfold the whole text.
 * @param {string} text
 * @returns {HTMLElement}
 */
export function prose(text) {
  if (text.length <= LONG_TEXT) return words(withUnits(text));
  return h("details", {}, h("summary", {}, words(`${text.slice(0, LONG_TEXT / 3)} …`)), words(text));
}

/**
 * Makes a part of a view, with a title and the question that this part answers.
 * @param {string} title
 * @param {string} question
 * @param {...Child} children
 */
export function panel(title, question, ...children) {
  return h(
    "section",
    { class: "panel" },
    h("h2", {}, title),
    question !== "" && h("p", { class: "question" }, question),
    children,
  );
}

/**
 * Makes a box that scrolls horizontally, so that the page itself need not scroll. The box can be
 * focused, so that keys can scroll it.
 * @param {string} label
 * @param {...Child} children
 */
export function scrolling(label, ...children) {
  return h("div", { class: "scrolling", tabindex: 0, role: "region", "aria-label": label }, children);
}

/**
 * Makes a group of buttons. The button of the chosen value is pressed.
 * @param {string} label
 * @param {[string, string][]} choices Value and text.
 * @param {string} chosen
 * @param {(value: string) => void} choose
 */
export function choice(label, choices, chosen, choose) {
  const buttons = choices.map(([value, text]) =>
    h("button", {
      type: "button",
      "aria-pressed": value === chosen ? "true" : "false",
      "data-key": `${label}:${value}`,
      onclick: () => choose(value),
    }, text));
  return h("div", { class: "choice", role: "group", "aria-label": label }, buttons);
}

/**
 * Makes a list of pairs of a label and a text, one pair below the other.
 * @param {[string, string][]} pairs
 */
export function pairList(pairs) {
  return h("dl", { class: "pairs" }, pairs.map(([label, text]) =>
    h("div", {}, h("dt", {}, words(label)), h("dd", {}, prose(text)))));
}

/**
 * Copies a text to the clipboard. In a frame, the page may not use the clipboard interface. Then
 * the older command `copy` is used.
 * @param {string} text
 * @returns {Promise<boolean>} Whether the text was copied.
 */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h("textarea", { class: "unseen", "aria-hidden": "true", tabindex: -1 });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}
