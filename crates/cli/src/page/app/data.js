/**
 * The types of the page's data, which `crates/cli/src/page` writes. Numbers of the report are
 * already formatted.
 *
 * @typedef {object} Head
 * @property {"counterpoint.page/1"} schema
 * @property {string} program Name of the program, for the title.
 * @property {string} about A short description of what was recorded.
 * @property {string} version The version of Counterpoint.
 * @property {string[]} sentences The first lines of the report.
 * @property {string[]} warnings Facts that a reader must know before relying on the numbers.
 * @property {[string, string][]} recording Labels and texts about the recording: command, machine,
 *   time, clock.
 * @property {[string, string, string][]} lengths For each length: what it is the length of, the
 *   time, and from which moment to which.
 * @property {string} price The line about the price (what recording cost the program).
 * @property {string} priceParts The parts that make up the price.
 * @property {[string, string, string][]} losses Name, number and meaning of each loss.
 * @property {string[]} notes
 * @property {Table[]} tables All tables, in the order of the links to them.
 * @property {Op[]} ops The ops that the page has details of. `Table.ops` contains indices into this
 *   list.
 * @property {Timeline | null} timeline
 * @property {Listing[]} listings The code of functions with instrumented loops.
 * @property {string} listingsAbout What is missing in the listings; empty if nothing is.
 * @property {Roofline | null} roofline The roofline chart: ops, and the limits of the machine. Its
 *   table has the group `roofline`. Null if the work (operations or bytes) of no op is known.
 * @property {Compare | null} compare A comparison of runs. With it, data about one run are empty.
 *
 * @typedef {object} Table
 * @property {string} id `op`, `tree`, `thread`, `site`, `module`, `loop0`, `kind`, `device`, …
 * @property {string} group The view that shows the table: `ops`, `loops`, `activities`, `roofline`.
 * @property {string} title
 * @property {string[]} lead Sentences above the table.
 * @property {string[]} explained Explanations of columns, marks and words, shown below the table.
 * @property {{mark: string, text: string}[]} marks The texts of `explained` that explain marks on
 *   values. They are also used where such values are shown outside of the table. If `mark` is
 *   empty, the text applies to all values with a mark.
 * @property {Column[]} columns The columns. The first column contains the names of the rows.
 * @property {Cell[][]} rows The rows, in the order of the report.
 * @property {number[] | null} parents For a tree: the index of each row's parent, or -1.
 * @property {(number | null)[] | null} ops For each row: the index in `Head.ops` of the op that the
 *   row describes.
 * @property {Cell[][]} rest Rows at the end of the table, with the part of the whole that no other
 *   row contains.
 * @property {string} sort The name of the column by which the rows are sorted.
 * @property {number} share Index of the column whose numbers are shares of one whole, or -1.
 * @property {number} leftOut Number of rows of the report that the page does not contain.
 * @property {Plot[]} plots The drawings in the rows of the table.
 *
 * The overview draws each thread's life from `wall_ns`, `between_ns` and `off_cpu_ns` of the table
 * `thread`. It draws the column `share` of the table `tree` as an icicle, and shows `calls`,
 * `p50_ns` and `mean_ns` of the table `op`.
 *
 * @typedef {object} Column
 * @property {string} name The name of the column in CSV.
 * @property {string} title
 * @property {boolean} isText
 * @property {boolean} isMinor Whether a narrow report leaves this column out before others.
 * @property {string | null} meaning The explanation of the column in `explained`, without the
 *   column's title.
 *
 * A cell. Null means that it has no value. Otherwise it is a text, a text with the number to sort
 * by, or both with the explanation of the cell's mark.
 * @typedef {string | [string, number] | [string, number | null, string] | null} Cell
 *
 * @typedef {object} Plot A column of intervals or bars on one axis. A place is a fraction of the
 *   axis, from 0 to 1. Places outside of this range are beyond the axis.
 * @property {string} title
 * @property {number} after Index of the column after which the plot is shown.
 * @property {[number, string][]} ticks Place and text of each tick.
 * @property {number} zero The place that means no difference.
 * @property {number[] | null} band The ends of the range in which a difference is called the same.
 * @property {boolean} isBars Whether the marks are bars that begin at `zero`, and not points with
 *   intervals.
 * @property {(Mark | null)[]} rows The mark of each row of the table.
 *
 * @typedef {object} Mark
 * @property {number} at
 * @property {number[] | null} ends The ends of the interval.
 * @property {string} kind `slower`, `faster`, `less`, `more`, `same`, `unknown`, `not_tested`, …
 * @property {string} text A description of the drawing; empty if another cell has the same text.
 *
 * @typedef {object} Roofline A chart on two logarithmic axes. Places are fractions of its width and
 *   of its height, from 0 (left, bottom) to 1.
 * @property {string} about A sentence about the chart.
 * @property {[number, string][]} x Place and text of the ticks for operations per byte.
 * @property {[number, string][]} y Place and text of the ticks for operations per second.
 * @property {{text: string, ends: number[]}[]} roofs The lines of the machine's limits. `ends`
 *   contains x and y of a line's begin, and x and y of its end.
 * @property {{name: string, at: number[], holds: string, text: string}[]} points The ops, those
 *   with the most time first. `holds` is what limits the op: `memory`, `compute`, `far` (far below
 *   both limits) or `unknown`.
 *
 * @typedef {object} Compare
 * @property {string} answer A sentence with the result of the comparison.
 * @property {[string, string][]} runs Labels and texts about A and B, the two sides of the
 *   comparison, and how they were recorded.
 * @property {Table} whole The change of a whole run, and the parts that make up this change.
 * @property {Table} rows
 * @property {[string, string[]][]} counters Names of rows whose counters differ, with texts about
 *   these counters.
 * @property {[string, string][]} notes The label and the text of each note.
 *
 * @typedef {object} Op
 * @property {string} label The op's label, which no other op has.
 * @property {string} name The whole name, not shortened.
 * @property {string} where The source or the library of the op; may be empty.
 * @property {[string, string][]} facts For each column of the table of ops in which the op has a
 *   value, its label and the value as text.
 * @property {Distribution | null} times
 * @property {Lane[]} lanes The durations of the op's calls, by thread.
 * @property {Drift | null} drift
 * @property {Longest} longest
 * @property {Joint[]} joints For each counter, the joint distribution of its value and the
 *   duration.
 * @property {string[]} explained Sentences about what slow calls have in common.
 * @property {Table | null} goesWith The correlation of each counter with the duration.
 *
 * Bins are logarithmic: bin k contains the durations from 2^(k/16) to 2^((k+1)/16) ns.
 * @typedef {object} Distribution
 * @property {number} first The number of the first bin in `counts`.
 * @property {number[]} counts
 *
 * @typedef {object} Lane
 * @property {string} label
 * @property {Distribution} times
 *
 * @typedef {object} Drift The durations of calls in each part of the recording. All parts have the
 *   same length.
 * @property {number} from Begin of the first part, in ns from the begin of the timeline.
 * @property {number} width Length of a part, in ns.
 * @property {(number[] | null)[]} parts For each part, the 10 %, 50 % and 90 % quantiles and the
 *   longest duration, in ns; null if the part has no calls.
 *
 * @typedef {object} Longest
 * @property {string[]} titles
 * @property {{cells: (string | null)[], at: number, thread: number}[]} rows `at` is the call's
 *   begin in ns from the begin of the timeline. `thread` is the index of the timeline's lane, or
 *   -1.
 *
 * @typedef {object} Joint How often each duration and each value of a counter occurred in the same call.
 * @property {string} counter
 * @property {string} mark A text to show before numbers of calls: `~` if the numbers are estimates,
 *   because only some calls were timed; otherwise empty.
 * @property {string} text The correlation in words, or else the number of calls.
 * @property {number[]} x Edges of durations in ns (at most 33).
 * @property {number[]} y Edges of values (at most 33).
 * @property {string[]} xText A text for each edge, or for some edges at equal distances. The page
 *   shows only a few of them.
 * @property {string[]} yText
 * @property {number[]} counts The numbers of calls in the cells, row by row. Rows are in the order
 *   of y, from low to high.
 *
 * @typedef {object} Timeline
 * @property {string} begin The moment at which the timeline begins, in ns since 1970. All other
 *   moments are relative to this one.
 * @property {string | null} base The moment that is time 0 in an exported `.json`, in ns since
 *   1970; null if it is not known.
 * @property {{name: string, url: string | null, isJson: boolean} | null} trace An exported trace of
 *   the same recording. If it has a `url`, Perfetto can open the trace from this address.
 * @property {number} span Length of the timeline, in ns.
 * @property {number} grid All moments are multiples of this number of ns.
 * @property {string} about What is missing in the timeline; empty if nothing is.
 * @property {string[]} names Names of ops and activities.
 * @property {(number | null)[]} ops For each name: its index in `Head.ops`.
 * @property {TimeLane[]} lanes
 * @property {Series[]} series
 *
 * The block `timeline` contains the calls of each lane, as four sequences of unsigned LEB128
 * numbers: the begins, the durations, the indices of the names, and the depths. A begin is stored
 * as the zigzag-encoded difference from the end of the previous call. Begins and durations are in
 * units of the grid. Calls are in the order of their begins.
 * @typedef {object} TimeLane
 * @property {string} pid The id of the process, as in exported traces. `tid` is the id of the
 *   thread.
 * @property {string} tid
 * @property {string} label
 * @property {string} process
 * @property {number} calls
 * @property {number} depth Number of levels.
 * @property {number} offset Offset of the lane's first byte in the block.
 * @property {number} bytes
 *
 * @typedef {object} Series
 * @property {number} lane Index of the lane below which the series is shown; -1 if it is shown
 *   below all lanes.
 * @property {string} label
 * @property {string} about The unit and the largest value, as text.
 * @property {number[]} at In ns.
 * @property {(number | null)[]} values
 *
 * @typedef {object} Listing
 * @property {string} table The id of the table of the listing's module.
 * @property {string} label The name of the function.
 * @property {string[]} words Sentences about the function.
 * @property {string[]} loops The names of the function's loops.
 * @property {{title: string, lines: Line[]}[]} columns The forms of the code: source, IR, assembly.
 *
 * @typedef {object} Line
 * @property {string} number The line number in the source file, or the address of an instruction.
 * @property {string} text
 * @property {string} margin Measured values of the loops that begin here; may be empty.
 * @property {number} loop Index of the innermost loop around the line, or -1.
 */
export {};
