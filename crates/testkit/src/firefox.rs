//! Firefox without a window, for the tests of the HTML pages of `report --html`. The tests control
//! it with WebDriver BiDi over a WebSocket of the loopback interface (`--remote-debugging-port=0`).
//!
//! The module's own WebSocket implements only the part of RFC 6455 that two programs on one machine
//! need: text frames, pings and the end of the connection. Messages to Firefox are masked, and each
//! is a single frame.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{Scratch, skip_this};

/// The longest time to wait until Firefox listens, answers, or reports an expression in the page as
/// true. It is far longer than usually needed, because all processors may be busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// The preferences keep all traffic on this machine: HTTP and HTTPS go to a proxy that does not
/// exist, and Firefox's own requests are turned off. `SCHEME` is replaced by 0 for the dark colour
/// scheme and by 1 for the light one.
const PREFERENCES: &str = r#"
user_pref("layout.css.prefers-color-scheme.content-override", SCHEME);
user_pref("network.proxy.type", 1);
user_pref("network.proxy.http", "127.0.0.1");
user_pref("network.proxy.http_port", 9);
user_pref("network.proxy.ssl", "127.0.0.1");
user_pref("network.proxy.ssl_port", 9);
user_pref("app.update.enabled", false);
user_pref("app.normandy.enabled", false);
user_pref("browser.safebrowsing.malware.enabled", false);
user_pref("browser.safebrowsing.phishing.enabled", false);
user_pref("browser.shell.checkDefaultBrowser", false);
user_pref("datareporting.policy.dataSubmissionEnabled", false);
user_pref("network.captive-portal-service.enabled", false);
user_pref("network.connectivity-service.enabled", false);
user_pref("services.settings.server", "data:,#remote-settings-dummy/v1");
user_pref("toolkit.telemetry.enabled", false);
"#;

/// A running Firefox with one page. Dropping this value terminates the browser.
pub struct Firefox {
    child: Child,
    socket: BufReader<TcpStream>,
    context: String,
    last_id: u64,
    complaints: Vec<String>,
    said: PathBuf,
    _home: Scratch,
}

impl Firefox {
    /// Starts Firefox with a colour scheme (`light` or `dark`). If Firefox is not installed,
    /// reports the calling test as skipped and returns `None`.
    ///
    /// # Panics
    /// Panics if the browser does not start. All methods that send a command to the browser panic
    /// if it does not answer.
    pub fn start(scheme: &str) -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path)
            .flat_map(|folder| ["firefox-esr", "firefox"].map(|name| folder.join(name)))
            .find(|program| program.is_file());
        let Some(program) = found else {
            skip_this("no Firefox: install the package firefox-esr");
            return None;
        };
        let home = Scratch::new();
        let dark = if scheme == "dark" { "0" } else { "1" };
        let preferences = PREFERENCES.replace("SCHEME", dark);
        std::fs::write(home.join("user.js"), preferences).expect("its folder can be written");
        let said = home.join("stderr");
        let mut child = Command::new(program)
            .args(["--headless", "--no-remote", "--remote-debugging-port=0", "--profile"])
            .arg(home.path())
            .env("HOME", home.path())
            .env("MOZ_CRASHREPORTER_DISABLE", "1")
            .env_remove("DISPLAY")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&said).expect("a file for what it says"))
            .spawn()
            .expect("Firefox starts");
        let address = address(&said, &mut child);
        let mut browser = Self {
            child,
            socket: connect(&address),
            context: String::new(),
            last_id: 0,
            complaints: Vec::new(),
            said,
            _home: home,
        };
        browser.call("session.new", json!({"capabilities": {}}));
        let tree = browser.call("browsingContext.getTree", json!({"maxDepth": 0}));
        browser.context = tree["contexts"][0]["context"].as_str().unwrap_or_default().to_owned();
        let wanted = json!({"events": ["log.entryAdded", "network.beforeRequestSent"]});
        browser.call("session.subscribe", wanted);
        Some(browser)
    }

    /// Sends a command to the browser and returns its result.
    ///
    /// # Panics
    /// Panics if the browser reports an error.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last_id += 1;
        let request = json!({"id": self.last_id, "method": method, "params": parameters});
        let frame = frame(0x81, request.to_string().as_bytes());
        self.socket.get_mut().write_all(&frame).unwrap_or_else(|why| {
            panic!("{method}: the browser does not read ({why}); it said:\n{}", self.said())
        });
        loop {
            let message = self.message().unwrap_or_else(|why| {
                panic!("{method}: no answer ({why}); the browser said:\n{}", self.said())
            });
            let message: Value = serde_json::from_slice(&message).expect("messages are JSON");
            if message["id"] == self.last_id {
                assert!(message["type"] == "success", "{method}: {message}");
                return message["result"].clone();
            }
            self.listen(&message);
        }
    }

    fn message(&mut self) -> std::io::Result<Vec<u8>> {
        let mut message = Vec::new();
        loop {
            let mut head = [0; 2];
            self.socket.read_exact(&mut head)?;
            let length = match head[1] & 0x7f {
                126 => {
                    let mut long = [0; 2];
                    self.socket.read_exact(&mut long)?;
                    u64::from(u16::from_be_bytes(long))
                }
                127 => {
                    let mut long = [0; 8];
                    self.socket.read_exact(&mut long)?;
                    u64::from_be_bytes(long)
                }
                short => u64::from(short),
            };
            let mut content = Vec::new();
            self.socket.by_ref().take(length).read_to_end(&mut content)?;
            match head[0] & 0x0f {
                0x8 => return Err(std::io::Error::other("it closed the connection")),
                0x9 => self.socket.get_mut().write_all(&frame(0x8a, &content))?,
                0xa => {}
                _ => message.extend(content),
            }
            if head[0] & 0x80 != 0 && head[0] & 0x0f < 0x8 {
                return Ok(message);
            }
        }
    }

    fn listen(&mut self, message: &Value) {
        let parameters = &message["params"];
        match message["method"].as_str() {
            Some("log.entryAdded") => self.complaints.push(parameters.to_string()),
            // Firefox loads the font of its controls from a `data:` address, which is not a request
            // to the network.
            Some("network.beforeRequestSent") => {
                let address = parameters["request"]["url"].as_str().unwrap_or_default();
                if !["file:", "about:", "data:"].iter().any(|own| address.starts_with(own)) {
                    self.complaints.push(format!("a request to {address}"));
                }
            }
            _ => {}
        }
    }

    /// Returns the complaints since the last call of this function: console messages, exceptions,
    /// and requests to other addresses than `file:`, `about:` and `data:`.
    pub fn complaints(&mut self) -> Vec<String> {
        // The answer to this request comes after all messages that the browser sent before.
        self.eval("0");
        std::mem::take(&mut self.complaints)
    }

    /// Returns the value of a JavaScript expression in the page. If the value is a promise, waits
    /// for its result.
    ///
    /// # Panics
    /// Panics if the expression throws.
    pub fn eval(&mut self, expression: &str) -> Value {
        // The expression's value is returned as JSON text, because the protocol would return
        // objects in its own notation.
        let text = format!("(async () => JSON.stringify([await ({expression})]))()");
        let target = json!({"context": self.context});
        let wanted = json!({"expression": text, "awaitPromise": true, "target": target});
        let answer = self.call("script.evaluate", wanted);
        assert!(answer["type"] == "success", "{expression}: {answer}");
        let text = answer["result"]["value"].as_str().unwrap_or("[null]");
        serde_json::from_str::<Value>(text).expect("what stringify wrote")[0].clone()
    }

    /// Waits until a JavaScript expression in the page is true.
    ///
    /// # Panics
    /// Panics if the expression does not become true within `PATIENCE`.
    pub fn wait_for(&mut self, expression: &str) {
        let end = Instant::now() + PATIENCE;
        while self.eval(&format!("!!({expression})")) != true {
            assert!(Instant::now() < end, "never true: {expression}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Opens a file.
    pub fn open(&mut self, file: &Path) {
        let url = format!("file://{}", file.display());
        let context = self.context.clone();
        let wanted = json!({"context": context, "url": url, "wait": "complete"});
        self.call("browsingContext.navigate", wanted);
    }

    /// Sets the size of the window in CSS pixels.
    pub fn resize(&mut self, width: u32, height: u32) {
        let context = self.context.clone();
        let wanted = json!({"context": context, "viewport": {"width": width, "height": height}});
        self.call("browsingContext.setViewport", wanted);
    }

    fn said(&self) -> String {
        let said = std::fs::read(&self.said).unwrap_or_default();
        String::from_utf8_lossy(&said).into_owned()
    }
}

/// Returns the address at which Firefox says that it listens: `127.0.0.1:PORT`.
fn address(said: &Path, child: &mut Child) -> String {
    const SAYS: &str = "WebDriver BiDi listening on ws://";
    let end = Instant::now() + PATIENCE;
    loop {
        let text = std::fs::read(said).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let line = text.split_inclusive('\n').find_map(|line| line.strip_prefix(SAYS));
        if let Some(address) = line.and_then(|line| line.strip_suffix('\n')) {
            return address.trim().to_owned();
        }
        let ended = child.try_wait().ok().flatten();
        assert!(ended.is_none() && Instant::now() < end, "Firefox does not listen: {text}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn connect(address: &str) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(address).expect("it listens there");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket has timeouts");
    let mut socket = BufReader::new(stream);
    let request = format!(
        "GET /session HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: Y291bnRlcnBvaW50IQAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    );
    socket.get_mut().write_all(request.as_bytes()).expect("it reads");
    let mut line = String::new();
    socket.read_line(&mut line).expect("it answers");
    assert!(line.starts_with("HTTP/1.1 101"), "{line}");
    while line != "\r\n" {
        line.clear();
        assert!(socket.read_line(&mut line).expect("it answers") > 0, "the answer has no end");
    }
    socket
}

const MASK: [u8; 4] = *b"mask";

/// Returns a WebSocket frame with this first byte. Its content is masked, as RFC 6455 requires of
/// clients.
fn frame(first: u8, content: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match content.len() {
        short @ 0..=125 => frame.push(0x80 | short as u8),
        middle @ 126..=0xffff => {
            frame.push(0x80 | 126);
            frame.extend((middle as u16).to_be_bytes());
        }
        long => {
            frame.push(0x80 | 127);
            frame.extend((long as u64).to_be_bytes());
        }
    }
    frame.extend(MASK);
    frame.extend(content.iter().zip(MASK.into_iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

impl Drop for Firefox {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
