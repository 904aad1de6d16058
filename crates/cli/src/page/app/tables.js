/**
 * Makes views that consist of tables, such as ops and activities.
 *
 * @typedef {import("./context.js").Context} Context
 * @typedef {import("./context.js").Shown} View
 * @typedef {import("./data.js").Table} Table
 * @typedef {import("./state.js").Params} Params
 */

import { h, refill, words } from "./dom.js";
import { fragment } from "./state.js";
import { tableBox } from "./table.js";

/**
 * @param {Context} context
 * @param {string} group
 * @returns {Table[]}
 */
export function tablesOf(context, group) {
  return context.head.tables.filter((table) => table.group === group);
}

/**
 * @param {Context} context
 * @param {string} view The name of the view, which is also the name of the group of tables.
 * @param {string} title
 * @param {string} question
 * @param {Params} params
 * @returns {View}
 */
export function tablesView(context, view, title, question, params) {
  const tables = tablesOf(context, view);
  const links = h("nav", { class: "chooser", "aria-label": `Tables of ${title}` });
  const place = h("div", {});
  const root = h("div", {},
    h("h1", { tabindex: -1 }, title),
    h("p", { class: "question" }, question),
    links,
    place);
  let shown = "";
  let current = params;
  /** @type {((params: Params) => void) | null} */
  let updateTable = null;
  /** @param {Params} next */
  const update = (next) => {
    current = next;
    const table = tables.find((t) => t.id === next.table) ?? tables[0];
    if (table === undefined) {
      refill(place, h("p", {}, "There is nothing to show."));
      return;
    }
    refill(links, tables.length > 1 && tables.map((t) => h("a", {
      href: fragment(view, { table: t.id }),
      "aria-current": t === table ? "true" : null,
    }, words(t.title))));
    if (table.id === shown && updateTable !== null) {
      updateTable(next);
      return;
    }
    shown = table.id;
    const box = tableBox(context, table, next, (changed, replace) =>
      context.go(view, { ...current, table: table.id, ...changed }, replace));
    updateTable = box.update;
    refill(place, box.root);
  };
  update(params);
  return { root, update };
}
