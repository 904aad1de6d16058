/**
 * Keeps the state of the page in the fragment of the address, for example
 * `#ops?table=op&sort=-total_ns`. So a link contains the state, and the back button goes back to
 * earlier states. A page in a frame may have to keep the state in memory.
 *
 * @typedef {Record<string, string>} Params
 * @typedef {object} State
 * @property {string} view
 * @property {Params} params
 */

/**
 * Returns the fragment of a state. Empty parameters are left out.
 * @param {string} view
 * @param {Params} [params]
 * @returns {string}
 */
export function fragment(view, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== "") query.set(name, value);
  }
  const text = query.toString();
  return text === "" ? `#${view}` : `#${view}?${text}`;
}

/**
 * Every text gives a valid state.
 * @param {string} text With or without `#`.
 * @returns {State}
 */
export function parseFragment(text) {
  const [view = "", query = ""] = splitOnce(text.replace(/^#/, ""));
  /** @type {Params} */
  const params = Object.create(null);
  for (const [name, value] of new URLSearchParams(query)) params[name] = value;
  return { view, params };
}

/** @param {string} text */
function splitOnce(text) {
  const at = text.indexOf("?");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

/**
 * @param {string | undefined} text
 * @param {number} otherwise
 * @returns {number}
 */
export function numberOf(text, otherwise) {
  if (text === undefined || text.trim() === "") return otherwise;
  const value = Number(text);
  return Number.isFinite(value) ? value : otherwise;
}

/** The current state, and the way back to earlier states. */
export class Way {
  /** @param {(state: State, back: boolean) => void} show */
  constructor(show) {
    this.show = show;
    this.state = parseFragment(location.hash);
    try {
      history.scrollRestoration = "manual";
    } catch {
      // A page in an iframe may have no access to the history.
    }
    // A step back or an edit of the address causes `popstate`, `hashchange` or both, depending on
    // the browser. If both come, `read` does nothing for the second one.
    addEventListener("popstate", () => this.read());
    addEventListener("hashchange", () => this.read());
  }

  read() {
    const state = parseFragment(location.hash);
    if (fragment(state.view, state.params) === fragment(this.state.view, this.state.params)) return;
    this.state = state;
    this.show(state, true);
    const y = history.state?.y;
    scrollTo(0, typeof y === "number" ? y : 0);
  }

  /**
   * With `replace`, the new state replaces the current entry of the history, so that a step back
   * skips frequent changes (typing, zooming).
   * @param {string} view
   * @param {Params} params
   * @param {boolean} [replace]
   */
  go(view, params, replace = false) {
    const text = fragment(view, params);
    this.state = parseFragment(text);
    try {
      if (replace) {
        history.replaceState(history.state, "", text);
      } else if (text !== location.hash) {
        history.replaceState({ y: scrollY }, "", location.hash || "#");
        history.pushState(null, "", text);
      }
    } catch {
      // Without the history, the state is kept in memory only.
    }
    this.show(this.state, false);
  }
}
