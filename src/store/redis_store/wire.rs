//! The server's wire format, RESP2: commands out, replies in.
//!
//! A reader of our own, because a claim's reply is a few bytes and the client library's costs more than the claim.

use std::io::Read;

use super::failure::Failure;

/// Size of the buffer that replies are read into.
const BUFFER_LEN: usize = 128 * 1024;

/// Longest reply that is read; a longer one is no marker and no record of ours.
const REPLY_LEN_MAX: usize = 8 * 1024 * 1024;

/// Longest line: a status, a number or an error.
const LINE_LEN_MAX: usize = 4 * 1024;

/// One reply of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply<'a> {
    Nil,
    Text(&'a [u8]),
    Status(&'a [u8]),
    Integer(i64),
    Error(&'a [u8]),
}

impl Reply<'_> {
    /// What a script says that did something or did not.
    pub(super) fn flag(self) -> Option<bool> {
        match self {
            Self::Integer(done @ (0 | 1)) => Some(done == 1),
            Self::Integer(_) | Self::Nil | Self::Text(_) | Self::Status(_) | Self::Error(_) => None,
        }
    }
}

/// Appends a command of these words.
pub(super) fn write_command(words: &[&[u8]], out: &mut Vec<u8>) {
    out.push(b'*');
    out.extend_from_slice(itoa::Buffer::new().format(words.len()).as_bytes());
    out.extend_from_slice(b"\r\n");
    for word in words {
        write_word_len(word.len(), out);
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends what stands before a word of `len` bytes.
pub(super) fn write_word_len(len: usize, out: &mut Vec<u8>) {
    out.push(b'$');
    out.extend_from_slice(itoa::Buffer::new().format(len).as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Nil,
    Text,
    Status,
    Integer,
    Error,
}

/// Where in the bytes a reply and its content stand.
#[derive(Debug, Clone, Copy)]
struct Frame {
    kind: Kind,
    start: usize,
    end: usize,
    /// Bytes of the whole reply.
    len: usize,
}

/// Replies as they arrive, in any pieces.
#[derive(Debug)]
pub(super) struct ReplyReader {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl ReplyReader {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; BUFFER_LEN], start: 0, end: 0 }
    }

    /// The next reply from `source`, which is read only when no whole reply is left over.
    pub(super) fn next<'a>(&'a mut self, source: &mut impl Read) -> Result<Reply<'a>, Failure> {
        let frame = loop {
            match scan(&self.bytes[self.start..self.end])? {
                Some(frame) => break frame,
                None => self.fill(source)?,
            }
        };
        let content = &self.bytes[self.start + frame.start..self.start + frame.end];
        self.start += frame.len;
        Ok(match frame.kind {
            Kind::Nil => Reply::Nil,
            Kind::Text => Reply::Text(content),
            Kind::Status => Reply::Status(content),
            Kind::Error => Reply::Error(content),
            Kind::Integer => Reply::Integer(parse_integer(content)?),
        })
    }

    /// Whether a part of a reply is left over, or a reply that nobody asked for.
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Reads once. What is left over is less than one reply, so moving it to the front costs nothing.
    fn fill(&mut self, source: &mut impl Read) -> Result<(), Failure> {
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end == self.bytes.len() {
            if self.end >= REPLY_LEN_MAX {
                return Err(Failure::malformed("a reply is longer than any marker or record"));
            }
            self.bytes.resize(self.end * 2, 0);
        }
        let count = loop {
            match source.read(&mut self.bytes[self.end..]) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Failure::io(&error)),
                Ok(0) => return Err(Failure::lost("the server closed the connection")),
                Ok(count) => break count,
            }
        };
        self.end += count;
        Ok(())
    }
}

/// The reply at the start of `bytes`, or none if it is not complete.
#[inline]
fn scan(bytes: &[u8]) -> Result<Option<Frame>, Failure> {
    // The reply to a claim of a new record.
    if bytes.starts_with(b"$-1\r\n") {
        return Ok(Some(Frame { kind: Kind::Nil, start: 0, end: 0, len: 5 }));
    }
    let Some(&first) = bytes.first() else {
        return Ok(None);
    };
    let kind = match first {
        b'$' => Kind::Text,
        b'+' => Kind::Status,
        b'-' => Kind::Error,
        b':' => Kind::Integer,
        _ => return Err(Failure::malformed("a reply is of no kind that was asked for")),
    };
    let Some(line_end) = find_line_end(bytes)? else {
        return Ok(None);
    };
    let after_line = line_end + 2;
    if kind != Kind::Text {
        return Ok(Some(Frame { kind, start: 1, end: line_end, len: after_line }));
    }
    let content_len = parse_len(&bytes[1..line_end])?;
    let end = after_line + content_len;
    match bytes.get(end..end + 2) {
        None => Ok(None),
        Some(b"\r\n") => Ok(Some(Frame { kind, start: after_line, end, len: end + 2 })),
        Some(_) => Err(Failure::malformed("a reply is not as long as it says")),
    }
}

/// Where the line at the start of `bytes` ends, or none if it has not come yet.
fn find_line_end(bytes: &[u8]) -> Result<Option<usize>, Failure> {
    match memchr::memchr(b'\r', bytes) {
        Some(end) if end > LINE_LEN_MAX => Err(Failure::malformed("a line of a reply is too long")),
        Some(end) => match bytes.get(end + 1) {
            None => Ok(None),
            Some(b'\n') => Ok(Some(end)),
            Some(_) => Err(Failure::malformed("a line of a reply has no proper end")),
        },
        None if bytes.len() > LINE_LEN_MAX => Err(Failure::malformed("a line of a reply is too long")),
        None => Ok(None),
    }
}

fn parse_len(digits: &[u8]) -> Result<usize, Failure> {
    let too_long = || Failure::malformed("the length of a reply is no number, or too large");
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return Err(too_long());
    }
    let len = digits.iter().fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0'));
    if len <= REPLY_LEN_MAX { Ok(len) } else { Err(too_long()) }
}

fn parse_integer(text: &[u8]) -> Result<i64, Failure> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| Failure::malformed("a number in a reply is none"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A source that gives its bytes in pieces.
    struct Pieces<'a> {
        bytes: &'a [u8],
        sizes: Vec<usize>,
    }

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let size = self.sizes.pop().unwrap_or(1).min(self.bytes.len()).min(buffer.len());
            let (now, later) = self.bytes.split_at(size);
            buffer[..size].copy_from_slice(now);
            self.bytes = later;
            Ok(size)
        }
    }

    #[derive(Debug, Clone, PartialEq)]
    enum Owned {
        Nil,
        Text(Vec<u8>),
        Status(String),
        Integer(i64),
        Error(String),
    }

    fn own(reply: Reply<'_>) -> Owned {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        match reply {
            Reply::Nil => Owned::Nil,
            Reply::Text(bytes) => Owned::Text(bytes.to_vec()),
            Reply::Status(bytes) => Owned::Status(text(bytes)),
            Reply::Integer(number) => Owned::Integer(number),
            Reply::Error(bytes) => Owned::Error(text(bytes)),
        }
    }

    fn write_reply(reply: &Owned, out: &mut Vec<u8>) {
        match reply {
            Owned::Nil => out.extend_from_slice(b"$-1"),
            Owned::Text(bytes) => {
                write_word_len(bytes.len(), out);
                out.extend_from_slice(bytes);
            }
            Owned::Status(line) => out.extend_from_slice(format!("+{line}").as_bytes()),
            Owned::Integer(number) => out.extend_from_slice(format!(":{number}").as_bytes()),
            Owned::Error(line) => out.extend_from_slice(format!("-{line}").as_bytes()),
        }
        out.extend_from_slice(b"\r\n");
    }

    fn reply() -> impl Strategy<Value = Owned> {
        prop_oneof![
            4 => Just(Owned::Nil),
            4 => proptest::collection::vec(any::<u8>(), 0..200).prop_map(Owned::Text),
            1 => "[ -~]{0,40}".prop_map(Owned::Status),
            1 => any::<i64>().prop_map(Owned::Integer),
            1 => "[A-Z]{1,12} [ -~]{0,40}".prop_map(Owned::Error),
        ]
    }

    proptest! {
        #[test]
        fn replies_come_back_whatever_pieces_they_arrive_in(
            replies in proptest::collection::vec(reply(), 0..40),
            sizes in proptest::collection::vec(1_usize..300, 0..200),
            buffer_len in 1_usize..64,
        ) {
            let mut bytes = Vec::new();
            replies.iter().for_each(|reply| write_reply(reply, &mut bytes));
            let mut source = Pieces { bytes: &bytes, sizes };
            let mut reader = ReplyReader { bytes: vec![0; buffer_len], start: 0, end: 0 };
            for reply in &replies {
                prop_assert_eq!(&own(reader.next(&mut source).unwrap()), reply);
            }
            prop_assert!(reader.next(&mut source).is_err(), "the source has ended");
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn no_bytes_are_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let mut source = Pieces { bytes: &bytes, sizes: vec![] };
            let mut reader = ReplyReader::new();
            while reader.next(&mut source).is_ok() {}
        }
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        for bytes in [
            "*1\r\n$1\r\na\r\n",
            "%1\r\n",
            "$-2\r\n",
            "$\r\n",
            "$1x\r\n",
            "$99999999\r\n",
            "$1\r\nab\r\n",
            "$-1\rx",
            ":\r\n",
            ":1x\r\n",
            &format!("+{}", "x".repeat(LINE_LEN_MAX + 1)),
        ] {
            let mut source = Pieces { bytes: bytes.as_bytes(), sizes: vec![bytes.len()] };
            let failure = ReplyReader::new().next(&mut source).unwrap_err();
            assert!(matches!(failure, Failure::Lost { .. }), "{bytes:?}: {failure:?}");
            assert!(!format!("{failure:?}").contains("closed"), "{bytes:?}: {failure:?}");
        }
    }

    #[test]
    fn a_long_value_is_read_and_one_beyond_the_limit_is_not() {
        let mut bytes = Vec::new();
        write_reply(&Owned::Text(vec![b'x'; BUFFER_LEN * 3]), &mut bytes);
        let mut source = Pieces { bytes: &bytes, sizes: vec![bytes.len(); 20] };
        assert!(matches!(ReplyReader::new().next(&mut source), Ok(Reply::Text(text)) if text.len() == BUFFER_LEN * 3));
        let header = format!("${}\r\n", REPLY_LEN_MAX + 1);
        let mut source = Pieces { bytes: header.as_bytes(), sizes: vec![64] };
        assert!(ReplyReader::new().next(&mut source).is_err());
    }

    #[test]
    fn commands_are_lists_of_words() {
        let mut out = Vec::new();
        write_command(&[b"GET", b"a key"], &mut out);
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$5\r\na key\r\n");
    }
}
