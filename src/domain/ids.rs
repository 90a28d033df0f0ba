//! Names of runs. A trace id, a record's place in a run, is spelled `<run id>:<row>`.

use std::fmt;

/// Longest run id, in characters.
const RUN_ID_LEN_MAX: usize = 64;

/// `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(String);

/// What a run id must look like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunIdError;

impl fmt::Display for RunIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a run id starts with a letter or digit and has at most 64 letters, digits, `.`, `_` and `-`")
    }
}

impl std::error::Error for RunIdError {}

impl RunId {
    /// The run id `text`, if it is one.
    pub fn parse(text: &str) -> Result<Self, RunIdError> {
        let well_formed = text.len() <= RUN_ID_LEN_MAX
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        if well_formed { Ok(Self(text.to_owned())) } else { Err(RunIdError) }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_ids_keep_to_their_alphabet_and_length() {
        for good in ["r", "0", "r-0715", "A.b_c-9", &"x".repeat(64)] {
            assert!(RunId::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "-r", ".r", "a b", "a:b", "a|b", "ü", "a\n", &"x".repeat(65)] {
            assert!(RunId::parse(bad).is_err(), "{bad}");
        }
    }
}
