//! Chromium without a window, for the tests of the HTML pages of `report --html`. The tests control
//! it through a pair of pipes (`--remote-debugging-pipe`), with Chrome's DevTools protocol.
//!

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{Scratch, skip_this};

/// The longest time to wait for an answer of the browser, or for an expression in the page to
/// become true. It is far longer than usually needed, because all processors may be busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// A shell command that starts Chromium. Chromium reads requests from descriptor 3, which is the
/// shell's standard input, and writes answers to descriptor 4, the shell's standard output.
const SHELL: &str = "exec \"$0\" \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null";

/// A running Chromium with one page. Dropping this value terminates the browser.
pub struct Browser {
    child: Child,
    requests: Option<ChildStdin>,
    answers: Receiver<Value>,
    session: Option<String>,
    last_id: u64,
    /// The page's console messages and exceptions, entries of the browser's log, and requests to
    /// other addresses than `file:` and `about:`.
    complaints: Vec<String>,
    /// The browser's standard error.
    said: PathBuf,
    _home: Scratch,
}

impl Browser {
    /// Starts Chromium. If Chromium is not installed, reports the calling test as skipped and
    /// returns `None`.
    ///
    /// # Panics
    /// Panics if the browser does not start. All methods that send a request to the browser panic
    /// if it does not answer.
    pub fn start() -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let names = ["chromium", "chromium-browser", "google-chrome"];
        let Some(program) = std::env::split_paths(&path)
            .flat_map(|folder| names.map(|name| folder.join(name)))
            // Some systems have programs with these names that only print how to install the
            // browser.
            .find(|program| program.is_file() && says_its_version(program))
        else {
            skip_this("no browser: install the package chromium");
            return None;
        };
        let home = Scratch::new();
        let said = home.join("stderr");
        let mut child = Command::new("sh")
            .args(["-c", SHELL])
            .arg(program)
            // The sandbox does not work for root, and pages of our own tests do not need it.
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"])
            .args(["--disable-background-networking", "--no-first-run", "--disable-dev-shm-usage"])
            // With these options, the browser reports exact amounts of memory, and pages can call
            // the garbage collector.
            .args(["--enable-precise-memory-info", "--js-flags=--expose-gc"])
            .arg(format!("--user-data-dir={}", home.path().display()))
            .arg("about:blank")
            .env("HOME", home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&said).expect("a file for what it says"))
            .spawn()
            .expect("sh starts");
        let requests = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for message in output.split(0) {
                let Ok(message) = message else { return };
                let Ok(message) = serde_json::from_slice(&message) else { return };
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self {
            child,
            requests,
            answers,
            session: None,
            last_id: 0,
            complaints: Vec::new(),
            said,
            _home: home,
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let wanted = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", wanted);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Calls a method of the DevTools protocol and returns its result.
    ///
    /// # Panics
    /// Panics if the browser reports an error.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last_id += 1;
        let mut request = json!({"id": self.last_id, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            request["sessionId"] = json!(session);
        }
        let pipe = self.requests.as_mut().expect("the pipe is open until the end");
        if let Err(why) = pipe.write_all(format!("{request}\0").as_bytes()) {
            panic!("{method}: the browser does not read ({why}); it said:\n{}", self.said());
        }
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let message = self.answers.recv_timeout(left);
            let message = message.unwrap_or_else(|why| {
                panic!("{method}: no answer ({why}); the browser said:\n{}", self.said())
            });
            if message["id"] == self.last_id {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.listen(&message);
        }
    }

    fn said(&self) -> String {
        let said = std::fs::read(&self.said).unwrap_or_default();
        String::from_utf8_lossy(&said).into_owned()
    }

    fn listen(&mut self, message: &Value) {
        let parameters = &message["params"];
        match message["method"].as_str() {
            Some("Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded") => {
                self.complaints.push(parameters.to_string());
            }
            Some("Network.requestWillBeSent") => {
                let address = parameters["request"]["url"].as_str().unwrap_or_default();
                if !["file:", "about:"].iter().any(|own| address.starts_with(own)) {
                    self.complaints.push(format!("a request to {address}"));
                }
            }
            _ => {}
        }
    }

    /// Returns the complaints since the last call of this function: console messages, exceptions,
    /// entries of the browser's log, and requests to other addresses than `file:` and `about:`.
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
        let answer = self.call(
            "Runtime.evaluate",
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true,
                   "userGesture": true}),
        );
        let thrown = &answer["exceptionDetails"];
        assert!(thrown.is_null(), "{expression}: {thrown}");
        answer["result"]["value"].clone()
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

    /// Loads a file with this fragment (empty, or `#` and a name). The page is loaded anew even if
    /// it is already open.
    pub fn open(&mut self, file: &Path, fragment: &str) {
        self.call("Page.navigate", json!({"url": "about:blank"}));
        self.wait_for("location.href === 'about:blank' && document.readyState === 'complete'");
        let url = format!("file://{}{fragment}", file.display());
        self.call("Page.navigate", json!({"url": url}));
        self.wait_for("location.protocol === 'file:' && document.readyState === 'complete'");
    }

    /// Sets the size of the window in CSS pixels.
    pub fn resize(&mut self, width: u32, height: u32) {
        self.call(
            "Emulation.setDeviceMetricsOverride",
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}),
        );
    }

    /// Sets the colour scheme that the browser reports to the page: `light` or `dark`.
    pub fn scheme(&mut self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// Presses a key. `key` is a character or a name, as in `KeyboardEvent.key`.
    pub fn key(&mut self, key: &str) {
        let mut down = json!({"type": "keyDown", "key": key});
        let code = match key {
            "Enter" => 13,
            "Tab" => 9,
            "Escape" => 27,
            "ArrowUp" => 38,
            "ArrowDown" => 40,
            _ => 0,
        };
        if key.chars().count() == 1 {
            down["text"] = json!(key);
        } else if key == "Enter" {
            down["text"] = json!("\r");
        }
        if code != 0 {
            down["windowsVirtualKeyCode"] = json!(code);
        }
        self.call("Input.dispatchKeyEvent", down.clone());
        down["type"] = json!("keyUp");
        self.call("Input.dispatchKeyEvent", down);
    }

    /// Takes a picture of the page as WebP and returns it in base64. The quality is from 0 to 100.
    pub fn picture(&mut self, quality: u32) -> String {
        let wanted = json!({"format": "webp", "quality": quality});
        let answer = self.call("Page.captureScreenshot", wanted);
        answer["data"].as_str().unwrap_or_default().to_owned()
    }
}

fn says_its_version(program: &Path) -> bool {
    let said = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    said.is_ok_and(|said| said.status.success() && !said.stdout.is_empty())
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends when its pipe is closed.
        self.requests = None;
        let end = Instant::now() + Duration::from_secs(5);
        while Instant::now() < end {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
