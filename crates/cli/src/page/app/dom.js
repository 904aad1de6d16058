/**
 * Elements made from data. Texts become text nodes and never markup, and styles are set as properties,
 * because the page's content security policy allows neither markup from strings nor style attributes.
 */

import { MISSING, visible } from "./text.js";

/** @typedef {Node | string | null | undefined | false | any[]} Child Also lists within lists. */
/** @typedef {Record<string, string | number | boolean | null | undefined | ((event: any) => void)>} Attributes */

/**
 * An HTML element. Names that begin with `on` are listeners, those that begin with `--` are properties of
 * its style, `true` is an attribute without value, and missing attributes are left out.
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
 * An SVG element, in the same way.
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
 * Puts children in the place of those that an element has.
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
 * How much of the end of a long name is always shown: from the begin of a word, if one begins near.
 * @param {string} name
 */
function tailLength(name) {
  for (let length = TAIL_LENGTH; length <= Math.min(LONGEST_TAIL, name.length - HEAD_LENGTH); length++) {
    if (/[\s_./:$(<,-]/.test(name.charAt(name.length - length))) return length;
  }
  // Not between the two halves of a character.
  return /[\udc00-\udfff]/.test(name.charAt(name.length - TAIL_LENGTH)) ? TAIL_LENGTH + 1 : TAIL_LENGTH;
}

/**
 * A name from a profile: in its own direction, with nothing hidden in it. Where it has no room its middle
 * is not shown, but it is still there to be copied.
 * @param {string} text
 * @param {number} [common] How many characters at its begin are left out, because all names have them.
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
 * Puts the focus on what has the same `data-key` as what had it before a part was made again.
 * @param {Element} part
 * @param {string | null} key
 */
export function focusKey(part, key) {
  const found = key === null ? null : part.querySelector(`[data-key="${CSS.escape(key)}"]`);
  if (found instanceof HTMLElement) found.focus();
}

/** The `data-key` of what has the focus. */
export function focusedKey() {
  return document.activeElement?.getAttribute("data-key") ?? null;
}

/**
 * Text from a profile that is not a name. Nothing is hidden in it.
 * @param {string | null | undefined} text
 * @returns {HTMLElement}
 */
export function words(text) {
  return h("bdi", {}, text === null || text === undefined || text === "" ? MISSING : visible(text));
}

/**
 * Sentences in which no line ends between a number and its unit.
 * @param {string} text
 * @returns {string}
 */
export function withUnits(text) {
  return text.replace(/(\d) (?=(?:%|[mµn]?s|[kMGTP]?B|[MGTPE])(?![\p{L}\p{N}_]))/gu, "$1\u00a0");
}

/** Texts above this length are folded. */
const LONG_TEXT = 600;

/**
 * Text from a profile that may be very long: then its begin is shown, and the rest can be unfolded.
 * @param {string} text
 * @returns {HTMLElement}
 */
export function prose(text) {
  if (text.length <= LONG_TEXT) return words(withUnits(text));
  return h("details", {}, h("summary", {}, words(`${text.slice(0, LONG_TEXT / 3)} …`)), words(text));
}

/**
 * A part of a view with a title and a line about what it answers.
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
 * A box that scrolls sideways, so that the page does not. It can be focused, so that keys scroll it.
 * @param {string} label
 * @param {...Child} children
 */
export function scrolling(label, ...children) {
  return h("div", { class: "scrolling", tabindex: 0, role: "region", "aria-label": label }, children);
}

/**
 * Buttons of which one is pressed.
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
 * Label and text, one below the other.
 * @param {[string, string][]} pairs
 */
export function pairList(pairs) {
  return h("dl", { class: "pairs" }, pairs.map(([label, text]) =>
    h("div", {}, h("dt", {}, words(label)), h("dd", {}, prose(text)))));
}

/**
 * Copies text. Where the page may not use the clipboard (in a frame), the old command does it.
 * @param {string} text
 * @returns {Promise<boolean>} Whether it was copied.
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
