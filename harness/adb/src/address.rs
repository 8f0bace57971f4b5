//! Where an adb server listens, by adb's own environment variables.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;

use tokio::net::{TcpStream, UnixStream};

use super::AdbError;
use super::duplex::Duplex;

/// adb's default.
const DEFAULT_PORT: u16 = 5037;

/// Where an adb server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A port, usually of this machine.
    Tcp {
        /// `localhost`.
        host: String,
        /// 5037.
        port: u16,
    },
    /// A Unix socket with an abstract name.
    Abstract(String),
    /// A Unix socket with a path.
    File(PathBuf),
}

impl Default for Address {
    fn default() -> Self {
        Self::Tcp { host: "localhost".to_owned(), port: DEFAULT_PORT }
    }
}

impl Address {
    /// The address as adb finds it: from `ADB_SERVER_SOCKET`, else from `ANDROID_ADB_SERVER_ADDRESS` and
    /// `ANDROID_ADB_SERVER_PORT`.
    pub(super) fn of(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, AdbError> {
        let text = |name: &str| {
            variable(name).map(|value| value.to_string_lossy().into_owned()).filter(|value| !value.is_empty())
        };
        if let Some(socket) = text("ADB_SERVER_SOCKET") {
            return socket.parse();
        }
        let (host, port) = (text("ANDROID_ADB_SERVER_ADDRESS"), text("ANDROID_ADB_SERVER_PORT"));
        let host = host.unwrap_or_else(|| "localhost".to_owned());
        let port = match port {
            None => DEFAULT_PORT,
            Some(port) => match port.parse() {
                Ok(port @ 1..) => port,
                _ => return Err(AdbError::Address(format!("tcp:{host}:{port}"))),
            },
        };
        Ok(Self::Tcp { host, port })
    }

    /// Can this program start a server there? It cannot on other machines.
    pub(super) fn is_here(&self) -> bool {
        match self {
            Self::Tcp { host, .. } => ["localhost", "127.0.0.1", "::1"].contains(&host.as_str()),
            Self::Abstract(_) | Self::File(_) => true,
        }
    }

    /// The form for `adb -L`, which mistakes a numeric address of this machine for another machine.
    pub(super) fn for_program(&self) -> String {
        match self {
            Self::Tcp { port, .. } if self.is_here() => format!("tcp:{port}"),
            other => other.to_string(),
        }
    }

    pub(super) async fn connect(&self) -> io::Result<Box<dyn Duplex>> {
        Ok(match self {
            Self::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
            Self::Abstract(name) => Box::new(UnixStream::connect(format!("\0{name}")).await?),
            Self::File(path) => Box::new(UnixStream::connect(path).await?),
        })
    }
}

impl FromStr for Address {
    type Err = AdbError;

    fn from_str(text: &str) -> Result<Self, AdbError> {
        let wrong = || AdbError::Address(text.to_owned());
        if let Some(rest) = text.strip_prefix("tcp:") {
            let (host, port) = rest.rsplit_once(':').unwrap_or(("localhost", rest));
            let host = host.trim_matches(['[', ']']).to_owned();
            return match port.parse() {
                Ok(port @ 1..) if !host.is_empty() => Ok(Self::Tcp { host, port }),
                _ => Err(wrong()),
            };
        }
        if let Some(name) = text.strip_prefix("localabstract:").filter(|name| !name.is_empty()) {
            return Ok(Self::Abstract(name.to_owned()));
        }
        if let Some(path) = text.strip_prefix("localfilesystem:").filter(|path| path.starts_with('/')) {
            return Ok(Self::File(path.into()));
        }
        Err(wrong())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "tcp:{host}:{port}"),
            Self::Abstract(name) => write!(f, "localabstract:{name}"),
            Self::File(path) => write!(f, "localfilesystem:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_adb_reads_them() {
        let tcp = |host: &str, port| Address::Tcp { host: host.into(), port };
        for (text, want, program) in [
            ("tcp:15037", tcp("localhost", 15037), "tcp:15037"),
            ("tcp:127.0.0.1:15037", tcp("127.0.0.1", 15037), "tcp:15037"),
            ("tcp:ci.example:1", tcp("ci.example", 1), "tcp:ci.example:1"),
            ("tcp:[::1]:1", tcp("::1", 1), "tcp:1"),
            ("localabstract:x", Address::Abstract("x".into()), "localabstract:x"),
            ("localfilesystem:/r/s", Address::File("/r/s".into()), "localfilesystem:/r/s"),
        ] {
            let read: Address = text.parse().unwrap();
            assert_eq!((&read, read.for_program().as_str()), (&want, program));
        }
        for wrong in
            ["", "tcp:", "tcp:0", "tcp:65536", "tcp::5", "unix:/x", "localabstract:", "localfilesystem:x"]
        {
            assert!(wrong.parse::<Address>().unwrap_err().to_string().contains(wrong));
        }
    }

    #[test]
    fn the_socket_wins_over_address_and_port() {
        let of = |set: &[(&str, &str)]| {
            let set: Vec<(String, OsString)> = set.iter().map(|(n, v)| ((*n).into(), v.into())).collect();
            Address::of(|name| set.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone()))
                .map(|a| a.to_string())
        };
        assert_eq!(of(&[]).unwrap(), "tcp:localhost:5037");
        assert_eq!(of(&[("ANDROID_ADB_SERVER_PORT", "15037")]).unwrap(), "tcp:localhost:15037");
        assert_eq!(
            of(&[("ANDROID_ADB_SERVER_ADDRESS", "h"), ("ADB_SERVER_SOCKET", "")]).unwrap(),
            "tcp:h:5037"
        );
        assert_eq!(
            of(&[("ANDROID_ADB_SERVER_PORT", "1"), ("ADB_SERVER_SOCKET", "localabstract:x")]).unwrap(),
            "localabstract:x"
        );
        assert!(of(&[("ANDROID_ADB_SERVER_PORT", "many")]).is_err());
    }
}
