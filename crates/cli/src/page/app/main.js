/**
 * Builds the page: navigation, keys, theme, and the view that the fragment of the address names.
 *
 * @typedef {import("./context.js").Context} Context
 * @typedef {import("./context.js").Shown} View
 * @typedef {import("./data.js").Head} Head
 * @typedef {import("./load.js").Calls} Calls
 * @typedef {import("./state.js").Params} Params
 * @typedef {object} Place A view that can be shown.
 * @property {string} id
 * @property {string} title
 * @property {(params: Params) => View} make
 */

import { compareView } from "./compare.js";
import { colorsOf } from "./context.js";
import { h, refill, withUnits, words } from "./dom.js";
import { loadHead, loadLanes } from "./load.js";
import { loopsView } from "./loops.js";
import { opView } from "./op.js";
import { overview } from "./overview.js";
import { recordingView } from "./recording.js";
import { rooflineView } from "./roofline.js";
import { Way, fragment } from "./state.js";
import { tablesOf, tablesView } from "./tables.js";
import { visible } from "./text.js";
import { timelineView } from "./timeline.js";

/**
 * Returns the views for which the page has data, in the order of their number keys.
 * @param {Context} context
 * @returns {Place[]}
 */
function placesOf(context) {
  const { head } = context;
  const { compare, roofline } = head;
  const [underRoofs] = tablesOf(context, "roofline");
  /** @type {(Place | false)[]} */
  const places = [
    compare === null ? { id: "overview", title: "Overview", make: () => overview(context) }
      : { id: "compare", title: "Compare", make: (params) => compareView(context, compare, params) },
    tablesOf(context, "ops").length > 0 && {
      id: "ops", title: "Ops", make: (params) => tablesView(context, "ops", "Ops",
        "Which op is slow, which varies, and which counter goes with it?", params),
    },
    head.ops.length > 0 && { id: "op", title: "Op", make: (params) => opView(context, params) },
    head.timeline !== null && {
      id: "timeline", title: "Timeline", make: (params) => timelineView(context, params),
    },
    (tablesOf(context, "loops").length > 0 || head.listings.length > 0) && {
      id: "loops", title: "Loops", make: (params) => loopsView(context, params),
    },
    tablesOf(context, "activities").length > 0 && {
      id: "activities", title: "Activities", make: (params) => tablesView(context, "activities",
        "Activities", "What did devices, runtimes and other sources do, and for how long?", params),
    },
    roofline !== null && underRoofs !== undefined && {
      id: "roofline", title: "Roofline",
      make: (params) => rooflineView(context, roofline, underRoofs, params),
    },
    { id: "recording", title: "Recording", make: () => recordingView(context) },
  ];
  return places.filter((place) => place !== false);
}

/** @param {Head} head */
function start(head) {
  /** @type {Promise<Calls[]> | null} */
  let lanes = null;
  const said = h("p", { role: "status", class: "said" });
  let clear = 0;
  /** @type {Context} */
  const context = {
    head,
    go: (view, params, replace) => way.go(view, params, replace),
    say(text) {
      said.textContent = text;
      clearTimeout(clear);
      clear = setTimeout(() => (said.textContent = ""), 6000);
    },
    lanes() {
      lanes ??= head.timeline === null ? Promise.resolve([]) : loadLanes(head.timeline);
      return lanes;
    },
    colors: colorsOf(head),
  };
  const places = placesOf(context);
  /** @type {Map<string, Params>} The most recent parameters of each view. */
  const last = new Map();
  /** @type {View | null} */
  let shown = null;
  let shownId = "";
  const links = places.map((place, i) => h("a", { href: `#${place.id}` },
    place.title, " ", h("kbd", { "aria-hidden": "true" }, String(i + 1))));
  const main = h("main", { id: "main", tabindex: -1 });
  const banner = h("div", { class: "banner" });

  /** @param {import("./state.js").State} state */
  const show = (state) => {
    const place = places.find((one) => one.id === state.view) ?? places[0];
    if (place === undefined) return;
    last.set(place.id, state.params);
    places.forEach((one, i) => {
      links[i]?.setAttribute("href", fragment(one.id, last.get(one.id) ?? {}));
      if (one === place) links[i]?.setAttribute("aria-current", "page");
      else links[i]?.removeAttribute("aria-current");
    });
    if (place.id === shownId && shown !== null) {
      shown.update(state.params);
      return;
    }
    const isFirst = shown === null;
    shown?.leave?.();
    shownId = place.id;
    shown = place.make(state.params);
    refill(main, shown.root);
    document.body.dataset.view = place.id;
    document.title = `${place.title} · ${visible(head.program)} · Counterpoint`;
    banner.hidden = place === places[0] || head.warnings.length === 0;
    if (isFirst) return;
    scrollTo(0, 0);
    main.querySelector("h1")?.focus({ preventScroll: true });
  };
  const way = new Way(show);
  const help = helpDialog(places);
  const theme = h("button", { type: "button", "aria-label": "Light or dark", title: "Light or dark" }, "◐");
  theme.addEventListener("click", () => {
    turnTheme();
    shown?.repaint?.();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => shown?.repaint?.());
  const more = head.warnings.length - 1;
  refill(banner, h("p", {}, words(withUnits(head.warnings[0] ?? "")), more > 0 && [" ",
    h("a", { href: "#overview" }, `and ${more} more`)]));
  refill(document.body,
    h("a", { class: "skip", href: "#main", onclick: (/** @type {Event} */ event) => {
      event.preventDefault();
      main.focus();
    } }, "Skip to the content"),
    h("header", {},
      h("span", { class: "brand" }, "Counterpoint"),
      h("nav", { "aria-label": "Views" }, links),
      h("p", { class: "about" }, words(head.program), " · ", words(head.about)),
      theme,
      h("button", { type: "button", "aria-label": "Keys", title: "Keys", onclick: () => help.showModal() }, "?")),
    banner, main, said, help);
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || help.open || event.defaultPrevented) return;
    const target = event.target;
    const isTyping = target instanceof HTMLInputElement || target instanceof HTMLSelectElement ||
      target instanceof HTMLTextAreaElement;
    if (isTyping) {
      if (event.key === "Escape") target.blur();
      return;
    }
    const place = places[Number(event.key) - 1];
    const filter = main.querySelector("input[type=search]");
    if (shown?.key?.(event) === true) event.preventDefault();
    else if (place !== undefined) context.go(place.id, last.get(place.id) ?? {});
    else if (event.key === "?") help.showModal();
    else if (event.key === "/" && filter instanceof HTMLElement) {
      event.preventDefault();
      filter.focus();
    }
  });
  show(way.state);
}

/** @param {Place[]} places */
function helpDialog(places) {
  /** @type {[string[], string][]} */
  const keys = [
    [places.map((_, i) => String(i + 1)), `views: ${places.map((place) => place.title).join(", ")}`],
    [["/"], "filter the table"],
    [["?"], "this list"],
  ];
  if (places.some((place) => place.id === "timeline")) {
    keys.push(
      [["W", "S"], "timeline: zoom in and out; so does the wheel"],
      [["A", "D"], "timeline: earlier and later; so does dragging"],
      [[",", "."], "timeline: previous and next call, of the highlighted op or of the thread"],
      [["0"], "timeline: the whole recording"],
      [["G"], "timeline: go to a time, also to one that Perfetto shows"],
      [["↑", "↓", "Enter"], "timeline, when it has the focus: other thread, open the op"],
    );
  }
  const dialog = h("dialog", { "aria-label": "Keys" },
    h("h2", {}, "Keys"),
    h("dl", { class: "keys" }, keys.map(([list, text]) => h("div", {},
      h("dt", {}, list.map((key) => [h("kbd", {}, key), " "])), h("dd", {}, text)))),
    h("button", { type: "button", onclick: () => dialog.close() }, "Close"));
  return dialog;
}

/**
 * Switches between the light and the dark theme. The choice is stored for the next page if the
 * browser allows it.
 */
function turnTheme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme === "dark" ||
    (root.dataset.theme === undefined && matchMedia("(prefers-color-scheme: dark)").matches);
  root.dataset.theme = isDark ? "light" : "dark";
  try {
    localStorage.setItem("counterpoint-theme", root.dataset.theme);
  } catch {
    // The browser may forbid a page in an iframe to store anything.
  }
}

function keptTheme() {
  try {
    const kept = localStorage.getItem("counterpoint-theme");
    if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
  } catch {
    // The browser may forbid a page in an iframe to read what is stored.
  }
}

keptTheme();
loadHead().then(start).catch((error) => {
  const text = `This page cannot be shown: ${visible(String(error))}`;
  refill(document.body, h("main", {}, h("h1", {}, "Counterpoint"), h("p", { role: "alert" }, text)));
});
