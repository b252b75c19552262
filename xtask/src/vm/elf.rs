//! What a program or library says about the libraries it needs: the few fields of an ELF file (System V ABI, chapters 4
//! and 5) that its loader looks at.

/// What a file needs at run time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Names of shared libraries.
    pub(crate) libraries: Vec<String>,
    /// Path of the loader, in programs.
    pub(crate) loader: Option<String>,
    /// Folders it names itself, in front of the system's; may hold `$ORIGIN`.
    pub(crate) folders: Vec<String>,
}

/// Types of program headers.
const LOAD: u64 = 1;
const DYNAMIC: u64 = 2;
const INTERPRETER: u64 = 3;

/// Tags of the dynamic section.
const END: u64 = 0;
const NEEDED: u64 = 1;
const STRINGS: u64 = 5;
const RPATH: u64 = 15;
const RUNPATH: u64 = 29;

/// A part of the file and where it is in memory.
#[derive(Clone, Copy, Debug)]
struct Segment {
    kind: u64,
    offset: u64,
    address: u64,
    size: u64,
}

/// Reads a 64-bit little-endian ELF file; nothing for any other file, such as a script.
///
/// # Errors
/// One sentence when the file is such an ELF file but damaged.
pub(crate) fn needs(file: &[u8]) -> Result<Option<Needs>, &'static str> {
    if !file.starts_with(b"\x7fELF\x02\x01") {
        return Ok(None);
    }
    read(file).map(Some).ok_or("the ELF file ends before what its headers announce")
}

fn read(file: &[u8]) -> Option<Needs> {
    let segments = segments(file)?;
    let mut needs = Needs::default();
    if let Some(interpreter) = segments.iter().find(|s| s.kind == INTERPRETER) {
        needs.loader = Some(text(file, interpreter.offset)?);
    }
    let Some(dynamic) = segments.iter().find(|s| s.kind == DYNAMIC) else {
        return Some(needs);
    };
    let entries = entries(file, dynamic)?;
    let Some((_, strings)) = entries.iter().find(|(tag, _)| *tag == STRINGS) else {
        return Some(needs);
    };
    let strings = offset_of(&segments, *strings)?;
    for (tag, value) in entries {
        let string = || text(file, strings.checked_add(value)?);
        match tag {
            NEEDED => needs.libraries.push(string()?),
            RPATH | RUNPATH => needs.folders.extend(string()?.split(':').map(str::to_owned)),
            _ => {}
        }
    }
    Some(needs)
}

fn segments(file: &[u8]) -> Option<Vec<Segment>> {
    let (table, size, count) = (number(file, 32, 8)?, number(file, 54, 2)?, number(file, 56, 2)?);
    (0..count)
        .map(|index| {
            let at = table.checked_add(index * size)?;
            let field = |offset, width| number(file, at.checked_add(offset)?, width);
            Some(Segment {
                kind: field(0, 4)?,
                offset: field(8, 8)?,
                address: field(16, 8)?,
                size: field(32, 8)?,
            })
        })
        .collect()
}

/// Tags and values up to the end mark.
fn entries(file: &[u8], dynamic: &Segment) -> Option<Vec<(u64, u64)>> {
    let mut entries = Vec::new();
    for index in 0..dynamic.size / 16 {
        let at = dynamic.offset.checked_add(index * 16)?;
        match number(file, at, 8)? {
            END => break,
            tag => entries.push((tag, number(file, at.checked_add(8)?, 8)?)),
        }
    }
    Some(entries)
}

/// Where in the file an address of the loaded program is.
fn offset_of(segments: &[Segment], address: u64) -> Option<u64> {
    let within = |s: &&Segment| s.kind == LOAD && address.checked_sub(s.address).is_some_and(|d| d < s.size);
    let segment = segments.iter().find(within)?;
    segment.offset.checked_add(address - segment.address)
}

fn number(file: &[u8], at: u64, width: usize) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    let bytes = file.get(at..at.checked_add(width)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// The string that begins at `at` and ends with a zero byte.
fn text(file: &[u8], at: u64) -> Option<String> {
    let rest = file.get(usize::try_from(at).ok()?..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    Some(String::from_utf8_lossy(&rest[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Vec<u8> {
        std::fs::read(std::env::current_exe().unwrap()).unwrap()
    }

    #[test]
    fn a_programs_libraries_and_loader_are_found() {
        let needs = needs(&own()).unwrap().unwrap();
        assert!(needs.libraries.iter().any(|l| l.starts_with("libc.so.")), "{needs:?}");
        assert!(needs.loader.is_some_and(|l| l.contains("ld-linux")));
    }

    #[test]
    fn what_is_no_such_file_needs_nothing() {
        for file in [&b""[..], b"#!/bin/sh\n", b"\x7fELF\x01\x01"] {
            assert_eq!(needs(file), Ok(None));
        }
    }

    #[test]
    fn a_damaged_file_is_told_and_never_a_panic() {
        let mut own = own();
        assert!(needs(&own[..50]).is_err());
        // Program headers far behind the end.
        own[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(needs(&own).is_err());
    }

    #[test]
    fn damage_anywhere_in_the_headers_is_survived() {
        let own = own();
        let head = own[..4096.min(own.len())].to_vec();
        for at in 6..head.len() {
            let mut damaged = head.clone();
            damaged[at] ^= 0xff;
            let _ = needs(&damaged);
        }
    }
}
