//! Exact totals: control totals must never round and never overflow.

use std::collections::BTreeMap;

use num_bigint::BigInt;

use super::amount::write_decimal;
use super::{Amount, Currency};

/// The exact sum of any number of amounts of one currency and sign.
///
/// A sum is kept for each scale: 28 digits a summand leave room for 10^10 of them in 128 bits, and the scales meet
/// only when the total is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Total {
    by_scale: Vec<(u32, i128)>,
}

impl Total {
    fn add(&mut self, scale: u32, mantissa: i128) {
        match self.by_scale.iter_mut().find(|(known, _)| *known == scale) {
            Some((_, sum)) => *sum = sum.checked_add(mantissa).expect("10^10 amounts of 28 digits fit 128 bits"),
            None => self.by_scale.push((scale, mantissa)),
        }
    }

    /// The total as one integer at `scale`, which no summand exceeds.
    fn at_scale(&self, scale: u32) -> BigInt {
        self.by_scale.iter().map(|(own, sum)| BigInt::from(*sum) * BigInt::from(10).pow(scale - own)).sum()
    }

    /// Whether both totals are the same number.
    pub fn equals(&self, other: &Self) -> bool {
        let scale = self.scale_max().max(other.scale_max());
        self.at_scale(scale) == other.at_scale(scale)
    }

    fn scale_max(&self) -> u32 {
        self.by_scale.iter().map(|(scale, _)| *scale).max().unwrap_or(0)
    }

    fn text(&self, decimals_min: u32) -> String {
        let scale = self.scale_max();
        let sum = self.at_scale(scale);
        let mut digits = sum.magnitude().to_str_radix(10).into_bytes();
        let mut kept = scale as usize;
        while kept > decimals_min as usize && digits.last() == Some(&b'0') && !digits.is_empty() {
            digits.pop();
            kept -= 1;
        }
        let mut out = Vec::new();
        if sum.sign() == num_bigint::Sign::Minus {
            out.push(b'-');
        }
        write_decimal(&digits, kept, decimals_min as usize, &mut out);
        String::from_utf8(out).expect("a decimal is ASCII")
    }
}

/// Sums by currency and sign.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Money {
    sums: Vec<(Currency, [Total; 2])>,
}

impl Money {
    /// Adds one amount.
    pub fn add(&mut self, currency: Currency, amount: Amount) {
        self.totals_of(currency)[usize::from(amount.is_negative())].add(amount.scale(), amount.mantissa());
    }

    /// Adds all of `other`.
    pub fn add_all(&mut self, other: &Self) {
        for (currency, totals) in &other.sums {
            let own = self.totals_of(*currency);
            for (sum, more) in own.iter_mut().zip(totals) {
                more.by_scale.iter().for_each(|(scale, mantissa)| sum.add(*scale, *mantissa));
            }
        }
    }

    fn totals_of(&mut self, currency: Currency) -> &mut [Total; 2] {
        let place = match self.sums.iter().position(|(known, _)| *known == currency) {
            Some(place) => place,
            None => {
                self.sums.push((currency, Default::default()));
                self.sums.len() - 1
            }
        };
        &mut self.sums[place].1
    }

    /// Whether both hold the same totals for every currency and sign.
    pub fn equals(&self, other: &Self) -> bool {
        let nothing = <[Total; 2]>::default();
        let in_other = |currency| other.sums.iter().find(|(known, _)| known == currency).map_or(&nothing, |(_, t)| t);
        let in_self = |currency| self.sums.iter().find(|(known, _)| known == currency).map_or(&nothing, |(_, t)| t);
        let same = |a: &[Total; 2], b: &[Total; 2]| a[0].equals(&b[0]) && a[1].equals(&b[1]);
        self.sums.iter().all(|(currency, totals)| same(totals, in_other(currency)))
            && other.sums.iter().all(|(currency, totals)| same(totals, in_self(currency)))
    }

    /// The net total of `currency`; zero where no amount of it was added.
    pub fn net(&self, currency: Currency) -> Total {
        let mut net = Total::default();
        for (_, totals) in self.sums.iter().filter(|(known, _)| *known == currency) {
            totals.iter().flat_map(|total| &total.by_scale).for_each(|(scale, sum)| net.add(*scale, *sum));
        }
        net
    }

    /// By currency, in order: what came in and what went out, as decimal text.
    pub fn by_currency(&self) -> BTreeMap<Currency, (String, String)> {
        let text = |currency: &Currency, total: &Total| total.text(currency.minor_units());
        self.sums.iter().map(|(c, [incoming, outgoing])| (*c, (text(c, incoming), text(c, outgoing)))).collect()
    }

    /// `total` as decimal text with the decimals of `currency`.
    pub fn text_of(currency: Currency, total: &Total) -> String {
        total.text(currency.minor_units())
    }
}

impl From<Amount> for Total {
    fn from(amount: Amount) -> Self {
        Self { by_scale: vec![(amount.scale(), amount.mantissa())] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn money(amounts: &[(&str, &str)]) -> Money {
        let mut money = Money::default();
        for (currency, amount) in amounts {
            money.add(Currency::parse(currency).unwrap(), Amount::parse(amount).unwrap());
        }
        money
    }

    #[test]
    fn totals_are_exact_across_the_whole_range() {
        let big = "9999999999999999999999999999";
        let small = "0.000000000000000000000000001";
        let total = money(&[("USD", big), ("USD", big), ("USD", small), ("USD", "-1.5")]);
        let (incoming, outgoing) = total.by_currency()[&Currency::parse("USD").unwrap()].clone();
        assert_eq!(incoming, "19999999999999999999999999998.000000000000000000000000001");
        assert_eq!(outgoing, "-1.50");
        let net = total.net(Currency::parse("USD").unwrap());
        assert_eq!(net.text(2), "19999999999999999999999999996.500000000000000000000000001");
    }

    #[test]
    fn zeros_at_the_end_do_not_make_a_total_another() {
        let halves = money(&[("EUR", "0.5"), ("EUR", "0.5"), ("JPY", "3")]);
        let whole = money(&[("JPY", "3"), ("EUR", "0.25"), ("EUR", "0.75")]);
        assert!(halves.equals(&whole));
        assert_eq!(halves.by_currency()[&Currency::parse("EUR").unwrap()].0, "1.00");
        assert!(!halves.equals(&money(&[("EUR", "1")])));
        assert!(money(&[("EUR", "0")]).equals(&Money::default()));
    }

    #[test]
    fn what_is_added_in_parts_is_what_is_added_at_once() {
        let mut parts = money(&[("EUR", "1.10"), ("USD", "-2")]);
        parts.add_all(&money(&[("EUR", "-0.001"), ("USD", "5")]));
        assert!(parts.equals(&money(&[("USD", "5"), ("EUR", "-0.001"), ("EUR", "1.1"), ("USD", "-2")])));
    }
}
