/**
 * Makes the view of one op.
 *
 * @typedef {import("./context.js").Context} Context
 * @typedef {import("./context.js").Shown} View
 * @typedef {import("./data.js").Op} Op
 * @typedef {import("./state.js").Params} Params
 */

import { opLink, opOfParam, opParam, opsOfName, tableOf } from "./context.js";
import { distributionPanel } from "./distribution.js";
import { focusKey, focusedKey, h, nameOf, pairList, panel, prose, refill, scrolling, words } from "./dom.js";
import { driftPanel } from "./drift.js";
import { jointPanels } from "./joint.js";
import { plotTable } from "./plots.js";
import { marksOf } from "./rows.js";
import { fragment } from "./state.js";
import { MISSING, howMany, visible } from "./text.js";

/**
 * @param {Context} context
 * @param {Params} params
 * @returns {View}
 */
export function opView(context, params) {
  const { head } = context;
  const body = h("div", {});
  const chooser = h("select", {
    "aria-label": "Op to show",
    onchange: () => context.go("op", { op: opParam(context, Number(chooser.value)) }),
  }, head.ops.map((op, i) => h("option", { value: i }, visible(op.label).slice(0, 120))));
  const links = h("div", { class: "tools" });
  const title = h("h1", { tabindex: -1, class: "op-name" });
  const root = h("div", {}, links, title, body);
  /** @param {Params} next */
  const update = (next) => {
    const wanted = next.op ?? "";
    const found = wanted === "" ? 0 : opOfParam(context, wanted);
    const op = head.ops[found];
    if (op === undefined) {
      refill(title, "Op");
      refill(links, h("a", { href: fragment("ops") }, "← all ops"));
      const some = opsOfName(head, wanted);
      refill(body, some.length === 0
        ? h("p", {}, "This page has no details of ", h("b", {}, words(wanted)), ".")
        : panel(wanted, "Its calls are told apart by their arguments. With which ones?",
          h("ul", {}, some.map((index) => h("li", {},
            h("a", { href: opLink(context, index) }, words(head.ops[index]?.label)))))));
      return;
    }
    chooser.value = String(found);
    /** @param {number} index @param {string} text */
    const step = (index, text) => head.ops[index] !== undefined &&
      h("a", { href: opLink(context, index) }, text);
    refill(links,
      h("a", { href: fragment("ops") }, "← all ops"),
      chooser,
      step(found - 1, "previous"),
      step(found + 1, "next"),
      head.timeline !== null && head.timeline.ops.includes(found) &&
        h("a", { href: fragment("timeline", { op: opParam(context, found) }) }, "show in timeline"));
    const name = op.name === "" ? op.label : op.name;
    refill(title, h("bdi", {}, visible(name.slice(0, 300)), name.length > 300 && "…"));
    const focused = focusedKey();
    refill(body, opParts(context, op, found, next));
    focusKey(body, focused);
  };
  update(params);
  return { root, update };
}

/**
 * @param {Context} context
 * @param {Op} op
 * @param {number} index
 * @param {Params} params
 */
function opParts(context, op, index, params) {
  /** @param {Params} changed */
  const change = (changed) => context.go("op", { ...params, op: opParam(context, index), ...changed }, true);
  const zoom = context.head.timeline === null ? null
    : (/** @type {number} */ from, /** @type {number} */ to) => context.go("timeline", {
      op: opParam(context, index), from: String(Math.round(from)), to: String(Math.round(to)),
    });
  const distribution = distributionPanel(op, params.by ?? "", params.tail ?? "", change);
  const joints = jointPanels(op, params.counter ?? "", change);
  const drift = driftPanel(op, zoom);
  return [
    op.name.length > 300 && h("div", {}, prose(op.name)),
    op.where !== "" && h("p", { class: "where" }, words(op.where)),
    op.facts.length > 0 && h("div", { class: "facts" }, pairList(op.facts)),
    marked(context, op),
    others(context, op, index),
    distribution ?? panel("Durations", "", h("p", {}, "There are no durations of its calls on this page.")),
    op.explained.length > 0 && panel("What goes with slow calls", "By more than chance, and by how much? It need not be why they are slow.",
      h("ul", { class: "notes" }, op.explained.map((text) => h("li", {}, prose(text))))),
    op.goesWith !== null && panel("Correlations of the counters", "Which counter is high where calls are long? " +
      "1: the longer, the higher. 0: no connection. −1: the longer, the lower.",
    h("div", { class: "narrow-table" }, plotTable(op.goesWith))),
    joints.length > 0 && h("div", { class: "two" }, joints),
    drift,
    longestCalls(context, op, index),
  ];
}

/**
 * @param {Context} context
 * @param {Op} op
 */
function marked(context, op) {
  const table = tableOf(context.head, "op");
  const texts = op.facts.map(([, text]) => text);
  return table !== null && marksOf(table, texts).map((line) => h("p", { class: "explained" }, words(line)));
}

/**
 * The calls of the other rows had other arguments or another role.
 * @param {Context} context
 * @param {Op} op
 * @param {number} index
 */
function others(context, op, index) {
  const { head } = context;
  const same = opsOfName(head, op.name === "" ? op.label : op.name).filter((other) => other !== index);
  return same.length > 0 && h("details", { class: "others" },
    h("summary", {}, `${howMany(same.length, "more row")} of this name, with other arguments or another role`),
    h("ul", {}, same.map((other) => h("li", {},
      h("a", { href: opLink(context, other) }, words(head.ops[other]?.label))))));
}

/**
 * @param {Context} context
 * @param {Op} op
 * @param {number} index
 */
function longestCalls(context, op, index) {
  const { titles, rows } = op.longest;
  if (rows.length === 0) return null;
  const timeline = context.head.timeline;
  return panel("Longest calls", "What happened in the worst ones?",
    scrolling("Longest calls", h("table", {},
      h("caption", { class: "unseen" }, "Longest calls"),
      h("thead", {}, h("tr", {},
        titles.map((title, i) => h("th", { scope: "col", class: i === 0 ? "first" : "number" }, words(title))),
        timeline !== null && h("th", { scope: "col", class: "text" }, h("span", { class: "unseen" }, "link")))),
      h("tbody", {}, rows.map((row) => h("tr", {},
        row.cells.map((cell, i) => i === 0
          ? h("th", { scope: "row", class: "first" }, words(cell ?? MISSING))
          : h("td", { class: "number" }, (cell ?? "").length > 40 ? nameOf(cell ?? "") : words(cell ?? MISSING))),
        timeline !== null && h("td", { class: "text" }, row.thread >= 0 && timeline.lanes[row.thread] !== undefined
          && h("a", {
            href: fragment("timeline", {
              op: opParam(context, index), at: String(Math.round(row.at)), lane: String(row.thread),
            }),
            "aria-label": `timeline at ${visible(row.cells[0] ?? "")}`,
          }, "timeline"))))))));
}
