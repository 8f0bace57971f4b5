//! A direct implementation of HotSpot's attach protocol: commands to a Java virtual machine without our agent.
//!
//! Data flow: the virtual machine listens on `/tmp/.java_pidN` in its own file system (it was started with
//! `-XX:+StartAttachListener`). Each command is a connection: version, name and three arguments, each ended by a zero
//! byte. The reply is a line with a status (0 means success) and a text up to the end.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// Maximum size of a reply: a histogram of 100,000 classes has 10 MiB.
const MAX_ANSWER_BYTES: u64 = 256 << 20;
/// Collecting a large heap on a busy machine takes a while.
const ANSWER_TIME: Duration = Duration::from_secs(120);

/// A virtual machine that accepts commands.
#[derive(Debug, Clone)]
pub(crate) struct Attached {
    socket: PathBuf,
}

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttachError {
    /// The virtual machine cannot be reached, or has ended.
    #[error("ask the virtual machine at {}", socket.display())]
    Socket {
        /// Its socket.
        socket: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// It refused the command.
    #[error("have the virtual machine run {command}: {answer}")]
    Refused {
        /// The command.
        command: String,
        /// Its reply.
        answer: String,
    },
}

impl Attached {
    /// The virtual machine with this process number in our namespace.
    #[must_use]
    pub(crate) fn to(pid: u32) -> Self {
        let inside = std::fs::read_to_string(format!("/proc/{pid}/status")).ok().and_then(|s| innermost(&s));
        let inside = inside.unwrap_or(pid);
        Self { socket: PathBuf::from(format!("/proc/{pid}/root/tmp/.java_pid{inside}")) }
    }

    /// The reply to a diagnostic command.
    ///
    /// # Errors
    /// When the virtual machine has ended or refuses.
    pub(crate) fn command(&self, command: &str) -> Result<String, AttachError> {
        let answer = self
            .ask(command)
            .map_err(|source| AttachError::Socket { socket: self.socket.clone(), source })?;
        match answer.split_once('\n') {
            Some(("0", text)) => Ok(text.to_owned()),
            _ => Err(AttachError::Refused { command: command.to_owned(), answer: answer.trim().to_owned() }),
        }
    }

    fn ask(&self, command: &str) -> io::Result<String> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(ANSWER_TIME))?;
        stream.set_write_timeout(Some(ANSWER_TIME))?;
        stream.write_all(format!("1\0jcmd\0{command}\0\0\0").as_bytes())?;
        let mut answer = Vec::new();
        stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

/// The number of a process in its own namespace.
fn innermost(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Answers one command and returns what it received.
    fn machine(answer: &'static [u8]) -> (tempfile::TempDir, Attached, std::thread::JoinHandle<Vec<u8>>) {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 28];
            stream.read_exact(&mut asked).unwrap();
            stream.write_all(answer).unwrap();
            asked.to_vec()
        });
        (folder, Attached { socket }, thread)
    }

    #[test]
    fn a_command_is_asked_as_the_protocol_wants_it() {
        let (_folder, attached, thread) = machine(b"0\nTotal 3 72\n");
        assert_eq!(attached.command("GC.class_histogram").unwrap(), "Total 3 72\n");
        assert_eq!(thread.join().unwrap(), b"1\0jcmd\0GC.class_histogram\0\0\0");
    }

    #[test]
    fn a_refusal_and_a_machine_that_is_gone_are_errors() {
        let (_folder, attached, thread) = machine(b"100\njava.lang.IllegalArgumentException\n");
        let why = attached.command("GC.class_histogram").unwrap_err().to_string();
        assert!(why.contains("IllegalArgumentException"), "{why}");
        thread.join().unwrap();
        let why = attached.command("GC.class_histogram").unwrap_err().to_string();
        assert!(why.starts_with("ask the virtual machine at /"), "{why}");
    }

    #[test]
    fn a_process_is_asked_by_the_number_it_has_for_itself() {
        assert_eq!(innermost("Name:\tjava\nNSpid:\t4711\t7\n"), Some(7));
        assert_eq!(innermost("Name:\tjava\nNSpid:\t4711\n"), Some(4711));
        assert_eq!(innermost("Name:\tjava\n"), None);
    }
}
