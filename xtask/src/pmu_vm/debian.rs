//! Downloads from Debian: QEMU for this machine, and a kernel and libraries for the emulated one.
//!
//! Nothing is installed. apt gets a separate state folder below `target/`, so that it can download
//! packages without `dpkg --add-architecture` and without root. As usual, apt checks the packages
//! against the signed index. For the emulated machine, apt is configured for an arm64 machine on
//! which nothing is installed; package sources without arm64 are skipped. For QEMU, apt uses the
//! list of packages that are installed here, and downloads QEMU and its missing dependencies. QEMU
//! is not installed, because that would need root and could remove packages that conflict with it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::{exists, output, quiet, say};

/// QEMU's program for AArch64, and the Debian package that contains it.
const QEMU: (&str, &str) = ("qemu-system-aarch64", "qemu-system-arm");

/// A metapackage that depends on the newest arm64 kernel of the configured Debian release.
const KERNEL_META: &str = "linux-image-cloud-arm64";

/// Packages with libraries for the guest's dynamically linked programs. The package with PAPI's
/// shared library has a version in its name, so it is looked up as a dependency of [`PAPI`].
const LIBRARIES: &[&str] = &["libc6", "libpfm4", "libpapi-dev"];
const PAPI: &str = "libpapi-dev";

pub struct Debian {
    pub kernel: PathBuf,
    pub root: PathBuf,
}

/// Returns why packages cannot be downloaded, if a necessary program is missing.
pub fn missing() -> Option<String> {
    for program in ["apt-get", "apt-cache", "dpkg-deb"] {
        if !exists(program, &["--version"]) {
            return Some(format!("{program} is missing: its packages come from Debian"));
        }
    }
    None
}

/// Downloads the missing packages.
pub fn fetch(home: &Path) -> Result<Debian> {
    let root = home.join("debian");
    let stamp = home.join("debian.txt");
    let wanted = format!("{KERNEL_META} {}", LIBRARIES.join(" "));
    if std::fs::read_to_string(&stamp).is_ok_and(|text| text == wanted)
        && let Ok(kernel) = kernel(&root)
    {
        return Ok(Debian { kernel, root });
    }
    let apt = Apt::foreign(home)?;
    apt.update()?;
    let mut packages =
        vec![apt.dependency(KERNEL_META, "linux-image-")?, apt.dependency(PAPI, "libpapi")?];
    packages.extend(LIBRARIES.iter().map(ToString::to_string));
    say(format_args!("fetch {} …", packages.join(" ")));
    // If unpacking is interrupted, the stamp must not say that the packages are complete.
    let _ = std::fs::remove_file(&stamp);
    apt.unpack(&packages, &root)?;
    let kernel = kernel(&root)?;
    std::fs::write(&stamp, wanted).with_context(|| format!("write {}", stamp.display()))?;
    Ok(Debian { kernel, root })
}

/// Returns a command that starts the installed QEMU, or else the one below `home`, which is
/// downloaded if necessary.
pub fn emulator(home: &Path) -> Result<Command> {
    if exists(QEMU.0, &["--version"]) {
        return Ok(Command::new(QEMU.0));
    }
    let root = home.join("qemu");
    let start = || {
        let mut command = Command::new(root.join("usr/bin").join(QEMU.0));
        command.arg("-L").arg(root.join("usr/share/qemu"));
        let machine = format!("{}-linux-gnu", std::env::consts::ARCH);
        let [usr, old] = ["usr/lib", "lib"].map(|folder| root.join(folder).join(&machine));
        command.env("LD_LIBRARY_PATH", format!("{}:{}", usr.display(), old.display()));
        command
    };
    let works = || start().arg("--version").output().is_ok_and(|output| output.status.success());
    if !works() {
        let apt = Apt::own(home)?;
        apt.update()?;
        say(format_args!("fetch {} …", QEMU.1));
        apt.unpack_with_dependencies(QEMU.1, &root)?;
        if !works() {
            bail!("{}: does not start: {:?}", root.display(), start().arg("--version").output());
        }
    }
    Ok(start())
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

/// apt with its own folder for lists of packages and downloads.
struct Apt {
    folder: PathBuf,
    /// apt's name of the architecture; `None` for the architecture of this machine.
    machine: Option<&'static str>,
    status: PathBuf,
}

impl Apt {
    /// Makes an apt for an arm64 machine with nothing installed.
    fn foreign(home: &Path) -> Result<Self> {
        let apt = Self::new(home.join("apt"), Some("arm64"), home.join("apt/status"))?;
        std::fs::write(&apt.status, "")
            .with_context(|| format!("write {}", apt.status.display()))?;
        Ok(apt)
    }

    /// Makes an apt that knows which packages are installed on this machine.
    fn own(home: &Path) -> Result<Self> {
        Self::new(home.join("apt-own"), None, "/var/lib/dpkg/status".into())
    }

    fn new(folder: PathBuf, machine: Option<&'static str>, status: PathBuf) -> Result<Self> {
        for below in ["state/lists/partial", "cache/archives/partial"] {
            let path = folder.join(below);
            std::fs::create_dir_all(&path).with_context(|| format!("create {}", path.display()))?;
        }
        Ok(Self { folder, machine, status })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let mut option = |name: &str, value: &str| {
            command.arg("-o").arg(format!("{name}={value}"));
        };
        if let Some(machine) = self.machine {
            option("APT::Architecture", machine);
            option("APT::Architectures", machine);
        }
        option("Acquire::Languages", "none");
        // As root, apt would download as the user `_apt`, who perhaps cannot enter the folder for
        // downloads.
        option("APT::Sandbox::User", "");
        option("Dir::State::status", &self.status.to_string_lossy());
        for (name, below) in [("Dir::State", "state"), ("Dir::Cache", "cache")] {
            option(name, &self.folder.join(below).to_string_lossy());
        }
        // `apt-get download` writes packages into the current folder.
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
        let machine = self.machine.unwrap_or("this machine");
        let what = format!("{program} {} ({machine})", arguments.join(" "));
        output(self.command(program).args(arguments), &what)
    }

    /// Updates the lists of packages. A package source that fails is not an error, because a source
    /// other than Debian's may have no arm64 packages. If Debian's own source fails and there are
    /// no older lists, a later step reports the missing package.
    fn update(&self) -> Result<()> {
        let result = self.command("apt-get").args(["-qq", "update"]).output();
        let result = result.context("start apt-get")?;
        if !result.status.success() {
            eprint!("{}", String::from_utf8_lossy(&result.stderr));
            say("apt-get update failed in part");
        }
        Ok(())
    }

    /// Returns the dependency of `package` whose name begins with `start`.
    fn dependency(&self, package: &str, start: &str) -> Result<String> {
        let depends = self.output("apt-cache", &["depends", package])?;
        let mut names = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
        let name = names.find(|name| name.starts_with(start)).with_context(|| {
            format!("{package} depends on no {start}…; is this Debian? apt-cache said: {depends}")
        })?;
        Ok(name.to_owned())
    }

    fn unpack(&self, names: &[String], root: &Path) -> Result<()> {
        let folder = self.packages();
        renew(&folder)?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.output("apt-get", &[&["-qq", "download"], &names[..]].concat())?;
        let packages = files(&folder)?;
        if packages.len() != names.len() {
            bail!("apt-get downloaded {} packages of {}", packages.len(), names.join(" "));
        }
        extract(&packages, root)?;
        renew(&folder)
    }

    /// Downloads the package `name` and those of its dependencies that this machine lacks, and
    /// unpacks them below `root`.
    fn unpack_with_dependencies(&self, name: &str, root: &Path) -> Result<()> {
        let archives = self.folder.join("cache/archives");
        renew(&archives)?;
        std::fs::create_dir_all(archives.join("partial"))
            .with_context(|| format!("create {}/partial", archives.display()))?;
        // Without this option, apt would lock the machine's database of packages, although this
        // call installs nothing.
        let unlocked = ["-qq", "-o", "Debug::NoLocking=1"];
        let options = ["install", "-y", "--no-install-recommends", "--download-only", name];
        self.output("apt-get", &[&unlocked[..], &options].concat())?;
        let packages: Vec<PathBuf> = files(&archives)?
            .into_iter()
            .filter(|file| file.extension().is_some_and(|end| end == "deb"))
            .collect();
        extract(&packages, root)?;
        renew(&archives)
    }
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("read folder {}", folder.display()))?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}

/// Unpacks packages below `root`, which is emptied first. The packages' installation scripts do not
/// run.
fn extract(packages: &[PathBuf], root: &Path) -> Result<()> {
    renew(root)?;
    for package in packages {
        let mut command = Command::new("dpkg-deb");
        command.arg("--extract").args([package.as_path(), root]);
        quiet(&mut command, &format!("unpack {}", package.display()))?;
    }
    Ok(())
}

/// Empties `folder`, or creates it.
fn renew(folder: &Path) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))
}
