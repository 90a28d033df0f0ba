//! What a run is called: the same feed, read the same way, is the same run on any host.

use crate::domain::{CANONICAL_VERSION, Digest, RunId};

/// The id of pass `pass` over the feed of this digest, read with `meaning`, under `prefix`.
pub fn derived_run_id(feed: &Digest, meaning: &Digest, prefix: &str, pass: u32) -> RunId {
    let parts = format!("feeddedup run {CANONICAL_VERSION}\n{feed}\n{meaning}\n{pass}\n{prefix}");
    let digits = Digest::of(parts.as_bytes()).to_string();
    RunId::parse(&format!("r-{}", &digits[..32])).expect("`r-` and 32 digits are a run id")
}

/// The id of pass `pass` of the run that the operator called `name`: `name`, `name.2`, and so on.
///
/// A name too long for the suffix is cut, as the id's length is bounded.
pub fn nth_pass(name: &RunId, pass: u32) -> RunId {
    if pass == 1 {
        return name.clone();
    }
    let suffix = format!(".{pass}");
    let kept = name.as_str().len().min(64 - suffix.len());
    let text = format!("{}{suffix}", &name.as_str()[..kept]);
    RunId::parse(&text).expect("a run id with a number behind it is a run id")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_changes_what_a_feed_means_changes_the_run() {
        let id = |feed: &[u8], meaning: &[u8], prefix: &str, pass| {
            derived_run_id(&Digest::of(feed), &Digest::of(meaning), prefix, pass)
        };
        let base = id(b"f", b"m", "p:", 1);
        assert_eq!(base, id(b"f", b"m", "p:", 1));
        for other in
            [id(b"g", b"m", "p:", 1), id(b"f", b"n", "p:", 1), id(b"f", b"m", "q:", 1), id(b"f", b"m", "p:", 2)]
        {
            assert_ne!(base, other);
        }
        assert_eq!(base.as_str().len(), 34);
    }

    #[test]
    fn later_passes_of_a_named_run_are_numbered() {
        let name = RunId::parse("july").unwrap();
        assert_eq!(nth_pass(&name, 1).as_str(), "july");
        assert_eq!(nth_pass(&name, 12).as_str(), "july.12");
        let long = RunId::parse(&"x".repeat(64)).unwrap();
        assert_eq!(nth_pass(&long, 2).as_str().len(), 64);
    }
}
