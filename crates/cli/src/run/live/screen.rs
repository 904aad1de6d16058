//! Controls the terminal of a view: enters its alternate screen, reads keys, and draws the view.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use analysis::live::{Live, LiveRow};
use profile::demangle::{Detail, demangle};

use crate::terminal::{self, Kind as Output, visible};
use crate::view::layout::{Kind, Names, Shown as Column, layout};
use crate::view::units::{count, percent, time};

/// `ENTER` enters the alternate screen and hides the cursor. `LEAVE` shows the cursor and leaves
/// that screen.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// `HOME` moves the cursor to the first line, `END_OF_LINE` erases the rest of a line and begins
/// the next one, and `REST` erases the rest of the screen.
const HOME: &str = "\x1b[H";
const END_OF_LINE: &str = "\x1b[K\r\n";
const REST: &str = "\x1b[J";
/// The assumed number of columns and of lines, if the terminal does not report its size.
const SIZE: (usize, usize) = (80, 24);

pub struct Screen {
    terminal: File,
}

/// Dropping this value restores the terminal.
pub struct View {
    terminal: File,
    /// The settings of the terminal before the view began, if they could be read.
    before: Option<libc::termios>,
    /// Whether keys can be read.
    has_keys: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Leave,
}

pub struct Shown<'a> {
    pub live: &'a Live,
    pub name: &'a str,
    pub since: Duration,
    /// The fraction of a processor's time that reading the profile's calls has taken.
    pub reading: f64,
}

impl Screen {
    /// Returns the terminal of stdout or stderr. `None` if neither is a terminal.
    pub fn find() -> Option<Self> {
        let of = |file: std::os::fd::BorrowedFd<'_>| file.try_clone_to_owned().ok().map(File::from);
        let terminal = match (io::stdout().is_terminal(), io::stderr().is_terminal()) {
            (true, _) => of(io::stdout().as_fd()),
            (_, true) => of(io::stderr().as_fd()),
            _ => None,
        }?;
        Some(Self { terminal })
    }

    /// Enters the alternate screen. Returns `None` if the terminal cannot be written to.
    pub fn enter(self) -> Option<View> {
        let mut view = View { terminal: self.terminal, before: None, has_keys: false };
        view.read_keys();
        match view.terminal.write_all(ENTER.as_bytes()) {
            Ok(()) => Some(view),
            Err(_) => None,
        }
    }
}

impl View {
    /// Changes the terminal's settings so that single keys can be read, and so that Ctrl-Z does not
    /// stop any process. Ctrl-C still sends SIGINT to the recorded program.
    fn read_keys(&mut self) {
        // SAFETY: zeros are a valid `termios`, `settings` outlives the calls, and `terminal` keeps
        // its descriptor open.
        unsafe {
            let mut settings: libc::termios = std::mem::zeroed();
            if libc::tcgetattr(self.terminal.as_raw_fd(), &mut settings) != 0 {
                return;
            }
            self.before = Some(settings);
            settings.c_lflag &= !(libc::ICANON | libc::ECHO);
            settings.c_cc[libc::VMIN] = 1;
            settings.c_cc[libc::VTIME] = 0;
            settings.c_cc[libc::VSUSP] = 0;
            let set = libc::tcsetattr(self.terminal.as_raw_fd(), libc::TCSANOW, &settings);
            self.has_keys = set == 0;
        }
    }

    /// Returns the size of the terminal in columns and lines.
    pub fn size(&self) -> (usize, usize) {
        terminal_size::terminal_size_of(&self.terminal)
            .map_or(SIZE, |(width, height)| (width.0.into(), height.0.into()))
    }

    /// Returns the key that the user has pressed, if the key has a meaning in the view. Waits for
    /// keys at most for the time `most`.
    pub fn key(&mut self, most: Duration) -> Option<Key> {
        let mut wanted =
            libc::pollfd { fd: self.terminal.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let wait = most.as_millis() as libc::c_int;
        let mut bytes = [0u8; 16];
        // SAFETY: `poll` gets one entry, and `read` gets the length of `bytes`.
        let read = unsafe {
            if !self.has_keys || libc::poll(&mut wanted, 1, wait) <= 0 {
                if !self.has_keys {
                    std::thread::sleep(most);
                }
                return None;
            }
            libc::read(wanted.fd, bytes.as_mut_ptr().cast(), bytes.len())
        };
        // If nothing was read, the terminal is gone, or this process is not allowed to read from
        // it.
        self.has_keys = read > 0;
        let typed = bytes.get(..usize::try_from(read).unwrap_or(0)).unwrap_or_default();
        typed.iter().any(|byte| matches!(byte, b'q' | b'Q')).then_some(Key::Leave)
    }

    pub fn draw(&mut self, shown: &Shown<'_>) -> io::Result<()> {
        let (width, height) = self.size();
        let lines = lines(shown, width, height)?;
        let mut all = HOME.to_owned();
        let last = lines.len().saturating_sub(1);
        for (at, line) in lines.iter().enumerate() {
            all.push_str(line);
            all.push_str(if at == last { "\x1b[K" } else { END_OF_LINE });
        }
        all.push_str(REST);
        self.terminal.write_all(all.as_bytes())
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let _ = self.terminal.write_all(LEAVE.as_bytes());
        if let Some(before) = &self.before {
            // SAFETY: `before` contains earlier settings of the terminal and outlives the call.
            unsafe { libc::tcsetattr(self.terminal.as_raw_fd(), libc::TCSANOW, before) };
        }
    }
}

fn lines(shown: &Shown<'_>, width: usize, height: usize) -> io::Result<Vec<String>> {
    let rows = shown.live.rows();
    let room = height.saturating_sub(5).max(1);
    let some = &rows[..rows.len().min(room)];
    let mut text = Vec::new();
    let mut out = terminal::Screen::new(&mut text, Output::People, true);
    writeln!(out, "{}", cut(&head(shown), width))?;
    writeln!(out)?;
    match some {
        [] => writeln!(out, "{}", cut("no call has ended yet", width))?,
        _ => {
            layout(&mut out, columns(shown.live, &rows, some), Names::Shortened(12), Some(width))?;
        }
    }
    if rows.len() > some.len() {
        writeln!(out, "… and {} more", rows.len() - some.len())?;
    }
    if shown.live.read() < 1.0 {
        let read = percent(shown.live.read());
        let text = format!(
            "~ estimated: {read} of the calls were read, in {} of a processor",
            percent(shown.reading)
        );
        writeln!(out, "{}", cut(&text, width))?;
    }
    drop(out);
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().take(height.max(1)).map(str::to_owned).collect())
}

fn head(shown: &Shown<'_>) -> String {
    format!(
        "{:.0} s  {}  {} calls  (q: leave this view)",
        shown.since.as_secs_f64(),
        visible(shown.name),
        count(shown.live.calls().into())
    )
}

fn cut(text: &str, width: usize) -> String {
    text.chars().take(width.max(1)).collect()
}

fn columns<'a>(live: &Live, all: &[&LiveRow], some: &[&LiveRow]) -> Vec<Column<'a>> {
    let own: f64 = all.iter().map(|row| row.own_ns).sum();
    let recent: f64 = all.iter().map(|row| row.recent_ns).sum();
    let mark = if live.read() < 1.0 { "~" } else { "" };
    let part = |of: f64, whole: f64| match whole > 0.0 {
        true => format!("{mark}{}", percent(of / whole)),
        false => "–".to_owned(),
    };
    let column = |rank, name: &'static str, cell: &dyn Fn(&LiveRow) -> String| Column {
        name,
        title: name.to_owned(),
        rank,
        kind: if rank == 0 { Kind::Text } else { Kind::Number },
        cells: some.iter().map(|row| cell(row)).collect(),
    };
    vec![
        column(0, "op", &|row| visible(&demangle(&row.name, Detail::Short)).into_owned()),
        column(1, "self", &|row| format!("{mark}{}", time(row.own_ns))),
        column(1, "share", &|row| part(row.own_ns, own)),
        column(2, "now", &|row| part(row.recent_ns, recent)),
        column(3, "calls", &|row| format!("{mark}{}", count(row.calls.round() as u128))),
        column(4, "mean", &|row| format!("{mark}{}", time(row.own_ns / row.calls.max(1.0)))),
    ]
}
