//! Trimming as version 1 of the canonical form defines it.

/// Whether version 1 trims `c`: Unicode white space, and the four separator controls U+001C to U+001F.
///
/// Frozen. This is what Python's `str.strip` removes; Rust's own `char::is_whitespace` leaves the four controls.
fn is_blank(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

pub(super) fn trim(text: &str) -> &str {
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        // The common case: nothing to trim, and no characters to decode.
        (Some(b'!'..=b'~'), Some(b'!'..=b'~')) | (None, _) => text,
        _ => text.trim_matches(is_blank),
    }
}

#[cfg(test)]
mod tests {
    use super::trim;

    #[test]
    fn all_that_pythons_strip_removes_is_removed() {
        for blank in
            ['\t', '\n', '\u{b}', '\u{c}', '\r', '\u{1c}', '\u{1f}', ' ', '\u{85}', '\u{a0}', '\u{2028}', '\u{3000}']
        {
            assert_eq!(trim(&format!("{blank}a{blank}b{blank}")), format!("a{blank}b"), "{blank:?}");
        }
        assert_eq!(trim("\u{200b}a"), "\u{200b}a", "a zero-width space is no blank");
        assert_eq!(trim("  "), "");
        assert_eq!(trim(""), "");
    }
}
