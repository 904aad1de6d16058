"""Tests how the Python package shows names with odd characters. Characters that a terminal would execute, hide or
reorder are replaced or escaped."""

import json
import warnings

import pytest

from counterpoint import _session, _visible
from counterpoint.errors import CounterpointError, ReportError
from counterpoint.loops import LoopReport
from counterpoint.report import Report

# Contains ESC, C1 CSI, right-to-left override, zero-width space, line feed, carriage return, tag, soft hyphen.
EVIL = "a\x1b[31m\x9b31m\u202e\u200b\n\r\U000e0041\xadz"
SEEN = "a\ufffd[31m\ufffd31m\ufffd\ufffd\ufffd\ufffd\ufffd\ufffdz"
ESCAPED = r"a\x1b[31m\x9b31m\u202e\u200b\n\r\U000e0041\xadz"


def test_every_character_is_shown_or_replaced():
    """A Rust test compares the table `HIDDEN` with the rule of the program (crates/cli/src/terminal.rs)."""
    hidden = set(range(0xD800, 0xE000))
    for part in _visible.HIDDEN.split():
        first, _, last = part.partition("-")
        hidden.update(range(int(first, 16), int(last or first, 16) + 1))
    for number in range(0x110000):
        shown = _visible.visible(f"{chr(number)}é")
        assert shown == ("\ufffd" if number in hidden else chr(number)) + "é", hex(number)
        if number < 0x80:
            assert _visible.visible(chr(number)) == shown[0]
    assert _visible.visible(EVIL) == SEEN
    assert _visible.visible("") == "" and len(hidden) > 6000


@pytest.fixture
def report():
    row = {"Name": {"string": EVIL}, "Duration (us)": {"microseconds": 1.0}, EVIL: {"count": 7}}
    loss = {"name": EVIL, "count": 1, "severity": "note", "explanation": EVIL}
    document = {
        "calls": [row],
        "device_metrics": {EVIL: {"Device": {"string": EVIL}}},
        "configuration": {EVIL: {"string": EVIL}},
        "losses": [loss],
        "notes": [EVIL],
    }
    return Report.from_json(json.dumps(document))


def check(text, times):
    assert SEEN in text and text.count(SEEN) == times
    assert all(line == _visible.visible(line) for line in text.split("\n"))


def test_the_table_and_a_loss(report):
    # `EVIL` names a column and a setting, is a note, and occurs twice in a loss: there, characters
    # are replaced. In cells and the setting's value, characters are escaped instead.
    check(str(report), 5)
    assert str(report).count(ESCAPED) == 3
    check(str(report.losses[0]), 2)
    lines = str(report).split("\n")
    header, row, sums = lines[0], lines[1], lines[3]
    assert len(header) == len(row) == len(sums)


def test_the_table_in_a_notebook(report):
    check(report._repr_html_(), 5)


def test_data_stays_as_it_is(report):
    assert EVIL in report.csv() and EVIL in json.loads(report.json())["notes"]
    assert report.calls[0]["Name"].string == EVIL and str(report.calls[0]["Name"]) == SEEN


def test_loops_warnings_and_errors():
    table = LoopReport({"schema": "counterpoint.loops/1", "modules": []}, f"{EVIL}\nb\n")
    assert str(table) == "a\ufffd[31m\ufffd31m\ufffd\ufffd\n\ufffd\ufffd\ufffdz\nb\n"
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        _session.tell(EVIL)
    assert str(told[0].message) == SEEN
    assert str(CounterpointError(f"{EVIL}\n")) == str(table).removesuffix("b\n")
    with pytest.raises(ReportError) as error:
        Report.from_json(json.dumps({"calls": [{EVIL: {EVIL: 1}}]}))
    assert "\x1b" not in str(error.value)
