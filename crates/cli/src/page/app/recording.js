/**
 * Makes the view of the recording itself.
 *
 * @typedef {import("./context.js").Context} Context
 * @typedef {import("./context.js").Shown} View
 */

import { h, pairList, panel, prose, scrolling, words } from "./dom.js";

/**
 * @param {Context} context
 * @returns {View}
 */
export function recordingView({ head }) {
  const root = h("div", {},
    h("h1", { tabindex: -1 }, "Recording"),
    panel("What was recorded", "", pairList([...head.recording, ["Counterpoint", head.version]])),
    head.lengths.length > 0 && panel("Lengths", "How long did it take, from which moment to which?",
      scrolling("Lengths", h("table", { class: "loss-table" },
        h("caption", { class: "unseen" }, "Lengths"),
        h("thead", {}, h("tr", {},
          h("th", { scope: "col", class: "first" }, "length of"),
          h("th", { scope: "col", class: "number" }, "time"),
          h("th", { scope: "col", class: "text wide" }, "from and to"))),
        h("tbody", {}, head.lengths.map(([name, time, meaning]) => h("tr", {},
          h("th", { scope: "row", class: "first" }, words(name)),
          h("td", { class: "number" }, words(time)),
          h("td", { class: "text wide" }, prose(meaning)))))))),
    head.warnings.length > 0 && panel("Warnings", "What to know before believing a number.",
      h("ul", { class: "warnings" }, head.warnings.map((line) => h("li", {}, prose(line))))),
    panel("Losses", "What is missing or distorted, and what that means.",
      head.losses.length === 0
        ? h("p", {}, "Nothing was lost.")
        : h("div", { class: "scrolling", tabindex: 0, role: "region", "aria-label": "Losses" },
          h("table", { class: "loss-table" },
            h("caption", { class: "unseen" }, "Losses"),
            h("thead", {}, h("tr", {},
              h("th", { scope: "col", class: "first" }, "loss"),
              h("th", { scope: "col", class: "number" }, "times"),
              h("th", { scope: "col", class: "text wide" }, "meaning"))),
            h("tbody", {}, head.losses.map(([name, count, meaning]) => h("tr", {},
              h("th", { scope: "row", class: "first" }, h("code", {}, words(name))),
              h("td", { class: "number" }, words(count)),
              h("td", { class: "text wide" }, prose(meaning)))))))),
    (head.price !== "" || head.priceParts !== "") &&
      panel("Price", "What the recording cost the program.",
        h("div", {}, prose(head.priceParts === "" ? head.price : head.priceParts))),
    head.notes.length > 0 && panel("Notes", "",
      h("ul", { class: "notes" }, head.notes.map((line) => h("li", {}, prose(line))))));
  return { root, update() {} };
}
