//! Numbers as people read them.

/// `number` in groups of three digits.
pub(super) fn grouped(number: u64) -> String {
    in_threes(&number.to_string())
}

fn in_threes(digits: &str) -> String {
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<&str> = groups.map(|group| std::str::from_utf8(group).expect("digits are ASCII")).collect();
    groups.join(",")
}

/// `1 record`, `1,000 records`.
pub(super) fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// Decimal text with its whole part in groups of three digits.
pub(super) fn grouped_decimal(text: &str) -> String {
    let whole_end = text.find('.').unwrap_or(text.len());
    let (whole, fraction) = text.split_at(whole_end);
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    format!("{sign}{}{fraction}", in_threes(digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_stand_in_threes() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
        assert_eq!(counted(1, "record"), "1 record");
        assert_eq!(grouped_decimal("-1234567.8901"), "-1,234,567.8901");
        assert_eq!(grouped_decimal("12"), "12");
    }
}
