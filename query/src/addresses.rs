//! Parses the addresses of the programs of a cluster, and defines the arguments of these programs.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::engine;

/// The address of a scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// A host name or an IP address. An IPv6 address is in brackets.
    pub host: String,
    pub port: u16,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Parses HOST:PORT.
pub fn place(text: &str) -> Result<Place, String> {
    let of = |text: &str| {
        let (host, port) = text.rsplit_once(':')?;
        let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_host = match in_brackets {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => {
                let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
                !host.is_empty() && host.chars().all(known)
            }
        };
        let port = port.parse::<u16>().ok().filter(|port| *port > 0)?;
        is_host.then(|| Place { host: host.to_owned(), port })
    };
    of(text).ok_or_else(|| "not HOST:PORT, such as 127.0.0.1:50050".to_owned())
}

/// Parses `ballista://HOST:PORT`.
pub fn engine(text: &str) -> Result<Place, String> {
    let unknown = || "not an engine: the only one is ballista://HOST:PORT".to_owned();
    place(text.strip_prefix("ballista://").ok_or_else(unknown)?)
}

/// Parses the address on which the scheduler or an executor listens. The other programs of the
/// cluster connect to this address, so it must not be the unspecified address (`0.0.0.0` or
/// `[::]`).
pub fn bind(text: &str) -> Result<SocketAddr, String> {
    let address =
        text.parse::<SocketAddr>().map_err(|_| "not ADDRESS:PORT, such as 127.0.0.1:0")?;
    match address.ip().is_unspecified() {
        true => {
            Err("name the address of one network interface, because the others are told it".into())
        }
        false => Ok(address),
    }
}

/// The programs of a cluster.
#[derive(clap::Subcommand)]
pub enum Program {
    /// Run the scheduler of a cluster, which divides queries among executors (needs the feature ballista).
    Scheduler(Scheduler),
    /// Run an executor of a cluster, which does the work of queries (needs the feature ballista).
    Executor(Executor),
}

/// Run the scheduler of a cluster until it is killed.
///
/// Whoever reaches its port can run queries with the rights of the executors. By default, only programs on
/// this machine reach it.
#[derive(clap::Args)]
pub struct Scheduler {
    /// Address and port to listen on. With port 0, a free one is taken and printed.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = bind, default_value = "127.0.0.1:50050")]
    pub bind: SocketAddr,
}

/// Run an executor of a cluster until it is killed.
///
/// It runs what anybody sends who reaches its ports, and trusts them. By default, only programs on this
/// machine reach it. The files of datasets must be there under the same path as for who asks.
#[derive(clap::Args)]
pub struct Executor {
    /// The scheduler.
    #[arg(long, value_name = "HOST:PORT", value_parser = place, default_value = "127.0.0.1:50050")]
    pub scheduler: Place,
    /// Address and port to listen on; the port after it is taken as well. With port 0, two free ones are
    /// taken.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = bind, default_value = "127.0.0.1:0")]
    pub bind: SocketAddr,
    /// Threads.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Memory for sorting, joining and grouping, for example 4G. Without it, 70 % of this machine's.
    #[arg(long, value_name = "SIZE", value_parser = engine::size)]
    pub memory: Option<usize>,
    /// Folder for what tasks hand on to each other. A folder of its own is made there.
    #[arg(long, value_name = "DIR")]
    pub work_dir: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_or_refused() {
        let of = |host: &str, port| Ok(Place { host: host.to_owned(), port });
        assert_eq!(engine("ballista://node-1.lan:80"), of("node-1.lan", 80));
        assert_eq!(place("[::1]:9"), of("[::1]", 9));
        for text in
            ["", "a", "a:", ":1", "a:0", "a:70000", "::1:9", "[a]:9", "a b:1", "u@h:1", "a/b:1"]
        {
            assert!(place(text).is_err(), "{text}");
        }
        for text in ["http://a:1", "a:1", "ballista://a", "ballista://a:1/x"] {
            assert!(engine(text).is_err(), "{text}");
        }
        assert!(bind("127.0.0.1:0").is_ok() && bind("[::1]:1").is_ok());
        for text in ["0.0.0.0:1", "[::]:1", "localhost:1", "127.0.0.1"] {
            assert!(bind(text).is_err(), "{text}");
        }
    }
}
