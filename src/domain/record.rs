//! A record before it has a canonical form, and why it may never get one.

/// The five fields of a record as its feed spells them, decoded to text and not yet trimmed.
#[derive(Debug, Clone, Copy)]
pub struct RawRecord<'a> {
    pub account_id: &'a str,
    pub bank_txn_id: &'a str,
    pub amount: &'a str,
    pub currency: &'a str,
    pub posted_at: &'a str,
}

/// A field of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Field {
    AccountId,
    BankTxnId,
    Amount,
    Currency,
    PostedAt,
}

impl Field {
    /// Every field, in the order in which feeds hand them over.
    pub const ALL: [Self; 5] = [Self::AccountId, Self::BankTxnId, Self::Amount, Self::Currency, Self::PostedAt];

    /// The field's name on the wire and in canonical feeds.
    pub fn name(self) -> &'static str {
        match self {
            Self::AccountId => "account_id",
            Self::BankTxnId => "bank_txn_id",
            Self::Amount => "amount",
            Self::Currency => "currency",
            Self::PostedAt => "posted_at",
        }
    }

    /// Why a value of this field has no canonical form.
    pub fn complaint(self) -> &'static str {
        match self {
            Self::AccountId => "the account id is empty",
            Self::BankTxnId => "the bank's transaction id is empty",
            Self::Amount => "the amount is not a decimal number of at most 28 digits",
            Self::Currency => "the currency is not a code of three letters",
            Self::PostedAt => "the posting date is not a date or time that exists",
        }
    }
}

/// Why a line of a feed is no record, and where in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectReason {
    /// The field at fault, where it is one of the five.
    pub field: Option<Field>,
    /// The column as the feed names it, where one is at fault. Never a value.
    pub column: Option<String>,
    /// What is wrong, in words for the operator. Never a value.
    pub reason: String,
}

impl RejectReason {
    /// A reason that concerns the line as a whole.
    pub fn of_line(reason: impl Into<String>) -> Self {
        Self { field: None, column: None, reason: reason.into() }
    }

    /// A reason that concerns one field, in the column that the feed names `column`.
    pub fn of_field(field: Field, column: Option<String>, reason: impl Into<String>) -> Self {
        Self { field: Some(field), column, reason: reason.into() }
    }
}
