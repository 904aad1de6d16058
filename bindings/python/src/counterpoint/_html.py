"""A report in a notebook: one table, which loads nothing and is sorted by clicks on its headers."""

from __future__ import annotations

import html
import itertools
import os
from typing import TYPE_CHECKING

from counterpoint import _locale, _table
from counterpoint._visible import visible
from counterpoint.metrics import Percent, Text

if TYPE_CHECKING:
    from counterpoint.report import Report, Row

_number = itertools.count(1)

# Colours follow the page's own text colour, so that it is readable on dark pages too.
_STYLE = """
#ID{overflow-x:auto}
#ID table{border-collapse:collapse;font-variant-numeric:tabular-nums}
#ID caption{text-align:left;font-weight:bold;padding:.3em .5em}
#ID th,#ID td{padding:.2em .7em;text-align:right;white-space:nowrap;border:0}
#ID th:first-child,#ID td:first-child{text-align:left}
#ID td.shapes{max-width:28em;overflow:hidden;text-overflow:ellipsis}
#ID thead th{border-bottom:2px solid;vertical-align:bottom}
#ID tbody th{font-weight:normal}
#ID tbody tr:nth-child(even){background:rgba(128,128,128,.08)}
#ID tfoot tr:first-child>*{border-top:2px solid}
#ID thead button{all:unset;cursor:pointer;font-weight:bold}
#ID thead button:focus-visible{outline:2px solid}
#ID thead th[aria-sort=ascending] button::after{content:" \\25B2"}
#ID thead th[aria-sort=descending] button::after{content:" \\25BC"}
"""

_SCRIPT = """
(function(){
var table=document.querySelector("#ID table");if(!table)return;
var heads=table.tHead.rows[0].cells,body=table.tBodies[0];
Array.prototype.forEach.call(heads,function(head,column){
head.querySelector("button").addEventListener("click",function(){
var down=head.getAttribute("aria-sort")!=="descending";
if(head.getAttribute("aria-sort")===null&&head.dataset.text)down=false;
Array.prototype.forEach.call(heads,function(h){h.removeAttribute("aria-sort")});
head.setAttribute("aria-sort",down?"descending":"ascending");
var rows=Array.prototype.slice.call(body.rows);
rows.sort(function(a,b){
var x=a.cells[column].dataset.value,y=b.cells[column].dataset.value;
if(x===undefined||y===undefined)return (x===undefined)-(y===undefined);
var order=head.dataset.text?(x<y?-1:x>y?1:0):x-y;
return down?-order:order});
rows.forEach(function(row){body.appendChild(row)});
})})})();
"""


def escape(text: str) -> str:
    """Returns foreign text as it may stand in the page. A browser obeys characters that reorder text, too."""
    return html.escape(visible(text))


def page(report: Report) -> str:
    """Returns the aggregated table, the lines below it, and the script that sorts it.

    If the notebook is not trusted, scripts do not run, and the table cannot be sorted."""
    identity = f"counterpoint-{os.getpid()}-{next(_number)}"
    calls = _table.rows(report, sort=True, aggregate=True)
    feet = [_table.sums(calls), *_table.totals(report)]
    found = {key for row in [*calls, *feet] for key in row}
    columns = _table.in_order(found)
    texts = {c for c in columns if any(isinstance(row.get(c), Text) for row in calls)}
    numbers = _locale.of_user()
    out = [f'<div id="{identity}"><style>{_STYLE.replace("ID", identity)}</style>', "<table>"]
    out.append("<caption>Ops by their own time</caption><thead><tr>")
    for column in columns:
        order = ' aria-sort="descending"' if column == "Duration (us)" else ""
        kind = ' data-text="1"' if column in texts else ""
        button = f'<button type="button">{escape(column)}</button>'
        out.append(f'<th scope="col"{order}{kind}>{button}</th>')
    out.append("</tr></thead><tbody>")
    out += [_row(row, columns, numbers) for row in calls]
    out.append("</tbody><tfoot>")
    out += [_row(row, columns, numbers) for row in feet]
    out.append("</tfoot></table>")
    settings = [f"{k}: {_table.shown(v, numbers)}" for k, v in report.configuration.items()]
    losses = [str(loss) for loss in report.losses]
    for title, words in (("Configuration", settings), ("Notes", report.notes), ("Losses", losses)):
        if words:
            items = "".join(f"<li>{escape(word)}</li>" for word in words)
            out.append(f"<p><b>{title}</b></p><ul>{items}</ul>")
    out.append(f'<script>{_SCRIPT.replace("ID", identity)}</script></div>')
    return "".join(out)


def _row(row: Row, columns: list[str], numbers: _locale.Numbers) -> str:
    cells = []
    for column in columns:
        value = row.get(column)
        shown = escape(_table.cell(row, column, numbers))
        attributes = ""
        if isinstance(value, Text):
            attributes = f' data-value="{escape(value.string)}"'
            if column == "Argument Shapes":
                attributes += f' class="shapes" title="{escape(value.string)}"'
        elif value is not None:
            attributes = f' data-value="{float(value)!r}"'
        if isinstance(value, Percent) and 0 <= value.percent <= 100:
            # A bar in the background of the number.
            bar = f"linear-gradient(to left,rgba(66,133,244,.35) {value.percent:.1f}%,transparent 0)"
            attributes += f' style="background:{bar}"'
        tag = "th" if column == columns[0] else "td"
        scope = ' scope="row"' if tag == "th" else ""
        cells.append(f"<{tag}{scope}{attributes}>{shown}</{tag}>")
    return f"<tr>{''.join(cells)}</tr>"
