//! The form of a segment, which is one file of the log: a header, then frames, one for each transaction.
//!
//! All integers are little-endian. A header has [`HEADER`] bytes: magic, the segment's id, its salt, the
//! number of its first frame, and the CRC-32 of these fields. A frame is the length of its body (u32), a
//! CRC-32 (u32), its number (u64), the body, and zeros up to a multiple of [`ALIGN`]. Frames are numbered
//! through all segments without a gap.
//!
//! The CRC-32 of a frame covers the salt, which is random for each segment. So neither the earlier content
//! of a recycled file nor a command that imitates a frame is read as a frame.

use super::record::Malformed;
use std::ops::Range;

/// Size of a segment in bytes, unless one frame needs more.
pub(super) const SEGMENT: u64 = 4 * 1024 * 1024;
/// Size of a segment's header in bytes.
pub(super) const HEADER: usize = 40;
/// Size of a frame's head in bytes.
const HEAD: usize = 16;
/// Frames begin at multiples of this number.
const ALIGN: usize = 8;
const MAGIC: [u8; 8] = *b"CVNLOG01";

/// The facts in a segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) id: u64,
    pub(super) salt: u64,
    /// The number of the first frame.
    pub(super) first: u64,
}

/// A frame within the bytes of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) number: u64,
    pub(super) body: Range<usize>,
}

impl Header {
    pub(super) fn encode(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER);
        bytes.extend_from_slice(&MAGIC);
        for part in [self.id, self.salt, self.first] {
            bytes.extend_from_slice(&part.to_le_bytes());
        }
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        bytes.resize(HEADER, 0);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (Some(checked), Some(crc)) = (bytes.get(..32), u32_at(bytes, 32)) else {
            return Err(Malformed::Header);
        };
        if !checked.starts_with(&MAGIC) || crc32fast::hash(checked) != crc {
            return Err(Malformed::Header);
        }
        let part = |at| u64_at(bytes, at).ok_or(Malformed::Header);
        Ok(Self { id: part(8)?, salt: part(16)?, first: part(24)? })
    }
}

/// Returns the number of bytes that a frame with this body needs.
pub(super) fn frame_size(body: usize) -> usize {
    (HEAD + body).next_multiple_of(ALIGN)
}

/// Returns the buffer of a frame without its head; the caller appends the body.
pub(super) fn begin_frame(capacity: usize) -> Vec<u8> {
    let mut frame = Vec::with_capacity(frame_size(capacity));
    frame.resize(HEAD, 0);
    frame
}

/// Writes the head of a frame whose body is complete. Fails if the body is too long for a frame.
pub(super) fn end_frame(frame: &mut Vec<u8>, salt: u64, number: u64) -> Result<(), Malformed> {
    let length = u32::try_from(frame.len() - HEAD).map_err(|_| Malformed::TooLong)?;
    let crc = checksum(salt, number, &frame[HEAD..]);
    frame[..4].copy_from_slice(&length.to_le_bytes());
    frame[4..8].copy_from_slice(&crc.to_le_bytes());
    frame[8..HEAD].copy_from_slice(&number.to_le_bytes());
    frame.resize(frame.len().next_multiple_of(ALIGN), 0);
    Ok(())
}

/// Returns the offset of the body in the buffer of a frame.
pub(super) const fn body_offset() -> usize {
    HEAD
}

/// Returns the frame at an offset in a segment's bytes, if one with this number is complete there.
pub(super) fn frame_at(bytes: &[u8], offset: usize, salt: u64, number: u64) -> Option<Frame> {
    let length = usize::try_from(u32_at(bytes, offset)?).ok()?;
    let body = offset + HEAD..(offset + HEAD).checked_add(length)?;
    if length == 0 || u64_at(bytes, offset + 8)? != number {
        return None;
    }
    let intact = checksum(salt, number, bytes.get(body.clone())?) == u32_at(bytes, offset + 4)?;
    intact.then_some(Frame { number, body })
}

/// Returns whether a complete frame with a later number follows. Such a frame proves that the frame at the
/// offset was flushed: a frame is written only after the frame before it is durable.
pub(super) fn has_later_frame(bytes: &[u8], offset: usize, salt: u64, number: u64) -> bool {
    let most = number + (bytes.len() / ALIGN) as u64;
    (offset..bytes.len()).step_by(ALIGN).any(|at| match u64_at(bytes, at + 8) {
        Some(later) if later > number && later <= most => frame_at(bytes, at, salt, later).is_some(),
        _ => false,
    })
}

/// Returns the offset after a frame.
pub(super) fn after(frame: &Frame) -> usize {
    frame.body.end.next_multiple_of(ALIGN)
}

fn checksum(salt: u64, number: u64, body: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&salt.to_le_bytes());
    crc.update(&number.to_le_bytes());
    crc.update(&(body.len() as u64).to_le_bytes());
    crc.update(body);
    crc.finalize()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at.checked_add(8)?)?.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(salt: u64, number: u64, body: &[u8]) -> Vec<u8> {
        let mut frame = begin_frame(body.len());
        frame.extend_from_slice(body);
        end_frame(&mut frame, salt, number).unwrap();
        frame
    }

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let header = Header { id: 3, salt: 99, first: 1000 };
        let bytes = header.encode();
        assert_eq!(bytes.len(), HEADER);
        assert_eq!(Header::decode(&bytes), Ok(header));
        for at in 0..36 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert_eq!(Header::decode(&damaged), Err(Malformed::Header), "byte {at}");
        }
    }

    #[test]
    fn a_frame_needs_its_number_its_salt_and_all_its_bytes() {
        let bytes = frame(7, 12, b"content");
        assert_eq!(bytes.len(), frame_size(7));
        let found = frame_at(&bytes, 0, 7, 12).unwrap();
        assert_eq!(&bytes[found.body.clone()], b"content");
        assert_eq!(after(&found), bytes.len());
        assert_eq!(frame_at(&bytes, 0, 7, 11), None);
        assert_eq!(frame_at(&bytes, 0, 8, 12), None);
        assert_eq!(frame_at(&bytes[..bytes.len() - 4], 0, 7, 12), None);
        for at in 0..found.body.end {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(frame_at(&damaged, 0, 7, 12), None, "byte {at}");
        }
    }

    #[test]
    fn a_frame_behind_a_damaged_one_is_found() {
        let mut bytes = frame(7, 1, &[1; 100]);
        let torn = bytes.len();
        bytes.extend(frame(7, 2, &[2; 50]));
        let intact = bytes.clone();
        bytes[20] ^= 1;
        assert!(has_later_frame(&bytes, 0, 7, 1));
        assert!(!has_later_frame(&bytes, 0, 8, 1));
        assert!(!has_later_frame(&intact[..torn], 0, 7, 1));
        // The earlier content of a recycled file has smaller numbers.
        assert!(!has_later_frame(&bytes, 0, 7, 2));
    }
}
