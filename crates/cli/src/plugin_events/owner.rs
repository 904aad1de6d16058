//! Determines the owner of the events that are added to a trace, and the numbers of the plugins'
//! rows and arrows in the timeline.
//!
//! | | rows | arrows |
//! |---|---|---|
//! | in a recorded program | new numbers, and a part of the profile for each row | the number of the stream, then the number that the plugin gave |
//! | without a program | the plugin's numbers; a new number if another plugin uses the same number | the same as in a recorded program |

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use profile::tracks::Scope;
use profile::{PLUGIN_PARTS, PartId, UtcClock};
use serde_json::json;
use trace::chrome::event::{Event, Raw, Scalar};
use trace::chrome::read::EventSink as _;
use trace::export::activities::PLUGIN_ROWS;
use trace::import::trace::OneTrace;

use super::times::{Read, Times, Window};

const ARROW_BITS: u32 = 33;

/// The owner of the events that are added to a trace: the plugins in one process of a recorded
/// profile, or a recording without a program. Each plugin numbers devices in its own way, so a
/// device number that two plugins use has two rows. The plugins share the row of the process
/// itself.
#[derive(Debug)]
pub struct Owner {
    place: Place,
    plugins: Vec<Plugin>,
    plugin: usize,
    rows: Vec<Row>,
    /// The index in `rows`, by the plugin and its number for a device or process. The plugin is
    /// `None` for the process in which the plugin ran.
    by_number: HashMap<(Option<usize>, i64), usize>,
    /// The index in `rows` of processes whose id is a text.
    texts: HashMap<String, usize>,
    /// The ids of rows that the trace already uses.
    taken: HashSet<i64>,
    /// The number of the current stream. The number distinguishes the arrows of different streams.
    stream: u64,
    /// The time range of the recording. If it is unknown (`None`), all times are treated as UTC.
    window: Option<Window>,
    times: Times,
}

#[derive(Debug)]
enum Place {
    /// A process of a recorded profile. `name` is a text with the program's name and the process
    /// id, and `first` is the number of the process's first row.
    Process { id: PartId, name: String, first: i64, clock: UtcClock },
    /// A recording without a program. `base_ns` is the time 0 of the trace, in ns since 1970.
    Alone { base_ns: i64 },
}

#[derive(Debug)]
struct Plugin {
    file: String,
    /// The name that views show as the source of the plugin's counters.
    source: String,
    pid: i64,
    /// The name of the row for the plugin's counters of the whole machine.
    machine: Option<String>,
}

#[derive(Debug)]
struct Row {
    id: i64,
    /// The plugin that first used the row, and the plugin's number for it.
    plugin: usize,
    number: i64,
    name: Option<Name>,
}

#[derive(Debug)]
pub enum Name {
    /// A plugin's name for a device. Another plugin may use the same name for another device.
    Given(String),
    /// A name to which no plugin's name is added.
    Whole(String),
}

impl Owner {
    /// Makes the owner for a recorded process. `index` distinguishes the processes of one
    /// conversion.
    pub fn new(
        id: PartId,
        name: String,
        index: usize,
        (clock, window): (UtcClock, Option<Window>),
    ) -> Self {
        let first = PLUGIN_ROWS + index as i64 * i64::from(PLUGIN_PARTS);
        Self::of(Place::Process { id, name, first, clock }, window)
    }

    /// Makes the owner for a recording without a program. `base_ns` is the trace's time 0, in ns
    /// since 1970.
    pub fn alone(base_ns: i64, window: Window) -> Self {
        Self::of(Place::Alone { base_ns }, Some(window))
    }

    fn of(place: Place, window: Option<Window>) -> Self {
        Self {
            place,
            plugins: Vec::new(),
            plugin: 0,
            rows: Vec::new(),
            by_number: HashMap::new(),
            texts: HashMap::new(),
            taken: HashSet::new(),
            stream: 0,
            window,
            times: Times::default(),
        }
    }

    /// Returns the recorded process in which the plugins ran, and its name; `None` for a recording
    /// without a program.
    pub fn process(&self) -> Option<(PartId, &str)> {
        match &self.place {
            Place::Process { id, name, .. } => Some((*id, name)),
            Place::Alone { .. } => None,
        }
    }

    /// Begins a stream of events, whose `number` no other stream of the trace may have.
    pub fn begin_stream(&mut self, number: u64) {
        self.stream = number;
        self.times = Times::default();
    }

    pub fn begin_plugin(&mut self, file: &str, pid: u32) {
        let known = self.plugins.iter().position(|plugin| plugin.file == file);
        self.plugin = known.unwrap_or(self.plugins.len());
        if known.is_none() {
            let source = match &self.place {
                Place::Process { name, .. } => format!("{file} in {name}"),
                Place::Alone { .. } => file.to_owned(),
            };
            let (file, pid) = (file.to_owned(), pid.into());
            self.plugins.push(Plugin { file, source, pid, machine: None });
        }
    }

    /// Names the row of the process, unless the row already has a name.
    pub fn name_process(&mut self, name: String, trace: &mut OneTrace<'_>) {
        let Some(pid) = self.plugins.get(self.plugin).map(|plugin| plugin.pid) else { return };
        let row = self.row(pid, false, trace);
        self.rows[row].name.get_or_insert(Name::Whole(name));
    }

    pub fn is_process(&self, number: i64) -> bool {
        self.plugins.get(self.plugin).is_some_and(|plugin| plugin.pid == number)
    }

    /// Returns the index of the row for the current plugin's number of a device or process. Creates
    /// the row if it does not exist, unless a recorded process has too many rows.
    pub fn row(&mut self, number: i64, on_device: bool, trace: &mut OneTrace<'_>) -> usize {
        let of = (on_device || !self.is_process(number)).then_some(self.plugin);
        if let Some(row) = self.by_number.get(&(of, number)) {
            return *row;
        }
        // The number of rows of a recorded process is limited. Further devices and processes share
        // the last row.
        let index = self.rows.len();
        if self.process().is_some() && index + 1 >= PLUGIN_PARTS as usize {
            return index - 1;
        }
        let id = match &self.place {
            Place::Process { id, first, .. } => {
                let row = first + index as i64;
                let file = self.plugins.get(self.plugin).map(|plugin| plugin.file.clone());
                let arguments = file.into_iter().chain([number.to_string()]).collect();
                trace.place(row, id.of_plugins(index as u32), arguments);
                row
            }
            // The plugin's number is also the row's id, unless another row already has this id.
            Place::Alone { .. } if !self.taken.contains(&number) => number,
            Place::Alone { .. } => {
                let mut free = PLUGIN_ROWS..;
                let row = free.find(|row| !self.taken.contains(row)).unwrap_or(number);
                if let Ok(pid) = u32::try_from(number) {
                    trace.place_again(row, pid);
                }
                row
            }
        };
        self.taken.insert(id);
        self.rows.push(Row { id, plugin: self.plugin, number, name: None });
        self.by_number.insert((of, number), index);
        index
    }

    pub fn id(&self, row: usize) -> i64 {
        self.rows[row].id
    }

    pub fn name(&mut self, row: usize, name: Name) {
        self.rows[row].name = Some(name);
    }

    pub fn time_ns(&mut self, ns: i64) -> i64 {
        let read = match &self.window {
            Some(window) => self.times.read(window, ns),
            None => Read::Utc(ns),
        };
        match (&self.place, read) {
            (Place::Process { clock, .. }, Read::Utc(ns)) => clock.profile_utc_ns(ns),
            // This time was on another clock than UTC. The window was used to convert it to the
            // profile's UTC already.
            (Place::Process { .. }, Read::Other(ns)) => ns,
            (Place::Alone { base_ns }, Read::Utc(ns) | Read::Other(ns)) => {
                ns.saturating_sub(*base_ns)
            }
        }
    }

    /// Returns the notes about the current stream, which has ended.
    pub fn said(&self) -> Vec<String> {
        self.times.said()
    }

    /// Returns the index of the row of a process whose id is a text. The text becomes the name of
    /// the row. Such rows get negative numbers that no device should have.
    pub fn row_of_text(&mut self, text: &str, trace: &mut OneTrace<'_>) -> usize {
        if let Some(row) = self.texts.get(text) {
            return *row;
        }
        let row = self.row(i64::MIN + self.texts.len() as i64, true, trace);
        self.rows[row].name = Some(Name::Whole(text.to_owned()));
        self.texts.insert(text.to_owned(), row);
        row
    }

    /// Returns the name of the row for counters of the whole machine. For the first plugin that has
    /// such counters, it is `machine`, as in Kineto. For other plugins, the name of the plugin's
    /// file is added.
    pub fn machine(&mut self) -> &str {
        let is_first = self.plugins.iter().all(|plugin| plugin.machine.is_none());
        let own = format!("machine ({})", self.short(self.plugin));
        let Some(plugin) = self.plugins.get_mut(self.plugin) else { return "machine" };
        plugin.machine.get_or_insert(if is_first { "machine".to_owned() } else { own })
    }

    pub fn source(&self, scope: Scope) -> &str {
        match self.plugins.get(self.plugin) {
            // Counters of the whole machine are the same in all processes, so no process is named.
            Some(plugin) if scope == Scope::Machine => &plugin.file,
            Some(plugin) => &plugin.source,
            None => "plugin",
        }
    }

    pub fn arrow(&self, id: i64) -> i64 {
        (self.stream << ARROW_BITS).wrapping_add(id as u64) as i64
    }

    /// Returns the name of a plugin's file without its directory, or the whole path if another
    /// plugin has the same file name.
    fn short(&self, plugin: usize) -> &str {
        fn last(file: &str) -> &str {
            file.rsplit('/').next().unwrap_or_default()
        }
        let Some(Plugin { file, .. }) = self.plugins.get(plugin) else { return "" };
        let same = self.plugins.iter().filter(|other| last(&other.file) == last(file));
        if same.count() == 1 { last(file) } else { file }
    }

    /// Writes the names of the rows. Must be called at the end, when it is known which names occur
    /// in several plugins.
    ///
    /// # Errors
    /// Returns an error if the profile cannot be written.
    pub fn finish(&mut self, trace: &mut OneTrace<'_>) -> Result<(), String> {
        let mut plugins: HashMap<String, HashSet<usize>> = HashMap::new();
        for row in &self.rows {
            plugins.entry(row.text()).or_default().insert(row.plugin);
        }
        for row in &self.rows {
            let is_only = plugins.get(&row.text()).is_none_or(|plugins| plugins.len() == 1);
            let Some(name) = self.name_of(row, is_only) else { continue };
            let args = json!({ "name": name }).to_string();
            trace.event(
                0,
                &Event {
                    phase: b'M',
                    name: Some(Cow::Borrowed("process_name")),
                    pid: Some(Scalar::Int(row.id)),
                    tid: Some(Scalar::Int(0)),
                    args: Some(Raw::of(&args)),
                    ..Event::default()
                },
            )?;
        }
        Ok(())
    }

    /// Returns the name of a row. `is_only` says that no other plugin has a row of this name.
    fn name_of(&self, row: &Row, is_only: bool) -> Option<String> {
        let text = row.text();
        if matches!(row.name, Some(Name::Whole(_))) {
            return Some(text);
        }
        let text = if is_only { text } else { format!("{text} ({})", self.short(row.plugin)) };
        match (&self.place, &row.name) {
            (Place::Process { id, name, .. }, None) if row.number == i64::from(id.pid) => {
                Some(format!("plugins of {name}"))
            }
            (Place::Process { name, .. }, _) => Some(format!("{text} of {name}")),
            (Place::Alone { .. }, Some(_)) => Some(text),
            // For a row without a name, timelines show its number.
            (Place::Alone { .. }, None) if is_only => None,
            (Place::Alone { .. }, None) => Some(self.short(row.plugin).to_owned()),
        }
    }
}

impl Row {
    fn text(&self) -> String {
        match &self.name {
            Some(Name::Given(name) | Name::Whole(name)) => name.clone(),
            None => self.number.to_string(),
        }
    }
}
