//! The archive format of an initial file system: "newc" cpio, as the kernel's `Documentation/driver-api/early-userspace/
//! buffer-format.rst` describes it. Several archives one behind the other unpack as one; a later one wins.

use std::io::{self, Write};

/// Archives are padded to this many bytes, so that the next one begins where the kernel looks for it (any multiple of 4).
pub(crate) const BLOCK: usize = 512;

/// File type bits of a mode.
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const CHARACTER: u32 = 0o020_000;

/// Writes one archive.
#[derive(Debug)]
pub(crate) struct Archive<W> {
    out: W,
    written: usize,
    entries: u32,
}

/// What one entry's header says beyond its name.
#[derive(Clone, Copy, Debug, Default)]
struct Header {
    mode: u32,
    device: (u32, u32),
}

impl<W: Write> Archive<W> {
    /// An archive with nothing in it yet.
    pub(crate) fn new(out: W) -> Self {
        Self { out, written: 0, entries: 0 }
    }

    /// A folder; those above it must have been added before it. `path` has no leading slash.
    pub(crate) fn directory(&mut self, path: &str, permissions: u32) -> io::Result<()> {
        self.entry(path, Header { mode: DIRECTORY | permissions, ..Header::default() }, &[])
    }

    /// A file.
    pub(crate) fn file(&mut self, path: &str, permissions: u32, content: &[u8]) -> io::Result<()> {
        self.entry(path, Header { mode: REGULAR | permissions, ..Header::default() }, content)
    }

    /// A symbolic link.
    pub(crate) fn symlink(&mut self, path: &str, target: &str) -> io::Result<()> {
        self.entry(path, Header { mode: SYMLINK | 0o777, ..Header::default() }, target.as_bytes())
    }

    /// A character device by its major and minor number.
    pub(crate) fn device(&mut self, path: &str, permissions: u32, device: (u32, u32)) -> io::Result<()> {
        self.entry(path, Header { mode: CHARACTER | permissions, device }, &[])
    }

    /// Ends the archive and gives back what it was written to.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.entry("TRAILER!!!", Header::default(), &[])?;
        self.pad(BLOCK)?;
        Ok(self.out)
    }

    fn entry(&mut self, path: &str, header: Header, content: &[u8]) -> io::Result<()> {
        self.entries += 1;
        let size = |bytes: usize| {
            u32::try_from(bytes)
                .map_err(|_| io::Error::other(format!("{path}: larger than the format allows")))
        };
        // inode, mode, user, group, links, time, size, the device the file is on, the device it is, name, checksum
        let fields = [
            self.entries,
            header.mode,
            0,
            0,
            1,
            0,
            size(content.len())?,
            0,
            0,
            header.device.0,
            header.device.1,
            size(path.len() + 1)?,
            0,
        ];
        let mut head = String::from("070701");
        for field in fields {
            head.push_str(&format!("{field:08x}"));
        }
        self.put(head.as_bytes())?;
        self.put(path.as_bytes())?;
        self.put(&[0])?;
        self.pad(4)?;
        self.put(content)?;
        self.pad(4)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len();
        self.out.write_all(bytes)
    }

    fn pad(&mut self, block: usize) -> io::Result<()> {
        let missing = self.written.next_multiple_of(block) - self.written;
        self.put(&vec![0; missing])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_header_name_and_content_each_padded() {
        let mut archive = Archive::new(Vec::new());
        archive.file("a/b", 0o755, b"hello").unwrap();
        let expected = concat!(
            "070701",
            "00000001",
            "000081ed",
            "00000000",
            "00000000",
            "00000001",
            "00000000",
            "00000005",
            "00000000",
            "00000000",
            "00000000",
            "00000000",
            "00000004",
            "00000000",
            "a/b\0\0\0",
            "hello\0\0\0"
        );
        assert_eq!(String::from_utf8(archive.out).unwrap(), expected);
    }

    #[test]
    fn an_archive_ends_with_a_trailer_on_a_whole_block() {
        let mut archive = Archive::new(Vec::new());
        archive.directory("a", 0o755).unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(bytes.len() % BLOCK, 0);
        assert!(String::from_utf8(bytes).unwrap().trim_end_matches('\0').ends_with("TRAILER!!!"));
    }

    #[test]
    fn types_links_and_devices_are_in_the_mode() {
        let mut archive = Archive::new(Vec::new());
        archive.device("dev/console", 0o600, (5, 1)).unwrap();
        archive.symlink("bin", "usr/bin").unwrap();
        let text = String::from_utf8(archive.out).unwrap();
        assert_eq!(&text[14..22], "00002180");
        assert_eq!(&text[78..94], "0000000500000001");
        assert!(text.contains("0000a1ff") && text.contains("bin\0\0\0usr/bin"), "{text:?}");
    }
}
