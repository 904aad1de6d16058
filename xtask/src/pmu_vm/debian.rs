//! What comes from Debian: QEMU for this machine; a kernel and libraries for the emulated one.
//!
//! Packages of the foreign machine are never installed. apt gets a state folder of its own, in
//! which the machine is arm64 and nothing is installed, so that it needs no `dpkg
//! --add-architecture` and no root to look up and download (checked against the signed index as
//! always); `dpkg-deb` unpacks. Sources that have nothing for arm64 are passed over.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::{exists, output, quiet, say};

/// The emulator's program and its package.
const QEMU: (&str, &str) = ("qemu-system-aarch64", "qemu-system-arm");

/// Names what the newest kernel of this release is.
const KERNEL_META: &str = "linux-image-cloud-arm64";

/// What was fetched.
pub struct Debian {
    /// The kernel's image.
    pub kernel: PathBuf,
}

/// What keeps us from fetching, if anything does.
pub fn missing() -> Option<String> {
    for program in ["apt-get", "apt-cache", "dpkg-deb"] {
        if !exists(program, &["--version"]) {
            return Some(format!("{program} is missing: its packages come from Debian"));
        }
    }
    // SAFETY: geteuid has no preconditions and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    if !exists(QEMU.0, &["--version"]) && !root {
        return Some(format!("{} is missing: sudo apt-get install {}", QEMU.0, QEMU.1));
    }
    None
}

/// Makes sure that everything is there. A few file reads when it is.
pub fn fetch(home: &Path) -> Result<Debian> {
    emulator()?;
    let root = home.join("debian");
    let stamp = home.join("debian.txt");
    if std::fs::read_to_string(&stamp).is_ok_and(|text| text == KERNEL_META)
        && let Ok(kernel) = kernel(&root)
    {
        return Ok(Debian { kernel });
    }
    let apt = Apt::new(home)?;
    apt.update()?;
    let depends = apt.output("apt-cache", &["depends", KERNEL_META])?;
    let newest = depends
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|name| name.starts_with("linux-image-"))
        .with_context(|| {
            format!("{KERNEL_META} depends on no kernel; is this Debian? apt-cache said: {depends}")
        })?;
    say(format_args!("fetch {newest} …"));
    if root.exists() {
        std::fs::remove_dir_all(&root).with_context(|| format!("remove {}", root.display()))?;
    }
    for package in apt.download(&[newest])? {
        unpack(&package, &root)?;
    }
    let kernel = kernel(&root)?;
    std::fs::write(&stamp, KERNEL_META).with_context(|| format!("write {}", stamp.display()))?;
    Ok(Debian { kernel })
}

fn emulator() -> Result<()> {
    if exists(QEMU.0, &["--version"]) {
        return Ok(());
    }
    say(format_args!("install the package {} …", QEMU.1));
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").args(arguments);
        command
    };
    let install = ["install", "-y", "--no-install-recommends", QEMU.1];
    if apt(&install).output().is_ok_and(|out| out.status.success()) {
        return Ok(());
    }
    quiet(&mut apt(&["update"]), "apt-get update")?;
    quiet(&mut apt(&install), &format!("apt-get install {}", QEMU.1))
}

fn kernel(root: &Path) -> Result<PathBuf> {
    let boot = root.join("boot");
    let entries =
        std::fs::read_dir(&boot).with_context(|| format!("read folder {}", boot.display()))?;
    let mut images: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("vmlinuz")))
        .collect();
    images.sort();
    images.pop().with_context(|| format!("no kernel in {}", boot.display()))
}

/// Unpacks a package below `root`, without scripts.
fn unpack(package: &Path, root: &Path) -> Result<()> {
    std::fs::create_dir_all(root).with_context(|| format!("create {}", root.display()))?;
    let mut command = Command::new("dpkg-deb");
    command.arg("--extract").args([package, root]);
    quiet(&mut command, &format!("unpack {}", package.display()))
}

/// apt as it would be on an arm64 machine with nothing installed.
struct Apt {
    folder: PathBuf,
}

impl Apt {
    fn new(home: &Path) -> Result<Self> {
        let folder = home.join("apt");
        for below in ["state/lists/partial", "cache/archives/partial", "packages"] {
            let path = folder.join(below);
            std::fs::create_dir_all(&path).with_context(|| format!("create {}", path.display()))?;
        }
        let status = folder.join("status");
        std::fs::write(&status, "").with_context(|| format!("write {}", status.display()))?;
        Ok(Self { folder })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let mut option = |name: &str, value: &str| {
            command.arg("-o").arg(format!("{name}={value}"));
        };
        option("APT::Architecture", "arm64");
        option("APT::Architectures", "arm64");
        option("Acquire::Languages", "none");
        // Downloads go to a folder that the user _apt may not enter.
        option("APT::Sandbox::User", "");
        for (name, below) in
            [("Dir::State", "state"), ("Dir::State::status", "status"), ("Dir::Cache", "cache")]
        {
            option(name, &self.folder.join(below).to_string_lossy());
        }
        command.current_dir(self.folder.join("packages"));
        command
    }

    fn output(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let what = format!("{program} {} (arm64)", arguments.join(" "));
        output(self.command(program).args(arguments), &what)
    }

    /// Reads the package lists. One source that fails is no failure: a source of another vendor
    /// may know no arm64. Debian's own is missed when a package is.
    fn update(&self) -> Result<()> {
        let result = self.command("apt-get").args(["-qq", "update"]).output();
        let result = result.context("start apt-get")?;
        if !result.status.success() {
            eprint!("{}", String::from_utf8_lossy(&result.stderr));
            say("apt-get update (arm64) failed in part");
        }
        Ok(())
    }

    /// The files of `names`, in their newest versions.
    fn download(&self, names: &[&str]) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for name in names {
            let uris = self.output("apt-get", &["-qq", "--print-uris", "download", name])?;
            // 'http://…' linux-image-…_arm64.deb 21347940 SHA256:…
            let file = uris.split_whitespace().nth(1);
            let file = file.with_context(|| format!("apt-get knows no file of {name}: {uris}"))?;
            let path = self.folder.join("packages").join(file);
            self.output("apt-get", &["-qq", "download", name])?;
            if !path.is_file() {
                bail!("apt-get downloaded {name}, but {} is not there", path.display());
            }
            files.push(path);
        }
        Ok(files)
    }
}
