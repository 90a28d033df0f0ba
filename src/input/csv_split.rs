//! Where a CSV record ends, and whether its quote marks can be believed.
//!
//! Lenient parsers turn one stray quote mark into a record that swallows its neighbours. Here such a record is
//! broken: only its first physical line is given up, and reading goes on with the next.

use super::lines::{RECORD_BYTES_MAX, TOO_LONG, line_end_after, physical_line};

/// How a feed marks fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dialect {
    pub(super) delimiter: u8,
    pub(super) quote: u8,
}

/// What stands at the start of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Split {
    /// A record: its length without and with the line end, and whether a field of it is quoted.
    Record { content_len: usize, len: usize, is_quoted: bool },
    /// A record whose quoting is wrong in field `field_index`: the length of its first physical line.
    Broken { len: usize, field_index: usize, reason: &'static str },
    /// More bytes are needed.
    Incomplete,
    /// A physical line that goes on beyond the limit: this is no statement.
    Endless,
}

/// Splits the first record off `bytes`, in a feed of `columns` columns (0 if that is not known yet).
///
/// Some record is always found when `is_last` is set or the bytes exceed the limit of a record.
pub(super) fn split(bytes: &[u8], is_last: bool, dialect: Dialect, columns: usize) -> Split {
    let is_full = bytes.len() > RECORD_BYTES_MAX;
    let Some((content_len, len)) = physical_line(bytes, is_last) else {
        return if is_full { Split::Endless } else { Split::Incomplete };
    };
    let first_line = &bytes[..content_len];
    if memchr::memchr(dialect.quote, first_line).is_none() {
        return if content_len > RECORD_BYTES_MAX {
            too_long(len)
        } else {
            Split::Record { content_len, len, is_quoted: false }
        };
    }
    match scan_fields(bytes, is_last, dialect) {
        Ok(content_len) => {
            if melts_records(&bytes[..content_len], dialect, columns) {
                // The field that the first line leaves open.
                let field_index = match scan_fields(first_line, true, dialect) {
                    Err(Fault::Broken { field_index, .. } | Fault::Unclosed { field_index }) => field_index,
                    Ok(_) => 0,
                };
                return Split::Broken {
                    len,
                    field_index,
                    reason: "a quoted text runs on over what reads as another record",
                };
            }
            let end = if content_len == bytes.len() {
                if is_last { Some(content_len) } else { None }
            } else {
                line_end_after(bytes, content_len, is_last)
            };
            match end {
                Some(end) if content_len <= RECORD_BYTES_MAX => {
                    Split::Record { content_len, len: end, is_quoted: true }
                }
                Some(_) => too_long(len),
                None if is_full => too_long(len),
                None => Split::Incomplete,
            }
        }
        Err(Fault::Broken { field_index, reason }) => Split::Broken { len, field_index, reason },
        Err(Fault::Unclosed { field_index }) if is_last || is_full => {
            Split::Broken { len, field_index, reason: "a quote mark opens a text and none closes it" }
        }
        Err(Fault::Unclosed { .. }) => Split::Incomplete,
    }
}

fn too_long(len: usize) -> Split {
    Split::Broken { len, field_index: 0, reason: TOO_LONG }
}

enum Fault {
    Broken {
        field_index: usize,
        reason: &'static str,
    },
    /// The bytes end inside a quoted text.
    Unclosed {
        field_index: usize,
    },
}

/// The length of the record at the start of `bytes`, without its line end.
fn scan_fields(bytes: &[u8], is_last: bool, dialect: Dialect) -> Result<usize, Fault> {
    let mut at = 0;
    for field_index in 0.. {
        if bytes.get(at) == Some(&dialect.quote) {
            at = closing_quote(bytes, at + 1, dialect.quote).ok_or(Fault::Unclosed { field_index })? + 1;
            if at == bytes.len() && !is_last {
                // A second quote mark may follow, which would go on with the text.
                return Err(Fault::Unclosed { field_index });
            }
            // Blanks that pad a quoted text are harmless; anything else behind it is not.
            at += bytes[at..].iter().take_while(|&&b| b == b' ' && b != dialect.delimiter).count();
            let is_end = |b: &u8| *b == dialect.delimiter || matches!(b, b'\n' | b'\r');
            if !bytes.get(at).is_none_or(is_end) {
                let reason = "text stands behind a closing quote mark";
                return Err(Fault::Broken { field_index, reason });
            }
        } else {
            at += memchr::memchr3(dialect.delimiter, b'\n', b'\r', &bytes[at..]).unwrap_or(bytes.len() - at);
        }
        if bytes.get(at) != Some(&dialect.delimiter) {
            return Ok(at);
        }
        at += 1;
    }
    unreachable!("the loop ends where the bytes do")
}

/// Where the text that starts at `from` is closed; two quote marks stand for one.
fn closing_quote(bytes: &[u8], mut from: usize, quote: u8) -> Option<usize> {
    loop {
        let at = from + memchr::memchr(quote, bytes.get(from..)?)?;
        if bytes.get(at + 1) != Some(&quote) {
            return Some(at);
        }
        from = at + 2;
    }
}

/// Whether a record over several physical lines is really several that a stray quote mark melts into one.
///
/// Quoting alone cannot tell: two rows with one stray mark each melt into a record with the right number of fields.
/// So it is a matter of shape: the first line and a later one have every delimiter of a record of their own. A note
/// over several lines that happens to look so is rejected, never guessed at.
fn melts_records(record: &[u8], dialect: Dialect, columns: usize) -> bool {
    let is_whole = |line: &[u8]| count(line, dialect.delimiter) + 1 >= columns;
    let mut lines = record.split(|b| matches!(b, b'\n' | b'\r'));
    columns > 1 && lines.next().is_some_and(is_whole) && lines.any(is_whole)
}

fn count(bytes: &[u8], byte: u8) -> usize {
    memchr::memchr_iter(byte, bytes).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMA: Dialect = Dialect { delimiter: b',', quote: b'"' };

    /// The records of `feed`, each with a mark in front: `=` for a record, `!` for a broken one.
    fn check(feed: &str, columns: usize) -> Vec<String> {
        let mut rest = feed.as_bytes();
        let mut found = Vec::new();
        while !rest.is_empty() {
            let (mark, len) = match split(rest, true, COMMA, columns) {
                Split::Record { len, .. } => ('=', len),
                Split::Broken { len, .. } => ('!', len),
                Split::Incomplete | Split::Endless => panic!("the last bytes are complete"),
            };
            found.push(format!("{mark}{}", std::str::from_utf8(&rest[..len]).unwrap()));
            rest = &rest[len..];
        }
        found
    }

    #[test]
    fn records_end_at_line_ends_outside_quotes() {
        assert_eq!(check("a,b\r\nc,d\re,\"f\ng\"\nh,i", 2), ["=a,b\r\n", "=c,d\r", "=e,\"f\ng\"\n", "=h,i"]);
        assert_eq!(check("a,\"x\"\"y\"\n\"\",b\n", 2), ["=a,\"x\"\"y\"\n", "=\"\",b\n"]);
        assert_eq!(check("a,\"x\"  ,c\n", 3), ["=a,\"x\"  ,c\n"]);
    }

    #[test]
    fn a_stray_quote_costs_its_own_line_only() {
        assert_eq!(check("1,\"oops,5\n2,b,6\n3,c,7\n", 3), ["!1,\"oops,5\n", "=2,b,6\n", "=3,c,7\n"]);
        assert_eq!(check("1,\"a \"b\" c\",5\n2,b,6\n", 3), ["!1,\"a \"b\" c\",5\n", "=2,b,6\n"]);
    }

    #[test]
    fn two_stray_quotes_do_not_melt_their_rows() {
        let melted = "1,\"ACME,5\n2,SHOP\",6\n3,c,7\n";
        assert_eq!(check(melted, 3), ["!1,\"ACME,5\n", "=2,SHOP\",6\n", "=3,c,7\n"]);
        assert_eq!(check("\"A,1,5\n2\",x,6\n", 3), ["!\"A,1,5\n", "=2\",x,6\n"]);
    }

    #[test]
    fn a_note_over_several_lines_is_one_record() {
        assert_eq!(check("1,2,\"line1\nline2\nline3\",v\n", 4), ["=1,2,\"line1\nline2\nline3\",v\n"]);
        assert_eq!(check("\"a\nb\",x,y\n", 3), ["=\"a\nb\",x,y\n"]);
    }

    #[test]
    fn nothing_is_decided_before_the_bytes_are_there() {
        for cut in 1.."1,\"a\"\"b\",2\r\n".len() {
            let part = &"1,\"a\"\"b\",2\r\nx"[..cut];
            assert_eq!(split(part.as_bytes(), false, COMMA, 3), Split::Incomplete, "{part:?}");
        }
    }
}
