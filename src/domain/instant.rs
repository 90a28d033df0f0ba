//! What an instant looks like where it is text for people: in markers and in audit logs.

/// Whether `text` is `YYYY-MM-DDTHH:MM:SS[.fraction][Z|±HH:MM|±HHMM|±HH]`.
///
/// The offset may be missing, since plain writers often leave it out; the time is for people, nothing is computed of it.
pub fn is_iso_instant(text: &[u8]) -> bool {
    const SHAPE: &[u8] = b"0000-00-00T00:00:00";
    let Some((start, rest)) = text.split_at_checked(SHAPE.len()) else {
        return false;
    };
    let fits = |(&byte, &shape): (&u8, &u8)| if shape == b'0' { byte.is_ascii_digit() } else { byte == shape };
    if !start.iter().zip(SHAPE).all(fits) {
        return false;
    }
    let pair = |at: usize| (start[at] - b'0') * 10 + (start[at + 1] - b'0');
    let in_range = (1..=12).contains(&pair(5))
        && (1..=31).contains(&pair(8))
        && pair(11) <= 23
        && pair(14) <= 59
        && pair(17) <= 60;
    let offset = match rest.strip_prefix(b".") {
        None => rest,
        Some(fraction) => {
            let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if digits == 0 {
                return false;
            }
            &fraction[digits..]
        }
    };
    in_range && is_offset(offset)
}

/// Whether `text` is the offset of an ISO time, or none.
fn is_offset(text: &[u8]) -> bool {
    let digit = |byte: &u8| byte.is_ascii_digit();
    match text {
        [] | [b'Z'] => true,
        [b'+' | b'-', rest @ ..] => match rest {
            [hours @ .., b':', m1, m2] => hours.len() == 2 && hours.iter().chain([m1, m2]).all(digit),
            plain => matches!(plain.len(), 2 | 4) && plain.iter().all(digit),
        },
        _ => false,
    }
}
