/**
 * Makes elements from data. Texts become text nodes and never markup, and styles are set as
 * properties: the page's content security policy forbids markup from strings and style attributes.
 */

import { MISSING, visible } from "./text.js";

/** @typedef {Node | string | null | undefined | false | any[]} Child A child, or nested lists of children. */
/** @typedef {Record<string, string | number | boolean | null | undefined | ((event: any) => void)>} Attributes */

/**
 * Makes an HTML element. A function is a listener, and its attribute begins with `on`. An attribute
 * that begins with `--` is a CSS property. `true` makes an attribute without a value. Null,
 * undefined and false are left out.
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
 * Makes an SVG element, with the arguments of `h`.
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
 * Returns how many characters at the end of a long name stay visible. If possible, they begin with
 * a word.
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
 * Makes an element for a name, which has its own text direction. Without enough room, the middle of
 * the name is hidden but can still be copied.
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
 * Restores the focus after a part of the page was made again.
 * @param {Element} part
 * @param {string | null} key
 */
export function focusKey(part, key) {
  const found = key === null ? null : part.querySelector(`[data-key="${CSS.escape(key)}"]`);
  if (found instanceof HTMLElement) found.focus();
}

export function focusedKey() {
  return document.activeElement?.getAttribute("data-key") ?? null;
}

/**
 * Makes an element for a text that is not a name.
 * @param {string | null | undefined} text
 * @returns {HTMLElement}
 */
export function words(text) {
  return h("bdi", {}, text === null || text === undefined || text === "" ? MISSING : visible(text));
}

/**
 * Puts no-break spaces between numbers and their units.
 * @param {string} text
 * @returns {string}
 */
export function withUnits(text) {
  return text.replace(/(\d) (?=(?:%|[mµn]?s|[kMGTP]?B|[MGTPE])(?![\p{L}\p{N}_]))/gu, "$1\u00a0");
}

/** Texts with more characters than this are folded. */
const LONG_TEXT = 600;

/**
 * Makes an element for a text. Only the begin of a long text is shown at first.
 * @param {string} text
 * @returns {HTMLElement}
 */
export function prose(text) {
  if (text.length <= LONG_TEXT) return words(withUnits(text));
  return h("details", {}, h("summary", {}, words(`${text.slice(0, LONG_TEXT / 3)} …`)), words(text));
}

/**
 * Makes a part of the page. `question` is the question that this part answers.
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
 * Makes a button for each choice. The button of the chosen value is pressed.
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
 * @param {[string, string][]} pairs
 */
export function pairList(pairs) {
  return h("dl", { class: "pairs" }, pairs.map(([label, text]) =>
    h("div", {}, h("dt", {}, words(label)), h("dd", {}, prose(text)))));
}

/**
 * Copies a text. A page in a frame may not use the clipboard interface, so there is a second way.
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
