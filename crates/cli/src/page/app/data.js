/**
 * The data from which the page is made. `crates/cli/src/page` writes it. All texts of numbers are made there,
 * by the code that prints the report, so the page never formats a number that the report prints.
 *
 * @typedef {object} Head
 * @property {"counterpoint.page/1"} schema
 * @property {string} program Name of the program, for the title.
 * @property {string} about What was recorded, in a few words.
 * @property {string} version The version of Counterpoint.
 * @property {string[]} sentences The first lines of the report.
 * @property {string[]} warnings Facts that a reader must know before they believe a number.
 * @property {[string, string][]} recording Label and text: command, machine, time, clock.
 * @property {[string, string, string][]} lengths Of what, how long, from when to when.
 * @property {string} price The line about the price.
 * @property {string} priceParts The parts of the price.
 * @property {[string, string, string][]} losses Name, number, and meaning of each loss.
 * @property {string[]} notes
 * @property {Table[]} tables In the order in which they are offered.
 * @property {Op[]} ops The ops with details. `Table.ops` has indices into this list.
 * @property {Timeline | null} timeline
 * @property {Listing[]} listings Code of instrumented loops.
 * @property {string} listingsAbout What is missing in the listings, or empty.
 * @property {Roofline | null} roofline Ops under the roofs of their machine, whose table has the group
 *   `roofline`. Null if no work is known.
 * @property {Compare | null} compare A comparison of runs. Then everything else but the recording is empty.
 *
 * @typedef {object} Table
 * @property {string} id `op`, `tree`, `thread`, `site`, `module`, `loop`, `kind`, `device`, `stream`, …
 * @property {string} group Which view shows it: `ops`, `loops`, `activities`, `roofline`.
 * @property {string} title
 * @property {string[]} lead Sentences above the table.
 * @property {string[]} explained What columns, marks and words mean; shown below the table.
 * @property {{mark: string, text: string}[]} marks Those of `explained` that are about marks on values, for where such
 *   values are shown elsewhere. Without a mark, the text is about all values that have one.
 * @property {Column[]} columns The first one is the name of a row.
 * @property {Cell[][]} rows In the order of the report.
 * @property {number[] | null} parents For a tree: the row above each, or -1.
 * @property {(number | null)[] | null} ops For each row: the op in `Head.ops` that it describes.
 * @property {Cell[][]} rest Rows after all others, which have the rest of the whole.
 * @property {string} sort The name of the column by which the rows are sorted.
 * @property {number} share Index of the column whose numbers are parts of one whole, or -1.
 * @property {number} leftOut Number of rows that the page does not have.
 * @property {Plot[]} plots What is drawn beside the cells.
 *
 * In the table `thread`, the columns `wall_ns` and `between_ns` are also drawn as each thread's life, and
 * `off_cpu_ns` (a part of `between_ns`) if there is one. In the table `tree`, the column of `share` is own
 * time, and is also drawn as an icicle. The overview shows `calls`, `p50_ns` and `mean_ns` of the table `op`.
 *
 * @typedef {object} Column
 * @property {string} name As in CSV.
 * @property {string} title
 * @property {boolean} isText
 * @property {boolean} isMinor Whether a narrow report leaves the column out first.
 * @property {string | null} meaning What `explained` says of it, without its title.
 *
 * A cell without a value is null. Other cells are text, or text and the number to sort by, or these and what the
 * mark of the cell says.
 * @typedef {string | [string, number] | [string, number | null, string] | null} Cell
 *
 * @typedef {object} Plot A column of intervals or bars on one axis. Places are parts of its width, from 0 to 1;
 *   other places are beyond the axis.
 * @property {string} title
 * @property {number} after The column before the plot.
 * @property {[number, string][]} ticks Place and text.
 * @property {number} zero The place at which there is no difference.
 * @property {number[] | null} band The ends of the range in which a difference is called the same.
 * @property {boolean} isBars Bars from `zero`, and not points.
 * @property {(Mark | null)[]} rows For each row of the table.
 *
 * @typedef {object} Mark
 * @property {number} at
 * @property {number[] | null} ends The ends of the interval.
 * @property {string} kind `slower`, `faster`, `less`, `more`, `same`, `unknown`, `not_tested`, …
 * @property {string} text The drawing in words; empty if a cell has the same text.
 *
 * @typedef {object} Roofline A chart on two logarithmic axes. Places are parts of its width and of its
 *   height, from 0 (left, below) to 1.
 * @property {string} about One sentence.
 * @property {[number, string][]} x Place and text of ticks: operations per byte.
 * @property {[number, string][]} y Place and text of ticks: operations per second.
 * @property {{text: string, ends: number[]}[]} roofs `ends`: x, y of the begin and x, y of the end.
 * @property {{name: string, at: number[], holds: string, text: string}[]} points The ops with the most time
 *   first. `holds`: `memory`, `compute`, `far` (below both), `unknown`.
 *
 * @typedef {object} Compare
 * @property {string} answer One sentence.
 * @property {[string, string][]} runs Label and text: A, B, and how they were recorded.
 * @property {Table} whole The whole, and the parts of its difference.
 * @property {Table} rows
 * @property {[string, string[]][]} counters Name of a row, and sentences about its counters.
 * @property {[string, string][]} notes Label and text.
 *
 * @typedef {object} Op
 * @property {string} label The op's label, which no other op has.
 * @property {string} name Whole name, without shortening.
 * @property {string} where Source or library; may be empty.
 * @property {[string, string][]} facts Label and text of each column of the table for this op.
 * @property {Distribution | null} times
 * @property {Lane[]} lanes The op's calls by thread.
 * @property {Drift | null} drift
 * @property {Longest} longest
 * @property {Joint[]} joints The joint distribution of the duration and each counter.
 * @property {string[]} explained Sentences about what goes with slow calls.
 * @property {Table | null} goesWith How each counter is correlated with the duration.
 *
 * Bins are logarithmic: bin k has the durations from 2^(k/16) to 2^((k+1)/16) ns.
 * @typedef {object} Distribution
 * @property {number} first The first bin.
 * @property {number[]} counts
 *
 * @typedef {object} Lane
 * @property {string} label
 * @property {Distribution} times
 *
 * @typedef {object} Drift How long calls took over the time of the recording.
 * @property {number} from Begin of the first part, in ns since the begin of the timeline.
 * @property {number} width Length of a part, in ns.
 * @property {(number[] | null)[]} parts 10 %, 50 %, 90 % and longest, in ns; null without calls.
 *
 * @typedef {object} Longest
 * @property {string[]} titles
 * @property {{cells: (string | null)[], at: number, thread: number}[]} rows `at`: ns since the begin of
 *   the timeline; `thread`: index of the timeline's lane, or -1.
 *
 * @typedef {object} Joint How often each duration and each value of a counter occurred in the same call.
 * @property {string} counter
 * @property {string} mark Stands before numbers of calls: `~` if timed calls represent others, or empty.
 * @property {string} text Correlation in words.
 * @property {number[]} x Edges of durations in ns (at most 33).
 * @property {number[]} y Edges of values (at most 33).
 * @property {string[]} xText A text for each edge, or for some edges at equal distances; the page shows a few.
 * @property {string[]} yText
 * @property {number[]} counts Row after row of y, from low to high.
 *
 * @typedef {object} Timeline
 * @property {string} begin When the timeline begins, in ns since 1970: all other moments count from this one.
 * @property {string | null} base The time from which the times of an exported `.json` count, in ns since 1970;
 *   null if that is not known.
 * @property {{name: string, url: string | null, isJson: boolean} | null} trace An exported trace that goes with
 *   the page; with `url`, Perfetto can open it from there.
 * @property {number} span Length of the timeline, in ns.
 * @property {number} grid All moments are multiples of this number of ns.
 * @property {string} about What is missing in the timeline, or empty.
 * @property {string[]} names Names of ops and activities.
 * @property {(number | null)[]} ops For each name: its index in `Head.ops`.
 * @property {TimeLane[]} lanes
 * @property {Series[]} series
 *
 * Each lane's calls are four sequences of unsigned LEB128 numbers in the block `timeline`, one after the
 * other: begin (as a zigzag difference from the end of the call before it, in units of the grid),
 * duration, index of the name, depth. Calls are in the order of their begins.
 * @typedef {object} TimeLane
 * @property {string} pid The id of the process, as in exported traces; `tid` is that of the thread.
 * @property {string} tid
 * @property {string} label
 * @property {string} process
 * @property {number} calls
 * @property {number} depth Number of levels.
 * @property {number} offset First byte of the lane in the block.
 * @property {number} bytes
 *
 * @typedef {object} Series
 * @property {number} lane Index of the lane below which the series is shown, or -1.
 * @property {string} label
 * @property {string} about Unit, and the largest value in words.
 * @property {number[]} at In ns. @property {(number | null)[]} values
 *
 * @typedef {object} Listing
 * @property {string} table The id of the table of the listing's module.
 * @property {string} label The name of the function.
 * @property {string[]} words What is known of the function.
 * @property {string[]} loops The names of the function's loops.
 * @property {{title: string, lines: Line[]}[]} columns Source, IR, assembly.
 *
 * @typedef {object} Line
 * @property {string} number The number in its file, or the address of an instruction.
 * @property {string} text
 * @property {string} margin Measured values of the loops that begin here; may be empty.
 * @property {number} loop Index of the innermost loop around the line, or -1.
 */
export {};
