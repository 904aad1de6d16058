//! What comes from Debian: QEMU for this machine, and a kernel and libraries for the emulated one.
//!
//! Packages of the foreign machine are never installed. apt gets a separate state folder, in which
//! the machine is arm64 and nothing is installed. So it needs neither `dpkg --add-architecture` nor
//! root to look up and download packages, which it checks against the signed index as always.
//! `dpkg-deb` unpacks them. Package sources that have nothing for arm64 are skipped.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::{exists, output, quiet, say};

/// The emulator's program and its package.
const QEMU: (&str, &str) = ("qemu-system-aarch64", "qemu-system-arm");

/// The package that depends on the newest kernel of this release.
const KERNEL_META: &str = "linux-image-cloud-arm64";

/// What the guest's dynamic programs load, and PAPI, whose library name contains its version.
const LIBRARIES: &[&str] = &["libc6", "libpfm4", "libpapi-dev"];
const PAPI: &str = "libpapi-dev";

/// What was downloaded.
pub struct Debian {
    /// The kernel's image.
    pub kernel: PathBuf,
    /// The packages, unpacked.
    pub root: PathBuf,
}

/// The reason why downloading is impossible, if there is one.
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

/// Downloads what is missing. If everything exists, this only reads a few files.
pub fn fetch(home: &Path) -> Result<Debian> {
    emulator()?;
    let root = home.join("debian");
    let stamp = home.join("debian.txt");
    let wanted = format!("{KERNEL_META} {}", LIBRARIES.join(" "));
    if std::fs::read_to_string(&stamp).is_ok_and(|text| text == wanted)
        && let Ok(kernel) = kernel(&root)
    {
        return Ok(Debian { kernel, root });
    }
    let apt = Apt::new(home)?;
    apt.update()?;
    let mut packages =
        vec![apt.dependency(KERNEL_META, "linux-image-")?, apt.dependency(PAPI, "libpapi")?];
    packages.extend(LIBRARIES.iter().map(ToString::to_string));
    say(format_args!("fetch {} …", packages.join(" ")));
    // A partly unpacked package must not look like a complete one.
    let _ = std::fs::remove_file(&stamp);
    apt.unpack(&packages, &root)?;
    let kernel = kernel(&root)?;
    std::fs::write(&stamp, wanted).with_context(|| format!("write {}", stamp.display()))?;
    Ok(Debian { kernel, root })
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

/// apt as it would be on an arm64 machine with nothing installed.
struct Apt {
    folder: PathBuf,
}

impl Apt {
    fn new(home: &Path) -> Result<Self> {
        let folder = home.join("apt");
        for below in ["state/lists/partial", "cache/archives/partial"] {
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
        // `download` puts its files into the current folder.
        let packages = self.packages();
        if packages.is_dir() {
            command.current_dir(packages);
        }
        command
    }

    fn packages(&self) -> PathBuf {
        self.folder.join("packages")
    }

    fn output(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let what = format!("{program} {} (arm64)", arguments.join(" "));
        output(self.command(program).args(arguments), &what)
    }

    /// Reads the package lists. A source that fails is not an error, because another vendor's
    /// source may not have arm64. If Debian's own source fails, a package will be missing.
    fn update(&self) -> Result<()> {
        let result = self.command("apt-get").args(["-qq", "update"]).output();
        let result = result.context("start apt-get")?;
        if !result.status.success() {
            eprint!("{}", String::from_utf8_lossy(&result.stderr));
            say("apt-get update (arm64) failed in part");
        }
        Ok(())
    }

    /// The package that `package` depends on and whose name begins with `start`.
    fn dependency(&self, package: &str, start: &str) -> Result<String> {
        let depends = self.output("apt-cache", &["depends", package])?;
        let mut names = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
        let name = names.find(|name| name.starts_with(start)).with_context(|| {
            format!("{package} depends on no {start}…; is this Debian? apt-cache said: {depends}")
        })?;
        Ok(name.to_owned())
    }

    /// Downloads the newest versions of `names` and unpacks them below `root`. Runs none of their
    /// scripts.
    fn unpack(&self, names: &[String], root: &Path) -> Result<()> {
        let folder = self.packages();
        renew(&folder)?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.output("apt-get", &[&["-qq", "download"], &names[..]].concat())?;
        let entries = std::fs::read_dir(&folder)
            .with_context(|| format!("read folder {}", folder.display()))?;
        let packages: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        if packages.len() != names.len() {
            bail!("apt-get downloaded {} packages of {}", packages.len(), names.join(" "));
        }
        renew(root)?;
        for package in &packages {
            let mut command = Command::new("dpkg-deb");
            command.arg("--extract").args([package.as_path(), root]);
            quiet(&mut command, &format!("unpack {}", package.display()))?;
        }
        renew(&folder)
    }
}

/// Makes `folder` an empty folder.
fn renew(folder: &Path) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))
}
