//! Frames between a test and the helper in a machine, the same in both directions.
//!
//! A frame is the mark, the length of the rest as 32 bits, the id of the request, a code, and parts, each
//! with its length. The code of a request is its kind, and the code of a response is the exit code. Numbers
//! are little-endian.

use std::io::{self, ErrorKind, Read, Write};

/// The name of the channel's port.
pub const PORT: &str = "caravan.guest";

/// A request to run a program. Parts: standard input, program, arguments. Response: standard output, standard error.
pub const RUN: i32 = 1;
/// A request to write a file in one step. Parts: path, mode in octal digits, content.
pub const PUT: i32 = 2;
/// A request to read a file. Part: path. Response: content.
pub const GET: i32 = 3;
/// A request to send bytes to a TCP address and to read until the end. Parts: address, bytes. Response: bytes.
pub const DIAL: i32 = 4;

/// The code of a response without a result of a program: its first part is the reason.
pub const FAILED: i32 = i32::MIN;

/// The mark by which a reader finds the next frame after a connection that broke within a frame.
const MARK: [u8; 4] = *b"\x00CvM";
/// The maximum length of a valid frame.
const MAX_LENGTH: usize = 1 << 30;

/// A request or a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The id of the request, which its response repeats.
    pub id: u32,
    /// The kind of a request, or the exit code.
    pub code: i32,
    /// The content.
    pub parts: Vec<Vec<u8>>,
}

impl Frame {
    /// Writes the frame in one write.
    ///
    /// # Errors
    /// Fails as the writer fails, and for a frame of more than a gibibyte.
    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        let length = 8 + self.parts.iter().map(|part| 4 + part.len()).sum::<usize>();
        let number = |n: usize| u32::try_from(n).map(u32::to_le_bytes).map_err(io::Error::other);
        if length > MAX_LENGTH {
            return Err(io::Error::new(ErrorKind::InvalidInput, "a frame of more than a gibibyte"));
        }
        let mut bytes = Vec::with_capacity(length + 8);
        bytes.extend(MARK);
        bytes.extend(number(length)?);
        bytes.extend(self.id.to_le_bytes());
        bytes.extend(self.code.to_le_bytes());
        for part in &self.parts {
            bytes.extend(number(part.len())?);
            bytes.extend(part);
        }
        out.write_all(&bytes)?;
        out.flush()
    }

    /// Reads the next frame, and skips bytes before its mark.
    ///
    /// # Errors
    /// Fails at the end of the input, and for a frame whose lengths disagree.
    pub fn read_from(input: &mut impl Read) -> io::Result<Self> {
        let mut window = [0_u8; 4];
        input.read_exact(&mut window)?;
        while window != MARK {
            window.rotate_left(1);
            input.read_exact(&mut window[3..])?;
        }
        let mut length = [0_u8; 4];
        input.read_exact(&mut length)?;
        let length = usize::try_from(u32::from_le_bytes(length)).map_err(io::Error::other)?;
        if !(8..=MAX_LENGTH).contains(&length) {
            return Err(broken());
        }
        let mut bytes = vec![0; length];
        input.read_exact(&mut bytes)?;
        let mut rest = bytes.as_slice();
        let id = u32::from_le_bytes(take(&mut rest)?);
        let code = i32::from_le_bytes(take(&mut rest)?);
        let mut parts = Vec::new();
        while !rest.is_empty() {
            let length = usize::try_from(u32::from_le_bytes(take(&mut rest)?)).map_err(io::Error::other)?;
            let (part, after) = rest.split_at_checked(length).ok_or_else(broken)?;
            parts.push(part.to_vec());
            rest = after;
        }
        Ok(Self { id, code, parts })
    }
}

fn take(rest: &mut &[u8]) -> io::Result<[u8; 4]> {
    let (number, after) = rest.split_first_chunk().ok_or_else(broken)?;
    *rest = after;
    Ok(*number)
}

fn broken() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "a frame whose lengths disagree")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_they_were_written() {
        let frames = [
            Frame { id: 1, code: RUN, parts: vec![b"in".to_vec(), Vec::new(), vec![0; 70_000]] },
            Frame { id: u32::MAX, code: FAILED, parts: Vec::new() },
        ];
        let mut bytes = Vec::new();
        for frame in &frames {
            frame.write_to(&mut bytes).unwrap();
        }
        let mut input = bytes.as_slice();
        for frame in &frames {
            assert_eq!(Frame::read_from(&mut input).unwrap(), *frame);
        }
        assert_eq!(Frame::read_from(&mut input).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn the_rest_of_a_broken_frame_is_skipped() {
        let frame = Frame { id: 7, code: GET, parts: vec![b"/etc/passwd".to_vec()] };
        let mut bytes = b"rest\x00Cv".to_vec();
        frame.write_to(&mut bytes).unwrap();
        assert_eq!(Frame::read_from(&mut bytes.as_slice()).unwrap(), frame);
    }

    #[test]
    fn lengths_that_disagree_are_refused() {
        let mut bytes = Vec::new();
        Frame { id: 7, code: GET, parts: vec![b"abc".to_vec()] }.write_to(&mut bytes).unwrap();
        bytes[16] = 4;
        assert_eq!(Frame::read_from(&mut bytes.as_slice()).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
