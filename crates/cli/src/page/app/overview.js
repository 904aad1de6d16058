/**
 * Makes the first view.
 *
 * @typedef {import("./context.js").Context} Context
 * @typedef {import("./context.js").Shown} View
 * @typedef {import("./data.js").Table} Table
 */

import { colorOf, opLink, tableOf } from "./context.js";
import { h, nameOf, pairList, panel, prose, words } from "./dom.js";
import { icicle } from "./icicle.js";
import { lives } from "./lives.js";
import { cellNumber, cellText, commonLength, marksOf } from "./rows.js";
import { fragment } from "./state.js";
import { MISSING, howMany } from "./text.js";

/** The number of rows of the table of ops that the overview shows. */
const FIRST_OPS = 12;

/**
 * @param {Context} context
 * @returns {View}
 */
export function overview(context) {
  const { head } = context;
  const threads = tableOf(head, "thread");
  const tree = tableOf(head, "tree");
  const life = threads === null ? null : lives(threads);
  const branches = tree === null ? null : icicle(context, tree);
  const first = whereToLook(context);
  const main = h("div", { class: "main-column" },
    first,
    branches !== null && panel("Own time by call path", "What called what, and where did the time stay? " +
      "A box is as wide as the own time of its path and of all below it.", branches));
  const root = h("div", { class: "overview" },
    h("h1", { tabindex: -1 }, "Overview"),
    h("div", { class: "sentences" }, head.sentences.map((line) => h("div", {}, prose(line)))),
    life !== null && panel("Each thread's life", "Is the work even between threads, and how much of " +
      "their time was in calls at all?", life),
    h("div", { class: "two" },
      said(context, "between", "What is between the calls?", "Where does each thread stay when it is in no " +
        "recorded call?", "All gaps"),
      said(context, "site", "Would more threads help?", "For how much of the time would a further thread have " +
        "work at all?", "All dispatch sites")),
    h("div", { class: "columns" },
      (first !== null || branches !== null) && main,
      h("div", { class: "side-column" }, trust(context), recorded(context))));
  return { root, update() {} };
}

/**
 * Shows the sentences above a table, and a link to the table.
 * @param {Context} context
 * @param {string} id
 * @param {string} title
 * @param {string} question
 * @param {string} link
 */
function said({ head }, id, title, question, link) {
  const table = tableOf(head, id);
  if (table === null || table.lead.length === 0) return null;
  return panel(title, question,
    h("ul", { class: "notes" }, table.lead.map((line) => h("li", {}, prose(line)))),
    h("p", { class: "more" }, h("a", { href: fragment("ops", { table: id }) }, link)));
}

/** @param {Context} context */
function whereToLook(context) {
  const { head } = context;
  const table = tableOf(head, "op") ?? head.tables.find((t) => t.group === "ops" && t.parents === null);
  if (table === undefined || table === null || table.rows.length === 0) {
    const loops = head.tables.find((t) => t.group === "loops");
    const text = loops ? "Only loops were recorded." : "There are no ops in this profile.";
    return panel("Where to look first", "", h("p", {}, text));
  }
  const order = table.rows.map((_, i) => i);
  if (table.share >= 0) {
    order.sort((a, b) => shareOf(table, b) - shareOf(table, a) || a - b);
  }
  const most = shareOf(table, order[0] ?? 0);
  const common = commonLength(table);
  const wanted = ["calls", "p50_ns", "mean_ns"];
  const extra = wanted
    .map((name) => table.columns.findIndex((column) => column.name === name))
    .filter((i) => i >= 0);
  const heads = extra.map((i) => h("th", { scope: "col", class: "number" }, words(table.columns[i]?.title)));
  const rows = order.slice(0, FIRST_OPS).map((row) => {
    const cells = table.rows[row] ?? [];
    const op = table.ops?.[row] ?? null;
    const label = nameOf(cellText(cells[0]) ?? MISSING, common);
    const part = most > 0 ? Math.max(0, shareOf(table, row)) / most : 0;
    return h("tr", {},
      h("th", { scope: "row", class: "first" },
        op === null ? label : h("a", { href: opLink(context, op) }, label)),
      table.share >= 0 && h("td", { class: "bar-cell" }, h("span", {
        class: "bar", "aria-hidden": "true", "--part": part.toFixed(4),
        "--color": `var(${colorOf(context, op)})`,
      })),
      table.share >= 0 && h("td", { class: "number" }, words(cellText(cells[table.share]))),
      extra.map((i) => h("td", { class: "number" }, words(cellText(cells[i])))));
  });
  const more = table.rows.length + table.leftOut - rows.length;
  const part = table.columns[table.share];
  return panel("Where to look first", "Which op should I look at first?",
    h("div", { class: "scrolling", tabindex: 0, role: "region", "aria-label": "Where to look first" },
      h("table", { class: "first-ops" },
        h("caption", { class: "unseen" }, "The ops with the largest shares"),
        h("thead", {}, h("tr", {},
          h("th", { scope: "col", class: "first" }, words(table.columns[0]?.title)),
          part !== undefined && h("th", { scope: "col", colspan: 2, class: "text" }, words(part.title)),
          heads)),
        h("tbody", {}, rows))),
    marksOf(table, order.slice(0, FIRST_OPS).flatMap((row) => extra.map((i) => cellText(table.rows[row]?.[i]))))
      .map((line) => h("p", { class: "explained" }, words(line))),
    h("p", { class: "more" },
      h("a", { href: fragment("ops", { table: table.id }) },
        more > 0 ? `All ops (${howMany(more, "more")})`.replace("mores", "more") : "All columns")));
}

/**
 * @param {Table} table
 * @param {number} row
 */
function shareOf(table, row) {
  return cellNumber(table.rows[row]?.[table.share]) ?? 0;
}

/** @param {Context} context */
function trust({ head }) {
  return panel("Can it be trusted?", "Losses, price and limits of this recording.",
    h("h3", {}, "Warnings"),
    head.warnings.length === 0
      ? h("p", {}, "None.")
      : h("ul", { class: "warnings" }, head.warnings.map((line) => h("li", {}, prose(line)))),
    h("h3", {}, "Losses"),
    head.losses.length === 0
      ? h("p", {}, "None.")
      : h("dl", { class: "losses" }, head.losses.map(([name, count, meaning]) => h("div", {},
        h("dt", {}, words(count), " × ", h("code", {}, words(name))),
        h("dd", {}, prose(meaning))))),
    head.price !== "" && [h("h3", {}, "Price"), h("div", {}, prose(head.price))],
    head.notes.length > 0 && [
      h("h3", {}, "Notes"),
      h("ul", { class: "notes" }, head.notes.map((line) => h("li", {}, prose(line)))),
    ]);
}

/** @param {Context} context */
function recorded({ head }) {
  return panel("Recorded", "", pairList(head.recording),
    h("p", { class: "more" }, h("a", { href: fragment("recording") }, "The whole recording")));
}
