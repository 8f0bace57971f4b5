//! The device's side of the `sync:` service.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;

use super::StandIn;
use super::files::{Who, canonical, words};
use super::transport::Channel;

const PIECE_BYTES: usize = 64 << 10;

struct Sync<'a> {
    device: &'a StandIn,
    channel: &'a Channel,
    came: Vec<u8>,
}

/// Serves requests until the client disconnects or quits.
pub(super) fn serve(device: &StandIn, channel: &Arc<Channel>) -> io::Result<()> {
    let mut sync = Sync { device, channel, came: Vec::new() };
    loop {
        let letters: [u8; 4] = sync.array()?;
        let length = sync.number()? as usize;
        if &letters == b"QUIT" {
            return Ok(());
        }
        if length > 1024 {
            return sync.fail("path too long");
        }
        let path = sync.bytes(length)?;
        match &letters {
            b"STAT" => sync.stat(&path)?,
            b"STA2" => sync.stat_v2(b"STA2", &path, fs::metadata)?,
            b"LST2" => sync.stat_v2(b"LST2", &path, fs::symlink_metadata)?,
            b"LIST" => sync.list(&path, b"DENT")?,
            b"LIS2" => sync.list(&path, b"DNT2")?,
            b"SEND" => {
                let text = String::from_utf8_lossy(&path).into_owned();
                let (path, mode) = text.rsplit_once(',').unwrap_or((&text, "420"));
                sync.receive_file(path, mode.parse().unwrap_or(0o644))?;
            }
            b"SND2" => {
                let [_, mode, _flags]: [u32; 3] = [sync.number()?, sync.number()?, sync.number()?];
                sync.receive_file(&String::from_utf8_lossy(&path), mode)?;
            }
            b"RECV" => sync.send_file(&path)?,
            b"RCV2" => {
                let [_, _flags] = [sync.number()?, sync.number()?];
                sync.send_file(&path)?;
            }
            letters => {
                sync.device.not_known(&format!("sync {}", letters.escape_ascii()));
                return sync.fail("unknown command");
            }
        }
    }
}

impl Sync<'_> {
    fn bytes(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.came.len() < length {
            let piece = self.channel.read()?.ok_or(io::ErrorKind::UnexpectedEof)?;
            self.came.extend(piece);
        }
        let rest = self.came.split_off(length);
        Ok(std::mem::replace(&mut self.came, rest))
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(&self.bytes(N)?);
        Ok(array)
    }

    fn number(&mut self) -> io::Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn say(&self, letters: &[u8; 4], bytes: &[u8]) -> io::Result<()> {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.channel.write(&[letters, &length.to_le_bytes()[..], bytes].concat())
    }

    fn fail(&self, why: &str) -> io::Result<()> {
        self.say(b"FAIL", why.as_bytes())
    }

    fn readable(&self, path: &[u8]) -> io::Result<std::path::PathBuf> {
        self.device.inner.files.readable(&Who::Shell, &canonical("/", &String::from_utf8_lossy(path)))
    }

    fn stat(&self, path: &[u8]) -> io::Result<()> {
        let about = self.readable(path).and_then(fs::symlink_metadata);
        self.channel.write(&[b"STAT".to_vec(), short(about.ok().as_ref())].concat())
    }

    fn stat_v2(
        &self,
        letters: &[u8; 4],
        path: &[u8],
        look: fn(std::path::PathBuf) -> io::Result<fs::Metadata>,
    ) -> io::Result<()> {
        let about = self.readable(path).and_then(look);
        self.channel.write(&[letters.to_vec(), long(about.as_ref())].concat())
    }

    fn list(&self, path: &[u8], letters: &[u8; 4]) -> io::Result<()> {
        let about = |meta: Option<&fs::Metadata>| {
            if letters == b"DENT" { short(meta) } else { long(meta.ok_or(&io::ErrorKind::NotFound.into())) }
        };
        let folder = self.readable(path)?;
        let mut entries: Vec<_> =
            fs::read_dir(&folder).into_iter().flatten().filter_map(Result::ok).collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        let mut names: Vec<(Vec<u8>, Option<fs::Metadata>)> =
            [".", ".."].map(|name| (name.into(), fs::metadata(&folder).ok())).into();
        names.extend(
            entries.iter().map(|entry| (entry.file_name().as_bytes().to_vec(), entry.metadata().ok())),
        );
        for (name, meta) in names.iter().filter(|_| folder.is_dir()) {
            let length = u32::try_from(name.len()).unwrap_or(u32::MAX).to_le_bytes();
            self.channel
                .write(&[letters.to_vec(), about(meta.as_ref()), length.to_vec(), name.clone()].concat())?;
        }
        let zeros = about(None).len() + 4;
        self.channel.write(&[b"DONE".to_vec(), vec![0; zeros]].concat())
    }

    fn receive_file(&mut self, path: &str, mode: u32) -> io::Result<()> {
        let path = canonical("/", path);
        let target = self.device.inner.files.writable(&Who::Shell, &path);
        let mut written = target.and_then(|target| {
            fs::create_dir_all(target.parent().unwrap_or(self.device.root()))?;
            fs::File::create(&target).map(|file| (target, file))
        });
        loop {
            let part = self.array::<4>().and_then(|letters| Ok((letters, self.number()?)));
            let piece = match part {
                Ok((letters, _)) if &letters == b"DONE" => break,
                Ok((_, length)) => self.bytes(length as usize),
                Err(why) => Err(why),
            };
            match (piece, &mut written) {
                (Ok(piece), Ok((_, file))) => {
                    file.write_all(&piece)?;
                }
                (Ok(_), Err(_)) => {}
                (Err(why), written) => {
                    // An incomplete file: adbd removes it.
                    if let Ok((target, _)) = written {
                        fs::remove_file(target)?;
                    }
                    return Err(why);
                }
            }
        }
        match written {
            Ok((target, _)) => {
                fs::set_permissions(target, fs::Permissions::from_mode(mode & 0o777))?;
                self.say(b"OKAY", b"")
            }
            Err(why) => self.fail(&format!("couldn't create file: {}", words(&why))),
        }
    }

    fn send_file(&self, path: &[u8]) -> io::Result<()> {
        let opened = self.readable(path).and_then(|path| {
            if path.is_dir() { Err(io::ErrorKind::IsADirectory.into()) } else { fs::File::open(path) }
        });
        let mut file = match opened {
            Ok(file) => file,
            Err(why) => return self.fail(&format!("failed to open file: {}", words(&why))),
        };
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            match file.read(&mut piece)? {
                0 => return self.say(b"DONE", b""),
                got => self.say(b"DATA", &piece[..got])?,
            }
        }
    }
}

/// Mode, size and time; all 0 if the file does not exist.
fn short(about: Option<&fs::Metadata>) -> Vec<u8> {
    let [mode, size, time] = about.map_or([0; 3], |about| {
        let low = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
        [about.mode(), u32::try_from(about.size()).unwrap_or(u32::MAX), low(about.mtime())]
    });
    [mode, size, time].map(u32::to_le_bytes).concat()
}

/// The longer form, 68 bytes after the letters.
fn long(about: Result<&fs::Metadata, &io::Error>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let Ok(about) = about else {
        let denied = about.is_err_and(|why| why.kind() == io::ErrorKind::PermissionDenied);
        let error: u32 = if denied { 13 } else { 2 };
        bytes.extend(error.to_le_bytes());
        bytes.resize(68, 0);
        return bytes;
    };
    bytes.extend([0; 4]);
    bytes.extend(about.dev().to_le_bytes());
    bytes.extend(about.ino().to_le_bytes());
    let links = u32::try_from(about.nlink()).unwrap_or(1);
    bytes.extend([about.mode(), links, about.uid(), about.gid()].map(u32::to_le_bytes).concat());
    bytes.extend(about.size().to_le_bytes());
    bytes.extend([about.atime(), about.mtime(), about.ctime()].map(i64::to_le_bytes).concat());
    bytes
}
