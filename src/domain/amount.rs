//! `Amount`: an exact decimal and its one canonical spelling.

use rust_decimal::Decimal;

/// Most digits of an amount, before and behind the point together.
const DIGITS_MAX: usize = 28;

/// ISO 4217 minor units that are not two, frozen for version 1.
const MINOR_UNITS: [(&[u8], u32); 3] =
    [(b"BIFCLPDJFGNFISKJPYKMFKRWPYGRWFUGXUYIVNDVUVXAFXOFXPF", 0), (b"BHDIQDJODKWDLYDOMRTND", 3), (b"CLFUYW", 4)];

/// Three letters A to Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Currency([u8; 3]);

impl Currency {
    /// The code in `text`, which is trimmed already; upper-cased as version 1 demands, or `None`.
    pub fn parse(text: &str) -> Option<Self> {
        let upper;
        let bytes = if text.is_ascii() {
            text.as_bytes()
        } else {
            // Some letters have an upper case within A to Z; version 1 takes them.
            upper = text.to_uppercase();
            upper.as_bytes()
        };
        let code: [u8; 3] = bytes.try_into().ok()?;
        let code = code.map(|b| b.to_ascii_uppercase());
        code.iter().all(u8::is_ascii_uppercase).then_some(Self(code))
    }

    /// The code as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("a currency is three ASCII letters")
    }

    /// The three letters, upper-case.
    pub(super) fn as_bytes(&self) -> &[u8; 3] {
        &self.0
    }

    /// How many decimals the currency is written with.
    pub fn minor_units(&self) -> u32 {
        let listed = MINOR_UNITS.iter().find(|(codes, _)| codes.chunks_exact(3).any(|code| code == self.0));
        listed.map_or(2, |(_, units)| *units)
    }
}

/// An exact decimal of at most 28 digits, without zeros at the end and without a negative zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Amount(Decimal);

impl Amount {
    /// Reads `[+-]digits[.digits]`, ASCII digits only, each part of at most 28; `None` for anything else.
    ///
    /// The grammar stands here because `Decimal::from_str` also takes `1_000`, `.5` and `1e3`, and rounds.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let (negative, digits) = match bytes.first()? {
            b'-' => (true, &bytes[1..]),
            b'+' => (false, &bytes[1..]),
            _ => (false, bytes),
        };
        let point = memchr::memchr(b'.', digits).unwrap_or(digits.len());
        let (whole, fraction) = (&digits[..point], digits.get(point + 1..));
        if whole.is_empty() || whole.len() > DIGITS_MAX || !whole.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let fraction = match fraction {
            None => &[][..],
            Some(part) if part.is_empty() || part.len() > DIGITS_MAX || !part.iter().all(u8::is_ascii_digit) => {
                return None;
            }
            Some(part) => &part[..part.iter().rposition(|&b| b != b'0').map_or(0, |last| last + 1)],
        };
        let significant = whole.iter().position(|&b| b != b'0').map_or(1, |first| whole.len() - first);
        if significant + fraction.len() > DIGITS_MAX {
            return None;
        }
        let mantissa = mantissa_of(whole, fraction);
        let signed = if negative { -mantissa } else { mantissa };
        let scale = u32::try_from(fraction.len()).ok()?;
        Decimal::try_from_i128_with_scale(signed, scale).ok().map(Self)
    }

    /// The digits without their point, with the sign.
    pub fn mantissa(&self) -> i128 {
        self.0.mantissa()
    }

    /// How many of the digits stand behind the point.
    pub fn scale(&self) -> u32 {
        self.0.scale()
    }

    /// Whether money leaves the account.
    pub fn is_negative(&self) -> bool {
        self.mantissa() < 0
    }

    /// Appends the canonical spelling: at least the currency's decimals, no zeros past them, no plus, no minus zero.
    pub fn write_canonical(&self, currency: Currency, out: &mut Vec<u8>) {
        let mantissa = self.mantissa();
        if mantissa < 0 {
            out.push(b'-');
        }
        let mut buffer = itoa::Buffer::new();
        let digits = match u64::try_from(mantissa.unsigned_abs()) {
            Ok(short) => buffer.format(short),
            Err(_) => buffer.format(mantissa.unsigned_abs()),
        }
        .as_bytes();
        write_decimal(digits, self.scale() as usize, currency.minor_units() as usize, out);
    }
}

/// The integer whose digits are `whole` followed by `fraction`, at most 28 of them significant.
fn mantissa_of(whole: &[u8], fraction: &[u8]) -> i128 {
    if whole.len() + fraction.len() <= 18 {
        let short = whole.iter().chain(fraction).fold(0_i64, |sum, b| sum * 10 + i64::from(b - b'0'));
        return i128::from(short);
    }
    whole.iter().chain(fraction).fold(0_i128, |sum, b| sum * 10 + i128::from(b - b'0'))
}

/// Appends `digits` with a point before the last `scale` of them, padded to at least `decimals_min` decimals.
pub(super) fn write_decimal(digits: &[u8], scale: usize, decimals_min: usize, out: &mut Vec<u8>) {
    if digits.len() > scale {
        out.extend_from_slice(&digits[..digits.len() - scale]);
    } else {
        out.push(b'0');
    }
    let decimals = scale.max(decimals_min);
    if decimals == 0 {
        return;
    }
    out.push(b'.');
    let fraction = &digits[digits.len().saturating_sub(scale)..];
    out.resize(out.len() + (scale - fraction.len()), b'0');
    out.extend_from_slice(fraction);
    out.resize(out.len() + (decimals - scale), b'0');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str, currency: &str) -> Option<String> {
        let mut out = Vec::new();
        Amount::parse(text)?.write_canonical(Currency::parse(currency)?, &mut out);
        Some(String::from_utf8(out).unwrap())
    }

    #[test]
    fn spellings_of_one_amount_have_one_canonical_form() {
        for (text, currency, expected) in [
            ("100.5", "USD", Some("100.50")),
            ("100.5000", "USD", Some("100.50")),
            ("+007", "USD", Some("7.00")),
            ("-0.00", "USD", Some("0.00")),
            ("1250.00", "JPY", Some("1250")),
            ("0.005", "USD", Some("0.005")),
            ("-0.5", "BHD", Some("-0.500")),
            ("9999999999999999999999999999", "USD", Some("9999999999999999999999999999.00")),
            ("0.0000000000000000000000000001", "USD", None),
            ("1e3", "USD", None),
            ("1_000", "USD", None),
            (".5", "USD", None),
            ("5.", "USD", None),
            ("", "USD", None),
            ("-", "USD", None),
            ("1.2.3", "USD", None),
            ("00000000000000000000000000001", "USD", None),
        ] {
            assert_eq!(canonical(text, currency).as_deref(), expected, "{text} {currency}");
        }
    }

    #[test]
    fn currencies_are_three_letters_in_upper_case() {
        assert_eq!(Currency::parse("eur").unwrap().as_str(), "EUR");
        assert_eq!(Currency::parse("\u{17f}ek").unwrap().as_str(), "SEK", "the long s is an S in upper case");
        assert!(["", "EU", "EURO", "E1R", "E R", "€"].iter().all(|text| Currency::parse(text).is_none()));
    }
}
